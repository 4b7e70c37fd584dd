package endpoints

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// Values counts the same in the packed form as in the unpacked one, in any encoding.
func TestValues(t *testing.T) {
	for text, want := range map[string]int{
		`{}`:                          0,
		`{"a":null}`:                  1,
		`{"a":1,"b":"x","c":true}`:    3,
		`{"a":{}}`:                    2,
		`{"a":[]}`:                    2,
		`{"a":[1,{},[2]]}`:            1 + 1 + 3 + 1 + 1 + 1,
		`{"a":{"b":{"c":[{"d":1}]}}}`: 8 + 1,
		`{"a":[{}` + strings.Repeat(`,{}`, MaxValues) + `]}`: MaxValues + 1,
	} {
		var fields map[string]any
		if err := json.Unmarshal([]byte(text), &fields); err != nil {
			t.Fatal(err)
		}
		s, err := structpb.NewStruct(fields)
		if err != nil {
			t.Fatal(err)
		}
		other, err := proto.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, packed := range [][]byte{structure(fields), other} {
			if got := Values(packed); got != want {
				t.Errorf("%s: %d, want %d", text, got, want)
			}
			for cut := range packed {
				if got := Values(packed[:cut]); got > want {
					t.Errorf("%s, cut at %d: %d", text, cut, got)
				}
			}
		}
	}
}

// Nested lists, or values of a wrong kind, do not make counting slow.
func TestValuesOfMalformedMetadata(t *testing.T) {
	var deep []byte
	for range 20_000 {
		deep = appendMessage(nil, 6, appendMessage(nil, 1, deep))
		if len(deep) > 64<<10 {
			break
		}
	}
	for name, b := range map[string][]byte{
		"deep":       appendMessage(nil, 1, appendMessage(nil, 2, deep)),
		"alternates": appendMessage(nil, 1, appendMessage(nil, 2, bytes.Repeat(append(appendMessage(nil, 5, nil), appendMessage(nil, 6, nil)...), 1<<16))),
		"fields":     bytes.Repeat(appendMessage(nil, 1, nil), 1<<16),
	} {
		if got := Values(b); got < MaxValues || got > MaxValues+2 {
			t.Errorf("%s: %d", name, got)
		}
	}
	if got := Values(protowire.AppendTag(nil, 1, protowire.StartGroupType)); got != 0 {
		t.Error(got)
	}
}
