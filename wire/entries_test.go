package wire

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/chancery-xds/chancery/xds"
)

// expiring returns a resource with a TTL.
func expiring(name, body string, ttl time.Duration) *xds.Resource {
	r := &xds.Resource{Stamp: &xds.Stamp{Name: name}, Body: []byte(body), Aliases: []string{"alias"}, TTL: ttl}
	r.Seal("")
	return r
}

// says compares a response with the expected messages.
func says(t *testing.T, v xds.Variant, r *xds.Response, want ...proto.Message) {
	t.Helper()
	b := Encode(v, r, "").Materialize()
	var got []proto.Message
	if v == xds.SotW {
		var m discovery.DiscoveryResponse
		if err := proto.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		for _, a := range m.Resources {
			var w discovery.Resource
			if a.MessageIs(&w) {
				if err := a.UnmarshalTo(&w); err != nil {
					t.Fatal(err)
				}
				got = append(got, &w)
			} else {
				got = append(got, a)
			}
		}
		for _, e := range m.ResourceErrors {
			got = append(got, e)
		}
	} else {
		var m discovery.DeltaDiscoveryResponse
		if err := proto.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		for _, w := range m.Resources {
			got = append(got, w)
		}
		for _, e := range m.ResourceErrors {
			got = append(got, e)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("got %d entries, want %d: %v", len(got), len(want), got)
	}
	for i := range want {
		if !proto.Equal(got[i], want[i]) {
			t.Errorf("number %d:\nwant %v\ngot  %v", i, want[i], got[i])
		}
	}
}

func TestTTL(t *testing.T) {
	mortal, plain := expiring("m", "body", 30*time.Second), resource(rand.New(rand.NewPCG(1, 1)), "p", 50)
	plain.TTL, plain.Aliases = 0, nil
	body := func(r *xds.Resource) *anypb.Any { return &anypb.Any{TypeUrl: xds.Runtime.URL, Value: r.Body} }
	ttl := durationpb.New(30 * time.Second)
	c := &xds.Changes{Upserts: []*xds.Resource{mortal, plain}, Beats: []*xds.Resource{mortal}}
	with := &xds.Response{Type: xds.Runtime, Version: "v7", Nonce: "1", TTL: true, Changes: c}
	without := &xds.Response{Type: xds.Runtime, Version: "v7", Nonce: "1", Changes: c}

	t.Run("TTL-1 delta, to a client that supports it", func(t *testing.T) {
		says(t, xds.Delta, with,
			&discovery.Resource{Name: "m", Version: mortal.Version, Aliases: []string{"alias"}, Ttl: ttl, Resource: body(mortal)},
			&discovery.Resource{Name: "p", Version: plain.Version, Resource: body(plain)},
			&discovery.Resource{Name: "m", Version: mortal.Version, Ttl: ttl}) // TTL-3: the beat
	})
	t.Run("TTL-1 delta, to a client that does not", func(t *testing.T) {
		says(t, xds.Delta, without,
			&discovery.Resource{Name: "m", Version: mortal.Version, Aliases: []string{"alias"}, Resource: body(mortal)},
			&discovery.Resource{Name: "p", Version: plain.Version, Resource: body(plain)})
	})
	t.Run("TTL-4 SotW, to a client that supports it", func(t *testing.T) {
		says(t, xds.SotW, with,
			&discovery.Resource{Name: "m", Version: "v7", Ttl: ttl, Resource: body(mortal)},
			body(plain),
			&discovery.Resource{Name: "m", Version: "v7", Ttl: ttl}) // TTL-3: the beat
	})
	t.Run("TTL-4 SotW, to a client that does not", func(t *testing.T) {
		says(t, xds.SotW, without, body(mortal), body(plain))
	})
	t.Run("TTL-4 the wrapper has the version of its own response", func(t *testing.T) {
		for _, version := range []string{"v8", "v7", "v8"} {
			says(t, xds.SotW, &xds.Response{Type: xds.Runtime, Version: version, TTL: true, Changes: c},
				&discovery.Resource{Name: "m", Version: version, Ttl: ttl, Resource: body(mortal)}, body(plain),
				&discovery.Resource{Name: "m", Version: version, Ttl: ttl})
		}
		beat := &xds.Changes{Beats: []*xds.Resource{mortal}}
		for _, version := range []string{"v1", "v2"} {
			says(t, xds.SotW, &xds.Response{Type: xds.Runtime, Version: version, TTL: true, Changes: beat},
				&discovery.Resource{Name: "m", Version: version, Ttl: ttl})
		}
	})
	t.Run("TTL-1 without TTL the frame is the one without TTLs, byte for byte", func(t *testing.T) {
		for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
			bare := expiring("m", "body", 0)
			bare.Stamp = mortal.Stamp
			one := func(r *xds.Resource) []byte {
				return Encode(v, &xds.Response{Type: xds.Runtime, Changes: &xds.Changes{Upserts: []*xds.Resource{r}}}, "").Materialize()
			}
			if a, b := one(mortal), one(bare); string(a) != string(b) {
				t.Errorf("%s: %x, not %x", v, a, b)
			}
		}
	})
}

