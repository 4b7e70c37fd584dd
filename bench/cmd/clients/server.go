package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

const listener, routes = "bench.example", "routes"

// quiet is the time without an ACK after which a client counts as complete.
const quiet = 3 * time.Second

// An upstream is the server with its resources.
type upstream struct {
	address string
	grpc    *grpc.Server
	store   *store.Store
	acked   chan protocol.Event
}

// newServer serves a listener, its routes, n clusters and their assignments. The assignments are
// empty, so that gRPC opens no other connections.
func newServer(n int) (*upstream, error) {
	s := &upstream{store: store.New(), acked: make(chan protocol.Event, 1<<16)}
	if _, err := s.store.Update(func(tx *store.Tx) error {
		set := func(t *xds.Type, m proto.Message) error {
			r, err := wire.NewResource(t, "", m)
			if err == nil {
				tx.Set(r)
			}
			return err
		}
		vh := &routev3.VirtualHost{Name: "all", Domains: []string{"*"}}
		var errs []error
		for i := range n {
			vh.Routes = append(vh.Routes, &routev3.Route{
				Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: fmt.Sprintf("/%06d/", i)}},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: name(i)}}},
			})
			errs = append(errs, set(xds.Cluster, cluster(i, 0)), set(xds.Endpoint, &endpointv3.ClusterLoadAssignment{ClusterName: name(i)}))
		}
		return errors.Join(append(errs, set(xds.Route, &routev3.RouteConfiguration{Name: routes, VirtualHosts: []*routev3.VirtualHost{vh}}),
			set(xds.Listener, apiListener()))...)
	}); err != nil {
		return nil, err
	}
	srv := server.New(s.store, server.WithObserver(s))
	s.grpc = grpc.NewServer(append(server.GRPCOptions(), grpc.Creds(srv.Credentials(nil)))...)
	if err := srv.Register(s.grpc); err != nil {
		return nil, err
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.address = lis.Addr().String()
	go s.grpc.Serve(lis)
	return s, nil
}

func (s *upstream) stop() { s.grpc.Stop() }

func name(i int) string { return fmt.Sprintf("cluster-%06d", i) }

// cluster returns cluster i with a limit of connections. A change sets another limit.
func cluster(i, change int) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name(i),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: &corev3.ConfigSource{
			ResourceApiVersion: corev3.ApiVersion_V3, ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		}},
		CircuitBreakers: &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{MaxRequests: wrapperspb.UInt32(uint32(1000 + change))}}},
	}
}

func apiListener() *listenerv3.Listener {
	router, err := anypb.New(&routerv3.Router{})
	if err != nil {
		panic(err)
	}
	hcm, err := anypb.New(&hcmv3.HttpConnectionManager{
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: routes, ConfigSource: &corev3.ConfigSource{
			ResourceApiVersion: corev3.ApiVersion_V3, ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		}}},
		HttpFilters: []*hcmv3.HttpFilter{{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: router}}},
	})
	if err != nil {
		panic(err)
	}
	return &listenerv3.Listener{Name: listener, ApiListener: &listenerv3.ApiListener{ApiListener: hcm}}
}

// all waits until the client has sent ACKs, and then none for the time quiet. It returns the time of
// the last ACK.
func (s *upstream) all(until time.Time) (last time.Time, err error) {
	for {
		wait := time.Until(until)
		if !last.IsZero() {
			wait = quiet
		}
		select {
		case e := <-s.acked:
			if e.Error != nil {
				return last, fmt.Errorf("the client refuses %s: %s", e.Type, e.Error.Message)
			}
			last = time.Now()
			if last.After(until) {
				return last, errors.New("timeout: the client does not have all resources")
			}
		case <-time.After(wait):
			if last.IsZero() {
				return last, errors.New("the client accepts no response")
			}
			return last, nil
		}
	}
}

// change changes one cluster, and returns the time until the client accepted the change.
func (s *upstream) change(k int) (time.Duration, error) {
	r, err := wire.NewResource(xds.Cluster, "", cluster(k%*n, k+1))
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	if _, err := s.store.Update(func(tx *store.Tx) error { tx.Set(r); return nil }); err != nil {
		return 0, err
	}
	for {
		select {
		case e := <-s.acked:
			if e.Error != nil {
				return 0, fmt.Errorf("the client refuses %s: %s", e.Type, e.Error.Message)
			}
			if e.Type.Is(xds.Cluster) && e.Settled {
				return time.Since(begin), nil
			}
		case <-time.After(*patient):
			return 0, fmt.Errorf("the client does not accept change %d", k)
		}
	}
}

// Opened, Event and Closed implement server.Observer.
func (s *upstream) Opened(*server.Stream)        {}
func (s *upstream) Closed(*server.Stream, error) {}
func (s *upstream) Event(_ *server.Stream, e protocol.Event) {
	if e.Kind == protocol.Acked || e.Kind == protocol.Nacked {
		s.acked <- e
	}
}

// cpu returns the CPU time of the client, user and system.
func (p *process) cpu() time.Duration {
	all, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(all), ") ")
	var user, system int64
	fields := strings.Fields(rest)
	fmt.Sscan(fields[11], &user)
	fmt.Sscan(fields[12], &system)
	return time.Duration(user+system) * (time.Second / 100) // clock ticks
}
