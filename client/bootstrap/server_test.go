package bootstrap

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/internal/auth/certs"
	written "github.com/chancery-xds/chancery/internal/envoy/bootstrap"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A client with each bootstrap that `chancery bootstrap` writes gets resources from a real server, with
// certificates on both sides.
func TestRealServer_CLI1(t *testing.T) {
	w := newWorld(t)
	p := w.servers.Issue("xds", "localhost", "127.0.0.1")
	w.write("server.pem", p.Cert)
	w.write("server-key.pem", p.Key)
	in := func(name string) string { return filepath.Join(w.dir, name) }
	source, err := certs.Open(certs.Files{Cert: in("server.pem"), Key: in("server-key.pem"), ClientCA: in("users.pem")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	st := store.New()
	if _, err := st.Update(func(tx *store.Tx) error {
		tx.Set(xds.NewResource(xds.Cluster, "a", []byte("\x0a\x01a")))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	s := server.New(st)
	g := grpc.NewServer(append(server.GRPCOptions(), grpc.Creds(s.Credentials(credentials.NewTLS(source.Config()))), grpc.WaitForHandlers(true))...)
	if err := s.Register(g); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l) }()
	t.Cleanup(func() { g.Stop(); <-done })

	options := written.Options{Node: "edge-1", Server: l.Addr().String(), TLS: &written.TLS{CA: in("ca.pem"), Cert: in("cert.pem"), Key: in("key.pem")}}
	watch := func(how string, c client.Config, err error) {
		t.Helper()
		if err != nil {
			t.Error(how, err)
			return
		}
		has, err := client.New(c)
		if err != nil {
			t.Fatal(how, err)
		}
		defer func() { _ = has.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for e, err := range has.Watch(ctx, xds.Cluster, "a") {
			if err != nil || e.Kind != client.Updated || string(e.Resource.Body) != "\x0a\x01a" {
				t.Errorf("%s: %v %v", how, e, err)
			}
			break
		}
	}
	for how, change := range map[string]func(*written.Options){
		"ads": func(*written.Options) {}, "delta": func(o *written.Options) { o.Delta = true }, "per type": func(o *written.Options) { o.PerType = true },
		"delta per type": func(o *written.Options) { o.Delta, o.PerType = true, true },
	} {
		o := options
		change(&o)
		text, err := written.Envoy(o)
		if err != nil {
			t.Fatal(err)
		}
		c, err := Envoy("b.json", text, Options{})
		if err != nil {
			t.Fatal(how, err)
		}
		if c.Listeners != c.Clusters {
			for _, s := range c.Listeners.Servers {
				_ = s.Transport.Close()
			}
		}
		watch(how, *c.Clusters, nil)
	}
	text, err := written.GRPC(options)
	if err != nil {
		t.Fatal(err)
	}
	c, err := GRPC("b.json", text, Options{})
	if err != nil {
		t.Fatal(err)
	}
	watch("gRPC", c.Config, nil)
	if err := os.WriteFile(in("bootstrap.json"), []byte(strings.ReplaceAll(string(text), "127.0.0.1", "localhost")), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(envFile, in("bootstrap.json"))
	c, err = FromEnv(Options{})
	if err != nil {
		t.Fatal(err)
	}
	watch("gRPC's file", c.Config, nil)
}
