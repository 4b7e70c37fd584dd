package daemon

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/xdsclient"
	"github.com/chancery-xds/chancery/server"
)

// limitFlags are the flags that limit the clients.
type limitFlags struct {
	server.Limits
	connections   int // 0: as many as the memory and the limit of open files allow
	perConnection int
	request       int
	requestGiven  bool // the user gave --max-request; otherwise the memory limit may lower it
	given         func(flag string) bool
	room          int // number of connections for which there is memory

	upstream xdsclient.Limits // of a relay

	read  time.Duration
	write time.Duration
	first time.Duration
}

func (b *limitFlags) flags(f *pflag.FlagSet) {
	b.Limits = server.DefaultLimits()
	all := pflag.NewFlagSet(cli.LimitsTopic, pflag.ContinueOnError)
	all.SortFlags = false
	cli.TitledFlags(all, "Connections, streams and polls", b.counts)
	cli.TitledFlags(all, "Requests", b.sizes)
	cli.TitledFlags(all, "Memory for names", b.memory)
	cli.TitledFlags(all, "Upstream of a relay", b.upstreams)
	cli.TitledFlags(all, "Rates", b.rates)
	cli.TitledFlags(all, "Times", b.times)
	all.VisitAll(func(flag *pflag.Flag) { cli.Annotate(flag, cli.TopicOf, cli.LimitsTopic) })
	f.AddFlagSet(all)
}

func (b *limitFlags) counts(f *pflag.FlagSet) {
	f.IntVar(&b.connections, "max-connections", 0, "maximum `number` of open connections of clients; beyond it, the oldest connection without an answer of its client is closed, else the newest from the address with the most")
	f.Lookup("max-connections").DefValue = "0: as many as half of the memory limit and the limit of open files allow"
	f.IntVar(&b.Streams, "max-streams", b.Streams, "maximum `number` of open streams; one more replaces the newest stream from the address with the most")
	f.IntVar(&b.Silent, "max-silent-streams", b.Silent, "maximum `number` of open streams and unary calls that have sent no request yet, not counting the first of each connection; one more replaces the newest from the address with the most")
	f.IntVar(&b.Polls, "max-polls", b.Polls, "maximum `number` of held polls (REST-JSON and Fetch); one more replaces the newest from the address with the most; when few are left, no node may have more than half")
	f.IntVar(&b.Others, "max-other-streams", b.Others, "maximum `number` of open streams of other services than xDS (health watches, reflection); one more replaces the newest from the address with the most")
	for _, s := range b.shares() {
		f.Lookup(s.flag).DefValue += fmt.Sprintf(", or one for each %d KiB of 1/%d of the memory limit if that is less", s.bytes>>10, s.part)
	}
	f.IntVar(&b.perConnection, "max-connection-streams", server.MaxStreams, "maximum `number` of streams of one connection; more wait at the client")
	f.IntVar(&b.Types, "max-types", b.Types, "maximum `number` of resource types on one stream")
	f.IntVar(&b.Names, "max-names", b.Names, "maximum `number` of names of one type on one stream")
}

func (b *limitFlags) sizes(f *pflag.FlagSet) {
	cli.SizeFlag(f, &b.request, "max-request", server.MaxRequest, "maximum `SIZE` of a request; the default is lowered to --max-unfinished")
	cli.SizeFlag(f, &b.Unfinished, "max-unfinished", 0, "maximum total `SIZE` of unfinished requests (received only in part) of all clients; a connection with up to 64 KiB of them does not count; beyond a quarter of this size, requests are received one after another")
	f.Lookup("max-unfinished").DefValue = "0: 1.5 times --max-request, or 1/8 of the memory limit if that is less"
	cli.SizeFlag(f, &b.Node, "max-node", b.Node, "maximum `SIZE` of a node")
	cli.SizeFlag(f, &b.NameLen, "max-name-length", b.NameLen, "maximum `SIZE` of a name")
}

func (b *limitFlags) memory(f *pflag.FlagSet) {
	cli.SizeFlag(f, &b.Held, "max-held", b.Held, "maximum total `SIZE` of the names of one stream, plus 64 bytes for each")
	cli.SizeFlag(f, &b.HeldInAll, "max-held-total", 0, "maximum total `SIZE` of the names and nodes of all streams; beyond it, the largest stream from the address with the most is closed; polls may hold another quarter of this size")
	f.Lookup("max-held-total").DefValue = "0: 1/4 of the memory limit, or 1/8 of the memory of the machine if there is no limit"
}

