package wire

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/xds"
)

func showRefs(refs []xds.Ref) string {
	var s []string
	for _, r := range refs {
		s = append(s, r.Type.Short+" "+r.Name)
	}
	slices.Sort(s)
	return strings.Join(s, ", ")
}

// If a cluster has several types, the last one counts, as in any oneof. A field that Envoy may add later may
// refer to anything.
func TestRefsField(t *testing.T) {
	const typeURL = "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig"
	encode := func(c *clusterv3.Cluster) string {
		b, err := proto.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	aggregate := encode(&clusterv3.Cluster{ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
		Name: "c", TypedConfig: &anypb.Any{TypeUrl: typeURL}}}})
	typ := func(d clusterv3.Cluster_DiscoveryType) string {
		return encode(&clusterv3.Cluster{ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: d}})
	}
	settings := encode(&clusterv3.Cluster{EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: "s"}})
	const opaque = "CDS *, ECDS *, SDS *"
	for _, tc := range []struct{ name, body, want string }{
		{"WARM-2 a type of its own after EDS", typ(clusterv3.Cluster_EDS) + aggregate, opaque},
		{"WARM-2 EDS after a type of its own", aggregate + typ(clusterv3.Cluster_EDS), "CDS *, ECDS *, EDS a, SDS *"},
		{"WARM-2 DNS after a type of its own", aggregate + settings + typ(clusterv3.Cluster_STRICT_DNS), opaque},
		{"ADS-8 a field of a large number", string(protowire.AppendVarint(protowire.AppendTag(nil, 70, protowire.VarintType), 1)), opaque},
		{"ADS-8 metadata name nothing", encode(&clusterv3.Cluster{Metadata: &corev3.Metadata{}}), ""},
	} {
		if got := showRefs(Refs(xds.Cluster, "a", []byte(tc.body))); got != tc.want {
			t.Errorf("%s: %q, not %q", tc.name, got, tc.want)
		}
	}
}

