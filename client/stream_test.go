package client_test

import (
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/xds"
)

// Requests, ACKs and NACKs. The numbers are those of the behaviours that gRPC checks in its own
// client (docs/client-behaviours.md).
func TestRequestsACKsNACKs(t *testing.T) {
	both(t, "CLI-4 behaviour 1: the first request has the node, the names, and no version and nonce", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		watch(t, c, xds.Cluster, "b", "a")
		s := f.stream()
		synctest.Wait()
		r := <-s.requests
		if got := spell(r); got != "CDS node=n names=[a b]" && got != "CDS node=n sub=[a b]" {
			t.Error(got)
		}
		if got := fmt.Sprint(r.Node.UserAgentName, r.Node.ClientFeatures); got != "chancery[xds.config.resource-in-sotw xds.config.supports-resource-ttl]" {
			t.Error(got)
		}
	})

	both(t, "a transport that returned neither a response nor an error ends the stream", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		w := watch(t, c, xds.Cluster, "a")
		s := f.stream()
		s.send(nil)
		w.want("a unavailable: xds://a cannot be reached by node \"n\": the transport returned neither a response nor an error")
	})

	both(t, "CLI-4 behaviour 2: the node is in the first request of each stream only", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		watch(t, c, xds.Cluster, "a")
		watch(t, c, xds.Endpoint, "e")
		s := f.stream()
		s.want("CDS node=n names=[a]\nEDS names=[e]", "CDS node=n sub=[a]\nEDS sub=[e]")
		s.respond(xds.Cluster, "v1", "a=1")
		s.want("CDS version=v1 nonce=n1 names=[a]", "CDS nonce=n1")
		s.end(io.EOF)
		f.stream().want("CDS node=n version=v1 names=[a]\nEDS names=[e]", "CDS node=n sub=[a] initial=[{a 1}]\nEDS sub=[e]")
	})

	both(t, "CLI-2 CLI-14 behaviour 3: an ACK has version and nonce of the response, and all names", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		w := watch(t, c, xds.Endpoint, "a", "b")
		s := f.stream()
		s.skip()
		s.respond(xds.Endpoint, "v1", "a=1")
		s.want("EDS version=v1 nonce=n1 names=[a b]", "EDS nonce=n1")
		w.want("a updated=1")
	})

	both(t, "CLI-2 CLI-14 behaviour 4: a NACK has the version before, the nonce and the cause, and then an ACK follows", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		w := watch(t, c, xds.Endpoint, "a")
		s := f.stream()
		s.respond(xds.Endpoint, "v1", "a=1")
		s.skip()
		s.respond(xds.Endpoint, "v2", "a=bad")
		s.want("EDS version=v1 nonce=n2 names=[a] error=a: bad", "EDS nonce=n2 error=a: bad")
		s.respond(xds.Endpoint, "v3", "a=3")
		s.want("EDS version=v3 nonce=n3 names=[a]", "EDS nonce=n3")
		w.want("a updated=1", "a refused=1: bad", "a updated=3")
	})

	both(t, "CLI-2 behaviour 5: the NACK of a bad first response has no version", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		w := watch(t, c, xds.Cluster, "a")
		s := f.stream()
		s.skip()
		s.respond(xds.Cluster, "v1", "a=bad")
		s.want("CDS nonce=n1 names=[a] error=a: bad", "CDS nonce=n1 error=a: bad")
		w.want("a refused: bad")
	})

	both(t, "CLI-2 behaviour 6: the good resources of a mixed response are used, and watches of a bad resource get an error", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		good, bad := watch(t, c, xds.Cluster, "good"), watch(t, c, xds.Cluster, "broken")
		s := f.stream()
		s.skip()
		s.respond(xds.Cluster, "v1", "broken=bad one", "good=1")
		s.want("CDS nonce=n1 names=[broken good] error=broken: bad one", "CDS nonce=n1 error=broken: bad one")
		good.want("good updated=1")
		bad.want("broken refused: bad one")
	})

	both(t, "CLI-2 behaviour 7: an unreadable resource is refused, and the others are used", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		w := watch(t, c, xds.Cluster, "a")
		s := f.stream()
		s.skip()
		s.respond(xds.Cluster, "v1", "!resource 0 is no message", "a=1")
		s.want("CDS nonce=n1 names=[a] error=resource 0 is no message", "CDS nonce=n1 error=resource 0 is no message")
		w.want("a updated=1")
	})

	both(t, "CLI-6 behaviour 8: resources without a subscription are ignored, and the response is accepted", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		w := watch(t, c, xds.Cluster, "a")
		s := f.stream()
		s.skip()
		s.respond(xds.Cluster, "v1", "x=bad", "y=1")
		s.want("CDS version=v1 nonce=n1 names=[a]", "CDS nonce=n1")
		w.want()
	})

	both(t, "behaviour 9: a response of a type without a subscription gets no answer", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		w := watch(t, c, xds.Cluster, "a")
		s := f.stream()
		s.skip()
		s.respond(xds.Route, "v1", "a=1")
		s.respond(xds.TypeOf("type.googleapis.com/no.such.Type"), "v1", "a=1")
		s.send(&xds.Response{Nonce: "x"})
		s.want("", "")
		w.want()
	})

	both(t, "behaviour 10: a panic of the check is an error of the resource", func(t *testing.T, v xds.Variant) {
		f := newFake(t, "xds://a", v)
		c := begin(t, client.Config{Check: func(r *xds.Resource) error {
			if textOf(r) == "boom" {
				panic("boom")
			}
			return nil
		}}, f)
		w := watch(t, c, xds.Cluster, "a", "b")
		s := f.stream()
		s.skip()
		s.respond(xds.Cluster, "v1", "a=boom", "b=1")
		s.want("CDS nonce=n1 names=[a b] error=a: panic: boom", "CDS nonce=n1 error=a: panic: boom")
		w.want("a refused: panic: boom", "b updated=1")
	})

	both(t, "behaviour 11: the client does not connect before the first watch, and sends earlier requests once connected", func(t *testing.T, v xds.Variant) {
		f := newFake(t, "xds://a", v)
		f.fail(errDown)
		c := begin(t, client.Config{}, f)
		time.Sleep(time.Hour)
		f.idle()
		if n := f.opens.Load(); n != 0 {
			t.Fatalf("%d streams were opened", n)
		}
		seq := c.Watch(t.Context(), xds.Cluster, "z") // no loop reads it, so no watch starts
		_ = seq
		time.Sleep(time.Hour)
		if n := f.opens.Load(); n != 0 {
			t.Fatalf("%d streams were opened", n)
		}
		watch(t, c, xds.Cluster, "a")
		watch(t, c, xds.Endpoint, "e")
		watch(t, c, xds.Cluster, "b")
		f.fail(nil)
		time.Sleep(2 * time.Second)
		f.stream().want("CDS node=n names=[a b]\nEDS names=[e]", "CDS node=n sub=[a b]\nEDS sub=[e]")
	})

	both(t, "per type: each type has a stream of its own, with the node", func(t *testing.T, v xds.Variant) {
		f := newFake(t, "xds://a", v)
		f.perType = true
		c := begin(t, client.Config{}, f)
		clusters, endpoints := watch(t, c, xds.Cluster, "a"), watch(t, c, xds.Endpoint, "e")
		cds, eds := f.stream(), f.stream()
		if !cds.only.Is(xds.Cluster) || !eds.only.Is(xds.Endpoint) {
			t.Fatalf("streams of %v and %v", cds.only, eds.only)
		}
		cds.want("CDS node=n names=[a]", "CDS node=n sub=[a]")
		eds.want("EDS node=n names=[e]", "EDS node=n sub=[e]")
		r := response(xds.Cluster, "v1", "n1", "a=1")
		r.Type = nil // the type of the stream applies
		cds.send(r)
		cds.want("CDS version=v1 nonce=n1 names=[a]", "CDS nonce=n1")
		clusters.want("a updated=1")
		eds.end(errDown)
		endpoints.want(`e unavailable: xds://a cannot be reached by node "n": connection refused`)
		clusters.want()
		clusters.cancel()
		synctest.Wait()
		if f.open.Load() != 0 || cds.ctx.Err() == nil {
			t.Error("the stream of an unwatched type is open")
		}
	})
}
