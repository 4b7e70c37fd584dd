package main

import (
	"log/slog"
	"net"
	"testing"

	"google.golang.org/grpc"

	"github.com/chancery-xds/chancery/internal/cli/xdsclient"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
)

// cannedXDS returns the URL of an xDS server with the resources of testdata/xds, and secrets for all
// clients.
func cannedXDS(t testing.TB) string {
	t.Helper()
	st := store.New()
	if _, err := dir.New("testdata/xds", st, dir.Options{}).Load(); err != nil {
		t.Fatal(err)
	}
	return storeXDS(t, st)
}

// storeXDS returns the URL of an xDS server of a store.
func storeXDS(t testing.TB, st *store.Store) string {
	t.Helper()
	g := grpc.NewServer(server.GRPCOptions()...)
	if err := server.New(st, server.WithLogger(slog.New(slog.DiscardHandler))).Register(g); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = g.Serve(l) // until Stop
	}()
	t.Cleanup(func() {
		g.Stop()
		<-ended
	})
	return xdsclient.Scheme + l.Addr().String()
}
