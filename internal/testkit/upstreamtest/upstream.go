package upstreamtest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/internal/cli/xdsclient"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/relay"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// An Upstream is an xDS server controlled by a test. It can be unreachable.
type Upstream struct {
	responses chan *xds.Response
	nonce     int

	Mu    sync.Mutex
	Away  error
	asked map[string]bool // by type and name; false: unsubscribed
}

// New returns a server that has sent nothing yet.
func New() *Upstream {
	return &Upstream{responses: make(chan *xds.Response), asked: map[string]bool{}}
}

// Variant implements [client.Transport].
func (*Upstream) Variant() xds.Variant { return xds.Delta }

// Aggregated implements [client.Transport].
func (*Upstream) Aggregated() bool { return true }

// String implements [client.Transport].
func (*Upstream) String() string { return "xds://up" }

// Close implements [client.Transport].
func (*Upstream) Close() error { return nil }

// Open implements [client.Transport].
func (u *Upstream) Open(ctx context.Context, _ *xds.Type) (client.Stream, error) {
	u.Mu.Lock()
	defer u.Mu.Unlock()
	return stream{u, ctx}, u.Away
}

// Send sends a response of one type: a test passes all resources that exist.
func (u *Upstream) Send(typ *xds.Type, of ...*xds.Resource) {
	u.nonce++
	u.responses <- &xds.Response{Type: typ, Nonce: fmt.Sprint(u.nonce), Changes: &xds.Changes{Upserts: of}}
	synctest.Wait()
}

// Wants reports whether the client subscribes to a name.
func (u *Upstream) Wants(typ *xds.Type, name string) bool {
	synctest.Wait()
	u.Mu.Lock()
	defer u.Mu.Unlock()
	return u.asked[typ.Short+" "+name]
}

type stream struct {
	*Upstream
	ctx context.Context
}

func (s stream) Send(r *xds.Request) error {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for _, n := range r.Subscribe {
		s.asked[r.Type.Short+" "+n] = true
	}
	for _, n := range r.Unsubscribe {
		s.asked[r.Type.Short+" "+n] = false
	}
	return nil
}

func (s stream) Recv() (*xds.Response, error) {
	select {
	case r := <-s.responses:
		return r, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

// Follow starts a relay of the server, and returns its client, source and store.
func (u *Upstream) Follow(t *testing.T) (*client.Client, *relay.Source, *store.Store) {
	t.Helper()
	return u.FollowWith(t, relay.Options{Refs: xdsclient.References(envoy.Envoy())})
}

// FollowWith does the same with options of the relay.
func (u *Upstream) FollowWith(t *testing.T, o relay.Options) (*client.Client, *relay.Source, *store.Store) {
	t.Helper()
	c, err := client.New(client.Config{Node: &xds.Node{ID: "n"}, Servers: []client.Server{{Transport: u}}, Check: xdsclient.BodyCheck(envoy.Envoy(), xds.MemoryLimit{})})
	if err != nil {
		t.Fatal(err)
	}
	st := store.New()
	src := relay.New(st, c, o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); src.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done; _ = c.Close() })
	return c, src, st
}

func resource(t *testing.T, typ *xds.Type, name string, m proto.Message) *xds.Resource {
	t.Helper()
	body, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return xds.NewResource(typ, name, body)
}

// Cluster returns a cluster.
func Cluster(t *testing.T, name string) *xds.Resource {
	return resource(t, xds.Cluster, name, &clusterv3.Cluster{Name: name})
}

// Listener returns a listener that refers to its routes by name, each in a filter chain.
func Listener(t *testing.T, name string, routes ...string) *xds.Resource {
	t.Helper()
	l := &listenerv3.Listener{Name: name}
	for _, r := range routes {
		hcm, err := anypb.New(&hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{
			RouteConfigName: r,
			ConfigSource:    &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		l.FilterChains = append(l.FilterChains, &listenerv3.FilterChain{
			Filters: []*listenerv3.Filter{{Name: "http", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: hcm}}},
		})
	}
	return resource(t, xds.Listener, name, l)
}

// Routes returns a route configuration that routes everything to one cluster.
func Routes(t *testing.T, name, cluster string) *xds.Resource {
	return resource(t, xds.Route, name, &routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{
		Name: "all", Domains: []string{"*"}, Routes: []*routev3.Route{{
			Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
			Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}}},
		}},
	}}})
}
