package client_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// A server of the example's own, with one cluster.
func serveCluster(name string) (address string, stop func()) {
	r, err := wire.NewResource(xds.Cluster, "", &clusterv3.Cluster{Name: name, AltStatName: "first"})
	if err != nil {
		log.Fatal(err)
	}
	st := store.New()
	if _, err := st.Update(func(tx *store.Tx) error { tx.Set(r); return nil }); err != nil {
		log.Fatal(err)
	}
	s := server.New(st)
	g := grpc.NewServer(append(server.GRPCOptions(), grpc.Creds(s.Credentials(nil)))...)
	if err := s.Register(g); err != nil {
		log.Fatal(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go g.Serve(lis)
	return lis.Addr().String(), g.Stop
}

func Example() {
	address, stop := serveCluster("backend")
	defer stop()

	t, err := client.GRPC(address, client.GRPCOptions{Credentials: insecure.NewCredentials(), Delta: true})
	if err != nil {
		log.Fatal(err)
	}
	c, err := client.New(client.Config{
		Node:    &xds.Node{ID: "example"},
		Servers: []client.Server{{Transport: t}}, // the client uses the next server while this server cannot be reached
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	for ev, err := range client.Watch[*clusterv3.Cluster](context.Background(), c, "backend") {
		if err != nil { // the watch is over
			log.Fatal(err)
		}
		switch ev.Kind {
		case client.Updated:
			fmt.Println("use", ev.Name, ev.Value.GetAltStatName())
		case client.Removed, client.Absent:
			fmt.Println("there is no", ev.Name)
		case client.Refused, client.Stale, client.Unavailable:
			fmt.Println("continue with the resources in use:", ev.Err)
		}
		break
	}
	// Output: use backend first
}
