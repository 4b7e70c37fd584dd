package server

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// errOld ends a stream that has reached its maximum age.
var errOld = status.Error(codes.Unavailable, "the stream has reached its maximum age: reconnect")

// errSurplus ends a stream after [Stream.Leave].
var errSurplus = status.Error(codes.Unavailable, "other servers have fewer streams: reconnect")

// errDisconnected ends a stream after [Stream.Disconnect].
var errDisconnected = status.Error(codes.Unavailable, "an operator has ended the stream: reconnect")

// Leave asks the stream to end with UNAVAILABLE, so that its client connects to another server. The
// stream ends in an orderly way, like a stream that has reached its age ([WithAge]). Leave reports
// whether the stream is still open. A second call does nothing. The client may open another stream
// on the same connection, so close the connection afterwards. Any goroutine may call Leave.
func (s *Stream) Leave() bool { return s.leave(errSurplus) }

// Disconnect asks the stream to end with UNAVAILABLE on behalf of an operator. It is like [Stream.Leave],
// except for the text of the status.
func (s *Stream) Disconnect() bool { return s.leave(errDisconnected) }

func (s *Stream) leave(why error) bool {
	if s == nil || s.inspections == nil || s.inspections.newest.Load() == &streamEnded {
		return false
	}
	if s.inspections.left.CompareAndSwap(false, true) {
		s.inspections.wake.notify(notice{why, noticeLeave})
	}
	return true
}

// An Age is the maximum age of streams and connections. Clients keep a stream as long as they can, so without an age
// they do not spread to new replicas. The age setting of gRPC cuts connections, and responses that were sent in
// the last second are lost. Here each stream ends in an orderly way, at a time of its own.
type Age struct {
	// Max is the minimum age at which a stream ends. A random part of at most half of Max is added. Zero means
	// that streams do not age.
	Max time.Duration

	// Grace is how long an old stream waits for the answers of its client to responses in flight.
	// The stream sends nothing new in this time.
	Grace time.Duration
}

// WithAge ends streams that have reached an age. The grpc.Server needs [Age.GRPCOption] too. By default streams do not
// age.
func WithAge(a Age) Option { return func(o *options) { o.age = a } }

// GRPCOption returns the option of a grpc.Server that fits the age of streams. Pass it after
// [GRPCOptions]. With this option, gRPC asks clients to use a new connection before the first
// stream on a connection is old. Otherwise clients would open their new streams on the same
// connection. gRPC closes only connections that should have no streams any more.
func (a Age) GRPCOption() grpc.ServerOption {
	k := Keepalive()
	if a.Max > 0 {
		k.MaxConnectionAge = a.Max * 9 / 10 // gRPC varies this by a tenth
		k.MaxConnectionAgeGrace = a.Max*3/2 + a.Grace + time.Minute
	}
	return grpc.KeepaliveParams(k)
}

// A departure is the planned end of a stream by the server. From its time on the stream sends nothing new. The stream ends
// when all responses are written and answered, or after the grace time. The zero value means no planned end.
type departure struct {
	at    time.Time     // when leaving begins; zero: never; after it has begun: when the grace time ends
	why   error         // the status for the client
	grace time.Duration // time for the client's answers
	begun bool
}

// plan plans to leave at a time, unless the stream leaves earlier anyway.
func (l *departure) plan(at time.Time, why error, grace time.Duration) {
	switch {
	case l.begun:
		if end := at.Add(grace); end.Before(l.at) {
			l.at = end
		}
	case l.at.IsZero() || at.Before(l.at):
		l.at, l.why, l.grace = at, why, grace
	}
}

// advance begins to leave if the time has come.
func (l *departure) advance(now time.Time) {
	if !l.begun && !l.at.IsZero() && !now.Before(l.at) {
		l.begun, l.at = true, now.Add(l.grace)
	}
}

// lastWrite is the extra time for a write that is in progress when the grace time ends. For a
// client that reads, it is long enough.
const lastWrite = time.Second

// done reports whether the stream can end: all responses are written and answered, or the grace
// time is over.
func (l *departure) done(now time.Time, answered, writing bool) bool {
	switch {
	case !l.begun:
		return false
	case writing:
		return !now.Before(l.at.Add(lastWrite))
	}
	return answered || !now.Before(l.at)
}

// deadline returns when advance must be called next, or the zero time.
func (l *departure) deadline(now time.Time) time.Time {
	if l.begun && !now.Before(l.at) {
		return l.at.Add(lastWrite)
	}
	return l.at
}
