package server

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// An Option sets a property of a server that [New] makes. A nil Option changes nothing. An option
// with a nil function, logger or observer does not change anything, either.
type Option func(*options)

type options struct {
	limits       protocol.Options
	bounds       Limits // the limits that are not in limits
	identifier   func() string
	log          *slog.Logger
	place        func(*xds.Node, *xds.Type, string) string
	suspects     func(node *xds.Node, t *xds.Type, names []string, text string) []Suspect // may be nil
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

// WithIdentifier sets the control_plane.identifier of responses, for example the name and revision
// of a replica. Many goroutines call the function, once for each response. By default responses
// have no identifier.
func WithIdentifier(f func() string) Option {
	return func(o *options) {
		if f != nil {
			o.identifier = f
		}
	}
}

// WithLogger sets the logger of the server. The default is slog.Default().
//
// A NACK is one line of level WARN. NACKs with the same reason within the next 10 s are lines of level DEBUG, and one
// line of level WARN counts them ("repeated"). For an address, at most 100 warnings are logged within 10 s, and
// another 100 for its clients that are connected for more than a minute. A client that connects, leaves, or
// no longer refuses a type is a line of level INFO. Of each kind, 20 lines are logged within 10 s,
// and one line counts the others. An ACK is a line of level DEBUG.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.log = cmp.Or(l, o.log) } }

// WithPlaces sets a function for the origin of a resource in the log, such as "clusters.yaml:12:3".
// The function gets the node that refused a resource, and the resource's type and name. It returns
// "" if the origin is not known. Many goroutines call the function, for at most 5 resources of each
// NACK. By default the log has no origins.
func WithPlaces(f func(node *xds.Node, t *xds.Type, name string) string) Option {
	return func(o *options) {
		if f != nil {
			o.place = f
		}
	}
}

// A Suspect is a resource that is the reason of a NACK.
type Suspect struct {
	Name  string
	Place string // the origin of the faulty field or of the resource, such as "clusters.yaml:12:3"; "": unknown
}

// WithSuspects sets a function that finds the faulty resources of a NACK, for the log. The function gets the
// node, the type, at most 5 names of the refused response, and the client's error text, which may have
// secrets. Names in the text come first. The function returns nil if it does not know the faulty resources:
// then the log has all these names, with their places ([WithPlaces]). Many goroutines call the function, for
// each NACK that is logged. By default the log has all names.
func WithSuspects(f func(node *xds.Node, t *xds.Type, names []string, text string) []Suspect) Option {
	return func(o *options) { o.suspects = f }
}

// WithRedactor sets a function that removes secrets from the text of a NACK, before the log and the
// observer get it. The function gets the node that sent the NACK, the type and at most 16 KiB of
// text. It returns the text without secrets. If ok is false, no part of the text is shown.
//
// Many goroutines call the function, but only for a text that is logged or goes to an observer that
// is not [CodesOnly]. The function is not called for secrets (SDS), whose texts are always
// withheld. Dumps of resources are always removed, if they can be recognized. By default nothing
// else is removed.
func WithRedactor(f func(node *xds.Node, t *xds.Type, text string) (shown string, ok bool)) Option {
	return func(o *options) { o.redactor = f }
}

// WithObserver sets an observer for the events of all streams. For several observers see
// [Observers]. By default the server has no observer.
func WithObserver(obs Observer) Option { return func(o *options) { o.observer = obs } }

// WithCatchUp is for several servers with the same content. A client that reconnects may have newer content from another
// server. Before this server sends it anything else, it calls f, which returns when the source is at least as new
// as any server was when f was called. So a client never gets older content than it has.
//
// The argument known is true if the source has, or recently had, the version that the client
// states; then the call is less important. An error ends the stream with UNAVAILABLE: the client
// keeps its content and tries again. Many goroutines call f, with the context of the stream or poll
// that waits for it. The context of a poll ends with its hold time, and a poll whose call gets an
// error answers that nothing is new. By default no function is called.
func WithCatchUp(f func(ctx context.Context, known bool) error) Option {
	return func(o *options) { o.newest = f }
}

// Refusals stores which nodes have refused a type and have not accepted it since. Several servers
// share it. Many goroutines call its methods, which must not block.
type Refusals interface {
	Has(node, typeURL string) bool
	Refused(node, typeURL string)
	Accepted(node, typeURL string)
}

// WithRefusals shares refusals between servers. A client that has refused a response states the
// previous version, but may have applied a part of the refused response. So an equal version does
// not prove that the client has exactly that content. Each server also remembers the refusals of
// its own clients. By default a server knows only these refusals.
func WithRefusals(r Refusals) Option {
	return func(o *options) { o.shared = r }
}

// WithWriteTimeout sets how long a client may read nothing of a response. If it reads less than 16 KiB in this time, its
// stream ends with DEADLINE_EXCEEDED. A client that reads slowly gets everything. The default is 20 s.
func WithWriteTimeout(d time.Duration) Option { return func(o *options) { o.writeTimeout = d } }

// WithReadTimeout sets how long 64 KiB of a request, or its rest, may take to arrive. Several requests on a connection
// share this rate. The connection is closed after a quarter more than this time. While other connections wait
// for memory ([Limits.Unfinished]), a connection must send at least 1 MiB in a second. The default is 20 s.
func WithReadTimeout(d time.Duration) Option { return func(o *options) { o.readTimeout = d } }

// WithFirstRequestTimeout sets how long a stream may be open before its first request has arrived
// completely. An open stream costs memory, and the server does not know the client before the first
// request. After this time the stream ends with DEADLINE_EXCEEDED, unless a large first request is
// still arriving: that may take 20 times as long. The default is 15 s.
func WithFirstRequestTimeout(d time.Duration) Option {
	return func(o *options) { o.firstTimeout = d }
}

// WithDrainTime sets the time over which [Server.Drain] ends the streams, so that clients do not all reconnect at once.
// The default is 5 s. Zero ends all streams at once.
func WithDrainTime(d time.Duration) Option { return func(o *options) { o.drainTime = d } }

// WithRemovalGrace sets how long a stream of a single type delays the removal of resources to which
// types without a stream on the same connection may refer. The server does not know the answers of these
// types, so it waits for a fixed time. A stream that resumes also waits this time for types that are not open yet, before
// it removes resources to which these types may refer. The default is 5 s. Zero means no delay.
func WithRemovalGrace(d time.Duration) Option {
	return func(o *options) {
		o.limits.Grace = d
		if d == 0 {
			o.limits.Grace = -1
		}
	}
}

// WithForcedTTL sends TTLs to delta clients that do not announce support for TTLs. Envoy supports
// TTLs for listeners and clusters without an announcement.
func WithForcedTTL() Option { return func(o *options) { o.limits.ForceTTL = true } }

// WithResourceErrors also reports names that do not exist in resource_errors (gRFC A88).
func WithResourceErrors() Option { return func(o *options) { o.limits.ResourceErrors = true } }

// WithV2 also serves the methods of API v2. The encoding of messages is the same. A v2 type, such
// as type.googleapis.com/envoy.api.v2.Cluster, is a type of its own: clients get the resources that
// are stored under its URL, and nothing is translated. A v2 service of a single type also serves
// the v3 type, if the first request of a stream asks for the v3 type. By default only v3 is served.
func WithV2() Option { return func(o *options) { o.v2 = true } }
