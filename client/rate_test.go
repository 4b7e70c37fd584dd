package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// attempts records when a client connected, or opened a stream.
type attempts struct {
	mu sync.Mutex
	at []time.Time
}

func (a *attempts) add() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = append(a.at, time.Now())
}

// within fails the test if more than the stated number of attempts began in any period of that length.
func (a *attempts) within(t *testing.T, what string, period time.Duration, most int) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, from := range a.at {
		n := 0
		for _, at := range a.at[i:] {
			if at.Before(from.Add(period)) {
				n++
			}
		}
		if n > most {
			t.Errorf("%d %s within %v, want at most %d", n, what, period, most)
			return
		}
	}
}

func (a *attempts) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.at)
}

// A client keeps to the stated rate, whatever the server does to its connections and streams.
func TestReconnectRate(t *testing.T) {
	t.Parallel()
	const (
		lasts    = 100 * time.Second
		period   = 30 * time.Second
		failures = 7  // the shortest waits are 0.8 s, 1.28 s, 2.05 s, 3.28 s, 5.24 s, 8.39 s, 13.4 s
		reopened = 31 // one stream, reopened once a second
	)
	answer := func(s grpc.ServerStream) error { // of any type: a response needs only to arrive
		b := wire.Encode(xds.SotW, &xds.Response{Type: xds.Cluster, Version: "1", Changes: &xds.Changes{}}, "1").Materialize()
		return s.SendMsg(&b)
	}
	for _, c := range []struct {
		name     string
		dial     func(net.Conn) error // handles a raw connection; nil: a gRPC server
		handle   func(grpc.ServerStream) error
		answered bool // each stream gets a response
	}{
		{name: "refuses each connection", dial: func(net.Conn) error { return errors.New("refused") }},
		{name: "closes each connection", dial: func(c net.Conn) error { return c.Close() }},
		{name: "closes each stream", handle: func(grpc.ServerStream) error { return nil }},
		{name: "refuses each stream", handle: func(grpc.ServerStream) error { return status.Error(codes.Unavailable, "no") }},
		{name: "closes each stream after a response", answered: true, handle: answer},
		{name: "resets each stream after a response", answered: true, handle: func(s grpc.ServerStream) error {
			return errors.Join(answer(s), status.Error(codes.Internal, "reset"))
		}},
	} {
		for _, perType := range []bool{false, true} {
			t.Run(fmt.Sprintf("CLI-4 the server %s, per type: %v", c.name, perType), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					connections, streams := reconnect(t, lasts, perType, c.dial, c.handle)
					open := 1 // streams at a time
					if perType {
						open = 2
					}
					connections.within(t, "connections", period, mostConnections(period)) // gRPC retries by itself, too
					if c.answered {
						streams.within(t, "streams", period, reopened*open)
						if streams.count() < 90 {
							t.Errorf("%d streams: the client waits longer than it has to", streams.count())
						}
					} else {
						streams.within(t, "streams", period, failures*open)
					}
				})
			})
		}
	}
	// In real time: gRPC opens the stream again with a lock that its sender waits for, and synctest waits for both.
	for _, perType := range []bool{false, true} {
		t.Run(fmt.Sprintf("CLI-4 the server sends GOAWAY on each connection, per type: %v", perType), func(t *testing.T) {
			t.Parallel()
			const period = 5 * time.Second
			connections, _ := reconnect(t, period, perType, func(c net.Conn) error { go goAway(c); return nil }, nil)
			connections.within(t, "connections", period, mostConnections(period))
			if connections.count() < 3 {
				t.Errorf("%d connections: the client waits longer than it has to", connections.count())
			}
		})
	}
}

// mostConnections is the limit of connections within a period: a handshake a second, and a connection that waits for
// its handshake.
func mostConnections(period time.Duration) int { return int(period/time.Second) + 2 }

// reconnect runs a client against a server that ends its connections or streams. It returns when they began.
func reconnect(t *testing.T, lasts time.Duration, perType bool, dial func(net.Conn) error, handle func(grpc.ServerStream) error) (connections, streams *attempts) {
	connections, streams = &attempts{}, &attempts{}
	o := client.GRPCOptions{Credentials: insecure.NewCredentials(), PerType: perType}
	lis := bufconn.Listen(64 << 10)
	o.DialOptions = []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		connections.add()
		if dial == nil {
			return lis.DialContext(ctx)
		}
		ours, theirs := net.Pipe()
		return ours, dial(theirs)
	})}
	g := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		streams.add()
		return handle(s)
	}), grpc.ForceServerCodecV2(client.RawCodec{}), grpc.WaitForHandlers(true))
	go g.Serve(lis)
	defer g.Stop()
	tr, err := client.GRPC("passthrough:///server", o)
	if err != nil {
		t.Fatal(err)
	}
	cl, err := client.New(client.Config{Node: &xds.Node{ID: "n"}, Servers: []client.Server{{Transport: tr}}})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	watched := []*xds.Type{xds.Endpoint}
	if perType {
		watched = append(watched, xds.Cluster)
	}
	for _, typ := range watched {
		go func() {
			for range cl.Watch(t.Context(), typ, "a") {
			}
		}()
	}
	time.Sleep(lasts)
	return connections, streams
}

// goAway is a server that ends each connection after the handshake.
func goAway(c net.Conn) {
	defer c.Close()
	_, _ = io.ReadFull(c, make([]byte, len(http2.ClientPreface)))
	f := http2.NewFramer(c, c)
	go func() { _ = f.WriteSettings(); _ = f.WriteSettingsAck(); _ = f.WriteGoAway(0, http2.ErrCodeNo, nil) }()
	for range 3 {
		if _, err := f.ReadFrame(); err != nil {
			return
		}
	}
}
