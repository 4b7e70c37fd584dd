package wire

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/chancery-xds/chancery/xds"
)

// A heard is a decoded response in a form that can be compared.
type heard struct {
	Type, Version, Nonce string
	Upserts, Beats       []heardResource
	Removed              []string
	Absent, Missing      []string
	Errors               []xds.ResourceError
	Malformed            []string // names
}

type heardResource struct {
	Name, Version, Body string
	Aliases             []string
	TTL                 time.Duration
}

func hear(r *xds.Response) (h heard) {
	h = heard{Type: r.Type.URL, Version: r.Version, Nonce: r.Nonce, Removed: r.Removed, Absent: r.Absent, Missing: r.Missing, Errors: r.Errors}
	one := func(r *xds.Resource) heardResource {
		return heardResource{r.Name, r.Version, string(r.Body), r.Aliases, r.TTL}
	}
	for _, u := range r.Upserts {
		h.Upserts = append(h.Upserts, one(u))
	}
	for _, u := range r.Beats {
		h.Beats = append(h.Beats, one(u))
	}
	for _, err := range r.Malformed {
		m, _ := errors.AsType[*xds.MalformedError](err)
		h.Malformed = append(h.Malformed, m.Name)
	}
	return h
}

func differ(want, got heard) string { return cmp.Diff(want, got, cmpopts.EquateEmpty()) }

// named returns an encoded message with the name in field 1 and n more bytes.
func named(rnd *rand.Rand, name string, n int) []byte {
	b := appendString(nil, 1, name)
	if n > 0 {
		more := make([]byte, n)
		for i := range more {
			more[i] = byte(rnd.Uint32())
		}
		b = protowire.AppendTag(b, 1000, protowire.BytesType)
		b = protowire.AppendBytes(b, more)
	}
	return b
}

// DecodeResponse decodes the responses of Encode: all types, both variants.
func TestDecodeResponse(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		for _, typ := range allTypes() {
			t.Run(fmt.Sprintf("CLI-1 %s %s", v, typ), func(t *testing.T) {
				for range 50 {
					r, want := serverResponse(rnd, v, typ)
					b := Encode(v, r, "somebody").Materialize()
					got, err := DecodeResponse(v, b, ResponseOptions{})
					if err != nil {
						t.Fatal(err)
					}
					clear(b) // the result keeps no part of it
					if d := differ(want, hear(got)); d != "" {
						t.Fatalf("(-said +heard)\n%s", d)
					}
					for _, u := range got.Upserts {
						if err := u.CheckType(typ); err != nil {
							t.Fatal(err)
						}
					}
				}
			})
		}
	}
}

// serverResponse returns a response, and its form after a client has decoded it.
func serverResponse(rnd *rand.Rand, v xds.Variant, typ *xds.Type) (*xds.Response, heard) {
	c := &xds.Changes{}
	r := &xds.Response{Type: typ, Version: fmt.Sprint("v", rnd.IntN(100)), Nonce: fmt.Sprint(rnd.IntN(100)), TTL: rnd.IntN(2) == 0, Changes: c}
	h := heard{Type: typ.URL, Version: r.Version, Nonce: r.Nonce}
	for i := range rnd.IntN(6) {
		name := []string{"r", "xdstp://a/t/", strings.Repeat("long", 40)}[rnd.IntN(3)] + fmt.Sprint(i)
		u := resource(rnd, name, 0)
		u.Type, u.Body = typ, named(rnd, name, []int{0, 1, 100, maxInline, 40_000}[rnd.IntN(5)])
		u.Seal([]string{"", "mine"}[rnd.IntN(2)])
		c.Upserts = append(c.Upserts, u)
		is := heardResource{name, u.Version, string(u.Body), u.Aliases, u.TTL}
		if !r.TTL {
			is.TTL = 0
		}
		if v == xds.SotW {
			is.Aliases = nil // SotW does not send aliases
			is.Version = xds.NewResource(typ, name, u.Body).Version
			switch {
			case is.TTL > 0:
				is.Version = r.Version
			case typ.Name == "" || !typ.Known():
				h.Malformed = append(h.Malformed, "")
				continue
			}
		}
		h.Upserts = append(h.Upserts, is)
	}
	if r.TTL && rnd.IntN(2) == 0 {
		u := resource(rnd, "beat", 10)
		u.TTL = time.Minute
		c.Beats = append(c.Beats, u)
		is := heardResource{Name: "beat", Version: u.Version, TTL: u.TTL}
		if v == xds.SotW {
			is.Version = r.Version
		}
		h.Beats = append(h.Beats, is)
	}
	for i := range rnd.IntN(3) {
		c.Missing = append(c.Missing, fmt.Sprint("missing-", i))
		h.Missing = c.Missing
		if v == xds.Delta {
			c.Removed = append(c.Removed, fmt.Sprint("gone-", i))
			c.Absent = append(c.Absent, fmt.Sprint("absent-", i))
			h.Removed, h.Absent = c.Removed, c.Absent
		}
	}
	return r, h
}

