package envoy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// acme is a file of a company that uses Envoy's messages.
const acme = `file {
  name: "acme/filter.proto" package: "acme" syntax: "proto3"
  dependency: "envoy/config/core/v3/base.proto"
  message_type {
    name: "Filter"
    field { name: "secret" number: 1 type: TYPE_MESSAGE type_name: ".envoy.config.core.v3.DataSource" label: LABEL_OPTIONAL }
    nested_type { name: "Inner" }
    enum_type { name: "Mode" value { name: "OFF" number: 0 } }
  }
}`

func encode(t *testing.T, text string) []byte {
	t.Helper()
	var s descriptorpb.FileDescriptorSet
	if err := prototext.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	b, err := proto.Marshal(&s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestFILE6With(t *testing.T) {
	types, err := Envoy().With(encode(t, acme))
	if err != nil {
		t.Fatal(err)
	}
	m := types.New("acme.Filter")
	f := m.Descriptor().Fields().ByName("secret")
	m.Set(f, m.NewField(f))
	types.New("acme.Filter.Inner")
	types.New("envoy.config.cluster.v3.Cluster")
	if _, err := Envoy().FindMessageByName("acme.Filter"); err == nil {
		t.Error("Envoy's API was changed")
	}
	if _, err := types.With(encode(t, acme)); err != nil {
		t.Error("adding the same set again:", err)
	}
}

// A file that exists already may have fewer or more declarations, but no contradicting ones.
func TestWithFilesOfEnvoy(t *testing.T) {
	const head = `file { name: "envoy/config/core/v3/base.proto" package: "envoy.config.core.v3" syntax: "proto3" message_type { name: "Locality" `
	whole, err := split(encode(t, acme))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, set, want string }{
		{"a subset of the file", head + `} }`, ""},
		{"a field of another version", head + `field { name: "planet" number: 99 type: TYPE_STRING label: LABEL_OPTIONAL } } }`, ""},
		{"a field of another type", head + `field { name: "region" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL } } }`,
			"envoy/config/core/v3/base.proto differs from the built-in envoy/config/core/v3/base.proto: envoy.config.core.v3.Locality.region is number 1, TYPE_INT32 there, and number 1, TYPE_STRING here"},
		{"a field of another number", head + `field { name: "region" number: 7 type: TYPE_STRING label: LABEL_OPTIONAL } } }`, "envoy.config.core.v3.Locality.region is number 7, TYPE_STRING there, and number 1, TYPE_STRING here"},
		{"a field of another name", head + `field { name: "area" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL } } }`, "field 1 of envoy.config.core.v3.Locality is area there, and region here"},
		{"a field that becomes a list", head + `field { name: "region" number: 1 type: TYPE_STRING label: LABEL_REPEATED } } }`, "is number 1, a list of TYPE_STRING there"},
		{"a value of another number", `file { name: "envoy/config/core/v3/base.proto" package: "envoy.config.core.v3" enum_type { name: "TrafficDirection" value { name: "OUTBOUND" number: 7 } } }`,
			"envoy.config.core.v3.TrafficDirection.OUTBOUND is number 7 there, and number 2 here"},
		{"a value of another number, in a message", `file { name: "envoy/config/core/v3/address.proto" package: "envoy.config.core.v3" message_type { name: "SocketAddress" enum_type { name: "Protocol" value { name: "UDP" number: 7 } } } }`,
			"envoy.config.core.v3.SocketAddress.Protocol.UDP is number 7 there, and number 1 here"},
		{"a message in another file", `file { name: "api/base.proto" package: "envoy.config.core.v3" message_type { name: "Locality" } }`,
			"api/base.proto declares envoy.config.core.v3.Locality, and so does envoy/config/core/v3/base.proto: remove one of them"},
		{"a duplicate name", `file { name: "a.proto" package: "a" message_type { name: "A" } } file { name: "b.proto" package: "a" message_type { name: "A" } }`, "b.proto declares a.A, and so does a.proto"},
		{"a duplicate enum value", `file { name: "a.proto" package: "envoy.config.core.v3" enum_type { name: "Own" value { name: "OUTBOUND" number: 0 } } dependency: "envoy/config/core/v3/base.proto" }`, "OUTBOUND"},
		{"an import that is missing", `file { name: "a.proto" dependency: "acme/other.proto" }`, "a.proto imports acme/other.proto, which is missing"},
		{"a file that imports itself", `file { name: "a.proto" dependency: "b.proto" } file { name: "b.proto" dependency: "a.proto" }`, "imports itself"},
		{"a type that is missing", `file { name: "a.proto" syntax: "proto3" message_type { name: "A" field { name: "f" number: 1 type: TYPE_MESSAGE type_name: ".b.B" label: LABEL_OPTIONAL } } }`, "b.B"},
		{"a file without a name", `file { package: "a" }`, ErrNoSet.Error()},
		{"nothing", ``, ErrNoSet.Error()},
	} {
		t.Run("FILE-6 "+tt.name, func(t *testing.T) {
			_, err := Envoy().With(encode(t, tt.set))
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
	for _, bad := range []string{acme, "{}", "\n\x05ab", "\x0a\x03\x0a\x10x", string(whole[0])} {
		if _, err := Envoy().With([]byte(bad)); !errors.Is(err, ErrNoSet) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// One bad file of a set does not spoil the others.
func TestLoadUsable(t *testing.T) {
	const set = `file { name: "a.proto" package: "a" message_type { name: "A" } }
		file { name: "b.proto" package: "b" message_type { name: "B" } dependency: "c.proto" }
		file { name: "c.proto" package: "a" message_type { name: "C" } message_type { name: "A" } }
		file { name: "d.proto" dependency: "e.proto" } file { name: "e.proto" dependency: "d.proto" }
		file { package: "unnamed" }
		file { name: "f.proto" package: "f" message_type { name: "F" } dependency: "a.proto" }`
	dir := t.TempDir()
	for name, b := range map[string][]byte{"some": encode(t, set), "none": []byte("{}"), "acme": encode(t, acme)} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	types, left := LoadUsable(filepath.Join(dir, "some"), filepath.Join(dir, "none"), filepath.Join(dir, "missing"), filepath.Join(dir, "acme"))
	for _, name := range []protoreflect.FullName{"a.A", "f.F", "acme.Filter", "envoy.config.cluster.v3.Cluster"} {
		if _, err := types.FindMessageByName(name); err != nil {
			t.Errorf("FILE-6 %s: %v", name, err)
		}
	}
	for _, name := range []protoreflect.FullName{"b.B", "a.C"} {
		if _, err := types.FindMessageByName(name); err == nil {
			t.Errorf("FILE-6 %s is found", name)
		}
	}
	const want = `some: c.proto declares a.A, and so does a.proto: remove one of them
some: not an encoded FileDescriptorSet, or an empty one
some: b.proto imports c.proto, which is missing
some: d.proto imports itself
some: e.proto imports itself
none: not an encoded FileDescriptorSet, or an empty one
open missing: no such file or directory
`
	var got strings.Builder
	for _, err := range left {
		fmt.Fprintln(&got, strings.ReplaceAll(err.Error(), dir+"/", ""))
	}
	if got.String() != want {
		t.Errorf("FILE-6 left out:\n%s", got.String())
	}
}

func TestLoad(t *testing.T) {
	if types, err := Load(); err != nil || types != Envoy() {
		t.Error("a missing file:", err)
	}
	path := filepath.Join(t.TempDir(), "acme.binpb")
	if _, err := Load(path); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := os.WriteFile(path, encode(t, acme), 0o600); err != nil {
		t.Fatal(err)
	}
	types, err := Load(path, path)
	if err != nil {
		t.Fatal(err)
	}
	types.New("acme.Filter")
	if err := os.WriteFile(path, []byte("syntax = \"proto3\";"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); !errors.Is(err, ErrNoSet) || !strings.HasPrefix(err.Error(), path+": ") {
		t.Error(err)
	}
}
