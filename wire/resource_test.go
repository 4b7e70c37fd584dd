package wire

import (
	"strings"
	"testing"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/xds"
)

func pack(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestNewResource(t *testing.T) {
	c := &clusterv3.Cluster{Name: "backend"}
	for _, tc := range []struct {
		name     string
		typ      *xds.Type
		given    string
		m        proto.Message
		want, no string
	}{
		{name: "named by the message", typ: xds.Cluster, m: c, want: "backend"},
		{name: "named by the caller", typ: xds.Cluster, given: "backend", m: c, want: "backend"},
		{name: "named by the caller alone", typ: xds.Cluster, given: "other", m: &clusterv3.Cluster{}, no: `CDS resource "other": has no name in its message`},
		{name: "named otherwise", typ: xds.Cluster, given: "other", m: c, no: `CDS resource "other": the name in the message is "backend"`},
		{name: "named otherwise, packed", typ: xds.Cluster, given: "other", m: pack(t, c), no: `CDS resource "other": the name in the message is "backend"`},
		{name: "named otherwise by another field", typ: xds.Endpoint, given: "other", m: &endpointv3.ClusterLoadAssignment{ClusterName: "eds"}, no: `EDS resource "other": the name in the message is "eds"`},
		{name: "named otherwise, of v2", typ: xds.Cluster.Legacy(), given: "other", m: &anypb.Any{TypeUrl: xds.Cluster.Legacy().URL, Value: pack(t, c).Value}, no: `CDSv2 resource "other": the name in the message is "backend"`},
		{name: "a field that is not the name", typ: xds.VirtualHost, given: "route/v", m: &routev3.VirtualHost{Name: "v"}, want: "route/v"},
		{name: "a type that is not in the table", typ: xds.TypeOf("type.googleapis.com/envoy.config.accesslog.v3.AccessLog"), given: "log", m: &accesslogv3.AccessLog{Name: "another"}, want: "log"},
		{name: "named, and not to be read", typ: xds.Cluster, given: "c", m: &anypb.Any{TypeUrl: xds.Cluster.URL, Value: []byte("text")}, no: `CDS resource "c": malformed type.googleapis.com/envoy.config.cluster.v3.Cluster: `},
		{name: "another name field", typ: xds.Endpoint, m: &endpointv3.ClusterLoadAssignment{ClusterName: "eds"}, want: "eds"},
		{name: "packed", typ: xds.Cluster, m: pack(t, c), want: "backend"},
		{name: "packed and opaque", typ: xds.TypeOf("type.googleapis.com/my.Own"), given: "x", m: &anypb.Any{TypeUrl: "type.googleapis.com/my.Own", Value: []byte{8, 1}}, want: "x"},
		{name: "packed, opaque, nameless", typ: xds.TypeOf("type.googleapis.com/my.Own"), m: &anypb.Any{TypeUrl: "type.googleapis.com/my.Own"}, no: "Own resource: "},
		{name: "nameless type", typ: xds.VirtualHost, m: &routev3.VirtualHost{Name: "v"}, no: "VHDS resource without a name"},
		{name: "nameless", typ: xds.Cluster, m: &clusterv3.Cluster{}, no: "CDS resource without a name"},
		{name: "wrong type, named by itself", typ: xds.Listener, m: c, no: `LDS resource "backend": the message is a type.googleapis.com/envoy.config.cluster.v3.Cluster, not a `},
		{name: "no type", given: "l", m: c, no: `resource "l": the type is nil`},
		{name: "no message", typ: xds.Cluster, given: "l", no: `CDS resource "l": the message is nil`},
		{name: "nil message", typ: xds.Cluster, given: "l", m: (*clusterv3.Cluster)(nil), no: `CDS resource "l": the message is nil`},
		{name: "nil message, packed", typ: xds.Cluster, given: "l", m: (*anypb.Any)(nil), no: `CDS resource "l": the message is nil`},
		{name: "wrong type", typ: xds.Listener, given: "l", m: c, no: `LDS resource "l": the message is a type.googleapis.com/envoy.config.cluster.v3.Cluster, not a type.googleapis.com/envoy.config.listener.v3.Listener`},
		{name: "packed, and empty", typ: xds.Cluster, given: "l", m: &anypb.Any{}, no: `CDS resource "l": the message is an Any without a type URL`},
		{name: "wrong type, packed", typ: xds.Cluster, given: "l", m: pack(t, &listenerv3.Listener{}), no: `CDS resource "l": the message is a type.googleapis.com/envoy.config.listener.v3.Listener, not a type.googleapis.com/envoy.config.cluster.v3.Cluster`},
	} {
		t.Run("TYP-7 CLI-15 "+tc.name, func(t *testing.T) {
			r, err := NewResource(tc.typ, tc.given, tc.m)
			if tc.no != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tc.no) {
					t.Fatalf("got %v, want %s", err, tc.no)
				}
				return
			}
			if err != nil || r.Name != tc.want || r.Type != tc.typ {
				t.Fatal(r, err)
			}
		})
	}
	t.Run("NAME-2 a canonical name", func(t *testing.T) {
		const given, want = "xdstp://a/t/x?b=1&a=2", "xdstp://a/t/x?a=2&b=1"
		for _, name := range []string{"", given, want} {
			r, err := NewResource(xds.Endpoint, name, &endpointv3.ClusterLoadAssignment{ClusterName: given})
			if err != nil || r.Name != want {
				t.Error(r, err)
			}
		}
	})
	a, _ := NewResource(xds.Cluster, "", c)
	b, _ := NewResource(xds.Cluster, "", pack(t, c))
	if a.Version != b.Version || a.Version == "" {
		t.Errorf("versions %q and %q of one message", a.Version, b.Version)
	}
}

