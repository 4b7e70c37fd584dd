package wire

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/chancery-xds/chancery/xds"
)

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// canonical changes requests into a form in which equal requests compare equal.
func canonical(r xds.Request) xds.Request {
	initial := map[string]string{}
	for _, v := range r.Initial {
		initial[xds.CanonicalName(v.Name)] = v.Version
	}
	for _, names := range [][]string{r.Names, r.Subscribe, r.Unsubscribe} {
		for i, n := range names {
			names[i] = xds.CanonicalName(n)
		}
	}
	r.Initial = nil
	for k, v := range initial {
		r.Initial = append(r.Initial, xds.Version{Name: k, Version: v})
	}
	slices.SortFunc(r.Initial, func(a, b xds.Version) int { return strings.Compare(a.Name, b.Name) })
	// Names and locators come in any order.
	r.Names, r.Subscribe, r.Unsubscribe = slices.Sorted(slices.Values(r.Names)), slices.Sorted(slices.Values(r.Subscribe)), slices.Sorted(slices.Values(r.Unsubscribe))
	return r
}

func diff(want, got xds.Request) string {
	return cmp.Diff(canonical(want), canonical(got), cmpopts.EquateEmpty(),
		cmp.Comparer(func(a, b *xds.Type) bool { return a.Is(b) }))
}

// check compares a decoded request with that of the protobuf library.
func check(t *testing.T, v xds.Variant, b []byte) {
	t.Helper()
	got, err := (&Decoder{Variant: v}).Decode(slices.Clone(b))
	want, werr := oracle(v, b)
	if (err == nil) != (werr == nil) {
		t.Fatalf("decoder: %v, protobuf: %v\n%x", err, werr, b)
	}
	if err != nil {
		return
	}
	if d := diff(want, got); d != "" {
		t.Fatalf("%x\n(-protobuf +ours)\n%s", b, d)
	}
	// The generated code also decodes parts that this package does not.
	if real, err := generated(v, b); err == nil {
		if real.Node != nil {
			// Maps have no order, so metadata is compared as a message.
			var a, b structpb.Struct
			if proto.Unmarshal(real.Node.Metadata, &a) != nil || proto.Unmarshal(got.Node.Metadata, &b) != nil || !proto.Equal(&a, &b) {
				t.Fatal("metadata differs")
			}
			real.Node.Metadata = got.Node.Metadata
		}
		if d := diff(real, got); d != "" {
			t.Fatalf("%x\n(-generated +ours)\n%s", b, d)
		}
	}
}

// random returns requests with every field that a request can have.
func random(t testing.TB, v xds.Variant, rnd *rand.Rand) []byte {
	word := func() string {
		return []string{"", "a", "b", "*", "héllo", "xdstp://x/y?z=1", strings.Repeat("n", rnd.IntN(300))}[rnd.IntN(7)]
	}
	words := func() (s []string) {
		for range rnd.IntN(5) {
			s = append(s, word())
		}
		return s
	}
	locators := func() (l []*discovery.ResourceLocator) {
		for _, name := range words() {
			l = append(l, &discovery.ResourceLocator{Name: name, DynamicParameters: map[string]string{word(): word()}})
		}
		return l
	}
	some := func() bool { return rnd.IntN(2) == 0 }
	var node *corev3.Node
	if some() {
		node = &corev3.Node{Id: word(), Cluster: word(), UserAgentName: word(), ClientFeatures: words(),
			Extensions: []*corev3.Extension{{Name: word(), TypeUrls: words()}}}
		if some() {
			node.Locality = &corev3.Locality{Region: word(), Zone: word(), SubZone: word()}
		}
		if some() {
			node.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"role": structpb.NewStringValue(word()), "n": structpb.NewNumberValue(rnd.Float64())}}
		}
		switch rnd.IntN(3) {
		case 0:
			node.UserAgentVersionType = &corev3.Node_UserAgentVersion{UserAgentVersion: word()}
		case 1:
			node.UserAgentVersionType = &corev3.Node_UserAgentBuildVersion{UserAgentBuildVersion: &corev3.BuildVersion{
				Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: rnd.Uint32N(99), Patch: rnd.Uint32()}}}
		}
	}
	var failure *status.Status
	if some() {
		failure = status.New(codes.Code(rnd.Uint32N(20)), word())
	}
	url := []string{"", xds.Cluster.URL, xds.Secret.URL, "type.googleapis.com/my.Own"}[rnd.IntN(4)]
	if v == xds.SotW {
		return marshal(t, &discovery.DiscoveryRequest{VersionInfo: word(), Node: node, ResourceNames: words(), TypeUrl: url, ResponseNonce: word(), ErrorDetail: failure.Proto(),
			ResourceLocators: locators()})
	}
	m := &discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: url, ResourceNamesSubscribe: words(), ResourceNamesUnsubscribe: words(), ResponseNonce: word(), ErrorDetail: failure.Proto(),
		InitialResourceVersions: map[string]string{}, ResourceLocatorsSubscribe: locators(), ResourceLocatorsUnsubscribe: locators()}
	for range rnd.IntN(4) {
		m.InitialResourceVersions[word()] = word()
	}
	return marshal(t, m)
}

