package protoyaml

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/chancery-xds/chancery/internal/envoy"
)

// Envoy's API has none of these: an enum whose values differ only in case, and fields of other kinds.
func TestScalarsOutsideEnvoyAPI(t *testing.T) {
	var set descriptorpb.FileDescriptorSet
	if err := prototext.Unmarshal([]byte(`file {
  name: "acme.proto" package: "acme" syntax: "proto2" dependency: "google/protobuf/struct.proto"
  enum_type { name: "Mode" value { name: "OFF" number: 0 } value { name: "off" number: 1 } value { name: "ON" number: 2 } }
  message_type {
    name: "M"
    field { name: "mode" number: 1 type: TYPE_ENUM type_name: ".acme.Mode" label: LABEL_OPTIONAL }
    field { name: "share" number: 2 type: TYPE_FLOAT label: LABEL_OPTIONAL }
    field { name: "key" number: 3 type: TYPE_BYTES label: LABEL_OPTIONAL }
    field { name: "any" number: 4 type: TYPE_MESSAGE type_name: ".google.protobuf.Value" label: LABEL_OPTIONAL }
  }
}`), &set); err != nil {
		t.Fatal(err)
	}
	b, err := proto.Marshal(&set)
	if err != nil {
		t.Fatal(err)
	}
	types, err := envoy.Envoy().With(b)
	if err != nil {
		t.Fatal(err)
	}
	for src, want := range map[string]string{
		"mode: 'off'": "", `mode: "OFF"`: "", "share: 3e38": "", "share: Infinity": "", "key: -_8=": "", "key: +/8=": "", "any: 1e308": "c.yaml:2:6: warning: any: Envoy's own reader reads float 1e308 as text, and Chancery reads 1e+308 (for text, put it in quotes; only a .json file has a number with a fraction or an exponent for every reader)",
		"mode: off":   `c.yaml:2:7: warning: mode: the bare word "off" for a Mode (put it in quotes`,
		"share: .inf": "c.yaml:2:8: warning: share: float .inf for a number (write the number in decimal: Envoy's own reader refuses this form)",
		"mode: on":    `c.yaml:2:7: warning: mode: "on" for a value of Mode (write ON: readers other than Envoy's need it as it is declared)`,
		"mode: Off":   `c.yaml:2:7: mode: Mode has no value "Off" (did you mean OFF?)`,
		"share: 4e38": "c.yaml:2:8: share: a number is needed, not float 4e38",
		"any: .nan":   "c.yaml:2:6: any: float .nan is not a JSON number",
		"any: -.inf":  "c.yaml:2:6: any: float -.inf is not a JSON number",
		"key: 5":      "c.yaml:2:6: key: base64 text is needed, not int 5 (bytes are written in base64)",
	} {
		src = "\"@type\": type.googleapis.com/acme.M\n" + src
		docs, err := ParseYAML("c.yaml", []byte(src))
		if err != nil {
			t.Fatal(err)
		}
		d := &Decoder{File: "c.yaml", Source: []byte(src), Types: types}
		d.Any(docs[0], "")
		if got := all(d); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s\n%s\nwant\n%s", src, got, want)
		}
	}
}
