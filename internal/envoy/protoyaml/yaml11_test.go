package protoyaml

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/chancery-xds/chancery/internal/envoy"
)

// decodeAs decodes a message of a type; it returns the message as JSON, and the problems.
func decodeAs(t *testing.T, name, src string, rewrite bool) (js string, problems []string) {
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
	d := Decoder{File: "a.yaml", Source: []byte(src), Types: envoy.Envoy(), Rewrite: rewrite}
	d.Message(docs[0], m, "")
	for _, p := range d.Problems {
		problems = append(problems, string(p.Code)+" "+p.Error())
	}
	b, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(b), " ", ""), problems
}

// Envoy's values were observed in the config_dump of Envoy 1.40. There is a warning where ours differ,
// and Rewrite uses Envoy's.
func TestYAML11Words(t *testing.T) {
	for src, tt := range map[string]struct{ ours, envoys string }{
		"y": {`"y"`, "true"}, "Y": {`"Y"`, "true"}, "yes": {`"yes"`, "true"}, "on": {`"on"`, "true"}, "On": {`"On"`, "true"},
		"n": {`"n"`, "false"}, "N": {`"N"`, "false"}, "no": {`"no"`, "false"}, "off": {`"off"`, "false"},
		"010": {"10", "8"}, "-010": {"-10", "-8"},

		"true": {"true", "true"}, "TRUE": {"true", "true"}, "tRUE": {`"tRUE"`, `"tRUE"`}, "\"on\"": {`"on"`, `"on"`}, "'no'": {`"no"`, `"no"`}, "07": {"7", "7"},
		"0x10": {"16", "16"}, "10": {"10", "10"}, "0": {"0", "0"}, "north": {`"north"`, `"north"`}, "~": {"null", "null"}, "[no]": {`["no"]`, "[false]"},
	} {
		for rewrite, want := range map[bool]string{false: tt.ours, true: tt.envoys} {
			got, problems := decodeAs(t, "google.protobuf.Struct", "a: "+src, rewrite)
			if got != `{"a":`+want+"}" {
				t.Errorf("FILE-7 %s, rewrite %v: %s, want %s", src, rewrite, got, want)
			}
			if warned := len(problems) == 1 && strings.HasPrefix(problems[0], "XDS0803 a.yaml:1:"); warned != (!rewrite && tt.ours != tt.envoys) || len(problems) > 1 {
				t.Errorf("FILE-7 %s, rewrite %v: %q", src, rewrite, problems)
			}
		}
	}
}

func TestUnrenderedTemplates(t *testing.T) {
	for src, want := range map[string]bool{
		`name: "${NAME}"`: true, `name: "{{ .Values.name }}"`: true, "name: ${NAME}": true, `alt_stat_name: "{{x}}"`: true,

		"name: a${NAME}": false, `name: "%DOWNSTREAM%"`: false, `name: "{id}"`: false, `name: "${a}-${b}"`: false, `name: "{{}}"`: false, "name: $": false,
		`transport_socket: {name: "{{"}`: false,
	} {
		if _, problems := decodeAs(t, "envoy.config.cluster.v3.Cluster", src, false); (len(problems) == 1 && strings.HasPrefix(problems[0], "XDS0804 ")) != want {
			t.Errorf("%s: %q", src, problems)
		}
	}
	// A body may contain any text. A secret is not quoted.
	if _, problems := decodeAs(t, "envoy.config.route.v3.DirectResponseAction", `body: {inline_string: "{{ x }}"}`, false); len(problems) > 0 {
		t.Error(problems)
	}
	if _, problems := decodeAs(t, "envoy.extensions.transport_sockets.tls.v3.GenericSecret", `secret: {inline_string: "${hunter2}"}`, false); len(problems) != 1 || strings.Contains(problems[0], "hunter2") {
		t.Error("SAFE-6", problems)
	}
}