func TestEncodeAbsence(t *testing.T) {
	t.Run("DELTA-7 a body-less resource whose name and alias are the asked name", func(t *testing.T) {
		c := &xds.Changes{Absent: []string{"route/a", "route/b"}}
		says(t, xds.Delta, &xds.Response{Type: xds.VirtualHost, Version: "v", Nonce: "1", Changes: c},
			&discovery.Resource{Name: "route/a", Aliases: []string{"route/a"}}, &discovery.Resource{Name: "route/b", Aliases: []string{"route/b"}})
		says(t, xds.SotW, &xds.Response{Type: xds.VirtualHost, Version: "v", Nonce: "1", Changes: c})
	})
	// gRFC A88 and xRFC TP3.
	t.Run("DELTA-7 resource_errors", func(t *testing.T) {
		for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
			c := &xds.Changes{Missing: []string{"x"}}
			says(t, v, &xds.Response{Type: xds.Endpoint, Changes: c}, &discovery.ResourceError{
				ResourceName: &discovery.ResourceName{Name: "x"},
				ErrorDetail:  status.New(codes.NotFound, "does not exist, or this node may not see it").Proto(),
			})
		}
	})
}

// A heartbeat of a fleet, and resources with a TTL, are encoded once.
func TestEncodeTTLShares(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 9))
	c := &xds.Changes{}
	for i := range 100 {
		r := resource(rnd, fmt.Sprint("r", i), 300)
		r.TTL = time.Duration(i%2) * time.Minute
		c.Upserts, c.Beats = append(c.Upserts, r), append(c.Beats, expiring(fmt.Sprint("b", i), "", time.Second))
	}
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		r := &xds.Response{Type: xds.Cluster, Version: "v", Nonce: "1", TTL: true, Changes: c}
		Encode(v, r, "")
		a, b := Encode(v, r, ""), Encode(v, r, "")
		for i := range len(a) - 1 {
			if &a[i].ReadOnlyData()[0] != &b[i].ReadOnlyData()[0] {
				t.Fatalf("%s: piece %d was copied", v, i)
			}
		}
		if got := testing.AllocsPerRun(10, func() { Encode(v, r, "") }); got > 3 {
			t.Errorf("%s: %v allocations a stream", v, got)
		}
	}
	// Without TTLs, clients with and without support for them share the encoding.
	plain := &xds.Changes{}
	for i := range 100 {
		r := resource(rnd, fmt.Sprint("r", i), 300)
		r.TTL = 0
		plain.Upserts = append(plain.Upserts, r)
	}
	with := &xds.Response{Type: xds.Cluster, TTL: true, Changes: plain}
	without := &xds.Response{Type: xds.Cluster, Changes: plain}
	Encode(xds.SotW, with, "")
	if a, b := Encode(xds.SotW, with, "")[0], Encode(xds.SotW, without, "")[0]; &a.ReadOnlyData()[0] != &b.ReadOnlyData()[0] {
		t.Error("resources without TTL were encoded once for those who support TTLs and once for those who do not")
	}
}
