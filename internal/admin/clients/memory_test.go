package clients

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

var five = []*xds.Type{xds.Cluster, xds.Endpoint, xds.Listener, xds.Route, xds.Secret}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A client with 5 types takes at most 2 KiB of memory, without its stream.
func TestMemory(t *testing.T) {
	if raceEnabled || testing.Short() {
		t.Skip("the race detector uses memory itself")
	}
	const clients = 20_000
	f := &fleet{Tracker: New(Options{})}
	streams := make([]*server.Stream, clients)
	for i := range streams {
		n := envoy(fmt.Sprintf("sidecar~10.0.%d.%d~payments-7d9f8b6c5-x%d.prod~prod.svc.cluster.local", i/256, i%256, i))
		f.last++
		streams[i] = &server.Stream{ID: f.last, Node: &n, Variant: xds.Delta, Peer: at(fmt.Sprintf("10.0.%d.%d:51234", i/256, i%256)), Since: time.Now()}
	}
	f.Tracker = New(Options{})
	for range f.ring.size { // fill the ring, whose memory does not depend on clients
		f.Note(api.Event{})
	}
	before := heap()
	for _, st := range streams {
		f.Opened(st)
		for _, u := range five {
			f.Event(st, protocol.Event{Kind: protocol.Opened, Type: u})
			f.Event(st, protocol.Event{Kind: protocol.Subscribed, Type: u, Wildcard: true})
			f.send(st, u)
			f.ack(st, u)
		}
	}
	if each := (heap() - before) / clients; each > 2048 {
		t.Errorf("%d bytes a client", each)
	} else {
		t.Logf("%d bytes a client", each)
	}
	for i, st := range streams {
		f.Closed(st, nil)
		streams[i] = nil
	}
	if left := int64(heap()) - int64(before); left > 4<<20 {
		t.Errorf("%d bytes stay in memory after all clients have disconnected", left)
	}
	runtime.KeepAlive(f)
}

// The memory is limited even if clients connect, refuse and disconnect as fast as possible, with texts of
// any length. It has the connected clients, and a fixed number of disconnected clients and events.
func TestMemoryIsBounded(t *testing.T) {
	if raceEnabled || testing.Short() {
		t.Skip("the race detector uses memory itself")
	}
	f := New(Options{Events: 1000, Departed: 100})
	before := heap()
	long := strings.Repeat("x", 4000)
	for i := range 1500 {
		st := &server.Stream{
			ID: uint64(i + 1), Peer: at(fmt.Sprintf("10.0.%d.%d:%d", i%256, i%255, i%60_000+1)),
			Node: &xds.Node{ID: fmt.Sprint(i%700, long), Cluster: strings.Repeat("c", 1<<16), UserAgentName: long, UserAgentVersion: "\xff\x00\x1b"},
		}
		f.Opened(st)
		for k := range 40 {
			u := xds.TypeOf(fmt.Sprint("type.googleapis.com/", k, strings.Repeat("t", 900)))
			f.Event(st, protocol.Event{Kind: protocol.Opened, Type: u})
			f.Event(st, protocol.Event{Kind: protocol.Subscribed, Type: u, Count: 1, Refuses: true})
			for range 3 {
				f.Event(st, protocol.Event{Kind: protocol.Sent, Type: u, Nonce: fmt.Sprint(i), Count: 9})
			}
			f.Event(st, protocol.Event{Kind: protocol.Nacked, Type: u, Nonce: fmt.Sprint(i), Names: []string{long}, Refuses: true, Error: &xds.Status{Message: fmt.Sprint(i, k, long, "\x1b")}})
		}
		if i%4 > 0 {
			f.Closed(st, nil)
		} else {
			f.Closed(st, fmt.Errorf("%s", long))
		}
	}
	if used := int64(heap()) - int64(before); used > 24<<20 {
		t.Errorf("%d KiB", used>>10)
	} else {
		t.Logf("%d KiB", used>>10)
	}
	if len(f.nodes) > 100 || len(f.clients) != 0 || len(f.left) != 100 {
		t.Errorf("%d nodes, %d clients, %d disconnected", len(f.nodes), len(f.clients), len(f.left))
	}
	f.Clients(Filter{All: true, Left: true})
	f.Summary()
	runtime.KeepAlive(f)
}