func TestDecode(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
			b := random(t, v, rnd)
			check(t, v, b)
			// Merged: singular fields occur twice, maps have keys twice.
			check(t, v, append(b, random(t, v, rnd)...))
			d := distorted(rnd, b)
			check(t, v, d)
			check(t, v, distorted(rnd, d))
			// Truncated, then with a changed byte.
			check(t, v, b[:rnd.IntN(len(b)+1)])
			if len(b) > 0 {
				b[rnd.IntN(len(b))] = byte(rnd.Uint32())
				check(t, v, b)
			}
		}
	}
}

func fuzz(f *testing.F, v xds.Variant) {
	rnd := rand.New(rand.NewPCG(3, uint64(v)))
	for range 40 {
		f.Add(random(f, v, rnd))
	}
	f.Add([]byte{})
	f.Add(protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), 7))                            // wrong wire type
	f.Add(protowire.AppendTag(protowire.AppendTag(nil, 99, protowire.StartGroupType), 99, protowire.EndGroupType)) // a group
	f.Add(protowire.AppendTag(nil, 99, protowire.EndGroupType))
	f.Add(protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), []byte{0xff})) // no UTF-8
	f.Add([]byte{0xf0, 0xf0, 0xf0, 0xf0, 0x30, 0xf0, 0xf0, 0xf0, 0xf0, 0x30})                    // a field number too large
	f.Add([]byte{0x1a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})              // a length beyond the end
	f.Fuzz(func(t *testing.T, b []byte) { check(t, v, b) })
}

func FuzzDecodeSotW(f *testing.F)  { fuzz(f, xds.SotW) }
func FuzzDecodeDelta(f *testing.F) { fuzz(f, xds.Delta) }

