package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
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
	go func() { served <- serve(ctx, l, root) }()
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
	for group, want := range map[string]string{"edge": "shop", "internal": "ledger"} {
		stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
		if err != nil {
			t.Fatal(err)
		}
		request := &discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: group + "-1", Cluster: group}, TypeUrl: "type.googleapis.com/envoy.config.cluster.v3.Cluster"}
		for _, want := range []string{want, want + "-2"} {
			if err := stream.Send(request); err != nil {
				t.Fatal(err)
			}
			got, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			var c clusterv3.Cluster
			if len(got.Resources) != 1 || got.Resources[0].UnmarshalTo(&c) != nil || c.Name != want {
				t.Fatalf("group %s has %v, want %s", group, got.Resources, want)
			}
			request.VersionInfo, request.ResponseNonce = got.VersionInfo, got.Nonce
			rename(t, filepath.Join(root, group, "clusters.yaml"), want)
		}
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
