package endpoints

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func put(t testing.TB, k Key, text string) Change {
	t.Helper()
	if k.Group == "" {
		k.Group = defaultGroup
	}
	return Change{Key: k, Value: []byte(text)}
}

// served returns the assignment of the only cluster that has changed.
func served(t *testing.T, s *Set) *endpointv3.ClusterLoadAssignment {
	t.Helper()
	all := s.Take()
	if len(all) != 1 {
		t.Fatalf("%d assignments", len(all))
	}
	if all[0].Resource == nil {
		return nil
	}
	m := &endpointv3.ClusterLoadAssignment{}
	if err := proto.Unmarshal(all[0].Resource.Body, m); err != nil {
		t.Fatal(err)
	}
	if len(m.ProtoReflect().GetUnknown()) > 0 {
		t.Error("unknown fields")
	}
	return m
}

func address(ip string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{Address: ip, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port}}}}
}

func lb(ip string, port uint32) *endpointv3.LbEndpoint {
	return &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address(ip, port)}}}
}

// The registrations are served as messages of Envoy's API. Priorities have no gaps, an address appears
// once, and each locality has a weight.
func TestAssignment(t *testing.T) {
	var s Set
	for id, text := range map[string]string{
		"a":  `{"address":"10.0.0.1","port":80,"hostname":"a.test","weight":3,"health":"DRAINING","ttl":"30s","metadata":{"envoy.lb":{"canary":true,"n":1.5,"s":"x","null":null,"list":[1,"y"],"o":{"k":""}},"other":{}}}`,
		"b":  `{"address":"10.0.0.2","port":80,"locality":{"region":"r","zone":"z","sub_zone":"s"}}`,
		"b2": `{"address":"10.0.0.2","port":80,"weight":9}`,
		"0":  `{"address":"::1","port":65535,"priority":5,"health":"UNKNOWN","weight":1}`,
		"d":  `{"address":"0:0::2","port":1,"priority":7}`,
	} {
		if changed, err := s.Apply(put(t, Key{Cluster{Name: "backend"}, id}, text)); err != nil || !changed {
			t.Fatal(err)
		}
	}
	a := lb("10.0.0.1", 80)
	a.GetEndpoint().Hostname, a.HealthStatus, a.LoadBalancingWeight = "a.test", corev3.HealthStatus_DRAINING, wrapperspb.UInt32(3)
	lbMeta, err := structpb.NewStruct(map[string]any{"canary": true, "n": 1.5, "s": "x", "null": nil, "list": []any{1, "y"}, "o": map[string]any{"k": ""}})
	if err != nil {
		t.Fatal(err)
	}
	a.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"envoy.lb": lbMeta, "other": {}}}
	one := wrapperspb.UInt32(1)
	want := &endpointv3.ClusterLoadAssignment{ClusterName: "backend", Endpoints: []*endpointv3.LocalityLbEndpoints{
		{LbEndpoints: []*endpointv3.LbEndpoint{a}, LoadBalancingWeight: wrapperspb.UInt32(3)},
		{Locality: &corev3.Locality{Region: "r", Zone: "z", SubZone: "s"}, LbEndpoints: []*endpointv3.LbEndpoint{lb("10.0.0.2", 80)}, LoadBalancingWeight: one},
		{LbEndpoints: []*endpointv3.LbEndpoint{lb("::1", 65535)}, LoadBalancingWeight: one, Priority: 1},
		{LbEndpoints: []*endpointv3.LbEndpoint{lb("::2", 1)}, LoadBalancingWeight: one, Priority: 2},
	}}
	if diff := cmp.Diff(want, served(t, &s), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	if err := want.ValidateAll(); err != nil {
		t.Error(err)
	}
	// The last endpoint of the first priority goes: the second becomes the first.
	for _, id := range []string{"a", "b", "b2"} {
		if _, err := s.Apply(Change{Key: Key{Cluster{"default", "backend"}, id}}); err != nil {
			t.Fatal(err)
		}
	}
	want.Endpoints = want.Endpoints[2:]
	want.Endpoints[0].Priority, want.Endpoints[1].Priority = 0, 1
	if diff := cmp.Diff(want, served(t, &s), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// A cluster that was put is served without endpoints when the last one goes; another one is not served
// then.
func TestClaimedClusterStaysWhenEmpty(t *testing.T) {
	var s Set
	apply := func(c Change, want bool) {
		t.Helper()
		if changed, err := s.Apply(c); err != nil || changed != want {
			t.Fatal(changed, err)
		}
	}
	c := Cluster{Group: "g", Name: "x"}
	apply(put(t, Key{Cluster: c}, `{}`), true)
	apply(put(t, Key{Cluster: c}, `{}`), false)
	if m := served(t, &s); m == nil || len(m.Endpoints) != 0 {
		t.Error(m)
	}
	apply(put(t, Key{c, "a"}, `{"address":"10.0.0.1","port":80}`), true)
	apply(put(t, Key{c, "a"}, `{"address":"10.0.0.1","port":80,"ttl":"5s"}`), false) // clients see no difference
	if m := served(t, &s); len(m.GetEndpoints()) != 1 {
		t.Error(m)
	}
	apply(put(t, Key{c, "a"}, `{"address":"10.0.0.1","port":80,"locality":{"zone":"z"}}`), true)
	apply(put(t, Key{c, "a"}, `{"address":"10.0.0.1","port":80,"locality":{"zone":"z"},"priority":1}`), true)
	apply(Change{Key: Key{c, "a"}}, true)
	if m := served(t, &s); m == nil {
		t.Error("it is not served")
	}
	apply(Change{Key: Key{Cluster: c}}, true)
	if m := served(t, &s); m != nil {
		t.Error(m)
	}
	if s.len != 0 || len(s.clusters) != 0 || len(s.leases) != 0 || len(s.Take()) != 0 {
		t.Errorf("%+v", s)
	}
	apply(Change{Key: Key{c, "a"}}, false)
}

// The assignment depends on the registrations, and not on their history: so all servers have equal
// versions.
func TestEqualVersions(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	type state map[Key]string
	want, sets := state{}, []*Set{{}, {}}
	var all []Change
	for range 3000 {
		cluster, id := r.IntN(5), r.IntN(20)
		k := Key{Cluster{"default", fmt.Sprint("c", cluster)}, fmt.Sprint(id)}
		c := Change{Key: k}
		if r.IntN(3) > 0 {
			host := r.IntN(4) + 1
			if cluster > 1 { // no other endpoint has its address there
				host = 100 + id
			}
			c = put(t, k, fmt.Sprintf(`{"address":"10.0.0.%d","port":%d,"priority":%d,"weight":%d,"locality":{"region":"r%d","zone":"z%d","sub_zone":"s%d"}}`,
				host, r.IntN(3)+1, r.IntN(2), r.IntN(3), r.IntN(2), r.IntN(2), r.IntN(2)))
			c.Lease = LeaseID(r.IntN(3))
		}
		all = append(all, c)
		if c.Value == nil {
			delete(want, k)
		} else {
			want[k] = string(c.Value)
		}
	}
	now := map[Cluster]string{}
	for _, c := range all {
		if _, err := sets[0].Apply(c); err != nil {
			t.Fatal(err)
		}
		if r.IntN(10) == 0 {
			for _, a := range sets[0].Take() {
				delete(now, a.Cluster)
				if a.Resource != nil {
					now[a.Cluster] = a.Resource.Version
				}
			}
		}
	}
	for _, a := range sets[0].Take() {
		delete(now, a.Cluster)
		if a.Resource != nil {
			now[a.Cluster] = a.Resource.Version
		}
	}
	for k, v := range want {
		if _, err := sets[1].Apply(Change{Key: k, Value: []byte(v)}); err != nil {
			t.Fatal(err)
		}
	}
	once := map[Cluster]string{}
	for _, a := range sets[1].Take() {
		once[a.Cluster] = a.Resource.Version
	}
	if diff := cmp.Diff(once, now); diff != "" || len(once) == 0 {
		t.Error(diff)
	}
	if sets[0].len != len(want) {
		t.Errorf("%d entries, want %d", sets[0].len, len(want))
	}
	for name, c := range sets[0].clusters {
		if once := sets[1].clusters[name]; !maps.Equal(c.addrs, once.addrs) || c.twice != once.twice {
			t.Errorf("%v: removed addresses are still counted", name)
		}
	}
}

// The version is the same in each release: replicas of two releases run side by side.
func TestVersionIsStableAcrossReleases(t *testing.T) {
	var s Set
	if _, err := s.Apply(put(t, Key{Cluster{Name: "backend"}, "a"}, `{"address":"10.0.0.1","port":80,"metadata":{"envoy.lb":{"b":1,"a":[true]}},"locality":{"zone":"z"},"weight":2}`)); err != nil {
		t.Fatal(err)
	}
	const want = "d34bf44b58b8fbcd"
	if got := s.Take()[0].Resource.Version; got != want {
		t.Errorf("%s, want %s: a release that encodes otherwise sends everything again during an upgrade", got, want)
	}
}

// names returns metadata with n names, each with an object.
func names(n int, object string) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"n%d":%s`, i, object))
	}
	return strings.Join(all, ",")
}

// An invalid registration changes nothing, and the error names the field.
func TestInvalidFields(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                                                           "address: is missing",
		`{"address":"0.0.0.0","port":1}`:                               `address: 0.0.0.0 is not the address of one machine: it is unspecified, multicast or broadcast`,
		`{"address":"::","port":1}`:                                    `address: :: is not the address of one machine: it is unspecified, multicast or broadcast`,
		`{"address":"::ffff:0.0.0.0","port":1}`:                        `address: ::ffff:0.0.0.0 is not the address of one machine: it is unspecified, multicast or broadcast`,
		`{"address":"224.0.0.1","port":1}`:                             `address: 224.0.0.1 is not the address of one machine: it is unspecified, multicast or broadcast`,
		`{"address":"ff02::1","port":1}`:                               `address: ff02::1 is not the address of one machine: it is unspecified, multicast or broadcast`,
		`{"address":"::ffff:239.1.2.3","port":1}`:                      `address: ::ffff:239.1.2.3 is not the address of one machine: it is unspecified, multicast or broadcast`,
		`{"address":"255.255.255.255","port":1}`:                       `address: 255.255.255.255 is not the address of one machine: it is unspecified, multicast or broadcast`,
		`{"address":"x"}`:                                              `address: "x" is not an IP address`,
		`{"address":"fe80::1%eth0","port":1}`:                          "address:",
		`{"address":"10.0.0.1"}`:                                       "port: must be 1 to 65535",
		`{"address":"10.0.0.1","port":65536}`:                          "port:",
		`{"address":"10.0.0.1","port":1,"weight":-1}`:                  "weight: must be 1 to 100000",
		`{"address":"10.0.0.1","port":1,"weight":100001}`:              "weight: must be 1 to 100000",
		`{"address":"10.0.0.1","port":1,"priority":128}`:               "priority: must be 0 to 127",
		`{"address":"10.0.0.1","port":1,"health":"SICK"}`:              `health: "SICK" is not one of UNKNOWN, HEALTHY`,
		`{"address":"10.0.0.1","port":1,"hostname":"a\nb"}`:            "hostname:",
		`{"address":"10.0.0.1","port":1,"locality":{"zone":"\u0001"}}`: "locality.zone:",
		`{"address":"10.0.0.1","port":1,"metadata":{"":{}}}`:           "metadata: a name is empty",
		`{"address":"10.0.0.1","port":1,"metadata":{"a":{"b":"` + strings.Repeat("x", MaxMetadata) + `"}}}`:                      "metadata:",
		`{"address":"10.0.0.1","port":1,"metadata":{"a":{"b":` + strings.Repeat(`[`, 17) + `1` + strings.Repeat(`]`, 17) + `}}}`: "metadata: more than 16",
		`{"address":"10.0.0.1","port":1,"metadata":{"a":{"b":[{}` + strings.Repeat(`,{}`, MaxValues/2) + `]}}}`:                  "metadata: more than 100 values",
		`{"address":"10.0.0.1","port":1,"metadata":{` + names(MaxValues+1, `{}`) + `}}`:                                          "metadata: more than 100 values",
		`{"address":"10.0.0.1","port":1,"metadata":{` + names(2, `{"b":[0`+strings.Repeat(`,0`, MaxValues/2)+`]}`) + `}}`:        "metadata: more than 100 values",
		`{"address":1}`: "json:",
		`[]`:            "json:",
	} {
		var s Set
		good := put(t, Key{Cluster{Name: "x"}, "a"}, `{"address":"10.0.0.1","port":1}`)
		if _, err := s.Apply(good); err != nil {
			t.Fatal(err)
		}
		s.Take()
		if changed, err := s.Apply(put(t, good.Key, text)); err == nil || changed || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
		if e := s.get(good.Key); e == nil || e.value != nil || len(s.Take()) != 0 {
			t.Errorf("%s: the earlier endpoint is missing", text)
		}
	}
	var v Value
	if err := json.Unmarshal([]byte(`{"ttl":"x"}`), &v); err == nil {
		t.Error("a duration")
	}
}
