package server

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// An Option changes a server from its defaults. A nil one changes nothing, and so does an option
// that is given nil instead of a function, logger or observer.
type Option func(*options)

type options struct {
	limits       protocol.Options
	bounds       Limits // all that limits does not say
	identifier   func() string
	log          *slog.Logger
	place        func(*xds.Node, *xds.Type, string) string
	redactor     func(*xds.Node, *xds.Type, string) (string, bool)
	observer     Observer
	newest       func(ctx context.Context, known bool) error
	shared       Refusals
	writeTimeout time.Duration
	firstTimeout time.Duration
	readTimeout  time.Duration
	drainTime    time.Duration
	age          Age
	v2           bool
}

func defaults() options {
	o := options{
		identifier:   func() string { return "" },
		log:          slog.Default(),
		place:        func(*xds.Node, *xds.Type, string) string { return "" },
		writeTimeout: 20 * time.Second,
		firstTimeout: 15 * time.Second,
		readTimeout:  20 * time.Second,
		drainTime:    5 * time.Second,
	}
	WithLimits(DefaultLimits())(&o)
	return o
}

// WithIdentifier sets what responses say as control_plane.identifier: which
// replica, at which revision, answered. It is called for each response, by
// several goroutines. By default nothing is said.
func WithIdentifier(f func() string) Option {
	return func(o *options) {
		if f != nil {
			o.identifier = f
		}
	}
}

// WithLogger sets where the server logs; slog.Default() unless set. A NACK is
// one line of level WARN; those that give the same reason within 10 s after it
// are lines of level DEBUG, and together one of level WARN that counts them
// ("repeated"). Of all that is wrong with clients of an address 100 lines are written within
// 10 s, and 100 of those that are connected for more than a minute. That a client connects, leaves, or accepts what it refused before is
// a line of level INFO; of each kind there are 20 within 10 s, and one that counts the
// others. An ACK is one line of level DEBUG.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.log = cmp.Or(l, o.log) } }

// WithPlaces sets how the log says where a resource comes from, such as
// "clusters.yaml:12:3": f is given a node that has refused the resource of a type and
// name, and returns "" if it does not know. It is called by several goroutines, for at
// most 5 resources of each NACK. By default nothing is said.
func WithPlaces(f func(node *xds.Node, t *xds.Type, name string) string) Option {
	return func(o *options) {
		if f != nil {
			o.place = f
		}
	}
}

// WithRedactor sets what the texts of NACKs go through before the log and the observer are
// given them: f is given a node that has refused resources of a type, and what it says, of
// 16 KiB at most, and returns that without what nobody may see. With ok false nothing of it
// is shown. It is called by several goroutines, at once or within 10 s, when the text is a line
// of the log or for an observer that is not [Textless], and not for secrets (SDS), whose texts are
// always withheld. Dumps of resources are left out in any case, as far as they are known as
// such; by default that is all.
func WithRedactor(f func(node *xds.Node, t *xds.Type, text string) (shown string, ok bool)) Option {
	return func(o *options) { o.redactor = f }
}

// WithObserver sets who is told what happens on the streams. By default nobody
// is.
func WithObserver(obs Observer) Option { return func(o *options) { o.observer = obs } }

// WithNewest sets what is asked before a client is told anything that comes back to a stream and states what it has, which
// another server may have told it: f returns when the source is no older than what any server of the same configuration
// had when f was called. So nobody is told older content than it has. known says that the source has what the client states, or lately
// had it: then the answer matters little. An error ends the stream with UNAVAILABLE: its client keeps what it has, and tries again. f is called by many
// goroutines at once, each of a stream or a poll that waits for it, with its context: that of a poll lasts as long as that may be held, and a poll
// that gets an error has nothing new. By default nothing is asked.
func WithNewest(f func(ctx context.Context, known bool) error) Option {
	return func(o *options) { o.newest = f }
}

// Refusals remember which nodes have refused something of a type, and accepted nothing of it since. Their methods
// are called by many goroutines at once, and must not block.
type Refusals interface {
	Has(node, typeURL string) bool
	Refused(node, typeURL string)
	Accepted(node, typeURL string)
}

// WithRefusals shares with other servers what nodes have refused. A client that has refused a response states the version before
// when it comes back, and may have applied a part of what it refused: so equal versions prove nothing of it, on whichever server. By default a
// server remembers what it was told itself, which it does in any case.
func WithRefusals(r Refusals) Option {
	return func(o *options) { o.shared = r }
}

// WithWriteTimeout sets how long a client may read nothing of what it is sent: no 16
// KiB. Its stream then ends with DEADLINE_EXCEEDED. A client that reads slowly gets all.
// The default is 20 s.
func WithWriteTimeout(d time.Duration) Option { return func(o *options) { o.writeTimeout = d } }

// WithReadTimeout sets how long 64 KiB of a request, or the rest of it, may take to come; of
// several on a connection, their shares of that. The connection of a client that takes a
// quarter longer is closed; while others wait for room for their requests
// ([Limits.Unfinished]), that of one that sends less than 1 MiB in a second. The default is
// 20 s.
func WithReadTimeout(d time.Duration) Option { return func(o *options) { o.readTimeout = d } }

// WithFirstRequestTimeout sets how long a stream may be open before its first request
// has come, whole: nothing is known of its client until then, and a stream costs
// memory. One that takes longer ends with DEADLINE_EXCEEDED, unless its first request is
// large and coming on, for which it has 20 times as long at most. The default is 15 s.
func WithFirstRequestTimeout(d time.Duration) Option {
	return func(o *options) { o.firstTimeout = d }
}

// WithDrainTime sets over which time [Server.Drain] ends the streams, so that
// clients do not all reconnect elsewhere at once. The default is 5 s; zero ends
// all at once.
func WithDrainTime(d time.Duration) Option { return func(o *options) { o.drainTime = d } }

// WithRemovalGrace sets how long a stream of a single type keeps what resources
// of other types may refer to, after it is gone: other streams tell when nothing
// does, which this one cannot know. It is also how long a stream that resumes
// waits for types that are not open yet before it withdraws what they may refer
// to. The default is 5 s; zero: not at all.
func WithRemovalGrace(d time.Duration) Option {
	return func(o *options) {
		if o.limits.Grace = d; d == 0 {
			o.limits.Grace = -1
		}
	}
}

// WithForcedTTL tells delta clients the TTLs of resources though they do not
// announce that they support them: Envoy does, for listeners and clusters.
func WithForcedTTL() Option { return func(o *options) { o.limits.ForceTTL = true } }

// WithResourceErrors tells of names that do not exist in resource_errors, too
// (gRFC A88).
func WithResourceErrors() Option { return func(o *options) { o.limits.ResourceErrors = true } }

// WithV2 serves the method names of v2, the API before v3, too. Messages are the
// same on the wire. A type of v2, such as
// type.googleapis.com/envoy.api.v2.Cluster, is a type of its own: it is what is
// stored under its URL, and nothing is translated. The services of single types
// are of the type of v2, and of the one of v3 where a stream's first request asks
// for that. By default v3 alone is served.
func WithV2() Option { return func(o *options) { o.v2 = true } }
