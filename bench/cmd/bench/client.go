package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

const (
	cds      = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	eds      = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	sotwRPC  = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
	deltaRPC = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
	marker   = "@@M:"
)

func resName(i int) string { return fmt.Sprintf("cluster-%06d.service.mesh.local", i) }

// rmsg is an encoded message. The codec does not decode it, to save CPU of the client.
type rmsg struct {
	b    []byte
	free func()
}

var bigBufs = sync.Pool{New: func() any { b := make([]byte, 0, 1<<16); return &b }}

type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.(*rmsg).b)}, nil
}
func (rawCodec) Unmarshal(s mem.BufferSlice, v any) error {
	m := v.(*rmsg)
	if len(s) == 1 {
		s.Ref()
		m.b, m.free = s[0].ReadOnlyData(), s.Free
		return nil
	}
	p := bigBufs.Get().(*[]byte)
	n := s.Len()
	*p = slices.Grow((*p)[:0], n)[:n]
	s.CopyTo(*p)
	m.b, m.free = *p, func() { bigBufs.Put(p) }
	return nil
}

// response has the fields of a (Delta)DiscoveryResponse that the client uses.
type response struct {
	version, nonce []byte
	resources      int
	removed        int
	seq            int64             // highest marker
	versions       map[string]string // delta only, if fleetOpts.versions is set
}

func scan(b []byte, delta, wantVersions bool, r *response) error {
	*r = response{}
	if wantVersions {
		r.versions = map[string]string{}
	}
	for rest := b; len(rest) > 0; {
		num, typ, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return protowire.ParseError(n)
		}
		rest = rest[n:]
		if typ != protowire.BytesType {
			n = protowire.ConsumeFieldValue(num, typ, rest)
			if n < 0 {
				return protowire.ParseError(n)
			}
			rest = rest[n:]
			continue
		}
		v, n := protowire.ConsumeBytes(rest)
		if n < 0 {
			return protowire.ParseError(n)
		}
		rest = rest[n:]
		switch {
		case num == 1:
			r.version = v
		case num == 2:
			r.resources++
			if wantVersions {
				name, ver := resourceVersion(v)
				r.versions[name] = ver
			}
		case num == 5:
			r.nonce = v
		case num == 6 && delta:
			r.removed++
		}
	}
	for rest := b; ; {
		i := bytes.Index(rest, []byte(marker))
		if i < 0 || len(rest) < i+len(marker)+24 {
			return nil
		}
		rest = rest[i+len(marker):]
		if s, err := strconv.ParseInt(string(rest[16:24]), 16, 64); err == nil && s > r.seq {
			r.seq = s
		}
	}
}

func resourceVersion(b []byte) (name, ver string) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		b = b[n:]
		m := protowire.ConsumeFieldValue(num, typ, b)
		if m < 0 {
			return
		}
		if typ == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b)
			switch num {
			case 1:
				ver = string(v)
			case 3:
				name = string(v)
			}
		}
		b = b[m:]
	}
	return
}

// fleetOpts configures N clients.
type fleetOpts struct {
	addr     string
	n        int
	conns    int // 0: one connection for each client
	delta    bool
	typ      string
	names    []string          // nil: wildcard
	want     int               // number of resources in the first complete state, in one or several messages
	initial  map[string]string // delta initial_resource_versions
	noack    bool
	versions bool // keep the versions of the first state, by name
	track    int  // number of updates whose receipt times are kept
	seq0     int64
}

type fleet struct {
	o       fleetOpts
	ctx     context.Context
	cancel  context.CancelFunc
	ccs     []*grpc.ClientConn
	clients []*client
	start   time.Time

	firstLeft  atomic.Int64
	firstDone  chan struct{}
	target     atomic.Int64
	left       atomic.Int64
	done       atomic.Pointer[chan struct{}]
	msgs       atomic.Int64
	bytes      atomic.Int64
	errs       atomic.Int64
	firstError atomic.Pointer[error]
	wg         sync.WaitGroup
}

type client struct {
	f         *fleet
	id        int
	seq       int64
	recv      []int64
	first     int64
	last      int64
	resources int
	msgs      int64
	versions  map[string]string
}

func (f *fleet) fail(err error) {
	if f.ctx.Err() == nil {
		f.errs.Add(1)
		f.firstError.CompareAndSwap(nil, &err)
	}
}

func newFleet(o fleetOpts) *fleet {
	f := &fleet{o: o, firstDone: make(chan struct{})}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	nc := o.conns
	if nc == 0 || nc > o.n {
		nc = o.n
	}
	rb := 32 << 10
	if nc > 1000 {
		rb = 8 << 10
	}
	for i := range nc {
		cc, err := grpc.NewClient("passthrough:///"+o.addr,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithInitialWindowSize(16<<20), grpc.WithInitialConnWindowSize(64<<20),
			grpc.WithReadBufferSize(rb), grpc.WithWriteBufferSize(4<<10),
			grpc.WithUserAgent("chancery-bench/"+strconv.Itoa(i)),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(1<<30), grpc.MaxCallSendMsgSize(1<<30)))
		if err != nil {
			f.fail(err)
			continue
		}
		f.ccs = append(f.ccs, cc)
	}
	f.firstLeft.Store(int64(o.n))
	f.target.Store(1 << 60)
	for i := range o.n {
		c := &client{f: f, id: i}
		if o.track > 0 {
			c.recv = make([]int64, o.track)
		}
		f.clients = append(f.clients, c)
	}
	return f
}

