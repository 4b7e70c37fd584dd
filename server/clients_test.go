package server

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/chancery-xds/chancery/internal/logs/dedup"
	"github.com/chancery-xds/chancery/xds"
)

func TestClients(t *testing.T) {
	informed := func(t *testing.T, opts ...Option) (*world, *logbook) {
		var book logbook
		return serve(t, append(opts, book.at(slog.LevelInfo))...), &book
	}
	open := func(t *testing.T, w *world, node *corev3.Node, typ *xds.Type) *sotwClient {
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: typ.URL, ResourceNames: []string{"a"}, Node: node})
		synctest.Wait()
		return c
	}
	within(t, "OBS-3 a client that connects and leaves causes two lines, whatever its streams", func(t *testing.T) {
		w, book := informed(t)
		node := &corev3.Node{Id: "n", Cluster: "edge", UserAgentName: "envoy", UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: "1.40"}}
		first := open(t, w, node, xds.Cluster)
		second := open(t, w, node, xds.Endpoint)
		if lines := book.lines("client connected"); len(lines) != 1 || !strings.Contains(lines[0], `level=INFO msg="client connected" node=n cluster=edge peer=bufconn agent="envoy 1.40" api=ADS variant=sotw stream=1`) {
			t.Error(lines)
		}
		time.Sleep(time.Minute)
		first.s.CloseSend()
		synctest.Wait()
		if lines := book.lines("client left"); lines != nil {
			t.Error(lines)
		}
		second.s.CloseSend()
		synctest.Wait()
		if lines := book.lines("client left"); len(lines) != 1 || !strings.Contains(lines[0], `level=INFO msg="client left" node=n peer=bufconn after=1m0s code=OK why="the client ended its stream"`) {
			t.Error(lines)
		}
		conn := w.dial(t)
		w.sotw(t, conn).send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, ResourceNames: []string{"a"}, Node: node})
		synctest.Wait()
		if lines := book.lines("client connected"); len(lines) != 2 {
			t.Error(lines)
		}
		conn.Close()
		synctest.Wait()
		if lines := book.lines("client left"); len(lines) != 2 || !strings.Contains(lines[1], `code=Canceled why="the client canceled its stream, or its connection ended"`) {
			t.Error(lines)
		}
		open(t, w, node, xds.Cluster)
		if n := len(w.clients.known); n != 1 {
			t.Errorf("%d clients are known", n)
		}
	})
	within(t, "OBS-3 another node is another client, and so is each stream without a node", func(t *testing.T) {
		w, book := informed(t)
		for _, n := range []*corev3.Node{{Id: "a"}, {Id: "b"}, nil, nil} {
			open(t, w, n, xds.Cluster)
		}
		if lines := book.lines("client connected"); len(lines) != 4 {
			t.Error(lines)
		}
	})
	within(t, "OBS-3 a client that the server ends leaves with a reason", func(t *testing.T) {
		w, book := informed(t, WithAge(Age{Max: time.Hour}))
		open(t, w, &corev3.Node{Id: "n"}, xds.Cluster)
		time.Sleep(2 * time.Hour)
		if lines := book.lines("client left"); len(lines) != 1 || !strings.Contains(lines[0], "code=Unavailable") || !strings.Contains(lines[0], "the stream has reached its maximum age") {
			t.Error(lines)
		}
		if n := len(w.clients.known); n != 0 {
			t.Errorf("%d clients are known for ever", n)
		}
	})
	within(t, "OBS-3 a few clients of a fleet have their own lines, and one line counts the others", func(t *testing.T) {
		w, book := informed(t)
		for i := range 50 {
			open(t, w, &corev3.Node{Id: fmt.Sprint("n-", i)}, xds.Cluster)
		}
		if lines := book.lines("client connected"); len(lines) != maxFew {
			t.Errorf("%d lines", len(lines))
		}
		time.Sleep(dedup.Within)
		synctest.Wait()
		lines := book.lines("client connected")
		if len(lines) != maxFew+1 || !strings.Contains(lines[maxFew], "node=n-49") || !strings.Contains(lines[maxFew], fmt.Sprint("repeated=", 50-maxFew)) {
			t.Error(len(lines), lines[len(lines)-1])
		}
		time.Sleep(2 * dedup.Within)
	})
	within(t, "OBS-3 a stream without a request is not a client", func(t *testing.T) {
		w, book := informed(t)
		c := w.sotw(t, w.dial(t))
		c.s.CloseSend()
		c.end()
		synctest.Wait()
		if book.String() != "" {
			t.Error(book)
		}
	})
}
