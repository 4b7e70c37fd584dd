package clients

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// A client is ready once it has accepted a response of each type, and stays ready while it is connected,
// also while it refuses a newer one. A strict answer counts refusals and unanswered responses.
func TestReady(t *testing.T) {
	for _, v := range variants {
		within(t, v.String(), func(w *testServer) {
			want := func(ok, strict bool, why string) {
				t.Helper()
				synctest.Wait()
				got, text := w.Ready("edge-1", "", false)
				always, strictText := w.Ready("edge-1", "", true)
				if got != ok || always != strict || !strings.Contains(text, why) && !strings.Contains(strictText, why) {
					t.Errorf("%t %q, strict %t %q; want %t, %t, %q", got, text, always, strictText, ok, strict, why)
				}
			}
			want(false, false, "no client with this node ID is connected")
			w.put(xds.Cluster, "one")
			c := w.client(v, envoy("edge-1"))
			c.Subscribe(xds.Cluster, "*")
			first := c.Next(xds.Cluster)
			want(false, false, "CDS is SENT")
			c.NACK(first, "no")
			time.Sleep(time.Minute)
			want(false, false, "CDS is NACKED") // it has nothing
			w.put(xds.Cluster, "one=2", "two")
			c.ACK(c.Next(xds.Cluster))
			want(false, false, "less than 1s ago") // the client may still ask for listeners
			for _, c := range w.nodes["edge-1"].clients {
				if why := unready(c.streams, w.now()-int64(time.Hour), false); why != "" {
					t.Errorf("the clock was set back: %s", why)
				}
			}
			time.Sleep(time.Second)
			want(true, true, "")
			w.put(xds.Cluster, "three")
			last := c.Next(xds.Cluster)
			want(true, false, "CDS is SENT")
			c.NACK(last, "no")
			want(true, false, "CDS is NACKED")
			c.Close()
			want(false, false, "no client with this node ID is connected")
		})
	}
}

// A second client that uses the node ID at another address does not count for a probe from the first one's
// address. For a caller elsewhere, all clients count.
func TestReadyOfCallersAddress(t *testing.T) {
	tr := New(Options{})
	at := func(id uint64, address string) {
		st := &server.Stream{ID: id, Node: &xds.Node{ID: "edge-1"}, Peer: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address))}
		tr.Opened(st)
	}
	at(1, "10.0.0.1:1")
	at(2, "[2001:db8::2]:1")
	for _, c := range tr.clients {
		c.complete.Store(c.peer == "10.0.0.1:1")
	}
	for from, want := range map[string]bool{"10.0.0.1": true, "2001:db8::2": false, "10.0.0.3": false, "": false} {
		if ok, why := tr.Ready("edge-1", from, false); ok != want || ok != (why == "") {
			t.Errorf("from %q: %v %s", from, ok, why)
		}
		if ok, _ := tr.Ready("edge-1", from, true); ok {
			t.Errorf("from %q, strict: ready", from)
		}
	}
	at(3, "10.0.0.1:2") // the same address, and not ready
	if ok, _ := tr.Ready("edge-1", "10.0.0.1", false); ok {
		t.Error("one of two clients at the address is ready")
	}
}
