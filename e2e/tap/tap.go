// Package tap is a gRPC proxy between an xDS client and a management server. It passes on every message
// unchanged, and records it.
package tap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// A Tap is a gRPC proxy for any method, with a log.
type Tap struct {
	*Log
	listener *gate
	server   *grpc.Server
	conn     *grpc.ClientConn

	mu    sync.Mutex
	holds []hold
}

// A hold keeps requests that match from the server until it is released.
type hold struct {
	match    func(Record) bool
	released chan struct{}
}

// New starts a tap on a free port of the loopback in front of the server at
// addr, which need not be up yet.
func New(addr string) (*Tap, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{}), grpc.MaxCallRecvMsgSize(1<<30)),
		// Reconnect to a restarted server at once: only the back-off of the
		// client counts.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond},
			MinConnectTimeout: 5 * time.Second,
		}))
	if err != nil {
		return nil, err
	}
	t := &Tap{Log: newLog(), listener: &gate{Listener: l, conns: map[net.Conn]bool{}}, conn: conn}
	t.server = grpc.NewServer(grpc.ForceServerCodecV2(raw{}), grpc.UnknownServiceHandler(t.handle), grpc.MaxRecvMsgSize(1<<30))
	go t.server.Serve(t.listener)
	return t, nil
}

// Addr returns the address that clients dial.
func (t *Tap) Addr() *net.TCPAddr { return t.listener.Addr().(*net.TCPAddr) }

// Cut closes all connections of clients, and each new one at once, as if the server process had died.
func (t *Tap) Cut() { t.listener.shut(true) }

// Restore lets clients connect again.
func (t *Tap) Restore() { t.listener.shut(false) }

// Hold delays requests that match, and later ones on their streams, until release is called. They are
// recorded when they are passed on.
func (t *Tap) Hold(match func(Record) bool) (release func()) {
	h := hold{match, make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holds = append(t.holds, h)
	return sync.OnceFunc(func() { close(h.released) })
}

func (t *Tap) wait(ctx context.Context, r Record) {
	t.mu.Lock()
	holds := t.holds
	t.mu.Unlock()
	for _, h := range holds {
		if h.match(r) {
			select {
			case <-h.released:
			case <-ctx.Done():
			}
		}
	}
}

// Close ends the tap.
func (t *Tap) Close() {
	t.Cut()
	t.server.Stop()
	t.conn.Close()
}

// handle is one stream: two loops that pass frames on until either side ends.
func (t *Tap) handle(_ any, client grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(client)
	id := t.open(method)
	err := t.pass(id, method, client)
	s, _ := status.FromError(err)
	text := s.Code().String()
	if s.Message() != "" {
		text += ": " + s.Message()
	}
	t.add(Record{Stream: id, Kind: Close, Text: text})
	return err
}

func (t *Tap) pass(id int, method string, client grpc.ServerStream) error {
	ctx, cancel := context.WithCancel(client.Context())
	defer cancel()
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, md.Copy())
	}
	server, err := t.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return err
	}
	go func() {
		for {
			var f []byte
			if err := client.RecvMsg(&f); err != nil {
				server.CloseSend()
				if !errors.Is(err, io.EOF) {
					cancel()
				}
				return
			}
			r := decode(method, Request, f)
			r.Stream = id
			t.wait(ctx, r)
			t.add(r)
			if server.SendMsg(&f) != nil {
				return // the other loop returns the error
			}
		}
	}()
	for {
		var f []byte
		err := server.RecvMsg(&f)
		if errors.Is(err, io.EOF) {
			client.SetTrailer(server.Trailer())
			return nil
		}
		if err != nil {
			if client.Context().Err() != nil {
				return status.Error(codes.Canceled, "client gone")
			}
			client.SetTrailer(server.Trailer())
			return err
		}
		r := decode(method, Response, f)
		r.Stream = id
		t.add(r) // before it is sent, so that no answer can come before it
		if err := client.SendMsg(&f); err != nil {
			return err
		}
	}
}

// raw is a codec that passes bytes unchanged.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("marshal %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*b)}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("unmarshal %T", v)
	}
	*b = data.Materialize()
	return nil
}

// gate is a listener that can refuse connections without closing its port.
type gate struct {
	net.Listener

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]bool
}

func (g *gate) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		g.mu.Lock()
		closed := g.closed
		if !closed {
			g.conns[c] = true
		}
		g.mu.Unlock()
		if !closed {
			return &gated{Conn: c, gate: g}, nil
		}
		c.Close()
	}
}

func (g *gate) shut(closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = closed
	if closed {
		for c := range g.conns {
			c.Close()
		}
		clear(g.conns)
	}
}

// gated is a connection that its gate can close.
type gated struct {
	net.Conn
	gate *gate
}

func (c *gated) Close() error {
	c.gate.mu.Lock()
	delete(c.gate.conns, c.Conn)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}
