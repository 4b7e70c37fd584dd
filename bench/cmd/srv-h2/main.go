// srv-h2 is srv-limit without grpc-go: a minimal HTTP/2 server for the client of
// this benchmark, without flow control for its messages and without trailers. It writes
// one pre-framed message to each connection with one write(2) of a shared buffer. A
// connection has one stream. Its figures are the minimum for gRPC over TCP in Go.
package main

import (
	"bufio"
	"encoding/binary"
	"flag"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/bench/ctl"
)

type conn struct {
	c     net.Conn
	id    uint32
	delta bool
}

type adapter struct {
	mu    sync.Mutex
	conns map[*conn]bool
	typ   string
	index map[string]int
	names []string
	any   []*anypb.Any
	vers  []string
	ver   int
	full  [2][]byte
}

func (a *adapter) Register(*grpc.Server) {}

func anyOf(t string, m proto.Message) *anypb.Any {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(err)
	}
	return &anypb.Any{TypeUrl: t, Value: b}
}

// frames encodes a response as DATA frames of stream 1.
func (a *adapter) frames(delta bool, idx []int) []byte {
	v := strconv.Itoa(a.ver)
	var m proto.Message
	if delta {
		d := &discovery.DeltaDiscoveryResponse{TypeUrl: a.typ, SystemVersionInfo: v, Nonce: v}
		for _, i := range idx {
			d.Resources = append(d.Resources, &discovery.Resource{Name: a.names[i], Version: a.vers[i], Resource: a.any[i]})
		}
		m = d
	} else {
		d := &discovery.DiscoveryResponse{TypeUrl: a.typ, VersionInfo: v, Nonce: v}
		for _, i := range idx {
			d.Resources = append(d.Resources, a.any[i])
		}
		m = d
	}
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	g := make([]byte, 5, 5+len(b))
	binary.BigEndian.PutUint32(g[1:], uint32(len(b)))
	g = append(g, b...)
	var out []byte
	for len(g) > 0 {
		n := min(len(g), 16384)
		out = append(out, byte(n>>16), byte(n>>8), byte(n), 0, 0, 0, 0, 0, 1)
		out = append(out, g[:n]...)
		g = g[n:]
	}
	return out
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (a *adapter) all(delta bool) []byte {
	k := b2i(delta)
	if a.full[k] == nil {
		idx := make([]int, len(a.any))
		for i := range idx {
			idx[i] = i
		}
		a.full[k] = a.frames(delta, idx)
	}
	return a.full[k]
}

func (a *adapter) Set(t string, rs []ctl.Resource) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ver++
	a.typ, a.index, a.any, a.vers, a.names = t, map[string]int{}, nil, nil, nil
	for i, r := range rs {
		a.index[r.Name] = i
		a.names = append(a.names, r.Name)
		a.any = append(a.any, anyOf(t, r.Msg))
		a.vers = append(a.vers, strconv.Itoa(a.ver))
	}
	a.full = [2][]byte{}
	return nil
}

func (a *adapter) Update(t string, rs []ctl.Resource) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ver++
	var idx []int
	for _, r := range rs {
		i := a.index[r.Name]
		a.any[i] = anyOf(t, r.Msg)
		a.vers[i] = strconv.Itoa(a.ver)
		idx = append(idx, i)
	}
	a.full = [2][]byte{}
	var m [2][]byte
	for c := range a.conns {
		k := b2i(c.delta)
		if m[k] == nil {
			if !c.delta && t == ctl.CDS {
				m[k] = a.all(false)
			} else {
				m[k] = a.frames(c.delta, idx)
			}
		}
		c.c.Write(m[k])
	}
	return nil
}

func (a *adapter) Serve(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go a.handle(c)
	}
}

func (a *adapter) handle(nc net.Conn) {
	defer nc.Close()
	br := bufio.NewReaderSize(nc, 2048)
	if _, err := io.ReadFull(br, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	fr := http2.NewFramer(nc, br)
	fr.SetReuseFrames()
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
	fr.WriteWindowUpdate(0, 1<<31-1-65535)
	c := &conn{c: nc}
	started := false
	defer func() { a.mu.Lock(); delete(a.conns, c); a.mu.Unlock() }()
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				fr.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				fr.WritePing(true, f.Data)
			}
		case *http2.MetaHeadersFrame:
			c.id, c.delta = f.StreamID, strings.HasSuffix(f.PseudoValue("path"), "DeltaAggregatedResources")
		case *http2.DataFrame:
			if started || len(f.Data()) == 0 {
				continue
			}
			started = true
			h := append([]byte{0x88, 0x0f, 0x10, 16}, "application/grpc"...)
			a.mu.Lock()
			fr.WriteHeaders(http2.HeadersFrameParam{StreamID: c.id, BlockFragment: h, EndHeaders: true})
			nc.Write(a.all(c.delta))
			a.conns[c] = true
			a.mu.Unlock()
		}
	}
}

func main() {
	ctl.Flags()
	flag.Parse()
	ctl.Main(&adapter{conns: map[*conn]bool{}})
}
