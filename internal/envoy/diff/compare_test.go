package diff

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admin "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	accesslog "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tls "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

func packed(t testing.TB, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func side(t testing.TB, all ...proto.Message) *Side {
	t.Helper()
	s := NewSide(envoy.Envoy(), false)
	for i, m := range all {
		r, err := wire.NewResource(xds.TypeOf("type.googleapis.com/"+string(m.ProtoReflect().Descriptor().FullName())), "", m)
		if err != nil {
			t.Fatal(err)
		}
		s.Add(Resource{Type: r.Type, Name: r.Name, Place: fmt.Sprintf("f.yaml:%d", i+1)}, r.Body)
	}
	return s
}

// lines formats differences, one per line.
func lines(all []Difference) (lines []string) {
	for _, d := range all {
		lines = append(lines, d.Kind+" "+d.Type+" "+d.Name)
		for _, f := range d.Fields {
			lines = append(lines, fmt.Sprintf(" %s: %s -> %s", f.Path, f.From, f.To))
		}
	}
	return lines
}

func http(t testing.TB, prefix string) *listener.Listener {
	return &listener.Listener{Name: "in", FilterChains: []*listener.FilterChain{{Filters: []*listener.Filter{{
		Name: "hcm", ConfigType: &listener.Filter_TypedConfig{TypedConfig: packed(t, &hcm.HttpConnectionManager{
			StatPrefix: prefix, HttpFilters: []*hcm.HttpFilter{{Name: "router", ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: packed(t, &router.Router{})}}},
		})},
	}}}}}
}

// hosts returns a route configuration with virtual hosts, each given as NAME=DOMAIN.
func hosts(names ...string) *route.RouteConfiguration {
	r := &route.RouteConfiguration{Name: "r"}
	for _, n := range names {
		name, domain, _ := strings.Cut(n, "=")
		r.VirtualHosts = append(r.VirtualHosts, &route.VirtualHost{Name: name, Domains: []string{domain}})
	}
	return r
}

// clusterOf returns cluster c with a connect timeout.
func clusterOf(d *durationpb.Duration) *cluster.Cluster {
	return &cluster.Cluster{Name: "c", ConnectTimeout: d}
}

