package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// Each node gets the clusters of its group, and a change of their file.
func TestServe(t *testing.T) {
	root := t.TempDir()
	if err := os.CopyFS(root, os.DirFS("config")); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	served := make(chan error, 1)
	go func() { served <- serve(ctx, l, root, prometheus.NewRegistry()) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for group, cluster := range map[string]string{"edge": "shop", "internal": "ledger"} {
		c := xdstest.SotW(t, conn, xdstest.WithNode(xds.Node{ID: group + "-1", Cluster: group}))
		c.Subscribe(xds.Cluster, "*")
		c.ACK(c.Expect(xds.Cluster, cluster))
		rename(t, filepath.Join(root, group, "clusters.yaml"), cluster)
		c.ACK(c.Expect(xds.Cluster, cluster+"-2"))
	}
}

// rename gives the cluster of a file another name.
func rename(t *testing.T, file, name string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(b), "name: "+name, "name: "+name+"-2")
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}
