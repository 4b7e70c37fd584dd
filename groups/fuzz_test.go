package groups

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/chancery-xds/chancery/internal/envoy/nodemeta"
	"github.com/chancery-xds/chancery/xds"
)

// No group.yaml makes Parse panic, and a valid one gives rules that can decide.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"name: edge\nmatch: {id: 'edge-*', cluster: [edge, web], locality: {region: eu, zone: a, sub_zone: b}}\n",
		"match: {metadata: {env: prod, labels: {app: [pay, 5, true]}}, all: [{}], any: [], not: {cel: x}}\ninclude: [default]\npriority: 10\non_error: alone\n",
		"otherwise: refuse\n", "match: &a {not: *a}", "match: {<<: *x}", "match: {id: '\\*?**'}", "a: [\n", "<<: &a {<<: *a}",
	} {
		f.Add(s)
	}
	node := &xds.Node{ID: "edge-1", Cluster: "edge", Region: "eu", Metadata: []byte("\n\r\n\x03env\x12\x06\x1a\x04prod")}
	f.Fuzz(func(t *testing.T, data string) {
		d, problems := Parse("f", []byte(data))
		for _, p := range problems {
			if p.Code == "" || p.File != "f" || p.Error() == "" {
				t.Errorf("%+v", p)
			}
			if !p.Warning {
				return
			}
		}
		if d.Name == "" {
			d.Name = "g"
		}
		if r, problems := New([]Definition{d, {Name: "b"}}, Options{CEL: odd}); r != nil {
			r.Decide(node)
			r.Decide(nil)
		} else if len(problems) == 0 {
			t.Error("neither rules nor problems")
		}
	})
}

// Metadata has the same values as with protobuf's own decoder, or is nil.
func FuzzMetadata(f *testing.F) {
	s, _ := structpb.NewStruct(map[string]any{"a": nil, "b": true, "c": 1.5, "d": "x", "e": []any{1.0, map[string]any{"f": "g"}}})
	b, _ := proto.Marshal(s)
	f.Add(b)
	f.Add([]byte("\n\x0e\n\x01c\x12\t\x11\x01\x00\x00 \x00\xff\xff\xff")) // NaN
	f.Add([]byte("\n\x05\n\x01a\x12\x00"))
	f.Add([]byte{0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := nodemeta.Decode(b)
		var want structpb.Struct
		wrong := proto.Unmarshal(b, &want)
		if err != nil || wrong != nil {
			if wrong != nil && err == nil {
				t.Errorf("%x is taken: %v", b, wrong)
			}
			if wrong == nil && strings.Contains(err.Error(), "encoded") {
				t.Errorf("%x is not taken", b)
			}
			return
		}
		if m := natural(structpb.NewStructValue(&want)); len(b) > 0 && !same(got, m) {
			t.Errorf("%x: %v, not %v", b, got, m)
		}
	})
}

// natural returns the value as Go types. Unlike AsInterface, it keeps NaN a number.
func natural(v *structpb.Value) any {
	switch v := v.GetKind().(type) {
	case *structpb.Value_NumberValue:
		return v.NumberValue
	case *structpb.Value_ListValue:
		list := []any{}
		for _, e := range v.ListValue.GetValues() {
			list = append(list, natural(e))
		}
		return list
	case *structpb.Value_StructValue:
		m := map[string]any{}
		for k, e := range v.StructValue.GetFields() {
			m[k] = natural(e)
		}
		return m
	}
	return v.AsInterface()
}

// same compares two values; NaN equals NaN.
func same(a, b any) bool {
	switch a := a.(type) {
	case float64:
		f, ok := b.(float64)
		return ok && (a == f || math.IsNaN(a) && math.IsNaN(f))
	case map[string]any:
		m, ok := b.(map[string]any)
		if !ok || len(m) != len(a) {
			return false
		}
		for k, v := range a {
			if w, has := m[k]; !has || !same(v, w) {
				return false
			}
		}
		return true
	case []any:
		l, ok := b.([]any)
		if !ok || len(l) != len(a) {
			return false
		}
		for i := range a {
			if !same(a[i], l[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a, b)
}

// Metadata above the limits counts as missing, with a note.
func TestMetadataLimits(t *testing.T) {
	deep := func(n int) *structpb.Value {
		v := structpb.NewBoolValue(true)
		for i := range n {
			if i%2 == 0 {
				v = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{v}})
			} else {
				v = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"a": v}})
			}
		}
		return v
	}
	many := func(n int) *structpb.Value {
		l := &structpb.ListValue{}
		for range n {
			l.Values = append(l.Values, structpb.NewNullValue())
		}
		return structpb.NewListValue(l)
	}
	for what, c := range map[string]struct {
		v    *structpb.Value
		want string
	}{
		"deep": {deep(nodemeta.MaxDepth), ""}, "too deep": {deep(nodemeta.MaxDepth + 1), "it is nested more than 32 deep"}, "too deep lists": {deep(nodemeta.MaxDepth + 2), "it is nested more than 32 deep"},
		"many": {many(nodemeta.MaxEntries - 1), ""}, "too many": {many(nodemeta.MaxEntries), "it has more than 10000 values"},
		"too large": {structpb.NewStringValue(strings.Repeat("a", nodemeta.MaxBytes)), "it has 1048591 bytes, more than 1048576"},
	} {
		b, err := proto.Marshal(&structpb.Struct{Fields: map[string]*structpb.Value{"v": c.v}})
		if err != nil {
			t.Fatal(err)
		}
		m, err := nodemeta.Decode(b)
		if err != nil {
			if err.Error() != c.want {
				t.Errorf("%s: %s", what, err)
			}
		} else if c.want != "" || m["v"] == nil {
			t.Errorf("%s: %v", what, len(m))
		}
	}
}
