package main

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	"github.com/chancery-xds/chancery/server"
)

// A bounding is what chancery serve is told of limits for its clients.
type bounding struct {
	server.Limits
	connections   int // 0: as many as there is room for
	perConnection int
	request       int
	requestGiven  bool // else it yields to the memory that there is
	read          time.Duration
	write         time.Duration
	first         time.Duration
}

func (b *bounding) flags(f *pflag.FlagSet) {
	b.Limits = server.DefaultLimits()
	f.IntVar(&b.connections, "max-connections", 0, "largest `number` of connections of clients open at once; more are closed, those of the address that has most. 0: what the limit of open files has room for")
	f.IntVar(&b.Streams, "max-streams", b.Streams, "largest `number` of streams open at once; one more takes the place of the newest of the address that has most")
	f.IntVar(&b.Silent, "max-silent-streams", b.Silent, "largest `number` of streams and unary calls open at once on which no request has come, besides the first of each connection; one more takes the place of the newest of the address that has most")
	f.IntVar(&b.Polls, "max-polls", b.Polls, "largest `number` of polls held at once, of REST-JSON and Fetch; one more takes the place of the newest of the address that has most, and no node has more than half when few are left")
	f.IntVar(&b.Others, "max-other-streams", b.Others, "largest `number` of streams open at once that are none of xDS: watches of health, reflection; one more takes the place of the newest of the address that has most")
	f.IntVar(&b.perConnection, "max-connection-streams", server.MaxStreams, "largest `number` of streams of one connection; more wait at the client")
	sizeVar(f, &b.request, "max-request", server.MaxRequest, "largest `SIZE` of a request; by default no more than --max-unfinished")
	sizeVar(f, &b.Unfinished, "max-unfinished", 0, "largest `SIZE` of all requests together that are not whole, of all clients, small ones counted where a connection has begun more than 64 KiB; beyond a quarter of it they come one after the other. 0: one and a half of --max-request, or an eighth of the memory limit if that is less")
	sizeVar(f, &b.Node, "max-node", b.Node, "largest `SIZE` of a node")
	f.IntVar(&b.Types, "max-types", b.Types, "largest `number` of resource types on one stream")
	f.IntVar(&b.Names, "max-names", b.Names, "largest `number` of names of one type on one stream")
	sizeVar(f, &b.NameLen, "max-name-length", b.NameLen, "largest `SIZE` of a name")
	sizeVar(f, &b.Held, "max-held", b.Held, "largest `SIZE` of all names of one stream, 64 bytes added for each")
	sizeVar(f, &b.HeldInAll, "max-held-total", 0, "largest `SIZE` of the names and nodes of all streams, beyond which the largest ends of the address that holds most; polls have a quarter of it besides; 0: a quarter of the memory limit, or an eighth of the memory of the machine if there is none")
	f.IntVar(&b.Rate, "max-rate", b.Rate, "`requests` a second of one stream, ten times as many at once; more wait at the client. 0: any number")
	f.IntVar(&b.AddressRate, "max-address-rate", b.AddressRate, "`requests` a second of all clients of one address, ten times as many at once; a stream that ends counts as ten; more wait, 30s at most. 0: any number")
	f.IntVar(&b.StreamRate, "max-stream-rate", b.StreamRate, "`streams` of one connection that end in a second, ten times as many at once; beyond it the connection is read later. 0: any number")
	f.IntVar(&b.FirstAnswers, "max-first-answers", b.FirstAnswers, "largest `number` of streams that are given their first answers at once; more wait")
	f.DurationVar(&b.first, "first-request-timeout", 15*time.Second, "`time` after which a stream or a unary call ends on which no request has come, or 20 times as long while a large one comes")
	f.DurationVar(&b.read, "read-timeout", 20*time.Second, "`time` in which 64 KiB of a request that has begun must come, or the rest of it, or its connection is closed")
	f.DurationVar(&b.write, "write-timeout", 20*time.Second, "`time` after which a client that has read nothing of a response loses its stream")
}

