package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// The admin API shows which client refuses which resource, and why.
func TestAdminAPIShowsRefusal(t *testing.T) {
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	clients, operators := listen(), listen()
	st := store.New()
	if err := set(st, time.Second); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, st, clients, operators) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	conn, err := grpc.NewClient(clients.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := xdstest.Delta(t, conn, xdstest.WithNode(xds.Node{ID: "edge-1"}))
	c.Subscribe(xds.Cluster, "*")
	c.ACK(c.Expect(xds.Cluster, "backend"))
	if err := set(st, -time.Second); err != nil {
		t.Fatal(err)
	}
	c.NACK(c.Expect(xds.Cluster, "backend"), "the timeout is negative")

	// chancery explain edge-1 CDS/backend sends this request.
	path := "http://" + operators.Addr().String() + "/api/v1/clients/edge-1/explain?" + url.Values{"type": {"CDS"}, "name": {"backend"}}.Encode()
	var explanation struct {
		Broken string
		Links  []struct{ Name, Text string }
	}
	for explanation.Broken != "accepted" && explanation.Broken != "valid" { // until the server has the NACK
		r, err := http.Get(path)
		if err != nil {
			t.Fatal(err)
		}
		err = json.NewDecoder(r.Body).Decode(&explanation)
		_ = r.Body.Close()
		if err != nil || t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%+v", explanation)
}
