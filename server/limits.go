package server

import "time"

// Limits are the limits of what clients can use: streams, memory and request rates. A field that is zero keeps its
// default. A stream that exceeds a limit ends with RESOURCE_EXHAUSTED and a line in the log; other streams
// continue. Rate, AddressRate, StreamRate and FirstAnswers do not end streams: clients wait instead.
type Limits struct {
	// Streams is how many streams of all clients together may be open; 100,000 by default. Above it, a new
	// stream displaces the newest stream of the address that has most, on the connection that has most
	// there, unless that is its own connection. Streams whose client has not answered yet give way first.
	// When three quarters are open, a node at one address may not have more than half of the limit.
	// For the limit of a connection see [MaxStreams].
	//
	// The server also remembers answers of ended streams for an hour, to recognize clients that
	// reconnect. It remembers at most four times this number of answers. They take at most 1 KiB each,
	// plus the same again within 4 to 64 MiB. Above that, it forgets answers of the address with the most
	// remembered content.
	Streams int

	// Silent is how many streams and unary calls may be open without a request, in addition to one
	// stream on each connection; 2,000 by default. Above it, the same rule as for Streams applies.
	Silent int

	// Polls is how many polls of REST and Fetch together may be held; 10,000 by default. Above it, a new poll
	// ends the hold of the newest poll of the address that has most, unless that is its own address. Then a poll
	// that cannot be answered at once gets UNAVAILABLE, which over REST is 503 with Retry-After. When three
	// quarters are held, a node at one address may not have more than half of the limit.
	Polls int

	// Others is how many streams of other services registered with [Server.Limited] may be open, such as watches of
	// the health service; 1,000 by default. Above it, the same rule as for Streams applies.
	Others int

	// Types is how many resource types one stream may open; 64 by default.
	Types int

	// Names is how many names of one type a stream may subscribe to; 100,000 by default.
	Names int

	// NameLen is the largest length in bytes of a resource name and of a node id; 4,096 by default.
	NameLen int

	// Held is how many bytes of names and node a stream may make the server keep; 128 MiB by default. It counts
	// all types of the stream. Each name counts its length plus 64 bytes.
	Held int

	// HeldInAll is the limit of Held for all streams together. Above it, the largest stream of the address that
	// uses most ends. Held polls have a quarter of this limit in addition: above that, a new poll ends the hold
	// of the newest poll of the address that uses most. Zero means no limit.
	HeldInAll int

	// Node is the largest size of a node in bytes; 256 KiB by default. A node of Envoy has 61 KiB, mostly the
	// list of its extensions.
	Node int

	// Rate is how many requests a stream may send in a second on average; 1,000 by default. Ten times as many
	// may arrive at once. More requests wait unread. A request counts once for each started block of 64 KiB.
	// A negative value means no limit.
	Rate int

	// AddressRate is the limit of Rate for all streams and polls of an address together; 100,000 by
	// default, so that many clients may share an address. For IPv6, an address means a /64 network.
	// A stream that has ended counts as ten requests. Above the rate, requests wait unread for up
	// to 30 s, on the connections that send more than an equal share. The first request of a stream
	// never waits. A negative value means no limit.
	AddressRate int

	// StreamRate is how many streams of a connection may end in a second on average; 300 by
	// default. Ten times as many may end at once. The server delays reading from a connection that
	// opens and resets more streams (rapid reset, CVE-2023-44487). Streams that stay open do not
	// count. A negative value means no limit. This limit needs [Server.Credentials].
	StreamRate int

	// FirstAnswers is how many streams at a time get the answer to the first request of a type; 50 by default.
	// So a fleet that reconnects at once needs limited memory. The next place goes to the address, connection
	// and node that have the fewest places. A stream gives its place back when its client has acknowledged the
	// answer, or after 100 ms. It waits for a place for at most 10 s. A negative value means no limit.
	FirstAnswers int

	// Unfinished is how many bytes of requests the server keeps on all connections together, if
	// they are not complete yet or wait to be handled; 48 MiB by default. Only connections with
	// more than 64 KiB of such requests count. Above a quarter of the limit, connections are read
	// in turn, and the connection whose turn it is may use the whole limit. So the limit must not
	// be less than the largest request. This limit needs [Server.Credentials].
	Unfinished int

	// Response is the size in bytes above which a response is split; 3 MiB by default. SotW responses of types
	// with full state are not split.
	Response int
}

// DefaultLimits returns the limits of a server without [WithLimits].
func DefaultLimits() Limits {
	return Limits{
		Streams: 100_000, Silent: 2000, Polls: 10_000, Others: 1000, Types: 64, Names: 100_000, NameLen: 4096, Held: 128 << 20, Node: 256 << 10,
		Rate: 1000, AddressRate: 100_000, StreamRate: 300, FirstAnswers: 50, Unfinished: MaxRequest / 2 * 3, Response: 3 << 20,
	}
}

// WithLimits sets limits. Fields that are zero keep their defaults.
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

// maxTypeURL is the largest length of a type URL in bytes. The server keeps URLs that the table does not list.
const maxTypeURL = 1024

// placeTime is how long a stream may keep its place among the first answers. QueueTime is how long a stream waits for
// a place: clients without any configuration give up after 15 s.
const (
	placeTime = 100 * time.Millisecond
	queueTime = 10 * time.Second
)

// weight returns the number of bytes that names count against Limits.Held.
func weight(names []string) (n int) {
	for _, name := range names {
		n += len(name) + 64
	}
	return n
}
