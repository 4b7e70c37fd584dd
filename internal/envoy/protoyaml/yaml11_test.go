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
	if err != nil && d.Errors() == 0 {
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

		"1.10": {"1.1", `"1.10"`}, "1e3": {"1000", `"1e3"`}, "0o17": {"15", `"0o17"`}, "08": {"8", `"08"`}, "2147483648": {"2147483648", `"2147483648"`}, "-2147483648": {"-2147483648", "-2147483648"}, "-2147483649": {"-2147483649", `"-2147483649"`},
		"0x80000000": {"2147483648", `"2147483648"`}, "+0x10": {`"+0x10"`, "16"}, "!!str 010": {`"010"`, "8"}, `!!int "5"`: {"5", "5"}, "! 010": {`"010"`, `"010"`},
		"9007199254740993": {"9007199254740992", `"9007199254740993"`}, "-0": {"0", "0"},
		// Not numbers of YAML 1.2, although the parser takes them.
		"2024_11_29": {`"2024_11_29"`, `"2024_11_29"`}, "0b11": {`"0b11"`, `"0b11"`}, "1_000.5": {`"1_000.5"`, `"1_000.5"`}, "12:30": {`"12:30"`, `"12:30"`}, "-.nan": {`"-.nan"`, `"-.nan"`}, "+.NaN": {`"+.NaN"`, `"+.NaN"`},

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

// Envoy reads a number that JSON does not have as text. So Rewrite uses this text.
func TestRewriteOfNumbersOutsideJSON(t *testing.T) {
	for _, number := range []string{".inf", "-.inf", ".nan"} {
		if got, problems := decodeAs(t, "google.protobuf.Struct", "a: "+number, true); got != `{"a":"`+number+`"}` || len(problems) > 0 {
			t.Errorf("FILE-7 %s: %s, %q", number, got, problems)
		}
	}
}

// Numbers of fields have Envoy's value. A finding says what else they may mean.
func TestFILE7NumbersOfFields(t *testing.T) {
	for _, tt := range []struct{ typ, field, src, want, code string }{
		{"envoy.config.core.v3.Pipe", "mode", "0440", "288", "XDS0803"},
		{"envoy.config.core.v3.Pipe", "mode", "+0440", "288", "XDS0803"},
		{"envoy.config.core.v3.Pipe", "mode", "!!int 0440", "288", "XDS0803"},
		{"envoy.config.core.v3.Pipe", "mode", "!!str 0440", "288", "XDS0803"},
		{"envoy.config.core.v3.Pipe", "mode", "07", "7", ""},
		{"envoy.config.core.v3.Pipe", "mode", "08", "8", ""},
		{"envoy.config.core.v3.Pipe", "mode", `"0440"`, "440", ""},
		{"envoy.config.core.v3.Pipe", "mode", "0x120", "288", ""},
		{"envoy.config.core.v3.Pipe", "mode", `"0x120"`, "288", "XDS0802"},
		{"envoy.config.core.v3.Pipe", "mode", `"-0x1"`, "", "XDS0103"},
		{"envoy.config.core.v3.RuntimeDouble", "default_value", "'0X10'", "16", "XDS0802"},
		{"envoy.config.core.v3.Pipe", "mode", "0X120", "288", "XDS0803"},
		{"envoy.config.core.v3.Pipe", "mode", "0o440", "288", "XDS0801"},
		{"envoy.config.core.v3.Pipe", "mode", "4_40", "", "XDS0103"},
		{"envoy.config.core.v3.Pipe", "mode", "0b11", "", "XDS0103"},
		{"envoy.config.core.v3.Pipe", "mode", "1e2", "100", ""},
		{"envoy.config.core.v3.RuntimeDouble", "default_value", "010", "8", "XDS0803"},
		{"envoy.config.core.v3.RuntimeDouble", "default_value", "0.5", "0.5", ""},
		{"envoy.config.core.v3.RuntimeDouble", "default_value", ".inf", `"Infinity"`, "XDS0801"},
		{"envoy.config.core.v3.SocketAddress", "protocol", "01", `"UDP"`, ""},
		{"envoy.config.core.v3.SocketAddress", "resolver_name", "0x80000000", `"2147483648"`, "XDS0803"},
		{"envoy.config.core.v3.SocketAddress", "resolver_name", "1.10", `"1.10"`, "XDS0802"},
		{"envoy.config.core.v3.SocketAddress", "resolver_name", "1", `"1"`, "XDS0801"},
		{"envoy.config.core.v3.SocketAddress", "ipv4_compat", "1", "", "XDS0103"},
		{"envoy.config.core.v3.SocketAddress", "ipv4_compat", "!!bool 1", "", "XDS0103"},
	} {
		got, problems := decodeAs(t, tt.typ, tt.field+": "+tt.src, false)
		_, value, _ := strings.Cut(strings.TrimSuffix(got, "}"), ":")
		if value != tt.want || (tt.code == "") != (len(problems) == 0) || len(problems) > 0 && !strings.HasPrefix(problems[0], tt.code+" ") {
			t.Errorf("%s: %s: %s %q, want %s %s", tt.field, tt.src, got, problems, tt.want, tt.code)
		}
	}
}

// Envoy leaves out a key with the tag !ignore. Anchors in its value work.
func TestFILE7IgnoredKeys(t *testing.T) {
	const src = "!ignore shared:\n- &a 1.5s\n- !!str b\nconnect_timeout: *a\n!ignore more: {}\nname: c\nmetadata: {filter_metadata: {x: {a: 1, !ignore b: 2}, !ignore y: {}}}\n"
	got, problems := decodeAs(t, "envoy.config.cluster.v3.Cluster", src, false)
	if want := `{"name":"c","connectTimeout":"1.500s","metadata":{"filterMetadata":{"x":{"a":1}}}}`; got != want || len(problems) > 0 {
		t.Error(got, problems, want)
	}
	for _, src := range []string{"a: !ignore b", "!other a: b", "!ignore a: !other b", "!ignore {a: b}"} {
		if _, err := ParseYAML("a.yaml", []byte(src)); err == nil {
			t.Errorf("%s: no error", src)
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
	if _, problems := decodeAs(t, "xds.type.v3.TypedStruct", "type_url: a/b\nvalue: {password: 0123}", false); len(problems) != 1 || strings.Contains(problems[0], "123") || strings.Contains(problems[0], " 83") {
		t.Error("SAFE-6", problems)
	}
	// A body may contain any text. A secret is not quoted.
	if _, problems := decodeAs(t, "envoy.config.route.v3.DirectResponseAction", `body: {inline_string: "{{ x }}"}`, false); len(problems) > 0 {
		t.Error(problems)
	}
	if _, problems := decodeAs(t, "envoy.extensions.transport_sockets.tls.v3.GenericSecret", `secret: {inline_string: "${hunter2}"}`, false); len(problems) != 1 || strings.Contains(problems[0], "hunter2") {
		t.Error("SAFE-6", problems)
	}
}

// Each text has the problem; the texts without one have the wanted value.
func TestFILE7WellKnownTypes(t *testing.T) {
	for _, tt := range []struct{ typ, src, want, problem string }{
		{"google.protobuf.Struct", "a: 010", `{"a":10}`, `XDS0803 a.yaml:1:4: warning: ["a"]: Envoy's own reader reads int 010 as 8, and Chancery reads 10 (write 8, or put it in quotes)`},
		{"google.protobuf.Struct", "a: !!str 010", `{"a":"010"}`, `XDS0803 a.yaml:1:4: warning: ["a"]: Envoy's own reader reads the string "010" as 8, and Chancery reads text (write 8, or put it in quotes)`},
		{"google.protobuf.Struct", "~: 1", `{"null":1}`, `XDS0802 a.yaml:1:1: warning: a null key, which Envoy's own reader reads as the text "null" (write "null" in quotes: readers other than Envoy's need that)`},
		{"google.protobuf.Struct", "a: &a x\nb: {*a: 1}", `{"a":"x","b":{"x":1}}`, `XDS0801 a.yaml:2:5: warning: ["b"]: an alias as a key (write a space before the colon: for Envoy's own reader the colon is part of the alias)`},
		{"google.protobuf.Struct", "a: &a x\nb: {*a : 1}", `{"a":"x","b":{"x":1}}`, ""},
		{"google.protobuf.Any", `"@type": /google.protobuf.Empty`, "{}", `XDS0104 a.yaml:1:10: the string "/google.protobuf.Empty" is not a type URL (did you mean "type.googleapis.com/google.protobuf.Empty"?)`},
		{"google.protobuf.Any", `"@type": a.b/google.protobuf.Empty`, `{"@type":"type.googleapis.com/google.protobuf.Empty"}`, `XDS0803 a.yaml:1:10: warning: Envoy keeps the type URL "a.b/google.protobuf.Empty", and Chancery writes type.googleapis.com/google.protobuf.Empty (write type.googleapis.com/google.protobuf.Empty)`},
		// Envoy 1.40 accepts this file, and crashes when it prints the value.
		{"google.protobuf.Any", `"@type": type.googleapis.com/google.protobuf.Value`, "", `XDS0103 a.yaml:1:1: a google.protobuf.Value needs "value" (null is "value: ~")`},
		{"google.protobuf.Timestamp", "9999-12-31T23:59:59-01:00", "", "XDS0103 a.yaml:1:1: a time like 2006-01-02T15:04:05Z is needed, not timestamp 9999-12-31T23:59:59-01:00"},
		{"google.protobuf.Timestamp", "0001-01-01T00:00:00+01:00", "", "XDS0103 a.yaml:1:1: a time like 2006-01-02T15:04:05Z is needed, not timestamp 0001-01-01T00:00:00+01:00"},
		{"google.protobuf.Timestamp", "{seconds: -1, nanos: 5}", `"1969-12-31T23:59:59.000000005Z"`, `XDS0802 a.yaml:1:1: warning: a mapping for a Timestamp (write "1969-12-31T23:59:59.000000005Z": readers other than Envoy's need that)`},
		{"google.protobuf.Timestamp", "{nanos: -1}", "", "XDS0103 a.yaml:1:1: seconds and nanos are out of range"},
		{"google.protobuf.Timestamp", "{seconds: 253402300800}", "", "XDS0103 a.yaml:1:1: seconds and nanos are out of range"},
		{"google.protobuf.Timestamp", "{seconds: -62135596801}", "", "XDS0103 a.yaml:1:1: seconds and nanos are out of range"},
		{"google.protobuf.Duration", "{seconds: 1, nanos: -1}", "", "XDS0103 a.yaml:1:1: seconds and nanos are out of range"},
		{"google.protobuf.Duration", "{nanos: 1000000000}", "", "XDS0103 a.yaml:1:1: seconds and nanos are out of range"},
		{"google.protobuf.Duration", "{seconds: -315576000001}", "", "XDS0103 a.yaml:1:1: seconds and nanos are out of range"},
		{"google.protobuf.Duration", "-315576000000.5s", `"-315576000000.500s"`, ""},
		{"google.protobuf.Duration", "315576000001s", "", `XDS0103 a.yaml:1:1: the duration "315576000001s" is out of range`},
	} {
		got, problems := decodeAs(t, tt.typ, tt.src, false)
		if strings.Join(problems, "\n") != tt.problem {
			t.Errorf("%s %s: %q, want %q", tt.typ, tt.src, problems, tt.problem)
		}
		if got != tt.want && tt.want != "" {
			t.Errorf("%s %s: %s, want %s", tt.typ, tt.src, got, tt.want)
		}
	}
}

// EnvoyScalar reads integers as the C library does, with one sign before the digits.
func TestEnvoyScalarSigns(t *testing.T) {
	for text, want := range map[string]any{"-0x10": int64(-16), "+010": int64(8), "0x": "0x", "0x+5": "0x+5", "0x-5": "0x-5", "+-5": "+-5", "--0x5": "--0x5", "++07": "++07"} {
		t.Run("FILE-7 "+text, func(t *testing.T) {
			docs, err := ParseYAML("f.yaml", []byte(text))
			if err != nil || len(docs) != 1 {
				t.Fatal(docs, err)
			}
			if got := EnvoyScalar(docs[0]); got != want {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
}