func (b *limitFlags) upstreams(f *pflag.FlagSet) { b.upstream.Register(f, "of a relay: ") }

func (b *limitFlags) rates(f *pflag.FlagSet) {
	f.IntVar(&b.Rate, "max-rate", b.Rate, "maximum `requests` per second on one stream, ten times as many in a burst; more wait at the client. 0: no limit")
	f.IntVar(&b.AddressRate, "max-address-rate", b.AddressRate, "maximum `requests` per second of all clients of one address, ten times as many in a burst; a stream that ends counts as ten; more wait, at most 30s. 0: no limit")
	f.IntVar(&b.StreamRate, "max-stream-rate", b.StreamRate, "maximum `streams` per second that end on one connection, ten times as many in a burst; beyond it, the server delays reading the connection. 0: no limit")
	f.IntVar(&b.FirstAnswers, "max-first-answers", b.FirstAnswers, "maximum `number` of streams that get their first responses at the same time; more wait")
}

func (b *limitFlags) times(f *pflag.FlagSet) {
	f.DurationVar(&b.first, "first-request-timeout", 15*time.Second, "`time` after which a stream or unary call that has sent no request is closed; 20 times as long while a large request arrives")
	f.DurationVar(&b.read, "read-timeout", 20*time.Second, "`time` in which the next 64 KiB of an unfinished request, or the rest of it, must arrive, or its connection is closed")
	f.DurationVar(&b.write, "write-timeout", 20*time.Second, "`time` after which a stream is closed if its client has read nothing of a response")
}

// check returns a usage error. It rejects sizes that are too small for any request, such as a number
// without its unit, and limits that contradict each other. The function given reports whether the
// user gave a flag: a default that contradicts a given flag is not an error.
func (b *limitFlags) check(given func(flag string) bool) error {
	const many, much = math.MaxInt32, min(1<<40, math.MaxInt)
	for _, l := range []struct {
		flag           string
		n, least, most int
	}{
		{"max-connections", b.connections, 0, many}, {"max-streams", b.Streams, 1, many}, {"max-silent-streams", b.Silent, 1, many}, {"max-polls", b.Polls, 1, many},
		{"max-other-streams", b.Others, 1, many}, {"max-connection-streams", b.perConnection, 1, many}, {"max-types", b.Types, 1, many}, {"max-names", b.Names, 1, many},
		{"max-rate", b.Rate, 0, many}, {"max-address-rate", b.AddressRate, 0, many}, {"max-stream-rate", b.StreamRate, 0, many}, {"max-first-answers", b.FirstAnswers, 1, many},
		{"max-request", b.request, 1 << 10, many}, {"max-unfinished", b.Unfinished, 0, much}, {"max-node", b.Node, 1 << 8, many}, {"max-name-length", b.NameLen, 16, many},
		{"max-held", b.Held, 1 << 8, much},
	} {
		switch {
		case l.n < l.least:
			if l.least > 1 { // probably a size without its unit
				return fmt.Errorf("--%s: %d bytes is too small for any client: must be %d or more; give a unit, as in 64KiB", l.flag, l.n, l.least)
			}
			return fmt.Errorf("--%s: must be %d or more, not %d", l.flag, l.least, l.n)
		case l.n > l.most:
			return fmt.Errorf("--%s: too large: must be %d or less", l.flag, l.most)
		}
	}
	for _, t := range []timeFlag{
		{"first-request-timeout", b.first, 100 * time.Millisecond, maxTime}, {"read-timeout", b.read, 100 * time.Millisecond, maxTime}, {"write-timeout", b.write, 100 * time.Millisecond, maxTime},
	} {
		if err := t.check(); err != nil {
			return err
		}
	}
	switch total := int64(b.HeldInAll); {
	case total != 0 && total < minHeldTotal:
		return fmt.Errorf("--max-held-total: %s is too small for more than a few clients: must be %s or more", cli.SizeText(total), cli.SizeText(minHeldTotal))
	case total > much:
		return errors.New("--max-held-total: too large")
	case total != 0 && b.HeldInAll < b.Held && given("max-held"):
		return fmt.Errorf("--max-held-total: %s is less than one stream may hold (--max-held)", cli.SizeText(total))
	case b.Silent > b.Streams && given("max-silent-streams"):
		return fmt.Errorf("--max-silent-streams: %d is more than --max-streams", b.Silent)
	case b.Unfinished != 0 && b.Unfinished < b.request:
		return fmt.Errorf("--max-unfinished: %s is less than the largest request (--max-request)", cli.SizeText(int64(b.Unfinished)))
	}
	if err := b.upstream.Check(); err != nil {
		return err
	}
	b.requestGiven, b.given = given("max-request"), given
	for _, rate := range []*int{&b.Rate, &b.AddressRate, &b.StreamRate} {
		if *rate == 0 {
			*rate = -1
		}
	}
	return nil
}