// fromGenerated is the form of a message after a client has decoded it, according to the generated code. It returns
// false if the generated code cannot decode the message, because it also decodes nested messages.
func fromGenerated(m proto.Message) (h heard, ok bool) {
	one := func(w *discovery.Resource) {
		name := w.GetName()
		if name == "" {
			name = w.GetResourceName().GetName()
		}
		var aliases []string
		for _, a := range w.Aliases {
			if a = xds.CanonicalName(a); a != "" && a != "*" && !slices.Contains(aliases, a) {
				aliases = append(aliases, a)
			}
		}
		name = xds.CanonicalName(name)
		is := heardResource{Name: name, Version: w.Version, TTL: w.Ttl.AsDuration(), Aliases: aliases}
		if is.TTL > math.MaxInt64-2*time.Second {
			is.TTL = math.MaxInt64
		}
		bad := w.Ttl != nil && (w.Ttl.Seconds < 0 || w.Ttl.Nanos < 0 || w.Ttl.Nanos >= 1e9)
		switch {
		case !bad && w.Resource != nil:
			own, ok := "", proto.Unmarshal(w.Resource.Value, &emptypb.Empty{}) == nil
			if t := xds.TypeOf(h.Type); ok && t.Name != "" && t.Known() {
				n, err := bodyName(t, w.Resource.Value)
				own = xds.CanonicalName(n)
				ok = err == nil && (name == "" || own == name)
			}
			if is.Name == "" {
				is.Name = own
			}
			if bad = !ok || w.Resource.TypeUrl != h.Type || is.Name == "" || is.Name == "*"; !bad {
				r := &xds.Resource{Stamp: &xds.Stamp{Name: is.Name}, Body: w.Resource.Value, Aliases: aliases, TTL: is.TTL}
				r.Seal(is.Version)
				is.Version, is.Body = r.Version, string(r.Body)
				h.Upserts = append(h.Upserts, is)
			}
		case bad || name == "" || name == "*":
			bad = true
		case w.Version == "" && is.TTL == 0:
			h.Absent = append(h.Absent, name)
		default:
			is.Aliases = nil
			h.Beats = append(h.Beats, is)
		}
		if bad {
			h.Malformed = append(h.Malformed, "")
		}
	}
	failures := func(list []*discovery.ResourceError) {
		for _, e := range list {
			name := xds.CanonicalName(e.GetResourceName().GetName())
			switch code := e.GetErrorDetail().GetCode(); {
			case name == "":
				h.Malformed = append(h.Malformed, "")
			case code == 5:
				h.Missing = append(h.Missing, name)
			default:
				h.Errors = append(h.Errors, xds.ResourceError{Name: name, Status: xds.Status{Code: code, Message: e.GetErrorDetail().GetMessage()}})
			}
		}
	}
	switch m := m.(type) {
	case *discovery.DiscoveryResponse:
		h.Type, h.Version, h.Nonce = m.TypeUrl, m.VersionInfo, m.Nonce
		for _, a := range m.Resources {
			if a.TypeUrl != resourceURL {
				one(&discovery.Resource{Resource: a})
				continue
			}
			var w discovery.Resource
			if proto.Unmarshal(a.Value, &w) != nil {
				return h, false
			}
			one(&w)
		}
		failures(m.ResourceErrors)
	case *discovery.DeltaDiscoveryResponse:
		h.Type, h.Version, h.Nonce = m.TypeUrl, m.SystemVersionInfo, m.Nonce
		for _, w := range m.Resources {
			one(w)
		}
		for _, n := range append(m.RemovedResources, names(m.RemovedResourceNames)...) {
			if n == "" {
				h.Malformed = append(h.Malformed, "")
			} else {
				h.Removed = append(h.Removed, xds.CanonicalName(n))
			}
		}
		failures(m.ResourceErrors)
	}
	return h, true
}

