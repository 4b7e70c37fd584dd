package wire

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/chancery-xds/chancery/xds"
)

// bytesField is the encoding of a field of bytes.
func bytesField(num protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), b)
}

func TestTTLOfTheLongestDuration(t *testing.T) {
	t.Run("CLI-8", func(t *testing.T) {
		for ttl, want := range map[*durationpb.Duration]time.Duration{
			{Seconds: math.MaxInt64/int64(time.Second) - 1, Nanos: 999_999_999}: math.MaxInt64/time.Second*time.Second - 1,
			{Seconds: math.MaxInt64 / int64(time.Second), Nanos: 999_999_999}:   math.MaxInt64, // the sum would be negative
		} {
			b := marshal(t, &discovery.DeltaDiscoveryResponse{TypeUrl: xds.Cluster.URL, Resources: []*discovery.Resource{{Name: "a", Ttl: ttl}}})
			r, err := DecodeResponse(xds.Delta, b, ResponseOptions{})
			if err != nil || len(r.Beats) != 1 || r.Beats[0].TTL != want {
				t.Errorf("%v: %+v, %v, want %v", ttl, r, err, want)
			}
		}
	})
}

func TestMalformedResourcesAreListed(t *testing.T) {
	unnamed := &discovery.Resource{Resource: &anypb.Any{TypeUrl: xds.Cluster.URL}}
	decode := func(r *discovery.DeltaDiscoveryResponse, o ResponseOptions) []error {
		t.Helper()
		r.TypeUrl = xds.Cluster.URL
		got, err := DecodeResponse(xds.Delta, marshal(t, r), o)
		if err != nil {
			t.Fatal(err)
		}
		return got.Malformed
	}
	t.Run("SAFE-9 one more than the limit", func(t *testing.T) {
		got := decode(&discovery.DeltaDiscoveryResponse{Resources: slices.Repeat([]*discovery.Resource{unnamed}, maxMalformed+1)}, ResponseOptions{})
		if len(got) != maxMalformed+1 || got[maxMalformed].Error() != "and 1 more" {
			t.Errorf("%d errors: %v", len(got), got[len(got)-1])
		}
	})
	t.Run("SAFE-9 the place is asked for only if it is reported", func(t *testing.T) {
		asked := 0
		decode(&discovery.DeltaDiscoveryResponse{Resources: slices.Repeat([]*discovery.Resource{unnamed}, 3*maxMalformed)},
			ResponseOptions{Place: func(at int) string { asked++; return "" }})
		if asked != maxMalformed {
			t.Errorf("%d times", asked)
		}
	})
	t.Run("CLI-2 a message of one byte", func(t *testing.T) {
		got := decode(&discovery.DeltaDiscoveryResponse{Resources: []*discovery.Resource{{Name: "a", Resource: anyOf(xds.Cluster.URL, []byte{1 << 3})}}}, ResponseOptions{})
		if len(got) != 1 {
			t.Errorf("accepted: %v", got)
		}
	})
	t.Run("CLI-2 the place of a resource without a name", func(t *testing.T) {
		got := decode(&discovery.DeltaDiscoveryResponse{Resources: []*discovery.Resource{unnamed}},
			ResponseOptions{Place: func(at int) string { return fmt.Sprintf("line %d", at+1) }})
		if len(got) != 1 || got[0].Error() != "line 1: has no name" {
			t.Error(got)
		}
	})
	t.Run("CLI-2 the place of a resource with a name", func(t *testing.T) {
		got := decode(&discovery.DeltaDiscoveryResponse{Resources: []*discovery.Resource{{Name: "a", Resource: &anypb.Any{TypeUrl: "x/Y"}}}},
			ResponseOptions{Place: func(at int) string { return fmt.Sprintf("line %d", at+1) }})
		if want := `line 1: resource "a": is a x/Y, want a ` + xds.Cluster.URL; len(got) != 1 || got[0].Error() != want {
			t.Errorf("%v, want %s", got, want)
		}
	})
	t.Run("CLI-3 the second of two removed names with parameters", func(t *testing.T) {
		got := decode(&discovery.DeltaDiscoveryResponse{RemovedResourceNames: []*discovery.ResourceName{{Name: "a"}, {}}}, ResponseOptions{})
		if len(got) != 1 || got[0].Error() != "removed_resources[1]: has no name" {
			t.Error(got)
		}
	})
	t.Run("CLI-8 a torn TTL", func(t *testing.T) {
		w := slices.Concat(bytesField(resourceName, []byte("a")), bytesField(resourceTTL, []byte{durationSeconds << 3}))
		r, err := DecodeResponse(xds.Delta, bytesField(fieldResources, w), ResponseOptions{Only: xds.Cluster})
		if err != nil || len(r.Malformed) != 1 || r.Malformed[0].Error() != `resource "a": field 6: unexpected EOF` {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("CLI-3 a removed name that is not UTF-8", func(t *testing.T) {
		const removedResources = 6
		r, err := DecodeResponse(xds.Delta, bytesField(removedResources, []byte{0xff}), ResponseOptions{Only: xds.Cluster})
		if err != nil || len(r.Malformed) != 1 || r.Malformed[0].Error() != "removed_resources[0]: invalid UTF-8" {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

func TestMetadataIgnoresOtherFields(t *testing.T) {
	s, err := structpb.NewStruct(map[string]any{"a": "x"})
	if err != nil {
		t.Fatal(err)
	}
	b := marshal(t, s)
	_, _, tag := protowire.ConsumeTag(b)
	entry, _ := protowire.ConsumeBytes(b[tag:])
	for name, b := range map[string][]byte{
		"another number":    bytesField(2, entry),
		"another wire type": append(protowire.AppendTag(nil, 1, protowire.VarintType), 1),
	} {
		if got := Metadata(append(slices.Clone(b), bytesField(1, entry)...), "a"); got != "x" {
			t.Errorf("%s before the entry: %q", name, got)
		}
		if got := Metadata(b, "a"); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestDecodeTornBuildVersion(t *testing.T) {
	t.Run("SAFE-1", func(t *testing.T) {
		const buildVersion = 8
		b := bytesField(2, bytesField(buildVersion, []byte{1<<3 | 2})) // the length is missing
		if _, err := (&Decoder{Variant: xds.SotW}).Decode(b); err == nil {
			t.Error("a torn build version was accepted")
		}
	})
}

func TestRefsOfOddClusters(t *testing.T) {
	const lrsServer, clusterType, self = 42, 38, 5
	custom := bytesField(clusterType, bytesField(2, bytesField(1, []byte("type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig"))))
	ownLoad := bytesField(lrsServer, bytesField(self, nil))
	const opaque = "CDS *, ECDS *, SDS *"
	for name, body := range map[string][]byte{
		"ADS-8 load reported to this server, after an aggregate cluster": slices.Concat(custom, ownLoad),
		"ADS-8 a cluster type that is a number":                          append(protowire.AppendTag(nil, clusterType, protowire.VarintType), 1),
	} {
		t.Run(name, func(t *testing.T) {
			if got := showRefs(Refs(xds.Cluster, "a", body)); got != opaque {
				t.Errorf("%q, want %q", got, opaque)
			}
		})
	}
}

// Responses at several versions share the encoded resources, unless the encoding contains the version.
func TestEncodeSharesBetweenVersions(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 10))
	changes := func(ttl time.Duration, beats ...*xds.Resource) *xds.Changes {
		c := &xds.Changes{Beats: beats}
		for i := range 1000 {
			r := resource(rnd, fmt.Sprint("r", i), 300)
			r.TTL = ttl
			c.Upserts = append(c.Upserts, r)
		}
		return c
	}
	beat := expiring("b", "", time.Second)
	for _, c := range []struct {
		name    string
		v       xds.Variant
		changes *xds.Changes
		shared  bool
	}{
		{"TTL-4 SotW without TTL", xds.SotW, changes(0), true},
		{"TTL-4 SotW with TTL", xds.SotW, changes(time.Second), false},
		{"TTL-4 SotW with a heartbeat", xds.SotW, changes(0, beat), false},
		{"TTL-1 delta with TTL", xds.Delta, changes(time.Second), true},
		{"TTL-1 delta with a heartbeat", xds.Delta, changes(0, beat), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var pieces int
			for _, version := range []string{"1", "2", "3"} {
				pieces = len(Encode(c.v, &xds.Response{Type: xds.Cluster, Version: version, Nonce: "n", TTL: true, Changes: c.changes}, ""))
			}
			if shared := pieces == 2; shared != c.shared { // one piece of all resources, and the tail
				t.Errorf("shared %v: %d pieces", shared, pieces)
			}
		})
	}
}

func TestDecodeResponseOddities(t *testing.T) {
	decode := func(t *testing.T, b []byte) *xds.Response {
		t.Helper()
		r, err := DecodeResponse(xds.Delta, b, ResponseOptions{Only: xds.Cluster})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	malformed := func(t *testing.T, r *xds.Response, want string) {
		t.Helper()
		if len(r.Malformed) != 1 || !strings.HasPrefix(r.Malformed[0].Error(), want) {
			t.Errorf("%v, want %s", r.Malformed, want)
		}
	}
	t.Run("CLI-8 nanoseconds below zero", func(t *testing.T) {
		w := &discovery.Resource{Name: "a", Ttl: &durationpb.Duration{Nanos: -1}}
		malformed(t, decode(t, marshal(t, &discovery.DeltaDiscoveryResponse{Resources: []*discovery.Resource{w}})), `resource "a": invalid TTL`)
	})
	t.Run("CLI-2 the second of two resources has no name", func(t *testing.T) {
		all := []*discovery.Resource{{Name: "a", Ttl: durationpb.New(1)}, {Ttl: durationpb.New(1)}, {Name: "b", Ttl: durationpb.New(1)}}
		r := decode(t, marshal(t, &discovery.DeltaDiscoveryResponse{Resources: all}))
		malformed(t, r, "resources[1]: has no name")
		if len(r.Beats) != 2 {
			t.Errorf("%+v", r.Changes)
		}
	})
	name := bytesField(errorResource, bytesField(1, []byte("a")))
	for what, b := range map[string][]byte{
		"a torn status":                          slices.Concat(name, bytesField(errorDetail, []byte{1<<3 | 2})),
		"a torn error":                           slices.Concat(name, []byte{errorDetail<<3 | 2}),
		"a name that is not UTF-8, then another": slices.Concat(bytesField(errorResource, bytesField(1, []byte{0xff})), name),
	} {
		t.Run("CLI-11 "+what, func(t *testing.T) {
			r := decode(t, bytesField(fieldErrors+2, b))
			malformed(t, r, "resource_errors[0]: ")
			if len(r.Errors)+len(r.Missing) > 0 {
				t.Errorf("%v %v", r.Errors, r.Missing)
			}
		})
	}
	t.Run("NAME-3 a number in the field of the name", func(t *testing.T) {
		number := append(protowire.AppendTag(nil, 1, protowire.VarintType), 1)
		r := decode(t, bytesField(removedNames, slices.Concat(bytesField(1, []byte("a")), number)))
		if !slices.Equal(r.Removed, []string{"a"}) || len(r.Malformed) > 0 {
			t.Errorf("%q %v", r.Removed, r.Malformed)
		}
	})
}

// A resource that only differs in its aliases is not taken from the memory of the last response.
func TestMemoryComparesAliases(t *testing.T) {
	t.Run("CLI-12", func(t *testing.T) {
		memory := &Memory{}
		for _, alias := range []string{"x", "y"} {
			w := &discovery.Resource{Name: "a", Version: "1", Aliases: []string{alias}, Resource: anyOf(xds.Cluster.URL, bytesField(1, []byte("a")))}
			b := marshal(t, &discovery.DiscoveryResponse{TypeUrl: xds.Cluster.URL, Resources: []*anypb.Any{anyOf(resourceURL, marshal(t, w))}})
			r, err := DecodeResponse(xds.SotW, b, ResponseOptions{Memory: memory})
			if err != nil || len(r.Upserts) != 1 || !slices.Equal(r.Upserts[0].Aliases, []string{alias}) {
				t.Errorf("alias %s: %v, %v", alias, r, err)
			}
		}
	})
}

// A type whose responses are empty, or have only heartbeats, takes no place in the memory.
func TestMemoryOfEmptyResponses(t *testing.T) {
	t.Run("CLI-6", func(t *testing.T) {
		var m Memory
		decode := func(url string, entry []byte) *xds.Response {
			t.Helper()
			b := bytesField(fieldTypeURL, []byte(url))
			if entry != nil {
				b = append(b, bytesField(fieldResources, entry)...)
			}
			r, err := DecodeResponse(xds.SotW, b, ResponseOptions{Memory: &m})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		heartbeat := sotwEntry(resourceURL, slices.Concat(bytesField(resourceName, []byte("a")), bytesField(resourceVersion, []byte("1"))))
		for i := range maxRemembered {
			decode(fmt.Sprint("made.up/", i), nil)
			decode(fmt.Sprint("made.up/", i), heartbeat)
		}
		body := bytesField(1, []byte("a"))
		first := decode(xds.Cluster.URL, sotwEntry(xds.Cluster.URL, body))
		decode(xds.Cluster.URL, heartbeat)
		if again := decode(xds.Cluster.URL, sotwEntry(xds.Cluster.URL, body)); first.Upserts[0] != again.Upserts[0] {
			t.Error("the resource was made again")
		}
	})
}

// A delta response repeats no resources, so it is not remembered.
func TestMemoryOfDelta(t *testing.T) {
	t.Run("CLI-6", func(t *testing.T) {
		var m Memory
		w := &discovery.Resource{Name: "a", Version: "1", Resource: anyOf(xds.Cluster.URL, bytesField(1, []byte("a")))}
		b := marshal(t, &discovery.DeltaDiscoveryResponse{TypeUrl: xds.Cluster.URL, Resources: []*discovery.Resource{w}})
		if r, err := DecodeResponse(xds.Delta, b, ResponseOptions{Memory: &m}); err != nil || len(r.Upserts) != 1 || len(m.types) > 0 {
			t.Errorf("%+v, %v, %d types", r, err, len(m.types))
		}
	})
}

// A message may have no field with the number 0.
func TestDecodeFieldZero(t *testing.T) {
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		t.Run(fmt.Sprint("SAFE-1 ", v), func(t *testing.T) {
			if r, err := (&Decoder{Variant: v}).Decode([]byte{0<<3 | 2, 1, 'a'}); err == nil {
				t.Errorf("accepted as %+v", r)
			}
		})
	}
}

func TestDecodeLocatorWithoutName(t *testing.T) {
	t.Run("SAFE-1 it does not count as a name", func(t *testing.T) {
		d := Decoder{MaxNames: 1}
		r, err := d.Decode(marshal(t, &discovery.DiscoveryRequest{ResourceNames: []string{"a"}, ResourceLocators: []*discovery.ResourceLocator{{}}}))
		if err != nil || !slices.Equal(r.Names, []string{"a"}) {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// A resource without a body is framed once for all responses, like other resources.
func TestEncodeSharesFrameWithoutBody(t *testing.T) {
	for _, size := range []int{0, 1, maxInline, maxInline + 1} {
		r := xds.NewResource(xds.Cluster, "a", make([]byte, size))
		frame := func(v xds.Variant) *byte {
			b := Encode(v, &xds.Response{Type: xds.Cluster, Changes: &xds.Changes{Upserts: []*xds.Resource{r}}}, "")[0]
			return &b.ReadOnlyData()[0]
		}
		for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
			first := frame(v)
			if again := frame(v); again != first {
				t.Errorf("%s: the frame of a resource with %d bytes was made twice", v, size)
			}
		}
	}
}

// Names in two places are not recognized as a repetition, because the nonce between them would be lost.
func TestDecodeScatteredNames(t *testing.T) {
	t.Run("SOTW-3", func(t *testing.T) {
		const names, nonce = 3, 5
		name := func(s string) []byte { return bytesField(names, []byte(s)) }
		b := slices.Concat(name("a"), bytesField(nonce, []byte("7")), name(strings.Repeat("n", 200)), name("b"), bytesField(4, []byte(xds.Cluster.URL)))
		var d Decoder
		for range 2 {
			if r, err := d.Decode(b); err != nil || r.Nonce != "7" || len(r.Names) != 3 || r.SameNames {
				t.Errorf("%+v, %v", r, err)
			}
		}
	})
}

func TestDecodeLocalityIgnoresOtherFields(t *testing.T) {
	t.Run("SAFE-1", func(t *testing.T) {
		for num := protowire.Number(4); num < 7; num++ {
			locality := slices.Concat(bytesField(1, []byte("r")), bytesField(num, []byte("x")))
			r, err := (&Decoder{}).Decode(bytesField(2, bytesField(nodeLocality, locality)))
			if err != nil || r.Node == nil || r.Node.Region != "r" {
				t.Errorf("field %d: %+v, %v", num, r.Node, err)
			}
		}
	})
}

// A node without a locality, and one with a part of it.
func TestEncodeLocality(t *testing.T) {
	for _, n := range []xds.Node{{ID: "n"}, {Region: "r"}, {Zone: "z"}, {SubZone: "s"}} {
		var m discovery.DiscoveryRequest
		if err := proto.Unmarshal(EncodeRequest(xds.SotW, &xds.Request{Node: &n}), &m); err != nil {
			t.Fatal(err)
		}
		l := m.Node.Locality
		if has := n.ID == ""; (l != nil) != has || l.GetRegion() != n.Region || l.GetZone() != n.Zone || l.GetSubZone() != n.SubZone {
			t.Errorf("%+v became %v", n, l)
		}
	}
}

func TestNewResourceOfInvalidMessage(t *testing.T) {
	if r, err := NewResource(xds.Cluster, "a", &clusterv3.Cluster{Name: "a", AltStatName: "\xff"}); err == nil {
		t.Errorf("%v was made of a message that is not UTF-8", r)
	}
}

// Many streams share one piece for each run of small resources, and each large resource as it is.
func TestEncodeSharesLargeResources(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 11))
	c := &xds.Changes{}
	for i := range 60 {
		size := 300
		if i == 20 || i == 21 {
			size = big + 1
		}
		c.Upserts = append(c.Upserts, resource(rnd, fmt.Sprint("r", i), size))
	}
	r := &xds.Response{Type: xds.Cluster, Version: "v", Nonce: "1", Changes: c}
	first := Encode(xds.Delta, r, "").Materialize()
	again := Encode(xds.Delta, r, "")
	if !slices.Equal(first, again.Materialize()) {
		t.Error("the encodings differ")
	}
	// The small ones before, the frame and the body of each large one, the small ones between and after, the tail.
	if len(again) > 7 {
		t.Errorf("%d pieces", len(again))
	}
}

// A field with the wrong wire type is an unknown field, and changes no name, value or reference.
func TestDecodeIgnoresOtherWireTypes(t *testing.T) {
	number := append(protowire.AppendTag(nil, 1, protowire.VarintType), 1)
	t.Run("CLI-2 in a resource", func(t *testing.T) {
		if name, err := bodyName(xds.Cluster, slices.Concat(bytesField(1, []byte("a")), number)); err != nil || name != "a" {
			t.Errorf("%q, %v", name, err)
		}
	})
	t.Run("SUB-5 in metadata", func(t *testing.T) {
		value := append(bytesField(3, []byte("x")), append(protowire.AppendTag(nil, 3, protowire.VarintType), 1)...)
		if got := stringOf(value); got != "x" {
			t.Errorf("%q", got)
		}
	})
	t.Run("SUB-5 a torn id of a later node", func(t *testing.T) {
		if got := nodeID(append(bytesField(nodeIDField, []byte("n")), nodeIDField<<3|2), nil); string(got) != "n" {
			t.Errorf("%q", got)
		}
	})
	t.Run("ADS-8 a torn source", func(t *testing.T) {
		if ownSource([]byte{5<<3 | 2}) {
			t.Error("it counts as this server")
		}
	})
}
