package dir

import (
	"encoding/base64"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/anypb"

	envoyapi "github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/envoy/secrets"
	"github.com/chancery-xds/chancery/internal/testkit/secrettest"
)

// For an unreadable file, check quotes the line, with a caret below.
func TestSyntaxErrorQuotesLine(t *testing.T) {
	const head = "\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\n"
	long := strings.Repeat("long ", 40)
	for name, tt := range map[string]struct{ file, src, want string }{
		"a tab":                    {"a.yaml", head + "\tname: a\n", "    2 | \tname: a\n        ^"},
		"a tab before the place":   {"a.yaml", head + "name:\ta: b\n", "    2 | name:\ta: b\n             \t ^"},
		"a colon":                  {"a.yaml", head + "name: a: b\n", "    2 | name: a: b\n               ^"},
		"a mark":                   {"a.yaml", "\ufeff" + head + "name: a: b\n", "    2 | name: a: b\n               ^"},
		"letters of several bytes": {"a.yaml", head + "name: ä: b\n", "    2 | name: ä: b\n               ^"},
		"a template":               {"a.yaml", head + "{{ if x }}\n", "    2 | {{ if x }}\n"},
		"a conflict":               {"a.yaml", head + "<<<<<<< mine\nname: a\n", "    2 | <<<<<<< mine\n        ^"},
		"JSON":                     {"a.json", "{\"name\": \"x\",}\n", "    1 | {\"name\": \"x\",}\n                     ^"},
		"text":                     {"a.txtpb", "resources {\n bare: x\n}\n", "    2 |  bare: x\n         ^"},
		"control characters":       {"a.yaml", head + "name: \x1b[31m\u202e: [\n", "    2 | name: \\x1b[31m\\u202e: [\n              ^"},
		"invisible characters":     {"a.yaml", head + "name: a: b\u00a0\n", "    2 | name: a: b\\u00a0\n"},
		"a long line":              {"a.json", `{"a": "` + long + `" x, "b": "` + long + `"}`, "    1 | …" + " " + strings.Repeat("long ", 6) + "\" x, "},
		"the end":                  {"a.yaml", head + "name: [a\n", "    2 | name: [a\n                ^"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), tt.file)
			if err := os.WriteFile(path, []byte(tt.src), 0o666); err != nil {
				t.Fatal(err)
			}
			c := Check(path, Options{})
			if len(c.Errors) != 1 || c.Errors[0].Code != "XDS0101" {
				t.Fatal(c.Errors)
			}
			if got := c.Errors[0].Text(); !strings.Contains(got, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
			// More people read a server's log than its files.
			d := newReader(envoy.types, 0).decode(tt.file, []byte(tt.src))
			if len(d.Problems) != 1 || d.Problems[0].Excerpt != "" {
				t.Errorf("SAFE-6 without check: %q", d.Problems)
			}
		})
	}
}

// A line is not quoted if a field in the file has the name of a secret field, or if the line looks
// like a secret.
func TestSyntaxErrorHidesSecretLine(t *testing.T) {
	for name, src := range map[string]string{
		"a field elsewhere": "name: hunter2Quokkas: b\nx: {inline_string: y}\n",
		"a key":             "-----BEGIN PRIVATE KEY-----\nMIGH: a: b\n",
		"a token":           "name: d131dd02c5e6eec4693d9a0698aff95c: b\n",
		"a URL":             "name: https://a:hunter2Quokkas@b: c\n",
	} {
		d := envoy.decode("a.yaml", []byte(src))
		if len(d.Problems) != 1 || d.Problems[0].Excerpt != "" || d.Problems[0].Pos.Line == 0 {
			t.Errorf("SAFE-6 %s: %q", name, d.Problems)
		}
	}
}

// Whichever field has a secret, no line of the unreadable file is quoted.
func TestLineOfSecrets(t *testing.T) {
	if raceEnabled {
		t.Skip("slow, and nothing here is concurrent: `make memory` runs it")
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	base := base64.StdEncoding.EncodeToString([]byte(secrettest.Canary))
	broken := 0
	n := secrettest.Every(t, "SAFE-6", secrets.Marked, func(t *testing.T, m proto.Message, _ protoreflect.FieldDescriptor) {
		t.Helper()
		in, err := anypb.New(m)
		if err != nil {
			t.Fatal(err)
		}
		js, err := protojson.MarshalOptions{UseProtoNames: true, Multiline: true, Resolver: envoy.types}.Marshal(in)
		if err != nil {
			t.Skip("the message has no JSON form:", err)
		}
		text := prototext.MarshalOptions{Multiline: true, Resolver: envoy.types}.Format(in)
		for _, file := range []struct{ path, src string }{{"a.json", string(js)}, {"a.yaml", string(js)}, {"b.yaml", strings.NewReplacer(`"`, "", ",\n", "\n").Replace(string(js))}, {"a.txtpb", text}} {
			// The canary's own name would keep the file from being shown.
			src := strings.NewReplacer(secrettest.Canary, canary, base, "aHVudGVyMlF1b2trYXM=").Replace(file.src)
			for range 60 {
				at := rnd.IntN(len(src))
				mark := []string{"]", "}", `"`, "'", ": ", "\n\t", "\x01", "{{", "\n", "[", "@", "`", "\u00a0"}[rnd.IntN(13)]
				shown, problems := told(file.path, src[:at]+mark+src[at:])
				broken += min(problems, 1)
				if leaks(shown) {
					t.Fatalf("SAFE-6 %s\nin\n%s", shown, src[:at]+mark+src[at:])
				}
			}
		}
	})
	if n < 30 || broken < 1000 {
		t.Errorf("%d fields and %d mistakes: too few to prove anything", n, broken)
	}
}

// A marked field in a message of one's own protects its file as well.
func TestSyntaxErrorHidesOwnSecretFields(t *testing.T) {
	var set descriptorpb.FileDescriptorSet
	if err := prototext.Unmarshal([]byte(`file { name: "acme/a.proto" package: "acme" syntax: "proto3"
		message_type { name: "Filter" nested_type { name: "Inner" field { name: "licence" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL options { debug_redact: true } } } } }`), &set); err != nil {
		t.Fatal(err)
	}
	b, err := proto.Marshal(&set)
	if err != nil {
		t.Fatal(err)
	}
	types, err := envoyapi.Envoy().With(b)
	if err != nil {
		t.Fatal(err)
	}
	src := []byte("licence: " + canary + ": x\n")
	if mayShowLines(types)(src) {
		t.Error("SAFE-6 the line is shown")
	}
	if !mayShowLines(envoyapi.Envoy())(src) {
		t.Error("the line is hidden, although no field is marked")
	}
}