func names(list []*discovery.ResourceName) (s []string) {
	for _, n := range list {
		s = append(s, n.GetName())
	}
	return s
}

// checkResponse compares a decoded response with that of the generated code.
func checkResponse(t *testing.T, v xds.Variant, b []byte) {
	t.Helper()
	var m proto.Message = &discovery.DiscoveryResponse{}
	if v == xds.Delta {
		m = &discovery.DeltaDiscoveryResponse{}
	}
	mine := slices.Clone(b)
	r, err := DecodeResponse(v, mine, ResponseOptions{})
	clear(mine)
	if proto.Unmarshal(b, m) != nil {
		return // the generated code also decodes nested messages
	}
	if err != nil {
		t.Fatalf("%v\n%x", err, b)
	}
	want, ok := fromGenerated(m)
	if !ok {
		return
	}
	got := hear(r)
	if len(want.Malformed) <= maxMalformed && len(want.Malformed) != len(got.Malformed) {
		t.Fatalf("%d malformed, want %d: %v\n%x", len(got.Malformed), len(want.Malformed), r.Malformed, b)
	}
	got.Malformed, want.Malformed = nil, nil
	if d := differ(want, got); d != "" {
		t.Fatalf("%x\n(-generated +ours)\n%s", b, d)
	}
}

func FuzzDecodeResponseSotW(f *testing.F)  { fuzzResponse(f, xds.SotW) }
func FuzzDecodeResponseDelta(f *testing.F) { fuzzResponse(f, xds.Delta) }

func fuzzResponse(f *testing.F, v xds.Variant) {
	rnd := rand.New(rand.NewPCG(9, 10))
	types := allTypes()
	for range 30 {
		r, _ := serverResponse(rnd, v, types[rnd.IntN(len(types))])
		r.Upserts = r.Upserts[:min(1, len(r.Upserts))]
		if b := Encode(v, r, "x").Materialize(); len(b) < 1000 {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) { checkResponse(t, v, b) })
}

func TestDecodeResponseGenerated(t *testing.T) {
	rnd := rand.New(rand.NewPCG(11, 12))
	types := allTypes()
	for range 500 {
		for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
			r, _ := serverResponse(rnd, v, types[rnd.IntN(len(types))])
			b := Encode(v, r, "x").Materialize()
			checkResponse(t, v, b)
			// A merged message has singular fields twice, and resources of another type.
			r, _ = serverResponse(rnd, v, types[rnd.IntN(len(types))])
			checkResponse(t, v, append(b, Encode(v, r, "y").Materialize()...))
			d := distorted(rnd, b)
			checkResponse(t, v, d)
			checkResponse(t, v, distorted(rnd, d))
			// Broken: one byte is changed.
			if len(b) > 0 {
				b[rnd.IntN(len(b))] = byte(rnd.Uint32())
			}
			checkResponse(t, v, b)
			checkResponse(t, v, b[:rnd.IntN(len(b)+1)])
		}
	}
}

func anyOf(url string, body []byte) *anypb.Any { return &anypb.Any{TypeUrl: url, Value: body} }