// run starts every client at once.
func (f *fleet) run() {
	f.start = time.Now()
	for i, c := range f.clients {
		f.wg.Add(1)
		cc := f.ccs[i%len(f.ccs)]
		go func() {
			defer f.wg.Done()
			if err := c.loop(cc); err != nil {
				f.fail(err)
			}
		}()
	}
}

func (f *fleet) close() {
	f.cancel()
	for _, cc := range f.ccs {
		cc.Close()
	}
	f.wg.Wait()
}

func appendStr(b []byte, num protowire.Number, s string) []byte {
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return protowire.AppendString(b, s)
}

func (c *client) loop(cc *grpc.ClientConn) error {
	o := &c.f.o
	rpc, desc := sotwRPC, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	if o.delta {
		rpc = deltaRPC
	}
	st, err := cc.NewStream(c.f.ctx, desc, rpc, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("stream: %w", err)
	}
	names := c.names()
	req := c.request(names)
	if err := st.SendMsg(&rmsg{b: req}); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	var m rmsg
	var r response
	for {
		if err := st.RecvMsg(&m); err != nil {
			return fmt.Errorf("client %d after %d messages: %w", c.id, c.msgs, err)
		}
		now := time.Now().UnixNano()
		want := o.versions && c.first == 0
		if err := scan(m.b, o.delta, want, &r); err != nil {
			return err
		}
		c.msgs++
		c.last = now
		c.f.msgs.Add(1)
		c.f.bytes.Add(int64(len(m.b)))
		if want {
			if c.versions == nil {
				c.versions = r.versions
			}
			maps.Copy(c.versions, r.versions)
		}
		var ack []byte
		if !o.noack {
			ack = c.ack(names, &r)
		}
		m.free()
		c.count(&r, now)
		if ack != nil {
			if err := st.SendMsg(&rmsg{b: ack}); err != nil {
				return fmt.Errorf("ack: %w", err)
			}
		}
	}
}

// names returns the encoded names to subscribe to.
func (c *client) names() (names []byte) {
	for _, n := range c.f.o.names {
		names = appendStr(names, 3, n)
	}
	return names
}

// request returns the first request.
func (c *client) request(names []byte) (req []byte) {
	o := &c.f.o
	node := appendStr(appendStr(nil, 1, fmt.Sprintf("node-%06d", c.id)), 2, "bench")
	if !o.delta {
		req = protowire.AppendTag(req, 2, protowire.BytesType)
		req = protowire.AppendBytes(req, node)
		req = append(req, names...)
		return appendStr(req, 4, o.typ)
	}
	req = protowire.AppendTag(req, 1, protowire.BytesType)
	req = protowire.AppendBytes(req, node)
	req = appendStr(req, 2, o.typ)
	req = append(req, names...)
	for k, v := range o.initial {
		e := appendStr(appendStr(nil, 1, k), 2, v)
		req = protowire.AppendTag(req, 5, protowire.BytesType)
		req = protowire.AppendBytes(req, e)
	}
	return req
}

// ack returns the request that acknowledges a response.
func (c *client) ack(names []byte, r *response) []byte {
	o := &c.f.o
	if o.delta {
		ack := appendStr(make([]byte, 0, 128), 2, o.typ)
		ack = protowire.AppendTag(ack, 6, protowire.BytesType)
		return protowire.AppendBytes(ack, r.nonce)
	}
	ack := make([]byte, 0, len(names)+len(r.version)+128)
	ack = protowire.AppendTag(ack, 1, protowire.BytesType)
	ack = protowire.AppendBytes(ack, r.version)
	ack = append(ack, names...)
	ack = appendStr(ack, 4, o.typ)
	ack = protowire.AppendTag(ack, 5, protowire.BytesType)
	return protowire.AppendBytes(ack, r.nonce)
}

// count records the time at which a response arrived: of the first full configuration, and of each change.
func (c *client) count(r *response, now int64) {
	o := &c.f.o
	if c.first == 0 {
		c.resources += r.resources
	}
	if c.first == 0 && c.resources >= o.want {
		c.first = now
		if c.f.firstLeft.Add(-1) == 0 {
			close(c.f.firstDone)
		}
	}
	if r.seq <= c.seq {
		return
	}
	for s := c.seq + 1; s <= r.seq; s++ {
		if k := s - o.seq0; k >= 0 && k < int64(len(c.recv)) {
			c.recv[k] = now
		}
	}
	t := c.f.target.Load()
	hit := c.seq < t && r.seq >= t
	c.seq = r.seq
	if hit && c.f.left.Add(-1) == 0 {
		close(*c.f.done.Load())
	}
}

// expect prepares the wait until every client has update seq. Call it before the update.
func (f *fleet) expect(seq int64) <-chan struct{} {
	ch := make(chan struct{})
	f.done.Store(&ch)
	f.left.Store(int64(f.o.n))
	f.target.Store(seq)
	return ch
}
