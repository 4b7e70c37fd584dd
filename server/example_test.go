package server_test

import (
	"fmt"
	"net"

	"google.golang.org/grpc"

	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A program serves the resources that it puts into a store.
func Example() {
	st := store.New()
	_, err := st.Update(func(tx *store.Tx) error {
		tx.Set(xds.NewResource(xds.Cluster, "backend", []byte("an encoded Cluster")))
		return nil
	})
	if err != nil {
		panic(err)
	}

	srv := server.New(st, server.WithIdentifier(func() string { return "replica-1" }))
	g := grpc.NewServer(append(server.GRPCOptions(), grpc.Creds(srv.Credentials(nil)))...) // nil: plain text
	if err := srv.Register(g); err != nil {
		panic(err)
	}

	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go g.Serve(lis)
	defer g.Stop() // in a real program, call srv.Drain before this

	fmt.Println(len(g.GetServiceInfo()), "services")
	// Output: 12 services
}
