package server

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/xds"
)

// A client that reconnects with a version from another server gets an answer when the source is as
// new as that server.
func TestCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type question struct {
			known  bool
			answer chan error
		}
		asked := make(chan question, 10)
		w := serve(t, WithCatchUp(func(ctx context.Context, known bool) error {
			q := question{known, make(chan error)}
			asked <- q
			select {
			case err := <-q.answer:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}))
		w.set(xds.Cluster, res("a", "1"))
		fresh := w.sotw(t, w.dial(t))
		fresh.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		version := fresh.want().VersionInfo // without a call of the function

		back := func(version string, known bool) (*sotwClient, question) {
			t.Helper()
			c := w.sotw(t, w.dial(t))
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, VersionInfo: version})
			q := <-asked
			if q.known != known {
				t.Errorf("%q is known: %t", version, q.known)
			}
			return c, q
		}
		c, q := back("of another server", false)
		w.set(xds.Cluster, res("a", "2")) // this change comes first
		q.answer <- nil
		if got := c.want(); string(got.Resources[0].Value) != "2" {
			t.Errorf("%s", got)
		}
		c, q = back("of another server", false)
		q.answer <- errors.New("nobody knows")
		if err := c.end(); status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
		c, q = back(version, true)
		q.answer <- nil
		if got := c.want(); string(got.Resources[0].Value) != "2" {
			t.Errorf("%s", got)
		}
		if len(asked) > 0 {
			t.Error("the function was called more than once")
		}
	})
}

// A board is the memory that servers share.
type board struct{ sync.Map }

func (b *board) Has(node, url string) bool {
	_, ok := b.Load(node + " " + url)
	return ok
}
func (b *board) Refused(node, url string)  { b.Store(node+" "+url, true) }
func (b *board) Accepted(node, url string) { b.Delete(node + " " + url) }

// A client that refused a response of one server gets everything again from another server, even if
// the other server has the version that the client states.
func TestSharedRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b board
		one, two := serve(t, WithRefusals(&b)), serve(t, WithRefusals(&b))
		for _, w := range []*world{one, two} {
			w.set(xds.Cluster, res("a", "1"))
		}
		ask := func(c *sotwClient, version string) {
			c.send(&discovery.DiscoveryRequest{Node: &corev3.Node{Id: "n"}, TypeUrl: xds.Cluster.URL, VersionInfo: version})
		}
		c := one.sotw(t, one.dial(t))
		ask(c, "")
		good := c.want()
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, VersionInfo: good.VersionInfo, ResponseNonce: good.Nonce})
		one.set(xds.Cluster, res("a", "2"))
		bad := c.want()

		elsewhere := two.sotw(t, two.dial(t))
		ask(elsewhere, good.VersionInfo) // a version that the server has
		synctest.Wait()
		if err := elsewhere.s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if got, err := elsewhere.s.Recv(); err == nil {
			t.Errorf("the client got resources that it has: %v", got)
		}

		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, VersionInfo: good.VersionInfo, ResponseNonce: bad.Nonce, ErrorDetail: &rpcstatus.Status{Code: 3, Message: "no"}})
		synctest.Wait()
		elsewhere = two.sotw(t, two.dial(t))
		ask(elsewhere, good.VersionInfo) // the client may have a part of the refused response
		again := elsewhere.want()
		if again.VersionInfo != good.VersionInfo {
			t.Error(again.VersionInfo)
		}
		elsewhere.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, VersionInfo: again.VersionInfo, ResponseNonce: again.Nonce})
		synctest.Wait()
		if b.Has("n", xds.Cluster.URL) {
			t.Error("the shared refusal did not end with the ACK")
		}
	})
}
