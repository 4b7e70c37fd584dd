package rest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A guarded source serves only requests with a token, on a connection of a known process.
type guarded struct{ *store.Store }

type process struct{ credentials.CommonAuthInfo }

func (process) AuthType() string { return "process" }

func (g guarded) Watch(ctx context.Context, n *xds.Node) (*store.Watch, error) {
	p, _ := peer.FromContext(ctx)
	if _, ok := p.AuthInfo.(process); !ok {
		return nil, status.Error(codes.PermissionDenied, "nothing is known of the connection")
	}
	if got := metadata.ValueFromIncomingContext(ctx, "authorization"); fmt.Sprint(got) != "[Bearer word]" {
		return nil, status.Errorf(codes.Unauthenticated, "%d words", len(got))
	}
	return g.Store.Watch(ctx, n)
}

func TestIdentity(t *testing.T) {
	start := func(t *testing.T) *world {
		w := newWorld(t)
		w.set("a")
		w.Server = server.New(guarded{w.store}, server.WithLogger(slog.New(slog.NewTextHandler(w.log, nil))))
		w.web.Handler = New(w.Server, WithLogger(slog.New(slog.NewTextHandler(w.log, nil))))
		return w
	}
	ask := func(t *testing.T, c *client, words ...string) *reply {
		t.Helper()
		r, err := c.do(t.Context(), http.MethodPost, xds.Cluster.REST, http.Header{"Authorization": words}, `{"node":{"id":"n"}}`)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	within(t, "SAFE-13 a source knows the header Authorization, and what ConnContext says of the connection", func(t *testing.T) {
		w := start(t)
		refused(t, ask(t, w.client(), "Bearer word"), 403, 7, "nothing is known of the connection")
		w.web.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			return peer.NewContext(ctx, &peer.Peer{Addr: c.RemoteAddr(), AuthInfo: process{}})
		}
		c := w.client()
		ask(t, c, "Bearer word").gets(t, 0, "a")
		for n, words := range [][]string{nil, {"Bearer other"}, {"Bearer word", "Bearer word"}} {
			r := ask(t, c, words...)
			refused(t, r, 401, 16, fmt.Sprint(n, " words"))
			if r.Header.Get("WWW-Authenticate") != "Bearer" || !r.Close {
				t.Errorf("%v: a client has to connect anew, which its certificate may need", r.Header)
			}
		}
		time.Sleep(time.Second) // net/http gives clients time to read the response
	})
	within(t, "SAFE-13 also when the connection was parked meanwhile", func(t *testing.T) {
		w := start(t)
		w.web.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			return peer.NewContext(ctx, &peer.Peer{Addr: c.RemoteAddr(), AuthInfo: process{}})
		}
		c := w.client()
		version := ask(t, c, "Bearer word").gets(t, 0, "a").VersionInfo
		body := fmt.Sprintf(`{"node":{"id":"n"},"version_info":%q}`, version)
		for range 2 {
			r, err := c.do(t.Context(), http.MethodPost, xds.Cluster.REST, http.Header{"Authorization": {"Bearer word"}}, body)
			if err != nil {
				t.Fatal(err)
			}
			r.unchanged(t, 30*time.Second)
		}
		if n := w.lis.count(); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}
