package wire

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/chancery-xds/chancery/xds"
)

// resource returns a resource with a body of n bytes, sometimes with aliases and a TTL.
func resource(rnd *rand.Rand, name string, n int) *xds.Resource {
	body := make([]byte, n)
	for i := range body {
		body[i] = byte(rnd.Uint32())
	}
	r := &xds.Resource{Stamp: &xds.Stamp{Name: name}, Body: body}
	for i := range rnd.IntN(3) {
		r.Aliases = append(r.Aliases, fmt.Sprint("alias-", 100*i+rnd.IntN(100)))
	}
	if rnd.IntN(3) == 0 {
		r.TTL = []time.Duration{1, time.Second - 1, time.Second, 90 * time.Second, 100*24*time.Hour + 1500*time.Millisecond}[rnd.IntN(5)]
	}
	r.Seal("")
	return r
}

// expected is the response according to the generated code.
func expected(t *testing.T, v xds.Variant, r *xds.Response, identifier string) proto.Message {
	var cp *corev3.ControlPlane
	if identifier != "" {
		cp = &corev3.ControlPlane{Identifier: identifier}
	}
	any := func(u *xds.Resource) *anypb.Any { return &anypb.Any{TypeUrl: r.Type.URL, Value: u.Body} }
	ttl := func(u *xds.Resource) *durationpb.Duration {
		if !r.TTL || u.TTL == 0 {
			return nil
		}
		return durationpb.New(u.TTL)
	}
	beats := r.Beats
	if !r.TTL {
		beats = nil
	}
	var missing []*discovery.ResourceError
	for _, name := range r.Missing {
		missing = append(missing, &discovery.ResourceError{ResourceName: &discovery.ResourceName{Name: name},
			ErrorDetail: status.New(codes.NotFound, "does not exist, or this node may not see it").Proto()})
	}
	if v == xds.SotW {
		m := &discovery.DiscoveryResponse{VersionInfo: r.Version, TypeUrl: r.Type.URL, Nonce: r.Nonce, ControlPlane: cp, ResourceErrors: missing}
		wrap := func(w *discovery.Resource) {
			a, err := anypb.New(w)
			if err != nil {
				t.Fatal(err)
			}
			m.Resources = append(m.Resources, a)
		}
		for _, u := range r.Upserts {
			if d := ttl(u); d != nil {
				wrap(&discovery.Resource{Name: u.Name, Version: r.Version, Ttl: d, Resource: any(u)})
			} else {
				m.Resources = append(m.Resources, any(u))
			}
		}
		for _, u := range beats {
			wrap(&discovery.Resource{Name: u.Name, Version: r.Version, Ttl: ttl(u)})
		}
		return m
	}
	m := &discovery.DeltaDiscoveryResponse{SystemVersionInfo: r.Version, TypeUrl: r.Type.URL, Nonce: r.Nonce, ControlPlane: cp, RemovedResources: r.Removed, ResourceErrors: missing}
	for _, u := range r.Upserts {
		m.Resources = append(m.Resources, &discovery.Resource{Name: u.Name, Version: u.Version, Aliases: u.Aliases, Ttl: ttl(u), Resource: any(u)})
	}
	for _, u := range beats {
		m.Resources = append(m.Resources, &discovery.Resource{Name: u.Name, Version: u.Version, Ttl: ttl(u)})
	}
	for _, name := range r.Absent {
		m.Resources = append(m.Resources, &discovery.Resource{Name: name, Aliases: []string{name}})
	}
	return m
}