func TestDecodeErrors(t *testing.T) {
	bad := string([]byte{'a', 0xff})
	raw := func(num protowire.Number, s string) []byte {
		return protowire.AppendString(protowire.AppendTag(nil, num, protowire.BytesType), s)
	}
	for _, c := range []struct {
		name string
		v    xds.Variant
		b    []byte
		want string
	}{
		{"name", xds.SotW, raw(3, bad), "malformed DiscoveryRequest: field 3: invalid UTF-8"},
		{"version", xds.SotW, raw(1, bad), "malformed DiscoveryRequest: field 1: invalid UTF-8"},
		{"type", xds.Delta, raw(2, bad), "malformed DeltaDiscoveryRequest: field 2: invalid UTF-8"},
		{"key", xds.Delta, raw(5, string(raw(1, bad))), "malformed DeltaDiscoveryRequest: field 5: invalid UTF-8"},
		{"node", xds.Delta, raw(1, string(raw(1, bad))), "malformed DeltaDiscoveryRequest: field 1: node: field 1: invalid UTF-8"},
		{"torn", xds.SotW, raw(3, "abc")[:3], "malformed DiscoveryRequest: unexpected EOF"},
		{"garbage", xds.SotW, []byte("\x07hello"), "malformed DiscoveryRequest: "},
	} {
		t.Run("SAFE-1 malformed "+c.name, func(t *testing.T) {
			_, err := (&Decoder{Variant: c.v}).Decode(c.b)
			if err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	t.Run("SAFE-1 more names than the limit", func(t *testing.T) {
		d := Decoder{Variant: xds.Delta, MaxNames: 2}
		_, err := d.Decode(marshal(t, &discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"a", "b", "c"}}))
		if e, ok := errors.AsType[*xds.LimitError](err); !errors.Is(err, ErrLimit) || !ok || e.Limit != xds.LimitNames {
			t.Errorf("got %v", err)
		}
		if _, err := d.Decode(marshal(t, &discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"a", "b"}, ResourceNamesUnsubscribe: []string{"c", "d"}})); err != nil {
			t.Errorf("the limit is for each list, but: %v", err)
		}
		many := []string{"a", "b", "c"}
		for list, m := range map[string]*discovery.DeltaDiscoveryRequest{
			"unsubscribe": {ResourceNamesUnsubscribe: many},
			"initial":     {InitialResourceVersions: map[string]string{"a": "1", "b": "1", "c": "1"}},
		} {
			if _, err := d.Decode(marshal(t, m)); !errors.Is(err, ErrLimit) {
				t.Errorf("%s: got %v", list, err)
			}
		}
		if _, err := (&Decoder{MaxNames: 2}).Decode(marshal(t, &discovery.DiscoveryRequest{ResourceNames: many})); !errors.Is(err, ErrLimit) {
			t.Errorf("SotW: got %v", err)
		}
	})
	t.Run("SAFE-1 a node or a type URL larger than the limit", func(t *testing.T) {
		for v, encode := range map[xds.Variant]func(node *corev3.Node, url string) []byte{
			xds.SotW: func(n *corev3.Node, url string) []byte {
				return marshal(t, &discovery.DiscoveryRequest{Node: n, TypeUrl: url})
			},
			xds.Delta: func(n *corev3.Node, url string) []byte {
				return marshal(t, &discovery.DeltaDiscoveryRequest{Node: n, TypeUrl: url})
			},
		} {
			node := &corev3.Node{Id: "n"} // three bytes
			d := Decoder{Variant: v, MaxNode: 3, MaxTypeURL: 5}
			if _, err := d.Decode(encode(node, "12345")); err != nil {
				t.Error(err)
			}
			for _, c := range []struct {
				limit xds.Limit
				what  string
				b     []byte
			}{{xds.LimitNode, "node of 4 bytes", encode(&corev3.Node{Id: "no"}, "")}, {xds.LimitTypeURL, "type_url of 6 bytes", encode(node, "123456")}} {
				_, err := d.Decode(c.b)
				if e, ok := errors.AsType[*xds.LimitError](err); !errors.Is(err, ErrLimit) || !ok || e.Limit != c.limit || !strings.Contains(err.Error(), c.what) {
					t.Errorf("%v: %v", v, err)
				}
			}
		}
	})
}

func TestDecodeOddities(t *testing.T) {
	t.Run("SOTW-4 an empty error_detail is a NACK", func(t *testing.T) {
		r, err := (&Decoder{}).Decode(marshal(t, &discovery.DiscoveryRequest{ErrorDetail: status.New(codes.OK, "").Proto()}))
		if err != nil || r.Error == nil {
			t.Errorf("got %v, %v", r.Error, err)
		}
	})
	t.Run("SAFE-1 an error text cut within a character is no malformed request", func(t *testing.T) {
		text := protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), "caf\xc3...(truncated)")
		r, err := (&Decoder{}).Decode(protowire.AppendBytes(protowire.AppendTag(nil, 6, protowire.BytesType), text))
		if err != nil || r.Error.Message != "caf\uFFFD...(truncated)" {
			t.Errorf("got %v, %v", r.Error, err)
		}
	})
}

