package server

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	// The generated code with which the tests compare the rows of v2.
	_ "github.com/envoyproxy/go-control-plane/envoy/api/v2"
	_ "github.com/envoyproxy/go-control-plane/envoy/api/v2/auth"
	_ "github.com/envoyproxy/go-control-plane/envoy/api/v2/route"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v2"

	"github.com/chancery-xds/chancery/xds"
)

const (
	v2ADS      = "/envoy.service.discovery.v2.AggregatedDiscoveryService/StreamAggregatedResources"
	v2ADSDelta = "/envoy.service.discovery.v2.AggregatedDiscoveryService/DeltaAggregatedResources"
	v2Clusters = "/envoy.api.v2.ClusterDiscoveryService/"
)

func TestLegacyTable(t *testing.T) {
	d := New(newSource(), WithV2()).services()
	served := map[string]*grpc.ServiceDesc{}
	for _, s := range d {
		served[s.ServiceName] = s
	}
	check := func(t *testing.T, service, file string) {
		t.Helper()
		svc := descriptor[protoreflect.ServiceDescriptor](t, service)
		if got := svc.ParentFile().Path(); got != file {
			t.Errorf("declared in %q, the table says %q", got, file)
		}
		var want, got []string
		for i := range svc.Methods().Len() {
			want = append(want, string(svc.Methods().Get(i).Name()))
		}
		if served[service] == nil {
			t.Fatal("the service is not served")
		}
		for _, m := range served[service].Streams {
			got = append(got, m.StreamName)
		}
		for _, m := range served[service].Methods {
			got = append(got, m.MethodName)
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) {
			t.Errorf("methods are %q, served are %q", want, got)
		}
	}
	for _, typ := range xds.Types() {
		l := typ.Legacy()
		if l == nil {
			continue
		}
		t.Run("TYP-6 "+l.Short, func(t *testing.T) {
			check(t, l.Service, l.Proto)
			msg := descriptor[protoreflect.MessageDescriptor](t, strings.TrimPrefix(l.URL, prefix))
			if l.Name != "" && msg.Fields().ByName(protoreflect.Name(l.Name)) == nil {
				t.Errorf("%s has no %q", msg.FullName(), l.Name)
			}
			if xds.TypeOf(l.URL) != l || l.Is(typ) || l.FullState != typ.FullState || l.Rank() != typ.Rank() || len(l.ReferredBy()) > len(typ.ReferredBy()) {
				t.Errorf("the row of the type is %+v", l)
			}
			for _, other := range append([]*xds.Type{l.After, l.Parent, l.Warms}, l.ReferredBy()...) {
				if other != nil && !other.V2 {
					t.Errorf("the row refers to %s, which is a type of v3", other.URL)
				}
			}
		})
	}
	t.Run("TYP-6 ADS", func(t *testing.T) {
		check(t, "envoy.service.discovery.v2.AggregatedDiscoveryService", "envoy/service/discovery/v2/ads.proto")
	})
	t.Run("TYP-6 v3 alone is served by default", func(t *testing.T) {
		for _, s := range newTestServer().services() {
			if strings.Contains(s.ServiceName, ".v2.") {
				t.Errorf("%s is served", s.ServiceName)
			}
		}
		w := serve(t)
		s := w.v2(t, v2ADS, message2{v2Type: "type.googleapis.com/envoy.api.v2.Cluster"})
		if err := s.RecvMsg(&message{}); status.Code(err) != codes.Unimplemented {
			t.Errorf("told %v", err)
		}
	})
}

// A message2 is a message of v2: its fields by number, as the oldest clients
// encode them. Values are strings, and messages in them.
type message2 map[protowire.Number]string

// The fields of v2's DiscoveryRequest and DeltaDiscoveryRequest that are used.
const (
	v2Version, v2Node, v2Names, v2Type, v2Nonce = 1, 2, 3, 4, 5
	v2DeltaNode, v2DeltaType, v2Subscribe       = 1, 2, 3
	v2DeltaNonce                                = 6
)

func (m message2) encode() string {
	var b []byte
	for num := range protowire.Number(16) {
		if s, ok := m[num]; ok {
			b = protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
		}
	}
	return string(b)
}

