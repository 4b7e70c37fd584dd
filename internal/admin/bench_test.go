package admin

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/clients"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// crowd is a tracker of n clients with five types each; one in a hundred refuses one type.
func crowd(n int) *clients.Tracker {
	tr := clients.New(clients.Options{Groups: func(n *xds.Node) []string { return []string{n.Cluster} }})
	for i := range n {
		st := &server.Stream{ID: uint64(i + 1), Node: &xds.Node{ID: fmt.Sprintf("node-%05d", i), Cluster: fmt.Sprintf("c%d", i%20), UserAgentName: "envoy", UserAgentVersion: "1.40.0"}, Since: time.Now()}
		tr.Opened(st)
		for j, t := range xds.Types()[:5] {
			tr.Event(st, protocol.Event{Kind: protocol.Sent, Type: t, Version: "1", Nonce: fmt.Sprint(j)})
			if i%100 == 0 && j == 0 {
				tr.Event(st, protocol.Event{Kind: protocol.Nacked, Type: t, Version: "1", Nonce: fmt.Sprint(j), Error: &xds.Status{Message: "no such thing"}, Settled: true, Refuses: true})
				continue
			}
			tr.Event(st, protocol.Event{Kind: protocol.Acked, Type: t, Version: "1", Nonce: fmt.Sprint(j), Settled: true})
		}
	}
	return tr
}

// The status of 10,000 clients takes at most 300 ms.
func BenchmarkTenThousand(b *testing.B) {
	s := newServer(nil)
	s.Tracker = crowd(10_000)
	h := s.Handler(loopback)
	for _, path := range []string{"/api/v1/status", "/api/v1/clients", "/api/v1/clients?all=1", "/api/v1/groups", "/api/v1/refusals"} {
		b.Run(path, func(b *testing.B) {
			for b.Loop() {
				if w := ask(h, "GET "+path, ""); w.Code != 200 {
					b.Fatal(w.Code)
				} else {
					b.ReportMetric(float64(w.Body.Len()), "bytes/answer")
				}
			}
		})
	}
}

func TestStatusOfTenThousandClients(t *testing.T) {
	s := newServer(nil)
	s.Tracker = crowd(10_000)
	began := time.Now()
	w := ask(s.Handler(loopback), "GET /api/v1/status", "")
	if took := time.Since(began); took > 3*time.Second { // generous, for busy machines with the race detector; see the benchmark
		t.Errorf("took %v", took)
	}
	if w.Code != 200 || !strings.Contains(w.Body.String(), `"connected":10000`) {
		t.Errorf("%d %.300s", w.Code, w.Body)
	}
}
