package client_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/internal/testkit/logtest"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

var limitOfTwo = xds.MemoryLimit{Bytes: 2*(3<<10) + 100, Hint: "--more"} // of two resources

// exceeded returns the limit that a server exceeds.
func exceeded(c *client.Client) string {
	synctest.Wait()
	for _, s := range c.Servers() {
		if s.Exceeded != nil {
			return s.Exceeded.Error()
		}
	}
	return ""
}

func TestHeldLimit(t *testing.T) {
	both(t, "SAFE-14 a response above the limit is refused, shown and logged", func(t *testing.T, v xds.Variant) {
		var log logtest.Log
		f := newFake(t, "xds://a", v)
		c := begin(t, client.Config{Held: limitOfTwo, Log: slog.New(slog.NewTextHandler(&log, nil))}, f)
		w := watch(t, c, xds.Cluster, "*")
		s := f.stream()
		s.respond(xds.Cluster, "1", "a=1", "b=1")
		w.want("a updated=1", "b updated=1", "* complete")
		s.respond(xds.Cluster, "2", "a=2", "b=1", "c=1")
		w.wantAll("a refused=1: with the 3 resources of CDS…", "c refused: with the 3 resources of CDS…")
		if got := exceeded(c); !strings.Contains(got, "--more") {
			t.Errorf("the state of the server has %q", got)
		}
		if n := len(log.Lines("limit=upstream_held")); n != 1 {
			t.Errorf("%d log lines", n)
		}
		s.respond(xds.Cluster, "3", "a=3", "b=1")
		w.want(map[xds.Variant][]string{xds.SotW: {"a updated=3", "c absent"}, xds.Delta: {"a updated=3"}}[v]...)
		if got := exceeded(c); (got == "") != (v == xds.SotW) { // a delta response may lack the refused resources
			t.Errorf("after a small response: %q", got)
		}
		s.end(errDown)
		time.Sleep(time.Minute)
		f.stream().respond(xds.Cluster, "4", "a=3", "b=1")
		if got := exceeded(c); got != "" {
			t.Errorf("on the next stream: %q", got)
		}
	})
	both(t, "SAFE-14 all servers share the limit", func(t *testing.T, v xds.Variant) {
		a, b := newFake(t, "xds://a", v), newFake(t, "xds://b", v)
		c := begin(t, client.Config{Held: limitOfTwo, Authorities: map[string]client.Authority{"other": {Servers: []client.Server{{Transport: b}}}}}, a)
		watch(t, c, xds.Cluster, "*")
		a.stream().respond(xds.Cluster, "1", "a=1")
		w := watch(t, c, xds.Cluster, "xdstp://other/envoy.config.cluster.v3.Cluster/b", "xdstp://other/envoy.config.cluster.v3.Cluster/c")
		b.stream().respond(xds.Cluster, "1", "xdstp://other/envoy.config.cluster.v3.Cluster/b=1", "xdstp://other/envoy.config.cluster.v3.Cluster/c=1")
		if got := w.take(); !strings.Contains(strings.Join(got, "\n"), "--more") || !strings.Contains(exceeded(c), "--more") {
			t.Errorf("%q", got)
		}
	})
}

// A response above GRPCOptions.Limit gets a NACK; above MaxMessage it ends the stream.
func TestResponseLimit(t *testing.T) {
	r := &xds.Response{Type: xds.Cluster, Nonce: "1", Changes: &xds.Changes{}}
	for range 100 {
		r.Upserts = append(r.Upserts, xds.NewResource(xds.Cluster, "a", []byte("\x0a\x01a")))
	}
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		t.Run("SAFE-14 a response with many entries/"+v.String(), func(t *testing.T) {
			b := wire.Encode(v, r, "").Materialize()
			k := open(t, handle(t, func(s grpc.ServerStream) error { s.SendMsg(&b); <-s.Context().Done(); return nil }).transport(client.GRPCOptions{
				Delta: v == xds.Delta, Limit: xds.MemoryLimit{Bytes: 50 << 10, Hint: "--more"},
			}), nil)
			if got, err := k.Recv(); err != nil || got.Nonce != "1" || len(got.Upserts) > 0 || len(got.Malformed) != 1 || !strings.Contains(got.Malformed[0].Error(), "--more") {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	both(t, "SAFE-14 a stream that ended is shown and logged", func(t *testing.T, v xds.Variant) {
		var log logtest.Log
		f := newFake(t, "xds://a", v)
		c := begin(t, client.Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, f)
		watch(t, c, xds.Cluster, "*")
		s := f.stream()
		s.respond(xds.Cluster, "1", "a=1")
		s.end(limitOfTwo.Exceeded(xds.LimitResponse, "a response has 1000000 bytes"))
		if got := exceeded(c); !strings.Contains(got, "--more") {
			t.Errorf("the state of the server has %q", got)
		}
		if n := len(log.Lines("response of an xDS server is too large")); n != 1 {
			t.Errorf("%d log lines", n)
		}
		time.Sleep(time.Minute)
		s = f.stream()
		s.respond(xds.Cluster, "2", "a=1")
		if got := exceeded(c); got == "" {
			t.Error("a new stream hides the limit at once")
		}
		time.Sleep(2 * time.Minute)
		if got := exceeded(c); got != "" {
			t.Errorf("two minutes after the upstream is good again: %q", got)
		}
	})
}

// A stream that answered is not an outage when it ends.
func TestMalformedResponseIsLogged(t *testing.T) {
	both(t, "SAFE-17 at growing intervals", func(t *testing.T, v xds.Variant) {
		var log logtest.Log
		f := newFake(t, "xds://a", v)
		c := begin(t, client.Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, f)
		watch(t, c, xds.Cluster, "*")
		for range 20 {
			s := f.stream()
			s.respond(xds.Cluster, "1", "a=1")
			s.end(fmt.Errorf("xds://a: %w", &xds.MalformedError{Err: errors.New("field 5 is too long")}))
			time.Sleep(10 * time.Second)
		}
		if n := len(log.Lines("malformed response of an xDS server")); n < 2 || n > 10 {
			t.Errorf("%d lines", n)
		}
	})
}

func TestCloseDuringLargeResponse(t *testing.T) {
	both(t, "SAFE-14 the rest of the response is not checked", func(t *testing.T, v xds.Variant) {
		f := newFake(t, "xds://a", v)
		var checked atomic.Int32
		var c *client.Client
		c = begin(t, client.Config{Check: func(*xds.Resource) error {
			if checked.Add(1) == 1 {
				go c.Close()
				time.Sleep(time.Second)
			}
			return nil
		}}, f)
		watch(t, c, xds.Cluster, "*")
		f.stream().respond(xds.Cluster, "1", "a=1", "b=1", "c=1")
		time.Sleep(time.Minute)
		if n := checked.Load(); n != 1 {
			t.Errorf("%d resources are checked", n)
		}
	})
}