func TestDecodeResponseMalformed(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	good := anyOf(xds.Cluster.URL, named(rnd, "good", 5))
	truncated := []byte{1<<3 | 2, 200, 'x'}
	sotw := func(a ...*anypb.Any) proto.Message {
		return &discovery.DiscoveryResponse{TypeUrl: xds.Cluster.URL, Resources: append(a, good)}
	}
	delta := func(w ...*discovery.Resource) proto.Message {
		return &discovery.DeltaDiscoveryResponse{TypeUrl: xds.Cluster.URL, Resources: append(w, &discovery.Resource{Name: "good", Resource: good})}
	}
	wrapped := func(w *discovery.Resource) *anypb.Any { return anyOf(resourceURL, marshal(t, w)) }
	for _, tt := range []struct {
		name string
		m    proto.Message
		want string // the text of the error
		of   string // name of the resource in the error
	}{
		{"TYP-7 another type", sotw(anyOf(xds.Listener.URL, named(rnd, "l", 0))), `resources[0]: is a ` + xds.Listener.URL + ` called "l", want a ` + xds.Cluster.URL, ""},
		{"TYP-7 another type in a wrapper", sotw(wrapped(&discovery.Resource{Name: "w", Resource: anyOf("x/Y", nil)})), `resource "w": is a x/Y, want a ` + xds.Cluster.URL, "w"},
		{"TYP-7 another type in delta", delta(&discovery.Resource{Name: "w", Resource: anyOf("x/Y", nil)}), `resource "w": is a x/Y, want a ` + xds.Cluster.URL, "w"},
		{"TYP-7 a wrapper in a wrapper", delta(&discovery.Resource{Name: "w", Resource: wrapped(&discovery.Resource{Name: "w"})}), `resource "w": is a ` + resourceURL + `, want a ` + xds.Cluster.URL, "w"},
		{"TYP-7 no type", sotw(anyOf("", named(rnd, "l", 0))), `resources[0]: has no type, want ` + xds.Cluster.URL, ""},
		{"CLI-2 no name", sotw(anyOf(xds.Cluster.URL, nil)), "resources[0]: has no name", ""},
		{"CLI-2 no name in delta", delta(&discovery.Resource{Version: "1"}), "resources[0]: has no name", ""},
		{"CLI-15 no name in the message", sotw(wrapped(&discovery.Resource{Name: "w", Resource: anyOf(xds.Cluster.URL, nil)})), `resource "w": has no name in its message`, "w"},
		{"CLI-15 no name in the message in delta", delta(&discovery.Resource{Name: "w", Resource: anyOf(xds.Cluster.URL, nil)}), `resource "w": has no name in its message`, "w"},
		{"CLI-15 another name in the message", sotw(wrapped(&discovery.Resource{Name: "w", Resource: good})), `resource "w": the name in the message is "good": use that name, and aliases for other names`, "w"},
		{"CLI-15 another name in the message in delta", delta(&discovery.Resource{Name: "w", Aliases: []string{"good"}, Resource: good}), `resource "w": the name in the message is "good": use that name, and aliases for other names`, "w"},
		{"CLI-15 an empty Any in delta", delta(&discovery.Resource{Name: "w", Resource: &anypb.Any{}}), `resource "w": has no type, want ` + xds.Cluster.URL, "w"},
		{"CLI-2 the name of all", sotw(anyOf(xds.Cluster.URL, named(rnd, "*", 0))), `resources[0]: the name "*" is reserved: it subscribes to all resources`, ""},
		{"CLI-2 the name of a collection", sotw(anyOf(xds.Cluster.URL, named(rnd, "xdstp://a/t/*?x=y", 0))), `resource "xdstp://a/t/*?x=y": has the name of a collection`, "xdstp://a/t/*?x=y"},
		{"CLI-2 the name of a collection in delta", delta(&discovery.Resource{Name: "xdstp://a/t/*", Resource: anyOf(xds.Cluster.URL, named(rnd, "xdstp://a/t/*", 0))}), `resource "xdstp://a/t/*": has the name of a collection`, "xdstp://a/t/*"},
		{"CLI-2 the name of all, without a body", delta(&discovery.Resource{Name: "*", Version: "1"}), `resource "*": the name "*" is reserved: it subscribes to all resources`, "*"},
		{"CLI-2 a truncated message", sotw(anyOf(xds.Cluster.URL, truncated)), "resources[0]: malformed " + xds.Cluster.URL + ": unexpected EOF", ""},
		{"CLI-2 a truncated message in delta", delta(&discovery.Resource{Name: "t", Resource: anyOf(xds.Cluster.URL, truncated)}), `resource "t": malformed ` + xds.Cluster.URL + ": unexpected EOF", "t"},
		{"CLI-2 a truncated wrapper", sotw(anyOf(resourceURL, append(appendString(nil, resourceName, "t"), truncated...))), `resource "t": unexpected EOF`, "t"},
		{"CLI-2 a name that is no UTF-8", sotw(anyOf(xds.Cluster.URL, []byte{1<<3 | 2, 1, 0xff})), "resources[0]: malformed " + xds.Cluster.URL + ": invalid UTF-8", ""},
		{"CLI-8 a TTL below zero", delta(&discovery.Resource{Name: "t", Ttl: &durationpb.Duration{Seconds: -1}, Resource: good}), `resource "t": invalid TTL: -1 s and 0 ns`, "t"},
		{"CLI-11 an error without a name", &discovery.DiscoveryResponse{TypeUrl: xds.Cluster.URL, Resources: []*anypb.Any{good}, ResourceErrors: []*discovery.ResourceError{{}}}, "resource_errors[0]: has no name", ""},
		{"CLI-3 a removal without a name", &discovery.DeltaDiscoveryResponse{TypeUrl: xds.Cluster.URL, RemovedResources: []string{""}, Resources: []*discovery.Resource{{Name: "good", Resource: good}}}, "removed_resources[0]: has no name", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := xds.SotW
			if _, ok := tt.m.(*discovery.DeltaDiscoveryResponse); ok {
				v = xds.Delta
			}
			r, err := DecodeResponse(v, marshal(t, tt.m), ResponseOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Upserts) != 1 || r.Upserts[0].Name != "good" {
				t.Errorf("the good resource is missing: %v", r.Upserts)
			}
			if len(r.Malformed) != 1 || strings.ReplaceAll(r.Malformed[0].Error(), "\u00a0", " ") != tt.want {
				t.Fatalf("got  %v\nwant %s", r.Malformed, tt.want)
			}
			if m, ok := errors.AsType[*xds.MalformedError](r.Malformed[0]); !ok || m.Name != tt.of {
				t.Errorf("it is of %q, want %q", m.Name, tt.of)
			}
		})
	}
	t.Run("CLI-2 a truncated Any, and others are used", func(t *testing.T) {
		b := protowire.AppendTag(nil, fieldResources, protowire.BytesType)
		b = append(protowire.AppendBytes(b, truncated), marshal(t, sotw())...)
		r, err := DecodeResponse(xds.SotW, b, ResponseOptions{})
		if err != nil || len(r.Upserts) != 1 || len(r.Malformed) != 1 || !strings.HasPrefix(r.Malformed[0].Error(), "resources[0]: malformed Any: ") {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("CLI-2 no message at all", func(t *testing.T) {
		for _, b := range [][]byte{truncated, {0xff}, appendString(nil, fieldNonce, "\xff")} {
			if r, err := DecodeResponse(xds.SotW, b, ResponseOptions{}); err == nil || !strings.HasPrefix(err.Error(), "malformed DiscoveryResponse: ") {
				t.Errorf("%x: %+v, %v", b, r, err)
			}
		}
	})
}

// SAFE-9: a response with only malformed resources reports a hundred of them, and the number of the others.
func TestDecodeResponseManyMalformed(t *testing.T) {
	bad := &discovery.Resource{Resource: &anypb.Any{TypeUrl: xds.Endpoint.URL}} // no name
	for _, r := range []*discovery.DeltaDiscoveryResponse{
		{Resources: slices.Repeat([]*discovery.Resource{bad}, 150)},
		{RemovedResources: make([]string, 150)},
		{ResourceErrors: slices.Repeat([]*discovery.ResourceError{{}}, 150)},
	} {
		r.TypeUrl = xds.Cluster.URL
		b, err := proto.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeResponse(xds.Delta, b, ResponseOptions{})
		if err != nil || len(got.Malformed) != 101 || got.Malformed[100].Error() != "and 50 more" {
			t.Errorf("%d mistakes, %v", len(got.Malformed), err)
		}
	}
}

func TestDecodeResponseForms(t *testing.T) {
	decode := func(v xds.Variant, m proto.Message, o ResponseOptions) *xds.Response {
		t.Helper()
		r, err := DecodeResponse(v, marshal(t, m), o)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	body := appendString(nil, 1, "a")
	t.Run("CLI-8 a heartbeat of go-control-plane, which has no version", func(t *testing.T) {
		w := &discovery.Resource{Name: "a", Ttl: durationpb.New(time.Second)}
		r := decode(xds.SotW, &discovery.DiscoveryResponse{TypeUrl: xds.Cluster.URL, Resources: []*anypb.Any{anyOf(resourceURL, marshal(t, w))}}, ResponseOptions{})
		if len(r.Beats) != 1 || r.Beats[0].Name != "a" || r.Beats[0].TTL != time.Second || len(r.Absent) != 0 {
			t.Errorf("%+v", r.Changes)
		}
	})
	t.Run("CLI-8 a TTL longer than Go has", func(t *testing.T) {
		w := &discovery.Resource{Name: "a", Ttl: &durationpb.Duration{Seconds: 315576000000}}
		r := decode(xds.Delta, &discovery.DeltaDiscoveryResponse{TypeUrl: xds.Cluster.URL, Resources: []*discovery.Resource{w}}, ResponseOptions{})
		if len(r.Beats) != 1 || r.Beats[0].TTL != math.MaxInt64 {
			t.Errorf("%+v", r.Changes)
		}
	})
	t.Run("CLI-11 names with parameters", func(t *testing.T) {
		name := &discovery.ResourceName{Name: "xdstp://a/t/b?z=1&y=2"}
		r := decode(xds.Delta, &discovery.DeltaDiscoveryResponse{TypeUrl: xds.Cluster.URL, RemovedResourceNames: []*discovery.ResourceName{name},
			Resources: []*discovery.Resource{{ResourceName: name, Resource: anyOf(xds.Cluster.URL, appendString(nil, 1, name.Name))}}}, ResponseOptions{})
		const want = "xdstp://a/t/b?y=2&z=1"
		if len(r.Upserts) != 1 || r.Upserts[0].Name != want || !slices.Equal(r.Removed, []string{want}) {
			t.Errorf("%+v", r.Changes)
		}
	})
	t.Run("CLI-12 aliases are canonical", func(t *testing.T) {
		w := &discovery.Resource{Name: "a", Aliases: []string{"xdstp://a/t/b?z=1&y=2", "", "*"}, Resource: anyOf(xds.Cluster.URL, body)}
		r := decode(xds.Delta, &discovery.DeltaDiscoveryResponse{TypeUrl: xds.Cluster.URL, Resources: []*discovery.Resource{w}}, ResponseOptions{})
		if len(r.Upserts) != 1 || !slices.Equal(r.Upserts[0].Aliases, []string{"xdstp://a/t/b?y=2&z=1"}) || r.Upserts[0].Check() != nil {
			t.Errorf("%+v", r.Upserts)
		}
	})
	t.Run("CLI-12 an alias is there once, and not without end", func(t *testing.T) {
		m := &discovery.DeltaDiscoveryResponse{TypeUrl: xds.Cluster.URL}
		for n, name := range map[int]string{maxAliases: "a", maxAliases + 1: "b"} {
			w := &discovery.Resource{Name: name, Resource: anyOf(xds.Cluster.URL, body)}
			for i := range 2 * n {
				w.Aliases = append(w.Aliases, fmt.Sprint(i%n))
			}
			m.Resources = append(m.Resources, w)
		}
		r := decode(xds.Delta, m, ResponseOptions{})
		if len(r.Upserts) != 1 || r.Upserts[0].Name != "a" || len(r.Upserts[0].Aliases) != maxAliases {
			t.Errorf("%d resources", len(r.Upserts))
		}
		if len(r.Malformed) != 1 || !strings.Contains(r.Malformed[0].Error(), `resource "b": field 4: more than 10000 aliases`) {
			t.Error(r.Malformed)
		}
	})
	t.Run("CLI-11 errors that say something else", func(t *testing.T) {
		e := &discovery.ResourceError{ResourceName: &discovery.ResourceName{Name: "a"}, ErrorDetail: status.New(codes.PermissionDenied, "no").Proto()}
		for v, m := range map[xds.Variant]proto.Message{xds.SotW: &discovery.DiscoveryResponse{ResourceErrors: []*discovery.ResourceError{e}},
			xds.Delta: &discovery.DeltaDiscoveryResponse{ResourceErrors: []*discovery.ResourceError{e}}} {
			if r := decode(v, m, ResponseOptions{}); len(r.Missing) != 0 || !slices.Equal(r.Errors, []xds.ResourceError{{Name: "a", Status: xds.Status{Code: 7, Message: "no"}}}) {
				t.Errorf("%s: %+v", v, r.Errors)
			}
		}
	})
	t.Run("CLI-1 a stream of one type", func(t *testing.T) {
		only := ResponseOptions{Only: xds.Cluster}
		m := &discovery.DiscoveryResponse{Nonce: "1", Resources: []*anypb.Any{anyOf(xds.Cluster.URL, body)}}
		if r := decode(xds.SotW, m, only); r.Type != xds.Cluster || len(r.Upserts) != 1 {
			t.Errorf("without a type: %+v", r)
		}
		if r := decode(xds.SotW, m, ResponseOptions{}); r.Type == nil || r.Type.URL != "" || len(r.Malformed) != 1 {
			t.Errorf("without a type, aggregated: %+v", r)
		}
		m.TypeUrl = xds.Listener.URL
		r := decode(xds.SotW, m, only)
		if want := `the response is of type "` + xds.Listener.URL + `", on a stream of ` + xds.Cluster.URL; r.Type != xds.Cluster || r.Nonce != "1" || len(r.Malformed) != 1 || r.Malformed[0].Error() != want {
			t.Errorf("of another type: %+v", r)
		}
	})
	t.Run("CLI-1 names of types that are not listed", func(t *testing.T) {
		own := xds.TypeOf("type.googleapis.com/my.Own")
		m := &discovery.DiscoveryResponse{TypeUrl: own.URL, Resources: []*anypb.Any{anyOf(own.URL, []byte{2<<3 | 2, 1, 'b'})}}
		name := func(typ *xds.Type, body []byte) string { return string(body[2:]) }
		if r := decode(xds.SotW, m, ResponseOptions{Name: name}); len(r.Upserts) != 1 || r.Upserts[0].Name != "b" || !r.Upserts[0].Type.Is(own) {
			t.Errorf("%+v", r)
		}
	})
}

// The decoder does not allocate much more than the size of the message, for any message.
func TestDecodeResponseMemory(t *testing.T) {
	field := func(num protowire.Number, b []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), b)
	}
	beat := append(appendString(nil, resourceName, "a"), appendString(nil, resourceVersion, "1")...)
	name := appendString(nil, 1, "a")
	url := appendString(nil, fieldTypeURL, "T")
	for what, entry := range map[string][]byte{
		"nothing":        field(fieldResources, nil),
		"beats":          field(fieldResources, beat),
		"absent":         field(fieldResources, appendString(nil, resourceName, "a")),
		"resources":      field(fieldResources, append(appendString(nil, resourceName, "a"), field(resourceAny, appendString(nil, anyTypeURL, "T"))...)),
		"aliases":        field(fieldResources, slices.Repeat(appendString(nil, resourceAliases, "a"), 1000)),
		"removed":        appendString(nil, fieldRemoved, "a"),
		"removed, names": field(removedNames, name),
		"errors":         field(fieldErrors+2, append(field(errorResource, name), field(errorDetail, nil)...)),
		"a long length":  protowire.AppendVarint(protowire.AppendTag(nil, fieldResources, protowire.BytesType), 1<<30),
	} {
		t.Run(what, func(t *testing.T) {
			b := append(slices.Clone(url), slices.Repeat(entry, 1+1<<20/len(entry))...)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r, err := DecodeResponse(xds.Delta, b, ResponseOptions{})
			runtime.ReadMemStats(&after)
			if err == nil && len(r.Malformed) > maxMalformed+1 {
				t.Errorf("%d are malformed", len(r.Malformed))
			}
			if used := int(after.TotalAlloc-before.TotalAlloc) / len(b); used > 64 {
				t.Errorf("it allocates %d times the message", used)
			} else {
				t.Logf("%d times", used)
			}
		})
	}
}