func TestRefs(t *testing.T) {
	var (
		ads    = &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}
		self   = &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Self{Self: &corev3.SelfConfigSource{}}}
		file   = &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_PathConfigSource{PathConfigSource: &corev3.PathConfigSource{Path: "x"}}}
		old    = &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Path{Path: "x"}}
		server = &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
			ClusterNames: []string{"server"}}}}
		eds = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
	)
	by := func(source *corev3.ConfigSource) *clusterv3.Cluster {
		return &clusterv3.Cluster{Name: "a", ClusterDiscoveryType: eds, EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: source, ServiceName: "s"}}
	}
	custom := func(url string, c *clusterv3.Cluster) *clusterv3.Cluster {
		c.Name = "a"
		c.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{Name: "c", TypedConfig: &anypb.Any{TypeUrl: url}}}
		return c
	}
	localities := func(l ...*endpointv3.LocalityLbEndpoints) proto.Message {
		return &endpointv3.ClusterLoadAssignment{ClusterName: "a", Endpoints: l}
	}
	const opaque = "CDS *, ECDS *, SDS *"
	for _, tc := range []struct {
		name string
		m    proto.Message
		want string
	}{
		{"WARM-2 by the cluster's name", &clusterv3.Cluster{Name: "a", ClusterDiscoveryType: eds}, "EDS a"},
		{"WARM-2 by service_name", by(nil), "EDS s"},
		{"WARM-2 on demand from the same server", by(ads), "EDS s"},
		{"NAME-2 by a canonical name", &clusterv3.Cluster{Name: "a", ClusterDiscoveryType: eds, EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{
			ServiceName: "xdstp://a/t/x?b=1&a=2"}}, "EDS xdstp://a/t/x?a=2&b=1"},
		{"static", &clusterv3.Cluster{Name: "a"}, ""},
		{"DNS with a left-over EDS config", &clusterv3.Cluster{Name: "a", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS},
			EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: "s"}}, ""},
		{"ADS-8 the source may change from a file to a cluster", by(file), opaque + ", EDS s"},
		{"ADS-8 from a file, the old way", by(old), opaque + ", EDS s"},
		{"ADS-8 endpoints from a server that is a cluster", by(server), opaque + ", EDS s"},
		{"ADS-8 an aggregate cluster may refer to any cluster", custom("type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig", &clusterv3.Cluster{}), opaque},
		{"ADS-8 an unknown type of cluster may have any assignment", custom("type.googleapis.com/my.Cluster", &clusterv3.Cluster{}), opaque + ", EDS *"},
		{"ADS-8 a cluster of a module", custom("type.googleapis.com/envoy.extensions.clusters.dynamic_modules.v3.ClusterConfig", &clusterv3.Cluster{}), opaque + ", EDS *"},
		{"ADS-8 EDS chosen as an extension", custom("", &clusterv3.Cluster{EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: "s"}}), opaque + ", EDS *, EDS s"},
		{"ADS-8 a transport socket may have secrets", &clusterv3.Cluster{Name: "a", TransportSocket: &corev3.TransportSocket{Name: "tls"}}, opaque},
		{"ADS-8 one of many transport sockets may have secrets", &clusterv3.Cluster{Name: "a", TransportSocketMatches: []*clusterv3.Cluster_TransportSocketMatch{{Name: "m"}}}, opaque},
		{"ADS-8 an upstream filter may be discovered", &clusterv3.Cluster{Name: "a", Filters: []*clusterv3.Filter{{Name: "f"}}}, opaque},
		{"ADS-8 options of protocols may have filters", &clusterv3.Cluster{Name: "a", TypedExtensionProtocolOptions: map[string]*anypb.Any{"http": {}}}, opaque},
		{"ADS-8 load is reported to this server", &clusterv3.Cluster{Name: "a", LrsServer: self}, ""},
		{"ADS-8 load is reported to a cluster", &clusterv3.Cluster{Name: "a", LrsServer: server}, opaque},
		{"ADS-8 endpoints in their assignment", localities(&endpointv3.LocalityLbEndpoints{LbEndpoints: []*endpointv3.LbEndpoint{{}}}), ""},
		{"ADS-8 endpoints in a collection", localities(&endpointv3.LocalityLbEndpoints{LbConfig: &endpointv3.LocalityLbEndpoints_LedsClusterLocalityConfig{
			LedsClusterLocalityConfig: &endpointv3.LedsClusterLocalityConfig{LedsCollectionName: "xdstp://a/t/x/*?b=2&a=1"}}}), "LEDS *, LEDS xdstp://a/t/x/*?a=1&b=2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			typ := xds.Cluster
			if _, ok := tc.m.(*endpointv3.ClusterLoadAssignment); ok {
				typ = xds.Endpoint
			}
			r, err := NewResource(typ, "", tc.m)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Split(tc.want, ", ")
			slices.Sort(want)
			if got := showRefs(r.Refs); got != strings.Join(want, ", ") || r.Refs == nil {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			for _, ref := range Refs(typ.Legacy(), "a", r.Body) {
				if !ref.Type.V2 {
					t.Errorf("a resource of v2 refers to %v", ref)
				}
			}
		})
	}
	t.Run("ADS-8 other types are not known", func(t *testing.T) {
		if r, err := NewResource(xds.Listener, "", &listenerv3.Listener{Name: "l"}); err != nil || r.Refs != nil {
			t.Error(r.Refs, err)
		}
	})
	t.Run("ADS-8 a body that cannot be read is not known", func(t *testing.T) {
		for _, body := range []string{"\xff", "\x1a\x01\xff", "\xb2\x02\x03\x12\x01\xff"} {
			if refs := Refs(xds.Cluster, "a", []byte(body)); refs != nil {
				t.Errorf("%q has the references %v", body, refs)
			}
		}
		for _, body := range []string{"\xff", "\x12\x01\xff", "\x12\x03\x42\x01\xff"} {
			if refs := Refs(xds.Endpoint, "a", []byte(body)); refs != nil {
				t.Errorf("%q has the references %v", body, refs)
			}
		}
	})
}

