package wire

import (
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

func TestMetadata(t *testing.T) {
	s, err := structpb.NewStruct(map[string]any{
		"text": "a value", "empty": "", "number": 1.5, "yes": true, "null": nil,
		"nested": map[string]any{"text": "not this"}, "list": []any{"nor this"}, "é.x/y": "odd",
	})
	if err != nil {
		t.Fatal(err)
	}
	b := marshal(t, s)
	for key, want := range map[string]string{
		"text": "a value", "empty": "", "number": "", "yes": "", "null": "", "nested": "", "list": "", "é.x/y": "odd", "none": "", "": "",
	} {
		if got := Metadata(b, key); got != want {
			t.Errorf("%q is %q, want %q", key, got, want)
		}
	}
	for n := range b { // the metadata may end at any byte
		Metadata(b[:n], "text")
	}
	twice := func(x, y any) []byte {
		var all []byte
		for _, v := range []any{x, y} {
			s, err := structpb.NewStruct(map[string]any{"a": v})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, marshal(t, s)...)
		}
		return all
	}
	for _, c := range []struct {
		b    []byte
		want string
	}{
		{twice("x", "y"), "y"}, {twice("x", 1.0), ""}, {twice(1.0, "y"), "y"}, {nil, ""}, {[]byte("no Struct"), ""},
		{slices.Concat(twice("x", "y"), []byte{0xff}), ""},
		{bytesField(1, slices.Concat(bytesField(1, []byte("a")), bytesField(2, append(bytesField(3, []byte("x")), 3<<3)))), ""}, // a torn value
	} {
		if got := Metadata(c.b, "a"); got != c.want {
			t.Errorf("%q: %q, want %q", c.b, got, c.want)
		}
	}
}

// FuzzMetadata compares Metadata with the protobuf library.
func FuzzMetadata(f *testing.F) {
	field := func(num protowire.Number, b []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), b)
	}
	text := field(3, []byte("v"))
	f.Add(field(1, slices.Concat(field(2, text), field(1, []byte("k")))))
	f.Add(field(1, slices.Concat(field(1, []byte("k")), field(2, text), field(2, []byte{8, 0}))))
	f.Add(field(1, slices.Concat(field(1, []byte("k")), field(2, field(5, nil)))))
	f.Add(field(1, slices.Concat(field(1, []byte("k")), field(2, slices.Concat(text, []byte{24, 0, 32, 1, 21, 0, 0, 0, 0})))))
	f.Fuzz(func(t *testing.T, b []byte) { checkMetadata(t, b, "k") })
}

// checkMetadata compares Metadata with the protobuf library.
func checkMetadata(t *testing.T, b []byte, key string) {
	t.Helper()
	got := Metadata(b, key)
	var s structpb.Struct
	if proto.Unmarshal(b, &s) != nil {
		return // the library also checks other keys
	}
	if want := s.Fields[key].GetStringValue(); got != want {
		t.Errorf("%x: %q, want %q", b, got, want)
	}
}

// A struct with distorted fields has the values that the protobuf library finds.
func TestMetadataDistorted(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	values := []any{"v", "", 1.5, true, nil, map[string]any{"k": "w"}, []any{"x"}}
	for range 3000 {
		s, err := structpb.NewStruct(map[string]any{"k": values[rnd.IntN(len(values))], "l": values[rnd.IntN(len(values))]})
		if err != nil {
			t.Fatal(err)
		}
		b := distorted(rnd, marshal(t, s))
		checkMetadata(t, b, "k")
		checkMetadata(t, distorted(rnd, b), "k")
	}
}