// All methods concurrently, for the race detector.
func TestConcurrent(t *testing.T) {
	f := New(Options{Events: 50, Departed: 5, Groups: func(n *xds.Node) []string { return []string{n.Cluster} }, Place: func(*xds.Node, *xds.Type, string) string { return "x" }})
	var streams, readers sync.WaitGroup
	for g := range 4 {
		streams.Go(func() {
			for i := range 200 {
				n := envoy(fmt.Sprint("n", i%7))
				st := &server.Stream{ID: uint64(g*1000 + i + 1), Node: &n, Peer: at(fmt.Sprintf("10.0.0.%d:%d", g+1, i%3+1)), Since: time.Now()}
				f.Opened(st)
				for _, u := range five {
					f.Event(st, protocol.Event{Kind: protocol.Subscribed, Type: u, Count: 1})
					f.Event(st, protocol.Event{Kind: protocol.Sent, Type: u, Nonce: "1"})
					f.Event(st, protocol.Event{Kind: protocol.Nacked, Type: u, Nonce: "1", Refuses: true, Names: []string{"a"}, Error: &xds.Status{Message: fmt.Sprint("a ", i%5)}})
					f.Event(st, protocol.Event{Kind: protocol.Waived, Type: u, By: xds.Cluster, Name: "a"})
					f.Event(st, protocol.Event{Kind: protocol.Acked, Type: u, Nonce: "1", Refuses: i%2 == 0})
					if i%2 == 1 {
						f.Event(st, protocol.Event{Kind: protocol.Recovered, Type: u})
					}
				}
				f.Closed(st, nil)
			}
		})
	}
	done := make(chan struct{})
	for range 2 {
		node := pattern(t, "n**")
		readers.Go(func() {
			for {
				f.Clients(Filter{All: true, Left: true, Group: "edge"})
				f.Summary()
				f.Client("n1")
				f.Streams("n2")
				f.Selected(Filter{Node: node})
				f.Events(0)
				f.GroupsChanged()
				f.Changed()
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	streams.Wait()
	close(done)
	readers.Wait()
	if l := f.Clients(Filter{All: true}); l.Total != 0 {
		t.Errorf("%+v", l)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.left {
		f.free(d.rows)
	}
	if len(f.causes.known) != 0 || f.causes.bytes != 0 {
		t.Errorf("%d causes of %d bytes are left", len(f.causes.known), f.causes.bytes)
	}
}

// An ended stream keeps the refusals of maxKeptTypes types until the client is forgotten. For a client
// with open streams, only a few ended streams are kept, for a short time.
func TestEndedStreamsAreForgotten(t *testing.T) {
	within(t, "refusals", func(w *testServer) {
		w.Tracker.opts.Departed = 1
		c := w.client(xds.Delta, envoy("a"))
		for i := range maxKeptTypes + 4 {
			typ := xds.TypeOf(fmt.Sprintf("type.googleapis.com/a.B%d", i))
			w.put(typ, "x")
			c.Subscribe(typ, "x")
			c.NACK(c.Next(typ), fmt.Sprint("no ", i))
		}
		synctest.Wait()
		if n := len(w.Tracker.causes.known); n != maxKeptTypes+4 {
			t.Errorf("%d causes", n)
		}
		c.Close()
		synctest.Wait()
		if n := len(w.Tracker.causes.known); n != maxKeptTypes {
			t.Errorf("%d causes of %d types that are kept", n, maxKeptTypes)
		}
		if n := len(w.Tracker.left[0].rows[0].types); n != maxKeptTypes {
			t.Errorf("%d types are kept", n)
		}
		if len(w.Tracker.left) != 1 || len(w.Tracker.left[0].rows) != 1 || w.Tracker.left[0].rows[0].stream != nil {
			t.Error("a remembered client keeps its stream in memory")
		}
		w.client(xds.Delta, envoy("b")).Close()
		d := w.client(xds.Delta, envoy("b"))
		d.Subscribe(xds.Cluster, "*")
		synctest.Wait()
		d.Close()
		synctest.Wait()
		if len(w.Tracker.causes.known) != 0 || w.Tracker.causes.bytes != 0 {
			t.Errorf("no client refuses anything, but %d causes of %d bytes are left", len(w.Tracker.causes.known), w.Tracker.causes.bytes)
		}
	})
	within(t, "streams", func(w *testServer) {
		conn := xdstest.Serve(w.T, w.server)
		open := func() *xdstest.Client {
			c := xdstest.Delta(w.T, conn, xdstest.WithNode(envoy("a")), xdstest.WithTimeout(time.Hour))
			c.Subscribe(xds.Cluster, "*")
			synctest.Wait()
			return c
		}
		open() // stays open
		late := func() int {
			w.mu.RLock()
			defer w.mu.RUnlock()
			for _, c := range w.Tracker.clients {
				return len(c.ended)
			}
			return -1
		}
		for range maxEnded + 3 {
			open().Close()
			synctest.Wait()
		}
		if n := late(); n != maxEnded {
			t.Errorf("%d ended streams are kept", n)
		}
		time.Sleep(endedFor + time.Second)
		open()
		if n := late(); n != 0 {
			t.Errorf("%d ended streams are kept for too long", n)
		}
	})
}
