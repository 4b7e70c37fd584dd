package xdstest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/chancery-xds/chancery/xds"
)

// A Client is one stream to a server under test. Make it with [SotW] or [Delta]. Only the goroutine of the
// test may use it.
type Client struct {
	t       T
	variant xds.Variant
	options
	stream   grpc.ClientStream
	cancel   context.CancelFunc
	inbox    chan *Response // filled and closed by read
	err      error          // the error that ended the stream; set before inbox is closed
	early    []*Response    // received while the test waited for another type
	types    map[string]*interest
	nodeSent bool
	story    []string // the conversation so far
}

// An interest is the client's state of one type.
type interest struct {
	names   map[string]bool
	opened  bool
	nonce   string // SotW: of the last response that the client answered
	due     string // nonce of the newest response, until the client answers it
	version string // SotW: of the last accepted response
	held    map[string]*xds.Resource
}

func open(t T, conn grpc.ClientConnInterface, v xds.Variant, opts []Option) *Client {
	t.Helper()
	c := &Client{t: t, variant: v, inbox: make(chan *Response), types: map[string]*interest{},
		options: options{node: xds.Node{ID: "xdstest"}, timeout: 10 * time.Second, quiet: 100 * time.Millisecond}}
	for _, o := range opts {
		if o != nil {
			o(&c.options)
		}
	}
	if conn == nil || conn == (*grpc.ClientConn)(nil) {
		t.Fatalf("xdstest: the connection is nil")
	}
	method, ok := methodOf(v, c.only)
	if !ok {
		t.Fatalf("xdstest: %s has no %s service of its own", c.only, v)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	var err error
	c.stream, err = conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, grpc.ForceCodecV2(raw{}), grpc.MaxCallRecvMsgSize(1<<30))
	if err != nil {
		cancel()
		t.Fatalf("xdstest: %v", err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); c.read(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return c
}

func methodOf(v xds.Variant, only *xds.Type) (string, bool) {
	ads := xds.Type{Service: "envoy.service.discovery.v3.AggregatedDiscoveryService", Stream: "StreamAggregatedResources", Delta: "DeltaAggregatedResources"}
	if only == nil {
		only = &ads
	}
	method := only.Stream
	if v == xds.Delta {
		method = only.Delta
	}
	return "/" + only.Service + "/" + method, only.Service != "" && method != ""
}

// read receives responses until the stream ends.
func (c *Client) read(ctx context.Context) {
	defer close(c.inbox)
	for {
		var m []byte
		c.err = c.stream.RecvMsg(&m)
		if c.err != nil {
			return
		}
		r, err := decode(c.variant, m)
		if err != nil {
			c.err = fmt.Errorf("decode response: %w", err)
			return
		}
		select {
		case c.inbox <- r:
		case <-ctx.Done():
			c.err = ctx.Err()
			return
		}
	}
}

// of returns the client's state of a type.
func (c *Client) of(t *xds.Type) *interest {
	c.t.Helper()
	if t == nil {
		c.t.Fatalf("xdstest: the type is nil")
	}
	if c.only != nil && !c.only.Is(t) {
		c.t.Fatalf("xdstest: the stream serves only %s, not %s", c.only, t)
	}
	i := c.types[t.URL]
	if i == nil {
		i = &interest{names: map[string]bool{}, held: map[string]*xds.Resource{}}
		c.types[t.URL] = i
	}
	return i
}

// Subscribe adds names of a type to the subscription and sends the request. The name "*" subscribes to all
// resources that the server has for the node ([xds.Wildcard]). A first request of a type without names
// also subscribes to all, in the older form of the protocol.
func (c *Client) Subscribe(t *xds.Type, names ...string) {
	c.t.Helper()
	i := c.of(t)
	for _, n := range names {
		i.names[n] = true
	}
	c.say("%s subscribe %s", t, quoted(names))
	c.send(t, xds.Request{Subscribe: names})
}

// Unsubscribe removes names of a type from the subscription and sends the request. The client drops the
// resources that no other name of the subscription finds.
func (c *Client) Unsubscribe(t *xds.Type, names ...string) {
	c.t.Helper()
	i := c.of(t)
	for _, n := range names {
		delete(i.names, n)
	}
	if !i.names[xds.Wildcard] {
		maps.DeleteFunc(i.held, func(n string, r *xds.Resource) bool {
			return !i.names[n] && !slices.ContainsFunc(r.Aliases, func(a string) bool { return i.names[a] })
		})
	}
	c.say("%s unsubscribe %s", t, quoted(names))
	c.send(t, xds.Request{Unsubscribe: names})
}

// Resume subscribes like a client that reconnects. It takes the subscription and the acknowledged state of a
// type from an earlier client of the same variant: for delta the version of each resource, for SotW the
// version of the type. It must be the first request of the type on the stream.
func (c *Client) Resume(t *xds.Type, before *Client) {
	c.t.Helper()
	i := c.of(t)
	if i.opened {
		c.fail("the client has already subscribed to %s: Resume must be the first request of a type", t)
	}
	if before == nil || before.variant != c.variant {
		c.fail("Resume needs an earlier client, also of %s", c.variant)
	}
	was := before.of(t)
	i.names, i.held, i.version = maps.Clone(was.names), maps.Clone(was.held), was.version
	req := xds.Request{Subscribe: slices.Sorted(maps.Keys(i.names))}
	if c.variant == xds.Delta {
		for _, n := range c.Held(t) {
			req.Initial = append(req.Initial, xds.Version{Name: n, Version: i.held[n].Version})
		}
	}
	c.say("%s subscribe %s again, holding %s", t, quoted(req.Subscribe), quoted(c.Held(t)))
	c.send(t, req)
}

// ACK accepts a response: the client then holds its resources.
func (c *Client) ACK(r *Response) {
	c.t.Helper()
	i := c.answering(r)
	i.version = r.Version
	if c.variant == xds.SotW && r.Type.FullState {
		clear(i.held)
	}
	for _, res := range r.Resources {
		switch {
		case res.Body != nil:
			i.held[res.Name] = res
		case res.TTL == 0: // "does not exist" for some clients; with a TTL it is a heartbeat
			delete(i.held, res.Name)
		}
	}
	for _, n := range r.Removed {
		delete(i.held, n)
	}
	c.say("%s ACK %s", r.Type, r.Nonce)
	c.send(r.Type, xds.Request{Nonce: r.Nonce})
}

// NACK refuses a response with a reason. The client keeps the resources that it had before.
func (c *Client) NACK(r *Response, why string) {
	c.t.Helper()
	c.answering(r)
	c.say("%s NACK %s: %s", r.Type, r.Nonce, why)
	c.send(r.Type, xds.Request{Nonce: r.Nonce, Error: &xds.Status{Code: 3, Message: why}}) // INVALID_ARGUMENT
}

func (c *Client) answering(r *Response) *interest {
	c.t.Helper()
	if r == nil {
		c.fail("the response to answer is nil")
	}
	if r.to != nil && r.to != c {
		c.fail("the response to answer belongs to another client: %s", r)
	}
	i := c.of(r.Type)
	i.nonce = r.Nonce
	if i.due == r.Nonce {
		i.due = ""
	}
	return i
}

// send completes a request of a type and sends it.
func (c *Client) send(t *xds.Type, req xds.Request) {
	c.t.Helper()
	i := c.of(t)
	req.Type, i.opened = t, true
	if !c.nodeSent {
		req.Node, c.nodeSent = &c.node, true
	}
	if c.variant == xds.SotW {
		req.Names, req.Version, req.Nonce = slices.Sorted(maps.Keys(i.names)), i.version, i.nonce
	}
	if err := c.stream.SendMsg(encode(c.variant, &req)); err != nil {
		c.ended()
	}
}

// Held returns the names of the resources of a type that the client has acknowledged and still holds,
// sorted.
func (c *Client) Held(t *xds.Type) []string {
	c.t.Helper()
	return slices.Sorted(maps.Keys(c.of(t).held))
}

// Close ends the stream, like a client that stops. A second call does nothing.
func (c *Client) Close() { c.cancel() }

func (c *Client) say(format string, args ...any) {
	c.story = append(c.story, fmt.Sprintf("> "+format, args...))
}

// fail fails the test and prints the conversation so far.
func (c *Client) fail(format string, args ...any) {
	c.t.Helper()
	story := "no messages were sent"
	if len(c.story) > 0 {
		story = "the conversation so far:\n  " + strings.Join(c.story, "\n  ")
	}
	c.t.Fatalf("xdstest: %s\n%s", fmt.Sprintf(format, args...), story)
}
