// Command embedded is an xDS server that uses Chancery as a library. It knows the addresses of a service
// and sends them to its clients. In this example you type the addresses at the terminal.
//
//	go run . 127.0.0.1:8080
//	envoy -c ../quickstart-envoy.yaml   # gets the cluster "backend"
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc"

	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

func main() {
	// The three parts: a store, a server for its resources, and updates.
	st := store.New()
	if err := update(st, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
	srv := server.New(st)
	g := grpc.NewServer(append(server.GRPCOptions(), grpc.Creds(srv.Credentials(nil)))...)
	if err := srv.Register(g); err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:18000")
	if err != nil {
		log.Fatal(err)
	}
	go follow(st)
	go func() {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = srv.Drain(ctx)
		time.AfterFunc(time.Second, g.Stop) // ends streams that are still open
		g.GracefulStop()
	}()
	log.Printf("serving at %v; type addresses to change the endpoints", l.Addr())
	if err := g.Serve(l); err != nil {
		log.Fatal(err)
	}
}

// update sets the endpoints of the cluster "backend". The cluster does not change, so only the endpoints
// are sent again.
func update(st *store.Store, addresses []string) error {
	cluster, err := wire.NewResource(xds.Cluster, "", &clusterv3.Cluster{
		Name:                 "backend",
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: &corev3.ConfigSource{
			ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
			ResourceApiVersion:    corev3.ApiVersion_V3,
		}},
	})
	if err != nil {
		return err
	}
	locality := &endpointv3.LocalityLbEndpoints{}
	for _, s := range addresses {
		a, err := netip.ParseAddrPort(s)
		if err != nil {
			return err
		}
		locality.LbEndpoints = append(locality.LbEndpoints, endpoint(a))
	}
	endpoints, err := wire.NewResource(xds.Endpoint, "", &endpointv3.ClusterLoadAssignment{
		ClusterName: "backend", Endpoints: []*endpointv3.LocalityLbEndpoints{locality},
	})
	if err != nil {
		return err
	}
	// All types change at once: no client gets the cluster without its endpoints.
	_, err = st.Update(func(tx *store.Tx) error {
		tx.Set(cluster, endpoints)
		return nil
	})
	return err
}

func endpoint(a netip.AddrPort) *endpointv3.LbEndpoint {
	return &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
		Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: a.Addr().String(), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(a.Port())},
		}}},
	}}}
}

// follow updates the store with each line of standard input.
func follow(st *store.Store) {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if err := update(st, strings.Fields(lines.Text())); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}