// minHeldTotal is the minimum of --max-held-total, in bytes.
const minHeldTotal = 64 << 10

// maxTime is the maximum of deadlines and grace periods. A longer time is a mistake, such as a wrong unit.
const maxTime = time.Hour

// A timeFlag is the value of a flag, with its range.
type timeFlag struct {
	flag              string
	value             time.Duration
	shortest, longest time.Duration
}

// check returns a usage error.
func (t timeFlag) check() error {
	switch {
	case t.value < 0:
		return fmt.Errorf("--%s must not be negative", t.flag)
	case t.value < t.shortest:
		return fmt.Errorf("--%s: %v is too short for any client: must be %v or more", t.flag, t.value, t.shortest)
	case t.value > t.longest:
		return fmt.Errorf("--%s: %v is too long: must be %v or less", t.flag, t.value, t.longest)
	}
	return nil
}

// deriveFrom sets the limits that depend on the memory, unless the user gave them.
func (b *limitFlags) deriveFrom(m cli.Memory) {
	total := m.Total()
	b.deriveCounts(total)
	b.upstream.DeriveFrom(m)
	if b.HeldInAll == 0 {
		b.HeldInAll = int(total / 4)
	}
	if b.Unfinished != 0 {
		return
	}
	b.Unfinished = b.request / 2 * 3
	if share := max(int(total/8), minUnfinished); total > 0 && b.Unfinished > share {
		b.Unfinished = share
		if b.requestGiven {
			b.Unfinished = max(share, b.request)
		}
		b.request = min(b.request, b.Unfinished)
	}
}

// deriveCounts lowers the default numbers to what fits into a part of the memory (SAFE-14).
func (b *limitFlags) deriveCounts(total int64) {
	b.room = math.MaxInt32
	if total == 0 {
		return
	}
	b.room = int(max(1, min(total/2/clientBytes, math.MaxInt32)))
	for _, s := range b.shares() {
		if b.given == nil || !b.given(s.flag) {
			*s.n = max(1, int(min(int64(*s.n), total/s.part/s.bytes)))
		}
	}
}

// A memoryShare is the part of the memory from which the default of a limit follows: 1/part, with bytes for each.
type memoryShare struct {
	flag        string
	n           *int
	part, bytes int64
}

func (b *limitFlags) shares() []memoryShare {
	return []memoryShare{
		{"max-streams", &b.Streams, 2, clientBytes},
		{"max-silent-streams", &b.Silent, 16, callBytes},
		{"max-other-streams", &b.Others, 16, callBytes},
		{"max-polls", &b.Polls, 8, callBytes},
	}
}

// These are the measured bytes of a stream, or of a connection, under attack (docs/limits.md), and of a poll or a
// stream without a request.
const (
	clientBytes = 40 << 10
	callBytes   = 16 << 10
)

// minUnfinished is the minimum memory for unfinished requests, even on a small machine. A request
// with 36,000 names of 100 bytes and their versions needs this much.
const minUnfinished = 8 << 20

// options returns the options of the xDS server.
func (b *limitFlags) options() []server.Option {
	return []server.Option{
		server.WithLimits(b.Limits),
		server.WithFirstRequestTimeout(b.first),
		server.WithReadTimeout(b.read),
		server.WithWriteTimeout(b.write),
	}
}

// transport returns the options of gRPC.
func (b *limitFlags) transport() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(b.request),
		grpc.MaxConcurrentStreams(uint32(b.perConnection)),
	}
}
