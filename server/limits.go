package server

import "time"

// Limits bound what clients can make a server do and hold. A field that is zero
// keeps its default. What exceeds one ends its stream, and no other, with
// RESOURCE_EXHAUSTED and a line of the log; only Rate, AddressRate, StreamRate and
// FirstAnswers make clients wait instead.
type Limits struct {
	// Streams is how many streams may be open at once, of all clients together;
	// 100,000 by default. When they are, one more takes the place of the newest of the
	// address that has most, unless it is of that address; and when three quarters are,
	// no node may have more than half of all from one address. How many one connection may have is up to gRPC:
	// [MaxStreams]. Of streams that have ended four times as many answers are
	// remembered, for an hour, in 64 MiB and 1 KiB for each at most: by them clients
	// that come back are known. Beyond that those of the address are forgotten that left most.
	Streams int

	// Silent is how many streams and unary calls may be open on which no request has come,
	// besides one of each connection: 2,000 by default. One more is treated as one beyond Streams.
	Silent int

	// Polls is how many polls are held at a time, of REST and Fetch together;
	// 10,000 by default. One more takes the place of the newest of the address that has
	// most, whose hold is over, unless it is of that address: then it gets UNAVAILABLE,
	// which is 503 with Retry-After over REST, if it cannot be answered at once. When three
	// quarters are held, no node may have more than half of all.
	Polls int

	// Others is how many streams of other services are open at once that are
	// registered by [Server.Bound], such as watches of health; 1,000 by default. One more is
	// treated as one beyond Streams.
	Others int

	// Types is how many resource types one stream may open; 64 by default.
	Types int

	// Names is how many names of one type a stream may subscribe to; 100,000 by
	// default.
	Names int

	// NameLen is the longest resource name in bytes, and the longest id of a
	// node; 4,096 by default.
	NameLen int

	// Held is how many bytes a stream may make the server hold by names, in all
	// its types together, and by its node; each name counts its length and 64 bytes. 128 MiB
	// by default.
	Held int

	// HeldInAll is the same of all streams together: beyond it the stream ends that holds
	// most, of the address whose streams do. Polls that are held have a quarter of that besides:
	// one more takes the place of the newest of the address whose polls hold most. Zero: any
	// number.
	HeldInAll int

	// Node is the largest node in bytes; 256 KiB by default. Envoy's has 61 KiB,
	// extensions of its build for the most part.
	Node int

	// Rate is how many requests of a stream are taken in a second in the long
	// run; ten times as many may come at once. Whoever sends more is slowed down:
	// requests stay unread. A request counts once for each 64 KiB begun. 1,000 by
	// default; negative: any number.
	Rate int

	// AddressRate is the same of all streams and polls of an address together; of IPv6, of
	// a network of 64 bits. A stream that has ended counts as ten requests. What is beyond
	// waits unread, 30 s at most, on those connections that send more than the same part for
	// each; never the first request of a stream. 100,000 by default, so that as many clients
	// may be behind one address; negative: any number.
	AddressRate int

	// StreamRate is how many streams of a connection may end in a second in the long run,
	// whoever ends them; ten times as many may end at once. Whoever opens and resets more
	// (rapid reset, CVE-2023-44487) is slowed down: the connection is read later. Those that
	// stay open do not count. 300 by default; negative: any number. See [Server.Credentials].
	StreamRate int

	// FirstAnswers is how many streams are answered at a time to the first
	// request of a type, so that a fleet that reconnects at once costs bounded
	// memory and is served one after the other: the address, connection and node
	// first that has fewest of these places. A stream makes room when its client has
	// acknowledged what it got, or after 100 ms, and waits 10 s at most. 50 by default;
	// negative: any number.
	FirstAnswers int

	// Unfinished is how many bytes of requests are held that have begun to come and are
	// not whole, or wait to be handled, on all connections together; of connections that
	// have begun more than 64 KiB. Beyond a quarter of it connections take turns to be read,
	// and the one whose turn it is may use all: so it must not be less than the largest
	// request. 48 MiB by default. See [Server.Credentials].
	Unfinished int

	// Response is the size in bytes above which a response is split, save where
	// a SotW type is told whole; 3 MiB by default.
	Response int
}

// DefaultLimits returns the limits of a server that is given none.
func DefaultLimits() Limits {
	return Limits{
		Streams: 100_000, Silent: 2000, Polls: 10_000, Others: 1000, Types: 64, Names: 100_000, NameLen: 4096, Held: 128 << 20, Node: 256 << 10,
		Rate: 1000, AddressRate: 100_000, StreamRate: 300, FirstAnswers: 50, Unfinished: MaxRequest / 2 * 3, Response: 3 << 20,
	}
}

// WithLimits sets limits other than the defaults.
func WithLimits(l Limits) Option {
	return func(o *options) {
		for _, f := range []struct {
			to *int
			n  int
		}{
			{&o.bounds.Streams, l.Streams}, {&o.bounds.Silent, l.Silent}, {&o.bounds.Polls, l.Polls}, {&o.bounds.Others, l.Others}, {&o.bounds.Held, l.Held}, {&o.bounds.HeldInAll, l.HeldInAll}, {&o.bounds.Node, l.Node}, {&o.bounds.Rate, l.Rate}, {&o.bounds.AddressRate, l.AddressRate}, {&o.bounds.StreamRate, l.StreamRate},
			{&o.bounds.FirstAnswers, l.FirstAnswers}, {&o.bounds.Unfinished, l.Unfinished}, {&o.limits.MaxTypes, l.Types}, {&o.limits.MaxNames, l.Names},
			{&o.limits.MaxNameLen, l.NameLen}, {&o.limits.MaxResponse, l.Response},
		} {
			if f.n != 0 {
				*f.to = f.n
			}
		}
	}
}

// maxTypeURL is how many bytes a type URL may have: those that the table does not
// list are kept.
const maxTypeURL = 1024

// placeTime is how long a stream may keep others from their first answers, and
// queueTime how long one waits for its own: clients that have nothing yet give up
// after 15 s.
const (
	placeTime = 100 * time.Millisecond
	queueTime = 10 * time.Second
)

// weight is what names count against Limits.Held.
func weight(names []string) (n int) {
	for _, name := range names {
		n += len(name) + 64
	}
	return n
}
