package server

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// errOld ends streams that are old.
var errOld = status.Error(codes.Unavailable, "the stream has reached its maximum age: reconnect")

// errSurplus ends streams that are told to leave.
var errSurplus = status.Error(codes.Unavailable, "other servers have fewer streams: reconnect")

// Leave has the stream end in order, as one that is old does ([WithAge]), with UNAVAILABLE, and reports whether it is still open. Only
// the first call does something. A client may open another stream on the same connection: close that afterwards. It may be called by any goroutine.
func (s *Stream) Leave() bool {
	if s == nil || s.asks == nil || s.asks.newest.Load() == &over {
		return false
	}
	if s.asks.left.CompareAndSwap(false, true) {
		s.asks.wake.notify(notice{what: sheds})
	}
	return true
}

// An Age says when streams and their connections are old, so that clients, which
// keep them for as long as they can, spread over replicas. gRPC's own age cuts
// connections: what is sent in the second before is lost, though it seems to be
// sent. Here each stream ends in order at a time of its own.
type Age struct {
	// Max is how old a stream becomes at least; half as long again at most. Zero:
	// streams do not age.
	Max time.Duration

	// Grace is how long a stream that is old waits for its client's answers to
	// what was sent. Meanwhile it tells nothing new.
	Grace time.Duration
}

// WithAge has streams end when they are old. The gRPC server must be told so, too:
// see [Age.GRPCOption]. By default streams do not age.
func WithAge(a Age) Option { return func(o *options) { o.age = a } }

// GRPCOption returns what a gRPC server that serves such streams must be told
// after [GRPCOptions]. It asks clients to open new streams on another connection
// before the first stream on this one is old, or they would open them here again;
// and it cuts connections only that should have no stream any more.
func (a Age) GRPCOption() grpc.ServerOption {
	k := Keepalive()
	if a.Max > 0 {
		k.MaxConnectionAge = a.Max * 9 / 10 // which gRPC varies by a tenth
		k.MaxConnectionAgeGrace = a.Max*3/2 + a.Grace + time.Minute
	}
	return grpc.KeepaliveParams(k)
}

// A leave is how a stream comes to its end by the server's will. At its time it
// tells nothing new any more. It ends when what it writes is written and its
// client has answered, and later anyway. The zero value stays.
type leave struct {
	at    time.Time     // when it begins to leave; zero: never; when begun: the end, whether or not the client has answered
	why   error         // what its client is told
	grace time.Duration // for the client's answers
	begun bool
}

// sooner has the stream leave at a time, if it would not leave before anyway.
func (l *leave) sooner(at time.Time, why error, grace time.Duration) {
	switch {
	case l.begun:
		if end := at.Add(grace); end.Before(l.at) {
			l.at = end
		}
	case l.at.IsZero() || at.Before(l.at):
		l.at, l.why, l.grace = at, why, grace
	}
}

// advance begins to leave if it is time to.
func (l *leave) advance(now time.Time) {
	if !l.begun && !l.at.IsZero() && !now.Before(l.at) {
		l.begun, l.at = true, now.Add(l.grace)
	}
}

// lastWrite is how long a write may take that is under way at the end: a client
// that reads needs no time for it.
const lastWrite = time.Second

// over reports whether the stream has nothing to wait for any more: neither for
// answers nor for a write.
func (l *leave) over(now time.Time, answered, writing bool) bool {
	switch {
	case !l.begun:
		return false
	case writing:
		return !now.Before(l.at.Add(lastWrite))
	}
	return answered || !now.Before(l.at)
}

// deadline returns when advance is wanted next, the zero time if never.
func (l *leave) deadline(now time.Time) time.Time {
	if l.begun && !now.Before(l.at) {
		return l.at.Add(lastWrite)
	}
	return l.at
}
