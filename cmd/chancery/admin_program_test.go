package main

import (
	"context"
	"net"
	"os/exec"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/chancery-xds/chancery/admin"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// The commands work with a program that serves the admin API with package admin.
func TestCommandsWorkWithProgram(t *testing.T) {
	st := store.New()
	a := admin.New(st, admin.Options{Name: "shop"})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { a.Run(ctx); ended <- nil }()
	go func() { ended <- a.Serve(ctx, l) }()
	defer func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}()
	cluster, err := wire.NewResource(xds.Cluster, "", &clusterv3.Cluster{Name: "backend"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Update(func(tx *store.Tx) error { tx.Set(cluster); return nil }); err != nil {
		t.Fatal(err)
	}
	c := xdstest.Delta(t, xdstest.Serve(t, server.New(a, a.ServerOptions()...)), xdstest.WithNode(xds.Node{ID: "edge-1"}))
	c.Subscribe(xds.Cluster, "*")
	c.ACK(c.Expect(xds.Cluster, "backend"))
	for _, tt := range []struct{ command, want string }{
		{"wait --timeout 10s", ", shop (process "},
		{"status", "SERVER   shop, up"},
		{"explain edge-1 CDS/backend", "the client has accepted version"},
		{"get CDS", "backend"},
	} {
		out, err := exec.Command(binary, append(strings.Fields(tt.command), "--admin", "http://"+l.Addr().String())...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), tt.want) {
			t.Errorf("%s: %v, no %q in\n%s", tt.command, err, tt.want, out)
		}
	}
}
