// Command admin is an xDS server with the admin API of the chancery command: the page at http://127.0.0.1:18001 and
// the commands of chancery show its clients, what each has, and why a resource is missing or refused.
//
//	go run .
//	envoy -c ../quickstart-envoy.yaml
//	chancery status
//	chancery explain NODE CDS/backend
package main

import (
	"context"
	"errors"
	"log"
	"net"
	"os"
	"os/signal"
	"sync"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/chancery-xds/chancery/admin"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	clients, err := net.Listen("tcp", "127.0.0.1:18000")
	if err != nil {
		log.Fatal(err)
	}
	operators, err := net.Listen("tcp", "127.0.0.1:18001") // only for programs of this machine: they need no token
	if err != nil {
		log.Fatal(err)
	}
	st := store.New()
	if err := set(st, time.Second); err != nil {
		log.Fatal(err)
	}
	if err := serve(ctx, st, clients, operators); err != nil {
		log.Fatal(err)
	}
}

// serve serves the store to clients, and the admin API to operators, until ctx is done.
func serve(ctx context.Context, st *store.Store, clients, operators net.Listener) error {
	a := admin.New(st, admin.Options{Name: "example"})
	srv := server.New(a, a.ServerOptions()...)
	g := grpc.NewServer(append(server.GRPCOptions(), grpc.Creds(srv.Credentials(nil)))...)
	if err := srv.Register(g); err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 2)
	running.Go(func() { a.Run(ctx) })
	running.Go(func() { failed <- a.Serve(ctx, operators) })
	running.Go(func() { failed <- g.Serve(clients) })
	defer g.Stop()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	last, cancelDrain := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancelDrain()
	if err := srv.Drain(last); err != nil {
		return errors.Join(errors.New("streams are still open"), err)
	}
	return nil
}

// set sets the cluster "backend". Clients refuse a negative timeout.
func set(st *store.Store, timeout time.Duration) error {
	cluster, err := wire.NewResource(xds.Cluster, "", &clusterv3.Cluster{Name: "backend", ConnectTimeout: durationpb.New(timeout)})
	if err != nil {
		return err
	}
	_, err = st.Update(func(tx *store.Tx) error { tx.Set(cluster); return nil })
	return err
}