// unwrapped sorts the fields of the Resources in a SotW response, because their order is not fixed.
func unwrapped(t *testing.T, m proto.Message) proto.Message {
	if m, ok := m.(*discovery.DiscoveryResponse); ok {
		for _, a := range m.Resources {
			if a.MessageIs((*discovery.Resource)(nil)) {
				var w discovery.Resource
				err := a.UnmarshalTo(&w)
				if err == nil {
					a.Value, err = proto.MarshalOptions{Deterministic: true}.Marshal(&w)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return m
}

func checkEncode(t *testing.T, v xds.Variant, r *xds.Response, identifier string) {
	t.Helper()
	want := expected(t, v, r, identifier)
	got := want.ProtoReflect().New().Interface()
	b := Encode(v, r, identifier)
	if err := proto.Unmarshal(b.Materialize(), got); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(unwrapped(t, want), unwrapped(t, got)) {
		t.Fatalf("want %v\ngot  %v", want, got)
	}
	if n := proto.Size(want); n != b.Len() {
		t.Fatalf("%d bytes, want %d", b.Len(), n)
	}
}

func TestEncode(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	sizes := []int{0, 1, 50, 127, 128, 200, maxInline - 1, maxInline, maxInline + 1, 5000, big, big + 1, 40_000}
	for range 300 {
		c := &xds.Changes{}
		n := rnd.IntN(6)
		if rnd.IntN(4) == 0 {
			n = 15 + rnd.IntN(10) // enough to be concatenated
		}
		for i := range n {
			name := fmt.Sprint("r", i)
			if rnd.IntN(20) == 0 {
				name = strings.Repeat("long", 60)
			}
			c.Upserts = append(c.Upserts, resource(rnd, name, sizes[rnd.IntN(len(sizes))]))
		}
		for i := range rnd.IntN(3) {
			c.Removed = append(c.Removed, fmt.Sprint("gone-", i))
			c.Absent = append(c.Absent, fmt.Sprint("absent-", i))
			c.Missing = append(c.Missing, strings.Repeat("missing", 1+rnd.IntN(30)))
			r := resource(rnd, fmt.Sprint("beat-", i), sizes[rnd.IntN(len(sizes))])
			r.TTL = time.Duration(i+1) * time.Second
			c.Beats = append(c.Beats, r)
		}
		typ := []*xds.Type{xds.Cluster, xds.Secret, xds.TypeOf("type.googleapis.com/my.Own")}[rnd.IntN(3)]
		for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
			if v == xds.SotW && rnd.IntN(2) == 0 {
				continue
			}
			// The first use is a list of frames, the second may be one piece.
			for use := range 6 {
				r := &xds.Response{Type: typ, Version: "v", Nonce: fmt.Sprint(use), TTL: use%2 > 0, Changes: c}
				checkEncode(t, v, r, []string{"", "chancery-1"}[rnd.IntN(2)])
			}
			for _, r := range c.Upserts {
				one := &xds.Changes{Upserts: []*xds.Resource{r}}
				if got, want := Encode(v, &xds.Response{Type: typ, Changes: one}, "").Len()-sizeString(typ.URL), (form{variant: v}).size(typ, r); got != want {
					t.Fatalf("its size is %d, the frame has %d bytes", want, got)
				}
			}
		}
	}
}

func TestEncodeTypes(t *testing.T) {
	t.Run("TYP-7 a resource under two types", func(t *testing.T) {
		for _, n := range []int{0, 10, maxInline + 1} {
			r := resource(rand.New(rand.NewPCG(1, 1)), "a", n)
			for _, typ := range []*xds.Type{xds.Cluster, xds.Listener, xds.TypeOf("type.googleapis.com/X"), xds.Cluster} {
				for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
					checkEncode(t, v, &xds.Response{Type: typ, Nonce: "1", Changes: &xds.Changes{Upserts: []*xds.Resource{r}}}, "")
				}
			}
		}
	})
}

// Streams with the same changes may have different versions: "The version field of the Resource wrapper" is the
// version of the response.
func TestEncodeVersions(t *testing.T) {
	t.Run("TTL-4 one change, sent at several versions", func(t *testing.T) {
		r := resource(rand.New(rand.NewPCG(2, 2)), "a", 10)
		r.TTL = time.Minute
		for _, c := range []*xds.Changes{{Upserts: []*xds.Resource{r}}, {Beats: []*xds.Resource{r}}} {
			for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
				for _, version := range []string{"1", "2", "longer", "1"} {
					for _, ttl := range []bool{true, false} {
						checkEncode(t, v, &xds.Response{Type: xds.Cluster, Version: version, Nonce: "n", TTL: ttl, Changes: c}, "")
					}
				}
			}
		}
	})
}

// Streams share the bytes that are the same for all.
func TestEncodeShares(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	for _, n := range []int{1, 10, 1000} {
		c := &xds.Changes{}
		for i := range n {
			c.Upserts = append(c.Upserts, resource(rnd, fmt.Sprint("r", i), 300))
		}
		r := &xds.Response{Type: xds.Cluster, Version: "v", Nonce: "1", Changes: c}
		Encode(xds.Delta, r, "")
		a, b := Encode(xds.Delta, r, ""), Encode(xds.Delta, r, "")
		for i := range len(a) - 1 {
			if &a[i].ReadOnlyData()[0] != &b[i].ReadOnlyData()[0] {
				t.Fatalf("%d resources: piece %d was copied", n, i)
			}
		}
		if n == 1000 && len(b) != 2 {
			t.Errorf("a shared body of %d resources has %d pieces, want one and the tail", n, len(b)-1)
		}
		if got := testing.AllocsPerRun(10, func() { Encode(xds.Delta, r, "") }); got > 3 {
			t.Errorf("%d resources: %v allocations a stream", n, got)
		}
	}
	// The frame of a resource in two responses is made once.
	r := resource(rnd, "x", 300)
	one := func() mem.Buffer {
		return Encode(xds.SotW, &xds.Response{Type: xds.Cluster, Changes: &xds.Changes{Upserts: []*xds.Resource{r}}}, "")[0]
	}
	if a, b := one(), one(); &a.ReadOnlyData()[0] != &b.ReadOnlyData()[0] {
		t.Error("the frame was made twice")
	}
}

func BenchmarkEncode(b *testing.B) {
	rnd := rand.New(rand.NewPCG(9, 9))
	for _, n := range []int{1, 100, 10_000} {
		c := &xds.Changes{}
		for i := range n {
			c.Upserts = append(c.Upserts, resource(rnd, fmt.Sprint("r", i), 300))
		}
		r := &xds.Response{Type: xds.Cluster, Version: "0123456789abcdef", Nonce: "1", Changes: c}
		b.Run(fmt.Sprint("shared/", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Encode(xds.Delta, r, "chancery-1")
			}
		})
		b.Run(fmt.Sprint("own/", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				own := *r
				own.Changes = &xds.Changes{Upserts: c.Upserts}
				Encode(xds.Delta, &own, "chancery-1")
			}
		})
	}
}

// A response with nil Changes is empty.
func TestEncodeNil(t *testing.T) {
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		with := Encode(v, &xds.Response{Type: xds.Cluster, Nonce: "1", Changes: &xds.Changes{}}, "").Materialize()
		if got := Encode(v, &xds.Response{Type: xds.Cluster, Nonce: "1"}, "").Materialize(); !bytes.Equal(got, with) {
			t.Errorf("%v: %x, want %x", v, got, with)
		}
	}
	if Refs(nil, "a", nil) != nil {
		t.Error("a nil type refers to something")
	}
}
