package main

import (
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
	read          time.Duration
	write         time.Duration
	first         time.Duration
}

func (b *bounding) flags(f *pflag.FlagSet) {
	b.Limits = server.DefaultLimits()
	f.IntVar(&b.connections, "max-connections", 0, "largest `number` of connections of clients open at once; more are closed, those of the address that has most. 0: what the limit of open files has room for")
	f.IntVar(&b.Streams, "max-streams", b.Streams, "largest `number` of streams open at once; one more takes the place of the newest of the address that has most")
	f.IntVar(&b.Silent, "max-silent-streams", b.Silent, "largest `number` of streams open at once on which no request has come, besides the first of each connection; one more takes the place of the newest of the address that has most")
	f.IntVar(&b.Polls, "max-polls", b.Polls, "largest `number` of polls held at once, of REST-JSON and Fetch; one more takes the place of the newest of the address that has most")
	f.IntVar(&b.Others, "max-other-streams", b.Others, "largest `number` of streams open at once that are none of xDS: watches of health, reflection; one more takes the place of the newest of the address that has most")
	f.IntVar(&b.perConnection, "max-connection-streams", server.MaxStreams, "largest `number` of streams of one connection; more wait at the client")
	sizeVar(f, &b.request, "max-request", server.MaxRequest, "largest `SIZE` of a request")
	sizeVar(f, &b.Unfinished, "max-unfinished", 0, "largest `SIZE` of all requests together that are not whole, of all clients, small ones counted where a connection has begun more than 64 KiB; beyond a quarter of it they come one after the other. 0: one and a half of --max-request")
	sizeVar(f, &b.Node, "max-node", b.Node, "largest `SIZE` of a node")
	f.IntVar(&b.Types, "max-types", b.Types, "largest `number` of resource types on one stream")
	f.IntVar(&b.Names, "max-names", b.Names, "largest `number` of names of one type on one stream")
	sizeVar(f, &b.NameLen, "max-name-length", b.NameLen, "largest `SIZE` of a name")
	sizeVar(f, &b.Held, "max-held", b.Held, "largest `SIZE` of all names of one stream, 64 bytes added for each")
	sizeVar(f, &b.HeldInAll, "max-held-total", 0, "largest `SIZE` of the names of all streams, beyond which the largest ends of the address that holds most; 0: a quarter of the memory limit, any number if there is none")
	f.IntVar(&b.Rate, "max-rate", b.Rate, "`requests` a second of one stream, ten times as many at once; more wait at the client. 0: any number")
	f.IntVar(&b.AddressRate, "max-address-rate", b.AddressRate, "`requests` a second of all clients of one address, ten times as many at once; a stream that ends counts as ten; more wait, 30s at most. 0: any number")
	f.IntVar(&b.StreamRate, "max-stream-rate", b.StreamRate, "`streams` of one connection that end in a second, ten times as many at once; beyond it the connection is read later. 0: any number")
	f.IntVar(&b.FirstAnswers, "max-first-answers", b.FirstAnswers, "largest `number` of streams that are given their first answers at once; more wait")
	f.DurationVar(&b.first, "first-request-timeout", 15*time.Second, "`time` after which a stream ends on which no request has come, or 20 times as long while a large one comes")
	f.DurationVar(&b.read, "read-timeout", 20*time.Second, "`time` in which 64 KiB of a request that has begun must come, or the rest of it, or its connection is closed")
	f.DurationVar(&b.write, "write-timeout", 20*time.Second, "`time` after which a client that has read nothing of a response loses its stream")
}

// check returns an error of usage. Sizes in which no request has room, such as one
// without its unit, are mistakes.
func (b *bounding) check() error {
	const many, anything = math.MaxInt32, math.MaxInt
	for _, l := range []struct {
		flag           string
		n, least, most int
	}{
		{"max-connections", b.connections, 0, many}, {"max-streams", b.Streams, 1, many}, {"max-silent-streams", b.Silent, 1, many}, {"max-polls", b.Polls, 1, many},
		{"max-other-streams", b.Others, 1, many}, {"max-connection-streams", b.perConnection, 1, many}, {"max-types", b.Types, 1, many}, {"max-names", b.Names, 1, many},
		{"max-rate", b.Rate, 0, many}, {"max-address-rate", b.AddressRate, 0, many}, {"max-stream-rate", b.StreamRate, 0, many}, {"max-first-answers", b.FirstAnswers, 1, many},
		{"max-request", b.request, 1 << 10, many}, {"max-unfinished", b.Unfinished, 0, anything}, {"max-node", b.Node, 1 << 8, anything}, {"max-name-length", b.NameLen, 1, anything},
		{"max-held", b.Held, 1 << 8, anything}, {"max-held-total", b.HeldInAll, 0, anything},
		{"first-request-timeout", int(b.first), 1, anything}, {"read-timeout", int(b.read), 1, anything}, {"write-timeout", int(b.write), 1, anything},
	} {
		switch {
		case l.n < l.least:
			return fmt.Errorf("--%s: that would let nobody in", l.flag)
		case l.n > l.most:
			return fmt.Errorf("--%s: that is more than there can be", l.flag)
		}
	}
	switch {
	case b.Unfinished == 0:
		b.Unfinished = b.request / 2 * 3
	case b.Unfinished < b.request:
		return fmt.Errorf("--max-unfinished: %s, less than the largest request (--max-request) has", sizeText(int64(b.Unfinished)))
	}
	for _, rate := range []*int{&b.Rate, &b.AddressRate, &b.StreamRate} {
		if *rate == 0 {
			*rate = -1
		}
	}
	return nil
}

// within has limits that are shares of the memory, unless they were given.
func (b *bounding) within(m memory) {
	if b.HeldInAll == 0 {
		b.HeldInAll = int(m.bytes / 4)
	}
}

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