func TestDecodeNames(t *testing.T) {
	const asked, name, other = "xdstp://a/t/x?b=2&a=1", "xdstp://a/t/x?a=1&b=2", "plain?b=2&a=1"
	t.Run("NAME-2 context parameters in any order", func(t *testing.T) {
		r, err := (&Decoder{}).Decode(marshal(t, &discovery.DiscoveryRequest{
			ResourceNames: []string{asked, other}, ResourceLocators: []*discovery.ResourceLocator{{Name: asked}},
		}))
		if want := []string{name, other, name}; err != nil || !slices.Equal(r.Names, want) {
			t.Errorf("got %q, %v", r.Names, err)
		}
		r, err = (&Decoder{Variant: xds.Delta}).Decode(marshal(t, &discovery.DeltaDiscoveryRequest{
			ResourceNamesSubscribe: []string{asked, other}, ResourceNamesUnsubscribe: []string{asked, other}, InitialResourceVersions: map[string]string{asked: "1"},
		}))
		want := []string{name, other}
		if err != nil || !slices.Equal(r.Subscribe, want) || !slices.Equal(r.Unsubscribe, want) || !slices.Equal(r.Initial, []xds.Version{{Name: name, Version: "1"}}) {
			t.Errorf("got %+v, %v", r, err)
		}
	})
	t.Run("NAME-2 which costs nothing where there is no order to bring", func(t *testing.T) {
		allocs := func(name string) float64 {
			var m discovery.DiscoveryRequest
			for range 1000 {
				m.ResourceNames = append(m.ResourceNames, name)
			}
			b := marshal(t, &m)
			return testing.AllocsPerRun(10, func() { _, _ = (&Decoder{}).Decode(b) })
		}
		if plain, urn := allocs("a"), allocs("xdstp://a/t/x?a=1"); urn > plain {
			t.Errorf("%v allocations, %v without", urn, plain)
		}
	})
}

func TestDecodeLocators(t *testing.T) {
	decode := func(v xds.Variant, b []byte) xds.Request {
		t.Helper()
		r, err := (&Decoder{Variant: v}).Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	t.Run("NAME-1 names in locators are names", func(t *testing.T) {
		with := func(name string) []*discovery.ResourceLocator {
			return []*discovery.ResourceLocator{{Name: name, DynamicParameters: map[string]string{"env": "prod"}}}
		}
		if r := decode(xds.SotW, marshal(t, &discovery.DiscoveryRequest{ResourceNames: []string{"a"}, ResourceLocators: with("b")})); !slices.Equal(r.Names, []string{"a", "b"}) {
			t.Error(r.Names)
		}
		r := decode(xds.Delta, marshal(t, &discovery.DeltaDiscoveryRequest{ResourceLocatorsSubscribe: with("b"), ResourceLocatorsUnsubscribe: with("c")}))
		if !slices.Equal(r.Subscribe, []string{"b"}) || !slices.Equal(r.Unsubscribe, []string{"c"}) {
			t.Error(r.Subscribe, r.Unsubscribe)
		}
	})
	t.Run("SAFE-1 names in locators count", func(t *testing.T) {
		d := Decoder{MaxNames: 1}
		_, err := d.Decode(marshal(t, &discovery.DiscoveryRequest{ResourceNames: []string{"a"}, ResourceLocators: []*discovery.ResourceLocator{{Name: "b"}}}))
		if !errors.Is(err, ErrLimit) {
			t.Errorf("got %v", err)
		}
	})
	// udpa.core.v1.ResourceLocator in udpa_resources_subscribe (8) and
	// udpa_resources_unsubscribe (9): an enum scheme, the parts of the id, the
	// authority, the type, and a map of context parameters.
	t.Run("NAME-3 old udpa fields are no error", func(t *testing.T) {
		var l []byte
		l = protowire.AppendVarint(protowire.AppendTag(l, 1, protowire.VarintType), 1)
		for num, s := range map[protowire.Number]string{2: "id", 3: "authority", 4: "type", 5: "\x0a\x04\x0a\x02ab"} {
			l = protowire.AppendString(protowire.AppendTag(l, num, protowire.BytesType), s)
		}
		b := marshal(t, &discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"a"}})
		for _, num := range []protowire.Number{8, 9} {
			b = protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), l)
		}
		if r := decode(xds.Delta, b); !slices.Equal(r.Subscribe, []string{"a"}) || len(r.Unsubscribe) > 0 {
			t.Error(r.Subscribe, r.Unsubscribe)
		}
	})
}

