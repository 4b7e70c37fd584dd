package secrets

import (
	"fmt"
	"strings"
	"testing"

	_ "github.com/cncf/xds/go/udpa/annotations" // for the options below
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/anypb"

	xdsv3 "github.com/cncf/xds/go/xds/type/v3"

	"github.com/chancery-xds/chancery/internal/envoy"
)

// acme declares the messages of a company. One file is frozen, like Envoy's v2 API.
const acme = `
file {
  name: "acme/filter.proto" package: "acme" syntax: "proto3"
  dependency: "envoy/config/core/v3/base.proto"
  message_type {
    name: "Filter"
    field { name: "token" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL options { [udpa.annotations.sensitive]: true } }
    field { name: "more" number: 2 type: TYPE_MESSAGE type_name: ".acme.Filter" label: LABEL_REPEATED }
  }
  message_type {
    name: "Plain"
    field { name: "token" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL options { [udpa.annotations.sensitive]: false } }
  }
  options { [udpa.annotations.file_status] { package_version_status: ACTIVE } }
}
file {
  name: "acme/old.proto" package: "acme.old" syntax: "proto3"
  message_type { name: "Filter" }
  options { [udpa.annotations.file_status] { work_in_progress: true package_version_status: FROZEN } }
}`

// The messages of a company are searched like Envoy's.
func TestCompanyMessages(t *testing.T) {
	var set descriptorpb.FileDescriptorSet
	if err := prototext.Unmarshal([]byte(acme), &set); err != nil {
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
	own := NewFinder(types)
	inAny := func(name, value string) *anypb.Any {
		return &anypb.Any{TypeUrl: "type.googleapis.com/acme." + name, Value: []byte(value)}
	}
	inStruct := func(name string, js map[string]any) *xdsv3.TypedStruct {
		return &xdsv3.TypedStruct{TypeUrl: "type.googleapis.com/acme." + name, Value: asStruct(t, js)}
	}
	for _, tt := range []struct {
		name string
		m    proto.Message
		want string
	}{
		{"SAFE-11 in an Any", inAny("Filter", "\x12\x03\x0a\x01k"), "[more[0].token] [] []"},
		{"SAFE-11 in a TypedStruct, in a spelling only for Envoy", inStruct("Filter", map[string]any{"more": map[string]any{"Token": []any{"k"}}}), "[value.more.token] [] []"},
		{"SAFE-11 in a TypedStruct, a number", inStruct("Filter", map[string]any{"more": []any{map[string]any{"token": 5}}}), "[value.more[0].token] [] []"},
		{"SAFE-11 undecodable content", inAny("Filter", "\xff"), "[.] [Filter] []"},
		{"undecodable content of a type without secrets", inAny("Plain", "\xff"), "[] [Plain] []"},
		{"no secret", inAny("Plain", "\x0a\x01k"), "[] [] []"},
		{"TYP-6 frozen", inAny("old.Filter", ""), "[] [] [acme.old.Filter]"},
		{"TYP-6 frozen, in a TypedStruct", inStruct("old.Filter", nil), "[] [] [acme.old.Filter]"},
		{"an unknown type", inAny("None", "\xff"), "[] [] []"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			found := own.Find(tt.m)
			var unread, v2 []string
			for _, u := range found.Unread {
				unread = append(unread, string(u.Type))
			}
			for _, v := range found.V2 {
				v2 = append(v2, string(v.Type))
			}
			if got := fmt.Sprint(found.Values, unread, v2); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			if f := known.Find(tt.m); len(f.Values)+len(f.Unread)+len(f.V2) > 0 {
				t.Errorf("found without the company's messages: %+v", f)
			}
		})
	}
	var texts []string
	all := own.Texts(inStruct("Filter", map[string]any{"token": canary}), func(text string) { texts = append(texts, text) })
	if shown := Hide("token: "+canary, texts); !all || shown != "token: …" {
		t.Error("SAFE-6", shown)
	}
	own.Texts(inStruct("Filter", map[string]any{"token": 1e21}), func(text string) { texts = append(texts, text) })
	if shown := Hide("token: 1e+21, or 1000000000000000000000", texts); shown != "token: …, or …" {
		t.Error("SAFE-6", shown)
	}
}

// An unknown field next to sensitive fields, or in place of a message with sensitive fields, may be a
// misplaced secret.
func TestHolds(t *testing.T) {
	for name, want := range map[protoreflect.FullName]bool{
		"envoy.extensions.transport_sockets.tls.v3.TlsCertificate":     true, // has a marked field
		"envoy.extensions.transport_sockets.tls.v3.CommonTlsContext":   true, // contains a message with a marked field
		"envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext": false,
		"envoy.config.core.v3.Locality":                                false,
	} {
		if got := Holds(envoy.Envoy().New(name).Descriptor()); got != want {
			t.Errorf("SAFE-6 %s: %v", name, got)
		}
	}
}

// "For embedded message fields, the parser merges multiple instances of the same field."
func TestSplitOption(t *testing.T) {
	part := func(num protowire.Number, v uint64) []byte {
		inner := protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), v)
		return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), inner)
	}
	for _, tt := range []struct {
		m    []byte
		want uint64
	}{{part(2, 7), 7}, {append(part(2, 7), part(3, 9)...), 7}, {append(part(3, 9), part(2, 7)...), 7}, {append(part(2, 7), part(2, 8)...), 8}, {part(3, 9), 0}} {
		if got := number(tt.m, []protowire.Number{1, 2}); got != tt.want {
			t.Errorf("%x: %d, want %d", tt.m, got, tt.want)
		}
	}
}

// In the API, every file with v2 messages is frozen, and no other file.
func TestV2FilesAreFrozen(t *testing.T) {
	packages, n := map[protoreflect.FullName]bool{}, 0
	var all []protoreflect.MessageDescriptor
	envoy.Envoy().RangeMessages(func(mt protoreflect.MessageType) bool {
		md := mt.Descriptor()
		all = append(all, md)
		if ofV2(md) {
			packages[md.ParentFile().Package()] = true
			n++
		}
		return true
	})
	for _, md := range all {
		if pkg := md.ParentFile().Package(); packages[pkg] != ofV2(md) || strings.HasSuffix(string(pkg), ".v3") && ofV2(md) {
			t.Error("TYP-6", md.FullName(), ofV2(md))
		}
	}
	if n < 500 {
		t.Error("TYP-6", n, "messages")
	}
}