// decode2 returns the fields of a message, those with one number joined by ",".
func decode2(t *testing.T, b []byte) message2 {
	t.Helper()
	m := message2{}
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 || typ != protowire.BytesType {
			t.Fatalf("no field at %q", b)
		}
		v, k := protowire.ConsumeString(b[n:])
		if k < 0 {
			t.Fatalf("no field at %q", b)
		}
		if m[num] != "" {
			v = m[num] + "," + v
		}
		m[num], b = v, b[n+k:]
	}
	return m
}

func (w *world) v2(t *testing.T, method string, reqs ...message2) grpc.ClientStream {
	t.Helper()
	s, err := w.dial(t).NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, rawCodec)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reqs {
		if err := s.SendMsg(raw(r.encode())); err != nil && !errors.Is(err, io.EOF) { // RecvMsg returns the reason
			t.Fatal(err)
		}
	}
	return s
}

func recv2(t *testing.T, s grpc.ClientStream) message2 {
	t.Helper()
	defer soon()()
	var m message
	if err := s.RecvMsg(&m); err != nil {
		t.Fatal(err)
	}
	return decode2(t, m.data.Materialize())
}

func TestLegacy(t *testing.T) {
	const (
		v3URL = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
		v2URL = "type.googleapis.com/envoy.api.v2.Cluster"
		edsV2 = "type.googleapis.com/envoy.api.v2.ClusterLoadAssignment"
	)
	newer, older := xds.TypeOf(v3URL), xds.TypeOf(v2URL)
	// As Envoy 1.10 has it: a node with id, cluster and build_version.
	node := message2{1: "edge-1", 2: "edge", 5: "e95ef6bc/1.10.0/Clean/RELEASE/BoringSSL"}.encode()
	anyOf := func(url, body string) string { return message2{1: url, 2: body}.encode() }

	within(t, "TYP-6 SotW, resources stored under the v2 type", func(t *testing.T) {
		w := serve(t, WithV2())
		w.set(older, res("a", "1"), res("b", "1"))
		w.set(newer, res("of v3", "3"))
		s := w.v2(t, v2ADS, message2{v2Node: node, v2Type: v2URL})
		r := recv2(t, s)
		if r[2] != anyOf(v2URL, "1")+","+anyOf(v2URL, "1") || r[4] != v2URL || r[1] == "" || r[5] == "" {
			t.Fatalf("%q", r)
		}
		if len(w.nodes) != 1 || w.nodes[0].ID != "edge-1" || w.nodes[0].Cluster != "edge" {
			t.Error(w.nodes)
		}
		// Accepted. Then a cluster is removed, and all others are sent again.
		if err := s.SendMsg(raw(message2{v2Version: r[1], v2Type: v2URL, v2Nonce: r[5]}.encode())); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.update(older, nil, "a")
		if r := recv2(t, s); r[2] != anyOf(v2URL, "1") {
			t.Errorf("%q", r)
		}
	})
	within(t, "TYP-6 v3's types over v2's methods", func(t *testing.T) {
		w := serve(t, WithV2())
		w.set(older, res("a", "2"))
		w.set(newer, res("a", "3"))
		for _, method := range []string{v2ADS, v2Clusters + "StreamClusters"} {
			if r := recv2(t, w.v2(t, method, message2{v2Node: node, v2Type: v3URL})); r[2] != anyOf(v3URL, "3") || r[4] != v3URL {
				t.Errorf("%s: %q", method, r)
			}
		}
	})
	within(t, "TYP-5 TYP-6 the type of a service of its own", func(t *testing.T) {
		w := serve(t, WithV2())
		w.set(older, res("a", "2"))
		w.set(newer, res("a", "3"))
		for sent, want := range map[string]string{"": v2URL, v2URL: v2URL, v3URL: v3URL} {
			s := w.v2(t, v2Clusters+"StreamClusters", message2{v2Node: node, v2Type: sent})
			r := recv2(t, s)
			if r[4] != want {
				t.Errorf("%q gets %q", sent, r[4])
			}
			// From then on the stream is of that type.
			other := map[string]string{v2URL: v3URL, v3URL: v2URL}[want]
			if err := s.SendMsg(raw(message2{v2Type: other}.encode())); err != nil {
				t.Fatal(err)
			}
			if err := s.RecvMsg(&message{}); status.Code(err) != codes.InvalidArgument {
				t.Errorf("a later request for %q gets %v", other, err)
			}
		}
		for _, wrong := range []string{edsV2, xds.Endpoint.URL} {
			if err := w.v2(t, v2Clusters+"StreamClusters", message2{v2Type: wrong}).RecvMsg(&message{}); status.Code(err) != codes.InvalidArgument {
				t.Errorf("%q gets %v", wrong, err)
			}
		}
	})
	within(t, "TYP-6 delta", func(t *testing.T) {
		w := serve(t, WithV2())
		w.set(older, res("a", "1"))
		for _, method := range []string{v2ADSDelta, v2Clusters + "DeltaClusters"} {
			s := w.v2(t, method, message2{v2DeltaNode: node, v2DeltaType: v2URL, v2Subscribe: "a"}, message2{v2DeltaType: v2URL, v2Subscribe: "none"})
			r := recv2(t, s)
			if got := decode2(t, []byte(r[2])); got[3] != "a" || got[2] != anyOf(v2URL, "1") || got[1] == "" || r[4] != v2URL {
				t.Errorf("%s: %q", method, r)
			}
			if r := recv2(t, s); r[6] != "none" {
				t.Errorf("%s: %q", method, r)
			}
		}
	})
	within(t, "TYP-6 WARM-2 a cluster's assignment follows it", func(t *testing.T) {
		w := serve(t, WithV2())
		eds := xds.TypeOf(edsV2)
		w.set(eds, res("a", "an assignment"))
		cluster := func(body string) *xds.Resource {
			r := res("a", body)
			r.Refs = []xds.Ref{{Type: eds, Name: "a"}}
			return r
		}
		w.set(older, cluster("1"))
		s := w.v2(t, v2ADSDelta, message2{v2DeltaNode: node, v2DeltaType: v2URL})
		recv2(t, s)
		if err := s.SendMsg(raw(message2{v2DeltaType: edsV2, v2Subscribe: "a"}.encode())); err != nil {
			t.Fatal(err)
		}
		r := recv2(t, s)
		if err := s.SendMsg(raw(message2{v2DeltaType: edsV2, v2DeltaNonce: r[5]}.encode())); err != nil {
			t.Fatal(err)
		}
		if err := s.SendMsg(raw(message2{v2DeltaType: v2URL, v2DeltaNonce: "1"}.encode())); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.set(older, cluster("2"))
		for _, want := range []string{v2URL, edsV2} {
			if r := recv2(t, s); r[4] != want {
				t.Errorf("got %s, want %s", r[4], want)
			}
		}
	})
	within(t, "TYP-6 Fetch", func(t *testing.T) {
		w := serve(t, WithV2())
		w.set(older, res("a", "2"))
		w.set(newer, res("a", "3"))
		conn := w.dial(t)
		for sent, want := range map[string]string{"": anyOf(v2URL, "2"), v2URL: anyOf(v2URL, "2"), v3URL: anyOf(v3URL, "3")} {
			var r message
			if err := conn.Invoke(t.Context(), v2Clusters+"FetchClusters", raw(message2{v2Node: node, v2Type: sent}.encode()), &r, rawCodec); err != nil {
				t.Fatal(err)
			}
			if got := decode2(t, r.data.Materialize()); got[2] != want {
				t.Errorf("%q gets %q", sent, got)
			}
		}
	})
	within(t, "TYP-6 health", func(t *testing.T) {
		w := serve(t, WithV2())
		h := healthgrpc.NewHealthClient(w.dial(t))
		if r, err := h.Check(t.Context(), &healthgrpc.HealthCheckRequest{Service: "envoy.api.v2.ClusterDiscoveryService"}); err != nil || r.Status != healthgrpc.HealthCheckResponse_SERVING {
			t.Error(r, err)
		}
	})
}