func TestDecodeNodeOnce(t *testing.T) {
	with := func(n *corev3.Node) []byte {
		return marshal(t, &discovery.DiscoveryRequest{Node: n, ResponseNonce: "1"})
	}
	var d Decoder
	r, err := d.Decode(with(&corev3.Node{Id: "a", Cluster: "c"}))
	if err != nil || r.Node == nil || r.Node.Cluster != "c" {
		t.Fatal(r.Node, err)
	}
	t.Run("SUB-5 a repeated node is not decoded", func(t *testing.T) {
		if r, err := d.Decode(with(&corev3.Node{Id: "a", Cluster: "other"})); err != nil || r.Node != nil {
			t.Error(r.Node, err)
		}
		if r, err := d.Decode(with(nil)); err != nil || r.Node != nil {
			t.Error(r.Node, err)
		}
	})
	t.Run("SUB-5 another id is noticed", func(t *testing.T) {
		if r, err := d.Decode(with(&corev3.Node{Id: "b", Cluster: "other"})); err != nil || r.Node == nil || r.Node.ID != "b" || r.Node.Cluster != "" {
			t.Error(r.Node, err)
		}
	})
	t.Run("SUB-5 of two ids the last counts, at first and later, in one node or two", func(t *testing.T) {
		nodes := func(ids ...string) (b []byte) {
			for _, id := range ids {
				b = append(b, with(&corev3.Node{Id: id})...)
			}
			return b
		}
		node := func(ids ...string) (b []byte) {
			for _, id := range ids {
				b = protowire.AppendString(protowire.AppendTag(b, nodeIDField, protowire.BytesType), id)
			}
			return protowire.AppendBytes(protowire.AppendTag(nil, layouts[xds.SotW].node, protowire.BytesType), b)
		}
		for name, twice := range map[string]func(...string) []byte{"two nodes": nodes, "one": node} {
			var d Decoder
			if r, err := d.Decode(twice("a", "b")); err != nil || r.Node == nil || r.Node.ID != "b" {
				t.Error(name, r.Node, err)
			}
			if r, err := d.Decode(twice("a", "b")); err != nil || r.Node != nil {
				t.Error(name, "is another later:", r.Node, err)
			}
			if r, err := d.Decode(twice("b", "a")); err != nil || r.Node == nil || r.Node.ID != "a" {
				t.Error(name, "is the same later:", r.Node, err)
			}
			if r, err := d.Decode(append(twice("a"), with(&corev3.Node{Cluster: "c"})...)); err != nil || r.Node == nil || r.Node.ID != "a" {
				t.Error(name, "and one without an id:", r.Node, err)
			}
		}
	})
	t.Run("SUB-5 no node at first", func(t *testing.T) {
		var d Decoder
		if r, err := d.Decode(with(nil)); err != nil || r.Node != nil {
			t.Error(r.Node, err)
		}
		if r, err := d.Decode(with(&corev3.Node{Id: "late"})); err != nil || r.Node == nil || r.Node.ID != "late" {
			t.Error(r.Node, err)
		}
	})
	t.Run("SUB-5 a repeated 61 KB node costs no allocation", func(t *testing.T) {
		big := &corev3.Node{Id: "a"}
		for i := range 700 {
			big.Extensions = append(big.Extensions, &corev3.Extension{Name: fmt.Sprintf("envoy.filters.http.something_%d", i), Category: "envoy.filters.http",
				TypeUrls: []string{"envoy.extensions.something"}})
		}
		b := with(big)
		if n := testing.AllocsPerRun(100, func() { d.Decode(b) }); n > 1 { // the nonce
			t.Errorf("%v allocations", n)
		}
		if r, err := d.Decode(b); err != nil || r.Node != nil {
			t.Error(r.Node, err)
		}
	})
}