// The descriptors of Envoy prove that the skipped fields contain no references.
func TestFieldsWithoutRefs(t *testing.T) {
	reasons := map[protoreflect.Name]string{"load_assignment": "its endpoints are static", "metadata": "read when a cluster was chosen"}
	handled := []protoreflect.Name{"type", "cluster_type", "eds_cluster_config", "lrs_server"}
	fields := (&clusterv3.Cluster{}).ProtoReflect().Descriptor().Fields()
	seen := uint64(0)
	for i := range fields.Len() {
		f := fields.Get(i)
		if slices.Contains(handled, f.Name()) {
			continue
		}
		t.Run("ADS-8 "+string(f.Name()), func(t *testing.T) {
			is := f.Number() <= 63 && uint64(fieldsWithoutRefs)>>f.Number()&1 == 1
			seen |= 1 << f.Number()
			why := carries(f, map[protoreflect.FullName]bool{})
			if is && why != "" && reasons[f.Name()] == "" {
				t.Errorf("field %d is held for plain, but has %s", f.Number(), why)
			}
			if !is && why == "" {
				t.Errorf("field %d could be plain", f.Number())
			}
			// The result of the reader.
			b := protowire.AppendTag(nil, f.Number(), protowire.BytesType)
			b = protowire.AppendBytes(b, nil)
			if refs := Refs(xds.Cluster, "a", b); len(refs) == 0 != is {
				t.Errorf("field %d: %v", f.Number(), refs)
			}
		})
	}
	t.Run("ADS-8 a field that is younger than this program", func(t *testing.T) {
		for _, n := range []protowire.Number{63, 64, 65, 100, 1000} {
			b := protowire.AppendVarint(protowire.AppendTag(nil, n, protowire.VarintType), 1)
			if got := showRefs(Refs(xds.Cluster, "a", b)); got != "CDS *, ECDS *, SDS *" {
				t.Errorf("field %d: %q", n, got)
			}
		}
	})
	if fields.Len() < 50 {
		t.Fatal("is the API linked?")
	}
}

// carries returns the kind of reference that a field may contain, or "".
func carries(f protoreflect.FieldDescriptor, seen map[protoreflect.FullName]bool) string {
	m := f.Message()
	if m == nil {
		for _, s := range []string{"cluster", "secret", "route"} {
			if f.Kind() == protoreflect.StringKind && strings.Contains(string(f.Name()), s) {
				return string(f.FullName())
			}
		}
		return ""
	}
	switch m.FullName() {
	case "google.protobuf.Any", "envoy.config.core.v3.ConfigSource":
		return string(f.FullName())
	}
	if seen[m.FullName()] {
		return ""
	}
	seen[m.FullName()] = true
	for i := range m.Fields().Len() {
		if why := carries(m.Fields().Get(i), seen); why != "" {
			return fmt.Sprint(f.Name(), ", ", why)
		}
	}
	return ""
}

// WARM-2: an empty service name, also after another one, leaves the name of the cluster.
func TestRefsEmptyServiceName(t *testing.T) {
	config := func(b []byte, service string) []byte {
		b = protowire.AppendTag(b, 3, protowire.BytesType)
		return protowire.AppendBytes(b, protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), service))
	}
	b := protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), 3) // EDS
	for _, service := range []string{"", "s", ""} {
		b = config(b, service)
		if got, want := showRefs(Refs(xds.Cluster, "a", b)), "EDS "+cmp.Or(service, "a"); got != want {
			t.Errorf("it refers to %s, want %s", got, want)
		}
	}
}

// The assignment of a cluster with distorted fields is the one that the generated code finds.
func TestRefsOfDistortedClusters(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	for range 5000 {
		c := &clusterv3.Cluster{Name: "a", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_DiscoveryType(rnd.IntN(5))}}
		if rnd.IntN(4) == 0 {
			c.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{Name: "c"}}
		}
		if rnd.IntN(3) > 0 {
			c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{ServiceName: []string{"", "s", "t"}[rnd.IntN(3)]}
		}
		b := distorted(rnd, append(marshal(t, c), marshal(t, &clusterv3.Cluster{EdsClusterConfig: c.EdsClusterConfig})...))
		var is clusterv3.Cluster
		if proto.Unmarshal(b, &is) != nil {
			Refs(xds.Cluster, "a", b)
			continue
		}
		want := ""
		if is.GetType() == clusterv3.Cluster_EDS || is.GetClusterType() != nil && is.EdsClusterConfig != nil {
			want = cmp.Or(is.GetEdsClusterConfig().GetServiceName(), "a")
		}
		var got string
		for _, r := range Refs(xds.Cluster, "a", b) {
			if r.Type.Is(xds.Endpoint) && r.Name != xds.Wildcard {
				got = r.Name
			}
		}
		if got != want {
			t.Fatalf("%x: %q, want %q", b, got, want)
		}
	}
}