func TestSides(t *testing.T) {
	secret := func(key string) *tls.Secret {
		return &tls.Secret{Name: "s", Type: &tls.Secret_TlsCertificate{TlsCertificate: &tls.TlsCertificate{
			PrivateKey: &core.DataSource{Specifier: &core.DataSource_InlineString{InlineString: key}},
		}}}
	}
	for name, tt := range map[string]struct {
		a, b proto.Message
		want []string
	}{
		"nothing":                     {clusterOf(nil), clusterOf(nil), nil},
		"a duration in its text form": {clusterOf(durationpb.New(250e6)), clusterOf(durationpb.New(1e9)), []string{" connect_timeout: 0.250s -> 1s"}},
		"a field that was unset":      {clusterOf(nil), clusterOf(durationpb.New(1e9)), []string{" connect_timeout:  -> 1s"}},
		"a field that becomes unset":  {clusterOf(durationpb.New(1e9)), clusterOf(nil), []string{" connect_timeout: 1s -> "}},
		"an enum value":               {clusterOf(nil), &cluster.Cluster{Name: "c", LbPolicy: cluster.Cluster_MAGLEV}, []string{" lb_policy:  -> MAGLEV"}},
		"inside an extension":         {http(t, "a"), http(t, "b"), []string{` filter_chains[0].filters["hcm"].typed_config.stat_prefix: "a" -> "b"`}},
		"lists by name":               {hosts("a=a", "b=b"), hosts("b=b", "x=x"), []string{` virtual_hosts["a"]: {"name":"a","domains":["a"]} -> `, ` virtual_hosts["x"]:  -> {"name":"x","domains":["x"]}`}},
		"order in a list":             {hosts("a=a", "b=b"), hosts("b=b", "a=a"), []string{" virtual_hosts (order): a, b -> b, a"}},
		"a field of a list item":      {hosts("a=a", "b=b"), hosts("b=c", "a=a"), []string{` virtual_hosts["b"].domains: ["b"] -> ["c"]`, " virtual_hosts (order): a, b -> b, a"}},
		"duplicate names in a list":   {hosts("a=a", "a=b"), hosts("a=a", "a=c"), []string{` virtual_hosts[1].domains: ["b"] -> ["c"]`}},
		"SAFE-6 a secret":             {secret("hunter2"), secret("hunter3"), []string{" (secrets, or content that cannot be shown): [redacted] -> [redacted]"}},
		"the type of an extension": {http(t, "a"), func() proto.Message {
			l := http(t, "a")
			l.FilterChains[0].Filters[0].ConfigType = &listener.Filter_TypedConfig{TypedConfig: packed(t, &router.Router{})}
			return l
		}(), []string{` filter_chains[0].filters["hcm"].typed_config.@type: type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager -> type.googleapis.com/envoy.extensions.filters.http.router.v3.Router`}},
	} {
		t.Run(name, func(t *testing.T) {
			got := lines(Sides(side(t, tt.a), side(t, tt.b)))
			if len(got) > 0 && strings.HasPrefix(got[0], "changed ") {
				got = got[1:]
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
	t.Run("the first of two equal names counts", func(t *testing.T) {
		if got := lines(Sides(side(t, clusterOf(nil), clusterOf(durationpb.New(1e9))), side(t, clusterOf(nil)))); len(got) > 0 {
			t.Errorf("%q", got)
		}
	})
	t.Run("SAFE-6 bytes are not shown", func(t *testing.T) {
		body := func(text string) *route.RouteConfiguration {
			r := hosts("a=a")
			r.VirtualHosts[0].Routes = []*route.Route{{Action: &route.Route_DirectResponse{DirectResponse: &route.DirectResponseAction{
				Status: 200, Body: &core.DataSource{Specifier: &core.DataSource_InlineBytes{InlineBytes: []byte(text)}},
			}}}}
			return r
		}
		got := strings.Join(lines(Sides(side(t, body("a")), side(t, body("hunter22")))), "")
		if !strings.Contains(got, "(1 bytes) -> (8 bytes)") {
			t.Error(got)
		}
	})
}

func TestSidesOrderAndLimits(t *testing.T) {
	t.Run("SAFE-1 deep messages are compared as a whole", func(t *testing.T) {
		deep := func(n int, status string) *listener.Listener {
			f := &accesslog.AccessLogFilter{FilterSpecifier: &accesslog.AccessLogFilter_HeaderFilter{HeaderFilter: &accesslog.HeaderFilter{Header: &route.HeaderMatcher{Name: status}}}}
			for range n {
				f = &accesslog.AccessLogFilter{FilterSpecifier: &accesslog.AccessLogFilter_AndFilter{AndFilter: &accesslog.AndFilter{Filters: []*accesslog.AccessLogFilter{f}}}}
			}
			return &listener.Listener{Name: "in", AccessLog: []*accesslog.AccessLog{{Filter: f}}}
		}
		if got := lines(Sides(side(t, deep(10, "a")), side(t, deep(10, "b")))); len(got) != 2 || !strings.HasSuffix(got[1], `.header_filter.header.name: "a" -> "b"`) {
			t.Errorf("%q", got)
		}
		if got := lines(Sides(side(t, deep(deepest, "a")), side(t, deep(deepest, "b")))); len(got) != 2 || strings.Contains(got[1], "header_filter") {
			t.Errorf("%q", got)
		}
	})
	t.Run("resources, in push order", func(t *testing.T) {
		a := side(t, http(t, "a"), clusterOf(nil), hosts("a=a"))
		b := side(t, http(t, "b"), hosts("a=a"), &cluster.Cluster{Name: "d"})
		got := Sides(a, b)
		if want := []string{"removed CDS c", "added CDS d", "changed LDS in"}; !slices.Equal(lines(got)[:2], want[:2]) || lines(got)[2] != want[2] {
			t.Errorf("%q", lines(got))
		}
		if got[0].Place != "f.yaml:2" || got[1].Place != "f.yaml:3" || got[2].Place != "f.yaml:1" {
			t.Errorf("places %q %q %q", got[0].Place, got[1].Place, got[2].Place)
		}
		if got[0].Drains != nil || got[2].Drains == nil || got[0].Bytes != 0 || got[1].Bytes == 0 {
			t.Error("wrong drained connections or sizes")
		}
	})
	t.Run("the number of differences is limited", func(t *testing.T) {
		var a, b []string
		for i := range 5000 {
			a, b = append(a, fmt.Sprintf("a%d=x", i)), append(b, fmt.Sprintf("b%d=%s", i, strings.Repeat("y", 1000)))
		}
		got := Sides(side(t, hosts(a...)), side(t, hosts(b...)))
		if n := len(got[0].Fields); n != most+1 || got[0].Fields[most].Path != "(more fields differ)" {
			t.Errorf("%d fields", n)
		}
		for _, f := range got[0].Fields {
			if len(f.From)+len(f.To)+len(f.Path) > 4*longest {
				t.Fatalf("a difference of %d bytes", len(f.From)+len(f.To)+len(f.Path))
			}
		}
	})
}

// An Envoy's resources are compared with the sent ones. Fields that Envoy adds, and resources from
// other sources, do not count.
func TestDump(t *testing.T) {
	eds := &endpoint.ClusterLoadAssignment{ClusterName: "e", Endpoints: []*endpoint.LocalityLbEndpoints{{LbEndpoints: []*endpoint.LbEndpoint{{
		HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{Hostname: "h"}},
	}}}}}
	inEnvoy := &endpoint.ClusterLoadAssignment{
		ClusterName: "e", Policy: &endpoint.ClusterLoadAssignment_Policy{OverprovisioningFactor: wrapperspb.UInt32(140)},
		Endpoints: []*endpoint.LocalityLbEndpoints{{Locality: &core.Locality{}, LoadBalancingWeight: wrapperspb.UInt32(0), LbEndpoints: []*endpoint.LbEndpoint{{
			HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{Hostname: "h", HealthCheckConfig: &endpoint.Endpoint_HealthCheckConfig{}}},
			HealthStatus:   core.HealthStatus_UNHEALTHY, LoadBalancingWeight: wrapperspb.UInt32(1),
		}}}},
	}
	secret := &tls.Secret{Name: "s", Type: &tls.Secret_TlsCertificate{TlsCertificate: &tls.TlsCertificate{
		PrivateKey: &core.DataSource{Specifier: &core.DataSource_InlineString{InlineString: "[redacted]"}},
	}}}
	sent := proto.Clone(secret).(*tls.Secret)
	sent.GetTlsCertificate().GetPrivateKey().Specifier = &core.DataSource_InlineString{InlineString: "hunter2"}
	c := &cluster.Cluster{Name: "c", ConnectTimeout: durationpb.New(1e9), EdsClusterConfig: &cluster.Cluster_EdsClusterConfig{ServiceName: "e"}}
	waits := &cluster.Cluster{Name: "waits", EdsClusterConfig: &cluster.Cluster_EdsClusterConfig{}}
	dump := &admin.ConfigDump{Configs: []*anypb.Any{
		packed(t, &admin.BootstrapConfigDump{}),
		packed(t, &admin.ClustersConfigDump{
			StaticClusters:        []*admin.ClustersConfigDump_StaticCluster{{Cluster: packed(t, waits)}},
			DynamicActiveClusters: []*admin.ClustersConfigDump_DynamicCluster{{Cluster: packed(t, c)}},
		}),
		packed(t, &admin.ListenersConfigDump{DynamicListeners: []*admin.ListenersConfigDump_DynamicListener{{
			Name:         "in",
			ActiveState:  &admin.ListenersConfigDump_DynamicListenerState{Listener: packed(t, http(t, "a"))},
			WarmingState: &admin.ListenersConfigDump_DynamicListenerState{Listener: packed(t, http(t, "warms"))},
			ErrorState:   &admin.UpdateFailureState{FailedConfiguration: packed(t, http(t, "refused"))},
		}}}),
		packed(t, &admin.EndpointsConfigDump{DynamicEndpointConfigs: []*admin.EndpointsConfigDump_DynamicEndpointConfig{
			{EndpointConfig: packed(t, inEnvoy)}, {EndpointConfig: packed(t, &endpoint.ClusterLoadAssignment{ClusterName: "waits", Policy: inEnvoy.Policy})},
			{EndpointConfig: packed(t, &endpoint.ClusterLoadAssignment{ClusterName: "from DNS", Endpoints: inEnvoy.Endpoints})},
		}}),
		packed(t, &admin.SecretsConfigDump{DynamicActiveSecrets: []*admin.SecretsConfigDump_DynamicSecret{{Name: "s", Secret: packed(t, secret)}}}),
	}}
	b, err := protojson.Marshal(dump)
	if err != nil {
		t.Fatal(err)
	}
	has, err := Dump(envoy.Envoy(), "d.json", b)
	if err != nil {
		t.Fatal(err)
	}
	if got := lines(Sides(side(t, c, http(t, "a"), eds, sent), has)); len(got) > 0 {
		t.Errorf("Envoy has the sent resources, but the comparison reports\n%s", strings.Join(got, "\n"))
	}
	eds.Endpoints[0].LbEndpoints[0].LoadBalancingWeight = wrapperspb.UInt32(7)
	if got := lines(Sides(side(t, c, http(t, "warms"), eds), has)); !slices.Equal(got, []string{
		"changed EDS e", " endpoints[0].lb_endpoints[0].load_balancing_weight: 7 -> ", "added SDS s",
		"changed LDS in", ` filter_chains[0].filters["hcm"].typed_config.stat_prefix: "warms" -> "a"`,
	}) {
		t.Errorf("%q", got)
	}
	for text, want := range map[string]string{
		"":               "is not a config_dump",
		"{}":             "missing or empty",
		`{"configs": 3}`: "is not a config_dump",
		`{"configs": [{"@type": "type.googleapis.com/acme.Dump"}]}`: "is not a config_dump",
	} {
		if _, err := Dump(envoy.Envoy(), "d.json", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// Envoy replaces a listener and drains all of its connections, unless only filter chains differ. Then
// it drains the connections of removed and changed chains.
func TestDrains(t *testing.T) {
	chain := func(name, prefix string) *listener.FilterChain {
		c := http(t, prefix).FilterChains[0]
		c.Name = name
		return c
	}
	in := func(change func(*listener.Listener)) *listener.Listener {
		l := &listener.Listener{Name: "in", Address: &core.Address{Address: &core.Address_Pipe{Pipe: &core.Pipe{Path: "/a"}}}, FilterChains: []*listener.FilterChain{chain("a", "a"), chain("b", "b"), chain("", "c")}}
		change(l)
		return l
	}
	same := func(*listener.Listener) {}
	for name, tt := range map[string]struct {
		a, b func(*listener.Listener)
		want string
	}{
		"a changed address":         {same, func(l *listener.Listener) { l.Address = nil }, "all"},
		"a changed listener filter": {same, func(l *listener.Listener) { l.ListenerFilters = []*listener.ListenerFilter{{Name: "x"}} }, "all"},
		"one chain differs":         {same, func(l *listener.Listener) { l.FilterChains[1] = chain("b", "x") }, "b"},
		"a chain without a name":    {same, func(l *listener.Listener) { l.FilterChains = l.FilterChains[:2] }, "filter_chains[2]"},
		"a renamed chain":           {same, func(l *listener.Listener) { l.FilterChains[0].Name = "z" }, "a"},
		"an additional chain":       {same, func(l *listener.Listener) { l.FilterChains = append(l.FilterChains, chain("d", "d")) }, ""},
		"a different order":         {same, func(l *listener.Listener) { slices.Reverse(l.FilterChains) }, ""},
		"the default chain":         {func(l *listener.Listener) { l.DefaultFilterChain = chain("d", "d") }, same, "default_filter_chain"},
		"a new default chain":       {same, func(l *listener.Listener) { l.DefaultFilterChain = chain("d", "d") }, ""},
		"no chain is left":          {same, func(l *listener.Listener) { l.FilterChains = nil }, "all"},
		"the PROXY protocol":        {same, func(l *listener.Listener) { l.FilterChains[0].UseProxyProto = wrapperspb.Bool(true) }, "all"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Sides(side(t, in(tt.a)), side(t, in(tt.b)))
			text := ""
			if d := got[0].Drains; d != nil {
				if text = strings.Join(d.Chains, " "); d.Whole {
					text = "all"
				}
			}
			if len(got) != 1 || text != tt.want {
				t.Errorf("%q, want %q", text, tt.want)
			}
		})
	}
	if got := Sides(side(t, in(same)), side(t)); !got[0].Drains.Whole {
		t.Error("a removed listener")
	}
	if got := Sides(side(t), side(t, in(same))); got[0].Drains != nil {
		t.Error("an added listener")
	}
}

// A rejected resource counts as sent, and so do the endpoints of a rejected cluster. Envoy itself keeps
// its previous resources.
func TestSent(t *testing.T) {
	c := &cluster.Cluster{Name: "c", EdsClusterConfig: &cluster.Cluster_EdsClusterConfig{ServiceName: "e"}}
	emptied := &cluster.Cluster{Name: "emptied", EdsClusterConfig: &cluster.Cluster_EdsClusterConfig{}}
	eds := &endpoint.ClusterLoadAssignment{ClusterName: "e", Endpoints: []*endpoint.LocalityLbEndpoints{{Priority: 1}}}
	none := &endpoint.ClusterLoadAssignment{ClusterName: "emptied"} // the registered endpoints are all removed
	b, err := protojson.Marshal(&admin.ConfigDump{Configs: []*anypb.Any{
		packed(t, &admin.ClustersConfigDump{DynamicWarmingClusters: []*admin.ClustersConfigDump_DynamicCluster{{ErrorState: &admin.UpdateFailureState{FailedConfiguration: packed(t, c)}}, {ErrorState: &admin.UpdateFailureState{FailedConfiguration: packed(t, emptied)}}}}),
		packed(t, &admin.ListenersConfigDump{DynamicListeners: []*admin.ListenersConfigDump_DynamicListener{{Name: "in", ErrorState: &admin.UpdateFailureState{FailedConfiguration: packed(t, http(t, "a"))}}}}),
		packed(t, &admin.EndpointsConfigDump{DynamicEndpointConfigs: []*admin.EndpointsConfigDump_DynamicEndpointConfig{{EndpointConfig: packed(t, eds)}, {EndpointConfig: packed(t, none)}}}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	sent, err := Sent(envoy.Envoy(), "client:x", b)
	if err != nil {
		t.Fatal(err)
	}
	if got := lines(Sides(side(t, c, emptied, http(t, "a"), eds, none), sent)); len(got) > 0 {
		t.Errorf("unexpected differences\n%s", strings.Join(got, "\n"))
	}
	if has, err := Dump(envoy.Envoy(), "d.json", b); err != nil || has.Len() != 0 {
		t.Errorf("%d active resources, %v", has.Len(), err)
	}
}

// The server sends the accepted version again after a NACK. The rejected version still counts as sent.
func TestSentWithKeptVersion(t *testing.T) {
	old, refused := &cluster.Cluster{Name: "c"}, &cluster.Cluster{Name: "c", AltStatName: "new"}
	resent := &cluster.Cluster{Name: "sent"} // the server lacks its rejected version
	failed := func(m proto.Message) *admin.UpdateFailureState {
		return &admin.UpdateFailureState{FailedConfiguration: packed(t, m), Details: "no"}
	}
	b, err := protojson.Marshal(&admin.ConfigDump{Configs: []*anypb.Any{
		packed(t, &admin.ClustersConfigDump{
			DynamicActiveClusters:  []*admin.ClustersConfigDump_DynamicCluster{{Cluster: packed(t, old), ErrorState: failed(refused)}},
			DynamicWarmingClusters: []*admin.ClustersConfigDump_DynamicCluster{{Cluster: packed(t, resent), ErrorState: &admin.UpdateFailureState{Details: "no"}}},
		}),
		packed(t, &admin.ListenersConfigDump{DynamicListeners: []*admin.ListenersConfigDump_DynamicListener{{
			Name: "in", ActiveState: &admin.ListenersConfigDump_DynamicListenerState{Listener: packed(t, http(t, "a"))}, ErrorState: failed(http(t, "b")),
		}}}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		read func(*envoy.Types, string, []byte) (*Side, error)
		want *Side
	}{{Sent, side(t, refused, resent, http(t, "b"))}, {Dump, side(t, old, resent, http(t, "a"))}} {
		got, err := tt.read(envoy.Envoy(), "client:x", b)
		if err != nil {
			t.Fatal(err)
		}
		if got := lines(Sides(tt.want, got)); len(got) > 0 {
			t.Errorf("unexpected differences\n%s", strings.Join(got, "\n"))
		}
	}
}

func FuzzDump(f *testing.F) {
	f.Add([]byte(`{"configs": [{"@type": "type.googleapis.com/envoy.admin.v3.ClustersConfigDump", "dynamic_active_clusters": [{"cluster": {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a"}}]}]}`))
	f.Fuzz(func(t *testing.T, src []byte) {
		s, err := Dump(envoy.Envoy(), "d", src)
		if err != nil {
			return
		}
		if d := Sides(s, s); len(d) > 0 {
			t.Errorf("a side differs from itself: %q", lines(d))
		}
	})
}
