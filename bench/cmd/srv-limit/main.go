// srv-limit is not an xDS server. It sends one pre-encoded response to every stream,
// without the state of subscriptions, versions or nonces, and discards ACKs. Its figures
// are the practical minimum with grpc-go.
//
// The flag -mode is one of:
//   - chan: each stream has a goroutine, which a channel wakes
//   - loop: the goroutine of the update calls SendMsg on each stream
//   - proto: like chan, but each stream marshals a discovery.*Response whose resources are
//     encoded Any messages: the minimum cost of a server with the proto codec
//
// The flag -resume is the answer to a delta request with initial versions: none, empty or full.
// With check the server compares each name and version, and sends no answer.
package main

import (
	"flag"
	"fmt"
	"strconv"
	"sync"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/bench/ctl"
)

var (
	mode   = flag.String("mode", "chan", "chan, loop or proto")
	resume = flag.String("resume", "none", "answer to a request with current initial versions: none, check, empty or full")
)

// raw is an encoded message.
type raw struct{ b mem.BufferSlice }

type codec struct{ p encoding.CodecV2 }

func (codec) Name() string { return "proto" }
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*raw); ok {
		r.b.Ref()
		return r.b, nil
	}
	return c.p.Marshal(v)
}
func (c codec) Unmarshal(b mem.BufferSlice, v any) error {
	r, ok := v.(*raw)
	if !ok {
		return fmt.Errorf("codec: %T", v)
	}
	r.b = b
	b.Ref()
	return nil
}

type out struct {
	r *raw          // chan, loop
	s proto.Message // proto: shared parts
}

type stream struct {
	g     grpc.ServerStream
	delta bool
	ch    chan out
}

type adapter struct {
	mu      sync.Mutex
	streams map[*stream]bool
	typ     string
	index   map[string]int
	any     []*anypb.Any // current encoded resources
	vers    []string
	ver     int
	full    [2]*out // lazily encoded whole state, by delta
}

func anyOf(t string, m proto.Message) *anypb.Any {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(err)
	}
	return &anypb.Any{TypeUrl: t, Value: b}
}

func (a *adapter) Set(t string, rs []ctl.Resource) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ver++
	a.typ, a.index, a.any, a.vers = t, map[string]int{}, nil, nil
	for i, r := range rs {
		a.index[r.Name] = i
		a.any = append(a.any, anyOf(t, r.Msg))
		a.vers = append(a.vers, strconv.Itoa(a.ver))
	}
	a.full = [2]*out{}
	return nil
}

// msg encodes a response of the given resources; nil names: all.
func (a *adapter) msg(delta bool, idx []int, names []string) out {
	v := strconv.Itoa(a.ver)
	var m proto.Message
	if delta {
		d := &discovery.DeltaDiscoveryResponse{TypeUrl: a.typ, SystemVersionInfo: v, Nonce: v}
		for k, i := range idx {
			d.Resources = append(d.Resources, &discovery.Resource{Name: names[k], Version: a.vers[i], Resource: a.any[i]})
		}
		m = d
	} else {
		d := &discovery.DiscoveryResponse{TypeUrl: a.typ, VersionInfo: v, Nonce: v}
		for _, i := range idx {
			d.Resources = append(d.Resources, a.any[i])
		}
		m = d
	}
	if *mode == "proto" {
		return out{s: m}
	}
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return out{r: &raw{mem.BufferSlice{mem.SliceBuffer(b)}}}
}

func (a *adapter) all(delta bool) out {
	k := 0
	if delta {
		k = 1
	}
	if a.full[k] == nil {
		idx, names := make([]int, len(a.any)), make([]string, len(a.any))
		for n, i := range a.index {
			idx[i], names[i] = i, n
		}
		o := a.msg(delta, idx, names)
		a.full[k] = &o
	}
	return *a.full[k]
}

