package protoyaml

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/chancery-xds/chancery/internal/envoy"
)

// decodeAs returns what stands in a message of a type, in JSON, and what is said of it.
func decodeAs(t *testing.T, name, src string, mend bool) (js string, said []string) {
	t.Helper()
	docs, err := ParseYAML("a.yaml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	typ, err := envoy.Envoy().FindMessageByURL(name)
	if err != nil {
		t.Fatal(err)
	}
	m := typ.New().Interface()
	d := Decoder{File: "a.yaml", Source: []byte(src), Types: envoy.Envoy(), Mend: mend}
	d.Message(docs[0], m, "")
	for _, p := range d.Problems {
		said = append(said, string(p.Code)+" "+p.Error())
	}
	b, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(b), " ", ""), said
}

// What Envoy 1.40 was seen to take a word in metadata for: its config_dump tells. Where
// that is something else than it is to us, there is a warning; who mends gets Envoy's.
func TestOlder(t *testing.T) {
	for src, tt := range map[string]struct{ ours, envoys string }{
		"y": {`"y"`, "true"}, "Y": {`"Y"`, "true"}, "yes": {`"yes"`, "true"}, "on": {`"on"`, "true"}, "On": {`"On"`, "true"},
		"n": {`"n"`, "false"}, "N": {`"N"`, "false"}, "no": {`"no"`, "false"}, "off": {`"off"`, "false"},
		"010": {"10", "8"}, "-010": {"-10", "-8"},

		"true": {"true", "true"}, "TRUE": {"true", "true"}, "tRUE": {`"tRUE"`, `"tRUE"`}, "\"on\"": {`"on"`, `"on"`}, "'no'": {`"no"`, `"no"`}, "07": {"7", "7"},
		"0x10": {"16", "16"}, "10": {"10", "10"}, "0": {"0", "0"}, "north": {`"north"`, `"north"`}, "~": {"null", "null"}, "[no]": {`["no"]`, "[false]"},
	} {
		for mend, want := range map[bool]string{false: tt.ours, true: tt.envoys} {
			got, said := decodeAs(t, "google.protobuf.Struct", "a: "+src, mend)
			if got != `{"a":`+want+"}" {
				t.Errorf("FILE-7 %s, mend %v: %s, want %s", src, mend, got, want)
			}
			if warned := len(said) == 1 && strings.HasPrefix(said[0], "XDS0803 a.yaml:1:"); warned != (!mend && tt.ours != tt.envoys) || len(said) > 1 {
				t.Errorf("FILE-7 %s, mend %v: %q", src, mend, said)
			}
		}
	}
}

func TestTemplated(t *testing.T) {
	for src, want := range map[string]bool{
		`name: "${NAME}"`: true, `name: "{{ .Values.name }}"`: true, "name: ${NAME}": true, `alt_stat_name: "{{x}}"`: true,

		"name: a${NAME}": false, `name: "%DOWNSTREAM%"`: false, `name: "{id}"`: false, `name: "${a}-${b}"`: false, `name: "{{}}"`: false, "name: $": false,
		`transport_socket: {name: "{{"}`: false,
	} {
		if _, said := decodeAs(t, "envoy.config.cluster.v3.Cluster", src, false); (len(said) == 1 && strings.HasPrefix(said[0], "XDS0804 ")) != want {
			t.Errorf("%s: %q", src, said)
		}
	}
	// A body may have anything; a secret is not told.
	if _, said := decodeAs(t, "envoy.config.route.v3.DirectResponseAction", `body: {inline_string: "{{ x }}"}`, false); len(said) > 0 {
		t.Error(said)
	}
	if _, said := decodeAs(t, "envoy.extensions.transport_sockets.tls.v3.GenericSecret", `secret: {inline_string: "${hunter2}"}`, false); len(said) != 1 || strings.Contains(said[0], "hunter2") {
		t.Error("SAFE-6", said)
	}
}
