package soak

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tls "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	runtime "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/chancery-xds/chancery/xds"
)

// A kind is a type of the universe, with the names that its resources and subscriptions
// may have. There are few names, and most of them may also be aliases.
type kind struct {
	typ     *xds.Type
	names   []string
	aliases []string
	asked   []string // names of collections, and names without a resource
	refers  *xds.Type
	body    func(name, generation string, to []string) proto.Message
}

// unknown is a type that the server's table does not list.
var unknown = xds.TypeOf("type.googleapis.com/envoy.config.core.v3.TransportSocket")

var universe = []*kind{
	of(xds.Cluster, xds.Endpoint, func(name, generation string, to []string) proto.Message {
		c := &cluster.Cluster{Name: name, AltStatName: generation}
		if len(to) > 0 {
			c.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_EDS}
			c.EdsClusterConfig = &cluster.Cluster_EdsClusterConfig{EdsConfig: ads(), ServiceName: to[0]}
		}
		return c
	}),
	of(xds.Endpoint, nil, func(name, generation string, _ []string) proto.Message {
		return &endpoint.ClusterLoadAssignment{ClusterName: name, NamedEndpoints: map[string]*endpoint.Endpoint{generation: {}}}
	}),
	of(xds.Secret, nil, func(name, generation string, _ []string) proto.Message {
		return &tls.Secret{Name: name, Type: &tls.Secret_GenericSecret{GenericSecret: &tls.GenericSecret{
			Secret: &core.DataSource{Specifier: &core.DataSource_InlineString{InlineString: generation}},
		}}}
	}),
	of(xds.Listener, xds.Route, func(name, generation string, to []string) proto.Message {
		l := &listener.Listener{Name: name, StatPrefix: generation}
		for _, r := range to {
			l.ApiListener = &listener.ApiListener{ApiListener: pack(&hcm.HttpConnectionManager{
				StatPrefix:     "s",
				RouteSpecifier: &hcm.HttpConnectionManager_Rds{Rds: &hcm.Rds{RouteConfigName: r, ConfigSource: ads()}},
			})}
		}
		return l
	}),
	of(xds.Route, xds.Cluster, func(name, generation string, to []string) proto.Message {
		return &route.RouteConfiguration{Name: name, VirtualHosts: []*route.VirtualHost{host("host", generation, to)}}
	}),
	{
		typ: xds.VirtualHost, refers: xds.Cluster, body: func(name, generation string, to []string) proto.Message { return host(name, generation, to) },
		names: []string{"a/x", "a/y", "b/x"}, aliases: []string{"a/x", "a/n", "b/x"}, asked: []string{"a/*", "b/*", "a/zz"},
	},
	of(xds.Runtime, nil, func(name, generation string, _ []string) proto.Message {
		return &runtime.Runtime{Name: name, Layer: &structpb.Struct{Fields: map[string]*structpb.Value{"g": structpb.NewStringValue(generation)}}}
	}),
	of(unknown, nil, func(name, generation string, _ []string) proto.Message {
		return &core.TransportSocket{Name: name, ConfigType: &core.TransportSocket_TypedConfig{TypedConfig: pack(wrapperspb.String(generation))}}
	}),
}

// of returns a kind with the usual names.
func of(t, refers *xds.Type, body func(name, generation string, to []string) proto.Message) *kind {
	id := "xdstp://x/" + strings.TrimPrefix(t.URL, "type.googleapis.com/") + "/g/"
	return &kind{
		typ: t, refers: refers, body: body,
		names: []string{"a", "b", "c", id + "a", id + "b"}, aliases: []string{"a", "b", "n", id + "b"}, asked: []string{id + "*", "zz"},
	}
}

// references returns the names of type [kind.refers] to which a body refers.
func (k *kind) references(body string) (to []string) {
	of := func(h *route.VirtualHost) {
		for _, r := range h.GetRoutes() {
			to = append(to, r.GetRoute().GetCluster())
		}
	}
	m := k.body("", "", nil)
	if err := proto.Unmarshal([]byte(body), m); err != nil {
		panic(err)
	}
	switch m := m.(type) {
	case *cluster.Cluster:
		to = append(to, m.GetEdsClusterConfig().GetServiceName())
	case *listener.Listener:
		h := &hcm.HttpConnectionManager{}
		if a := m.GetApiListener().GetApiListener(); a != nil {
			if err := a.UnmarshalTo(h); err != nil {
				panic(err)
			}
		}
		to = append(to, h.GetRds().GetRouteConfigName())
	case *route.RouteConfiguration:
		for _, h := range m.GetVirtualHosts() {
			of(h)
		}
	case *route.VirtualHost:
		of(m)
	}
	return to
}

func kindOf(t *xds.Type) *kind {
	return universe[slices.IndexFunc(universe, func(k *kind) bool { return k.typ.Is(t) })]
}