// check returns an error of usage. Sizes in which no request has room, such as one
// without its unit, are mistakes, and so are limits that contradict each other. given says
// which flags were: what was not, yields to what was.
func (b *bounding) check(given func(flag string) bool) error {
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
			if l.least > 1 { // a size, whose unit was forgotten
				return fmt.Errorf("--%s: %d bytes would let nobody in: want %d or more, or a unit, as in 64KiB", l.flag, l.n, l.least)
			}
			return fmt.Errorf("--%s: %d would let nobody in: want %d or more", l.flag, l.n, l.least)
		case l.n > l.most:
			return fmt.Errorf("--%s: that is more than there can be", l.flag)
		}
	}
	for _, t := range []timeFlag{
		{"first-request-timeout", b.first, 100 * time.Millisecond, longest}, {"read-timeout", b.read, 100 * time.Millisecond, longest}, {"write-timeout", b.write, 100 * time.Millisecond, longest},
	} {
		if err := t.check(); err != nil {
			return err
		}
	}
	switch total := int64(b.HeldInAll); {
	case total != 0 && total < leastHeld:
		return fmt.Errorf("--max-held-total: %s, which a few clients hold: %s at least", sizeText(total), sizeText(leastHeld))
	case total > much:
		return errors.New("--max-held-total: that is more than there can be")
	case total != 0 && b.HeldInAll < b.Held && given("max-held"):
		return fmt.Errorf("--max-held-total: %s, less than one stream may hold (--max-held)", sizeText(total))
	case b.Silent > b.Streams && given("max-silent-streams"):
		return fmt.Errorf("--max-silent-streams: %d, more than there may be streams (--max-streams)", b.Silent)
	case b.Unfinished != 0 && b.Unfinished < b.request:
		return fmt.Errorf("--max-unfinished: %s, less than the largest request (--max-request) has", sizeText(int64(b.Unfinished)))
	}
	b.requestGiven = given("max-request")
	for _, rate := range []*int{&b.Rate, &b.AddressRate, &b.StreamRate} {
		if *rate == 0 {
			*rate = -1
		}
	}
	return nil
}

// leastHeld is the least that all streams together may be told to hold.
const leastHeld = 64 << 10

// longest is what no deadline or grace need be longer than: a mistake, such as a unit too
// large, is more.
const longest = time.Hour

// A timeFlag is a flag that is a time, and what is sensible for it.
type timeFlag struct {
	flag              string
	is                time.Duration
	shortest, longest time.Duration
}

// check returns an error of usage.
func (t timeFlag) check() error {
	switch {
	case t.is < 0:
		return fmt.Errorf("--%s is negative", t.flag)
	case t.is < t.shortest:
		return fmt.Errorf("--%s: %v, too short for any client: %v at least", t.flag, t.is, t.shortest)
	case t.is > t.longest:
		return fmt.Errorf("--%s: %v, too long to mean anything: %v at most", t.flag, t.is, t.longest)
	}
	return nil
}

// within has limits that are shares of the memory, unless they were given. Without a limit
// of it the machine's counts, of which others want some, too.
func (b *bounding) within(m memory) {
	total := m.bytes
	if total == 0 {
		total = m.machine / 2
	}
	if b.HeldInAll == 0 {
		b.HeldInAll = int(total / 4)
	}
	if b.Unfinished != 0 {
		return
	}
	b.Unfinished = b.request / 2 * 3
	if share := max(int(total/8), leastUnfinished); total > 0 && b.Unfinished > share {
		if b.Unfinished = share; b.requestGiven {
			b.Unfinished = max(share, b.request)
		}
		b.request = min(b.request, b.Unfinished)
	}
}

// leastUnfinished is the least that is had for requests that are not whole, however little
// memory there is: one of 36,000 names of 100 bytes, with their versions.
const leastUnfinished = 8 << 20

// options are what the server is told of them.
func (b *bounding) options() []server.Option {
	return []server.Option{
		server.WithLimits(b.Limits),
		server.WithFirstRequestTimeout(b.first),
		server.WithReadTimeout(b.read),
		server.WithWriteTimeout(b.write),
	}
}

// transport is what gRPC is told of them.
func (b *bounding) transport() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(b.request),
		grpc.MaxConcurrentStreams(uint32(b.perConnection)),
	}
}