func (a *adapter) Update(t string, rs []ctl.Resource) error {
	a.mu.Lock()
	a.ver++
	var idx []int
	var names []string
	for _, r := range rs {
		i := a.index[r.Name]
		a.any[i] = anyOf(t, r.Msg)
		a.vers[i] = strconv.Itoa(a.ver)
		idx, names = append(idx, i), append(names, r.Name)
	}
	a.full = [2]*out{}
	var m [2]*out
	get := func(delta bool) out {
		k := 0
		if delta {
			k = 1
		}
		if m[k] == nil {
			var o out
			if !delta && t == ctl.CDS {
				o = a.all(false) // CDS in SotW is the whole state
			} else {
				o = a.msg(delta, idx, names)
			}
			m[k] = &o
		}
		return *m[k]
	}
	ss := make([]*stream, 0, len(a.streams))
	for s := range a.streams {
		ss = append(ss, s)
	}
	for _, s := range ss {
		if *mode != "loop" {
			s.ch <- get(s.delta)
		}
	}
	if *mode == "loop" {
		get(ss0delta(ss))
	}
	a.mu.Unlock()
	if *mode == "loop" {
		for _, s := range ss {
			s.g.SendMsg(m[b2i(s.delta)].r)
		}
	}
	return nil
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
func ss0delta(ss []*stream) bool { return len(ss) > 0 && ss[0].delta }

func (s *stream) send(o out) error {
	if o.s == nil {
		return s.g.SendMsg(o.r)
	}
	// proto mode: a shallow copy with its own nonce, marshalled per stream.
	switch d := o.s.(type) {
	case *discovery.DeltaDiscoveryResponse:
		return s.g.SendMsg(&discovery.DeltaDiscoveryResponse{TypeUrl: d.TypeUrl, SystemVersionInfo: d.SystemVersionInfo, Nonce: d.Nonce, Resources: d.Resources})
	case *discovery.DiscoveryResponse:
		return s.g.SendMsg(&discovery.DiscoveryResponse{TypeUrl: d.TypeUrl, VersionInfo: d.VersionInfo, Nonce: d.Nonce, Resources: d.Resources})
	}
	return nil
}

// resumes reports whether a delta request carries initial_resource_versions (5).
func resumes(b []byte) bool {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		if num == 5 {
			return true
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			return false
		}
		b = b[n+m:]
	}
	return false
}

// stale counts the initial_resource_versions entries that are not current.
func (a *adapter) stale(b []byte) (stale int) {
	known := 0
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if n < 0 || m < 0 {
			return -1
		}
		if num == 5 {
			e, _ := protowire.ConsumeBytes(b[n:])
			var k, v []byte
			for len(e) > 0 {
				num, _, n := protowire.ConsumeTag(e)
				x, m := protowire.ConsumeBytes(e[n:])
				if n < 0 || m < 0 {
					return -1
				}
				if num == 1 {
					k = x
				} else {
					v = x
				}
				e = e[n+m:]
			}
			known++
			if i, ok := a.index[string(k)]; !ok || a.vers[i] != string(v) {
				stale++
			}
		}
		b = b[n+m:]
	}
	return stale + len(a.vers) - known
}

func (a *adapter) serve(g grpc.ServerStream, delta bool) error {
	var r raw
	if err := g.RecvMsg(&r); err != nil {
		return err
	}
	first0 := r.b.MaterializeToBuffer(mem.DefaultBufferPool())
	r.b.Free()
	isResume := delta && resumes(first0.ReadOnlyData())
	if isResume && *resume == "check" {
		a.mu.Lock()
		stale := a.stale(first0.ReadOnlyData())
		a.mu.Unlock()
		if stale > 0 {
			return fmt.Errorf("%d stale", stale)
		}
	}
	first0.Free()
	s := &stream{g: g, delta: delta, ch: make(chan out, 64)}
	a.mu.Lock()
	var first out
	skip := false
	switch {
	case isResume && (*resume == "none" || *resume == "check"):
		skip = true
	case isResume && *resume == "empty":
		first = a.msg(true, nil, nil)
	default:
		first = a.all(delta)
	}
	a.streams[s] = true
	a.mu.Unlock()
	defer func() { a.mu.Lock(); delete(a.streams, s); a.mu.Unlock() }()
	if !skip {
		if err := s.send(first); err != nil {
			return err
		}
	}
	recv := func() error {
		for {
			var r raw
			if err := g.RecvMsg(&r); err != nil {
				return err
			}
			r.b.Free()
		}
	}
	if *mode == "loop" {
		return recv()
	}
	done := make(chan struct{})
	go func() { recv(); close(done) }()
	for {
		select {
		case o := <-s.ch:
			if err := s.send(o); err != nil {
				return err
			}
		case <-done:
			return nil
		}
	}
}

func (a *adapter) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ForceServerCodecV2(codec{encoding.GetCodecV2("proto")})}
}

func (a *adapter) Register(s *grpc.Server) {
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "envoy.service.discovery.v3.AggregatedDiscoveryService",
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{
			{StreamName: "StreamAggregatedResources", ServerStreams: true, ClientStreams: true,
				Handler: func(_ any, g grpc.ServerStream) error { return a.serve(g, false) }},
			{StreamName: "DeltaAggregatedResources", ServerStreams: true, ClientStreams: true,
				Handler: func(_ any, g grpc.ServerStream) error { return a.serve(g, true) }},
		},
	}, a)
}

func main() {
	ctl.Flags()
	flag.Parse()
	ctl.Main(&adapter{streams: map[*stream]bool{}})
}