func host(name, generation string, to []string) *route.VirtualHost {
	h := &route.VirtualHost{Name: name, Domains: []string{"d" + generation}}
	for _, c := range to {
		h.Routes = append(h.Routes, &route.Route{
			Match:  &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: "/"}},
			Action: &route.Route_Route{Route: &route.RouteAction{ClusterSpecifier: &route.RouteAction_Cluster{Cluster: c}}},
		})
	}
	return h
}

func ads() *core.ConfigSource {
	return &core.ConfigSource{ResourceApiVersion: core.ApiVersion_V3, ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}}}
}

func pack(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}

// A resource is the state of one name in a world.
type resource struct {
	generation int
	to         []string // names that it refers to
	aliases    []string
	ttl        time.Duration
	onDemand   bool
}

func (r resource) String() string {
	s := fmt.Sprint(r.generation)
	if len(r.to) > 0 {
		s += fmt.Sprint("→", r.to)
	}
	if len(r.aliases) > 0 {
		s += fmt.Sprint(" aliases=", r.aliases)
	}
	if r.ttl > 0 {
		s += fmt.Sprint(" ttl=", r.ttl)
	}
	if r.onDemand {
		s += " ondemand"
	}
	return s
}

// A world has all served resources, by kind and name.
type world map[*kind]map[string]resource

func newWorld() world {
	w := world{}
	for _, k := range universe {
		w[k] = map[string]resource{}
	}
	return w
}

// change changes a few resources, and returns a description. There are few generations, so
// earlier content returns.
func (w world) change(r *rand.Rand, less features) string {
	changed := map[*kind]map[string]bool{}
	for range 1 + r.IntN(4) {
		k := one(r, universe)
		name := one(r, k.names)
		now, is := w[k][name]
		if changed[k] == nil {
			changed[k] = map[string]bool{}
		}
		changed[k][name] = true
		switch n := r.IntN(10); {
		case is && n < 3:
			delete(w[k], name)
			continue
		case is && n < 5: // keep the content, and change only the other fields
		default:
			now.generation, now.to = 1+r.IntN(4), nil
			if k.refers != nil && r.IntN(4) > 0 {
				now.to = []string{one(r, kindOf(k.refers).names)}
			}
		}
		if r.IntN(3) == 0 && !less["alias"] {
			now.aliases = some(r, k.aliases, 2)
		}
		if r.IntN(4) == 0 && !less["ttl"] {
			now.ttl = one(r, []time.Duration{0, 0, 8 * time.Second, 9 * time.Second})
		}
		if r.IntN(4) == 0 && !less["ondemand"] {
			now.onDemand = r.IntN(2) == 0
		}
		w[k][name] = now
	}
	w.unambiguous()
	var did []string
	for _, k := range universe {
		for _, name := range slices.Sorted(maps.Keys(changed[k])) {
			if now, is := w[k][name]; is {
				did = append(did, fmt.Sprintf("set %s %s=%v", k.typ, name, now))
			} else {
				did = append(did, fmt.Sprintf("remove %s %s", k.typ, name))
			}
		}
	}
	return strings.Join(did, "; ")
}

// unambiguous removes aliases that would match two resources: sources refuse those.
func (w world) unambiguous() {
	for k, all := range w {
		taken := map[string]bool{}
		for _, name := range slices.Sorted(maps.Keys(all)) {
			r := all[name]
			r.aliases = slices.DeleteFunc(slices.Clone(r.aliases), func(a string) bool {
				_, is := all[a]
				bad := is || taken[a]
				taken[a] = true
				return bad
			})
			w[k][name] = r
		}
	}
}

// renew gives every resource new content.
func (w world) renew(generation int) {
	for _, all := range w {
		for name, r := range all {
			r.generation = generation
			all[name] = r
		}
	}
}

// called has all aliases that a name ever had. Many clients do not know them.
type called map[*kind]map[string][]string

func (c called) note(w world) {
	for k, all := range w {
		for name, r := range all {
			if c[k] == nil {
				c[k] = map[string][]string{}
			}
			for _, a := range r.aliases {
				if !slices.Contains(c[k][name], a) {
					c[k][name] = append(c[k][name], a)
				}
			}
		}
	}
}

// each calls f for all resources in the order of kinds and names.
func (w world) each(f func(k *kind, name string, r resource, body proto.Message)) {
	for _, k := range universe {
		for _, name := range slices.Sorted(maps.Keys(w[k])) {
			r := w[k][name]
			f(k, name, r, k.body(name, fmt.Sprint("g", r.generation), r.to))
		}
	}
}

func one[T any](r *rand.Rand, all []T) T { return all[r.IntN(len(all))] }

// some returns up to n different elements.
func some(r *rand.Rand, all []string, n int) []string {
	var out []string
	for range r.IntN(n + 1) {
		if s := one(r, all); !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