// Repeated names are left out, and only these. With the names of the last request of the type filled in, the result is
// that of a decoder without memory.
func TestDecodeRepeatedNames(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	same, differ := 0, 0
	for range 300 {
		var d Decoder
		last := map[string][]string{}
		known := map[string][]string{} // the names of the last request, if they were in one place
		for range 30 {
			url := []string{"", xds.Cluster.URL, xds.Secret.URL, "type.googleapis.com/my.Own"}[rnd.IntN(4)]
			var names []string
			for i := range rnd.IntN(3) {
				names = append(names, []string{"a", "b", strings.Repeat("n", 200), "x?b=1&a=2"}[(i+rnd.IntN(2))%4])
			}
			m := &discovery.DiscoveryRequest{TypeUrl: url, ResourceNames: names, ResponseNonce: fmt.Sprint(rnd.IntN(20))}
			if rnd.IntN(2) == 0 {
				m.VersionInfo, m.Node = fmt.Sprint(rnd.IntN(2)), &corev3.Node{Id: "node"} // these fields are before the names
			}
			plain := true
			if rnd.IntN(8) == 0 {
				m.ResourceLocators, plain = []*discovery.ResourceLocator{{Name: "located"}}, false
			}
			b := marshal(t, m)
			if rnd.IntN(8) == 0 { // merged: the names are in two places
				plain = false
				b = append(b, marshal(t, &discovery.DiscoveryRequest{TypeUrl: url, ResourceNames: names})...)
			}
			want, err := new(Decoder).Decode(b)
			if err != nil {
				t.Fatal(err)
			}
			got, err := d.Decode(b)
			if err != nil {
				t.Fatal(err)
			}
			want.Node, got.Node = nil, nil
			switch {
			case url == "": // the type of the stream: all lists may have changed
				clear(known)
			case !plain:
				delete(known, url)
			default:
				if repeats := len(names) > 0 && slices.Equal(names, known[url]); got.SameNames != repeats {
					t.Fatalf("%x: SameNames is %v, and the last names were %q", b, got.SameNames, known[url])
				}
				known[url] = names
			}
			key := url
			if key == "" { // the type of the stream
				key = xds.Secret.URL
			}
			if differ++; got.SameNames {
				if same++; got.Names != nil {
					t.Fatal("names that are the same are listed")
				}
				got.Names, got.SameNames = last[key], false
			}
			if d := diff(want, got); d != "" {
				t.Fatalf("%x\n%s", b, d)
			}
			last[key] = got.Names
		}
	}
	if same < 100 || differ-same < 100 {
		t.Errorf("%d of %d the same", same, differ)
	}

	// It remembers no more types than a stream may have.
	var d Decoder
	for i := range 10_000 {
		if _, err := d.Decode(marshal(t, &discovery.DiscoveryRequest{TypeUrl: fmt.Sprint("type", i), ResourceNames: []string{"a"}})); err != nil {
			t.Fatal(err)
		}
	}
	if len(d.lastLists) > maxLists {
		t.Errorf("%d types are remembered", len(d.lastLists))
	}
}

func TestDecodeAllocs(t *testing.T) {
	m := &discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, InitialResourceVersions: map[string]string{}}
	for i := range 1000 {
		m.InitialResourceVersions[fmt.Sprint("cluster-", i)] = "0123456789abcdef"
	}
	b := marshal(t, m)
	d := Decoder{Variant: xds.Delta, node: &xds.Node{}}
	if n := testing.AllocsPerRun(20, func() { d.Decode(b) }); n > 2 {
		t.Errorf("%v allocations for 1,000 initial versions", n)
	}
}

func BenchmarkDecodeACK(b *testing.B) {
	d := Decoder{node: &xds.Node{}}
	req := marshal(b, &discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, VersionInfo: "0123456789abcdef", ResponseNonce: "17"})
	b.ReportAllocs()
	for b.Loop() {
		d.Decode(req)
	}
}

// SUB-5: of two fields of a oneof the last one counts, and the first one leaves nothing.
func TestNodeAgentVersion(t *testing.T) {
	numbers := func(part ...byte) []byte {
		var version []byte
		for i, n := range part {
			version = append(version, byte(i+1)<<3, n)
		}
		return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), version)
	}
	var b []byte
	for _, f := range []struct {
		num  protowire.Number
		data []byte
		want string
	}{
		{nodeAgentBuild, numbers(1, 2, 3), "1.2.3"},
		{nodeAgentBuild, numbers(4), "4.2.3"}, // one message in two parts
		{nodeAgentVersion, []byte("text"), "text"},
		{nodeAgentBuild, numbers(5), "5.0.0"},
	} {
		b = protowire.AppendBytes(protowire.AppendTag(b, f.num, protowire.BytesType), f.data)
		var n xds.Node
		if err := decodeNode(b, &n, new(build)); err != nil || n.UserAgentVersion != f.want {
			t.Errorf("%q, %v, want %q", n.UserAgentVersion, err, f.want)
		}
	}
}