// The name is the first field of every message of the table that has a name.
func TestBodyName(t *testing.T) {
	for _, typ := range xds.Types() {
		m, err := envoy.Envoy().FindMessageByURL(typ.URL)
		if err != nil {
			t.Fatal(err)
		}
		want, msg := "", m.New()
		if typ.Name != "" {
			want = "the name"
			msg.Set(m.Descriptor().Fields().ByName(protoreflect.Name(typ.Name)), protoreflect.ValueOfString(want))
		}
		body, err := proto.Marshal(msg.Interface())
		if err != nil {
			t.Fatal(err)
		}
		for _, typ := range []*xds.Type{typ, typ.Legacy()} {
			if typ == nil {
				continue
			}
			if got, err := bodyName(typ, body); got != want || err != nil {
				t.Errorf("%s: %q, %v", typ, got, err)
			}
		}
	}
}

// BenchmarkNewResource measures the cost of making a resource.
func BenchmarkNewResource(b *testing.B) {
	cla := &endpointv3.ClusterLoadAssignment{ClusterName: "eds"}
	for range 100 {
		cla.Endpoints = append(cla.Endpoints, &endpointv3.LocalityLbEndpoints{LbEndpoints: []*endpointv3.LbEndpoint{{}}})
	}
	for name, m := range map[string]proto.Message{"a cluster": &clusterv3.Cluster{Name: "eds"}, "100 localities": cla} {
		a, err := anypb.New(m)
		if err != nil {
			b.Fatal(err)
		}
		for how, m := range map[string]proto.Message{"": m, ", packed": a} {
			b.Run(name+how, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := NewResource(xds.TypeOf(a.TypeUrl), "eds", m); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// The server does not check the validation rules of Envoy's messages: the operator decides, and clients check.
func TestNotValidated(t *testing.T) {
	t.Run("SAFE-3 a message that breaks its validation rules is served unchanged", func(t *testing.T) {
		m := &routev3.RouteConfiguration{Name: "r", VirtualHosts: []*routev3.VirtualHost{{}}}
		if m.ValidateAll() == nil {
			t.Fatal("the rules refuse nothing")
		}
		r, err := NewResource(xds.Route, "", m)
		if err != nil {
			t.Fatal(err)
		}
		var got routev3.RouteConfiguration
		if err := proto.Unmarshal(r.Body, &got); err != nil || !proto.Equal(&got, m) {
			t.Error(&got, err)
		}
	})
}
