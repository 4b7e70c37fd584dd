package envoybinary

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	nethttp "net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/xds"
)

// A fileReader is an Envoy that reads EDS files. Each file is the subscription of one cluster.
type fileReader struct {
	admin string
	dir   string
	files int
	ext   string // of the files: Envoy reads .json files without its YAML reader
}

// startFileReader runs an Envoy that subscribes to files in a directory.
func startFileReader(t *testing.T, files int, ext string) *fileReader {
	t.Helper()
	r := &fileReader{dir: t.TempDir(), files: files, ext: ext}
	var clusters []any
	for i := range files {
		name := fmt.Sprint("c", i)
		r.write(t, i, `{"resources": [{"@type": "`+xds.Endpoint.URL+`", "cluster_name": "`+name+`"}]}`)
		clusters = append(clusters, map[string]any{
			"name": name, "type": "EDS", "connect_timeout": "1s",
			"eds_cluster_config": map[string]any{"eds_config": map[string]any{"path_config_source": map[string]any{"path": r.path(i)}, "resource_api_version": "V3"}},
		})
	}
	b, err := json.Marshal(map[string]any{
		"node":             map[string]any{"id": "files", "cluster": "e2e"},
		"admin":            map[string]any{"address": map[string]any{"socket_address": map[string]any{"address": "127.0.0.1", "port_value": 0}}},
		"static_resources": map[string]any{"clusters": clusters},
	})
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "bootstrap.json")
	if err := os.WriteFile(config, b, 0o600); err != nil {
		t.Fatal(err)
	}
	address := filepath.Join(t.TempDir(), "admin")
	cmd := exec.Command(envoyPath, "--config-path", config, "--admin-address-path", address, "--concurrency", "1", "--disable-hot-restart", "--log-level", "off")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	eventually(t, "Envoy reads the first files", func() error {
		b, err := os.ReadFile(address)
		if err != nil {
			return err
		}
		if len(b) == 0 {
			return errors.New("no admin address")
		}
		r.admin = string(b)
		if got := r.outcomes(t); len(got) != files {
			return fmt.Errorf("%d of %d files", len(got), files)
		}
		return nil
	})
	return r
}

func (r *fileReader) path(i int) string { return filepath.Join(r.dir, fmt.Sprintf("c%d%s", i, r.ext)) }

// write replaces a file by a rename, the only change that Envoy notices.
func (r *fileReader) write(t *testing.T, i int, text string) {
	t.Helper()
	next := r.path(i) + ".next"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, r.path(i)); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until a condition has no error.
func eventually(t *testing.T, what string, condition func() error) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// get returns an answer of the admin interface.
func (r *fileReader) get(t *testing.T, path string) []byte {
	t.Helper()
	resp, err := nethttp.Get("http://" + r.admin + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// An outcome counts the attempts of Envoy to read a file, and those that it refused.
type outcome struct{ read, refused int }

func (r *fileReader) outcomes(t *testing.T) map[string]outcome {
	t.Helper()
	b := r.get(t, `/stats?format=json&filter=^cluster\.c[0-9]*\.update_(success|rejected|failure)$`)
	var answer struct {
		Stats []struct {
			Name  string
			Value int
		}
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		t.Fatal(err)
	}
	all := map[string]outcome{}
	for _, s := range answer.Stats {
		part := strings.Split(s.Name, ".")
		o := all[part[1]]
		if part[2] == "update_success" {
			o.read += s.Value
		} else {
			o.refused += s.Value
		}
		if o.read+o.refused > 0 {
			all[part[1]] = o
		}
	}
	return all
}

// read makes Envoy read texts. It returns the endpoints of each; nil for a refused text.
func (r *fileReader) read(t *testing.T, texts []string) []*endpointv3.ClusterLoadAssignment {
	t.Helper()
	all := make([]*endpointv3.ClusterLoadAssignment, len(texts))
	for from := 0; from < len(texts); from += r.files {
		batch := texts[from:min(from+r.files, len(texts))]
		before := r.outcomes(t)
		for i, text := range batch {
			r.write(t, i, strings.ReplaceAll(text, "CLUSTER", fmt.Sprint("c", i)))
		}
		var after map[string]outcome
		eventually(t, "Envoy reads the files", func() error {
			after = r.outcomes(t)
			for i := range batch {
				name := fmt.Sprint("c", i)
				if b, a := before[name], after[name]; a.read+a.refused == b.read+b.refused {
					return fmt.Errorf("%s is not read:\n%s", name, batch[i])
				}
			}
			return nil
		})
		dump := r.endpoints(t)
		for i := range batch {
			name := fmt.Sprint("c", i)
			if after[name].read > before[name].read {
				all[from+i] = dump[name]
			}
		}
	}
	return all
}

// endpoints returns the endpoints of each cluster from the config_dump.
func (r *fileReader) endpoints(t *testing.T) map[string]*endpointv3.ClusterLoadAssignment {
	t.Helper()
	b := r.get(t, "/config_dump?resource=static_endpoint_configs&include_eds")
	var answer struct {
		Configs []struct {
			Config json.RawMessage `json:"endpoint_config"`
		}
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	all := map[string]*endpointv3.ClusterLoadAssignment{}
	for _, c := range answer.Configs {
		var a anypb.Any
		if err := (protojson.UnmarshalOptions{Resolver: envoy.Envoy()}).Unmarshal(c.Config, &a); err != nil {
			t.Fatalf("%v: %s", err, c.Config)
		}
		m, err := a.UnmarshalNew()
		if err != nil {
			t.Fatal(err)
		}
		all[m.(*endpointv3.ClusterLoadAssignment).ClusterName] = m.(*endpointv3.ClusterLoadAssignment)
	}
	return all
}

// metadata returns the metadata of the first endpoint as JSON.
func metadata(t *testing.T, a *endpointv3.ClusterLoadAssignment) string {
	t.Helper()
	if a == nil {
		return "refused"
	}
	var m proto.Message
	for _, e := range a.Endpoints {
		for _, l := range e.LbEndpoints {
			m = l.Metadata
		}
	}
	if m == nil {
		return "none"
	}
	b, err := (protojson.MarshalOptions{Resolver: envoy.Envoy()}).Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	b, _ = json.Marshal(v)
	return string(b)
}

// chancery reads texts as check does. It returns the metadata of each, and the codes of the findings.
func chancery(t *testing.T, texts []string, ext string) (got []string, found [][]string) {
	t.Helper()
	root := t.TempDir()
	got, found = make([]string, len(texts)), make([][]string, len(texts))
	for i, text := range texts {
		got[i] = "refused"
		if err := os.WriteFile(filepath.Join(root, fmt.Sprint(i, ext)), []byte(strings.ReplaceAll(text, "CLUSTER", fmt.Sprint("e", i))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	number := func(file string) int {
		i, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(file), ext))
		if err != nil {
			t.Fatal(file, err)
		}
		return i
	}
	c := dir.Check(root, dir.Options{MaxProblems: -1})
	for _, p := range append(c.Errors, c.Warnings...) {
		if p.Code != findings.Unused && !p.Code.IsEnvoyRule() {
			i := number(p.File)
			found[i] = append(found[i], string(p.Code)+" "+p.Message)
		}
	}
	for _, l := range c.Loaded {
		a := &endpointv3.ClusterLoadAssignment{}
		if err := proto.Unmarshal(l.Body, a); err != nil {
			t.Fatal(err)
		}
		got[number(l.File)] = metadata(t, a)
	}
	return got, found
}

// fields are fields of all kinds that a scalar can be in.
var fields = []struct{ typ, field string }{
	{"google.protobuf.Value", "value"}, {"google.protobuf.UInt32Value", "value"}, {"google.protobuf.Int32Value", "value"},
	{"google.protobuf.Int64Value", "value"}, {"google.protobuf.UInt64Value", "value"}, {"google.protobuf.DoubleValue", "value"},
	{"google.protobuf.FloatValue", "value"}, {"google.protobuf.BoolValue", "value"}, {"google.protobuf.StringValue", "value"},
	{"google.protobuf.BytesValue", "value"}, {"google.protobuf.Duration", "value"}, {"google.protobuf.Timestamp", "value"},
	{"envoy.config.core.v3.Pipe", "mode"}, {"envoy.config.core.v3.SocketAddress", "protocol"},
}

// endpointsWith returns a file with endpoints that have metadata.
func endpointsWith(metadata string) string {
	return `resources:
- "@type": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
  cluster_name: CLUSTER
  endpoints:
  - lb_endpoints:
    - endpoint: {address: {pipe: {path: /x}}}
      metadata:
` + metadata
}

func inField(field int, scalar string) string {
	f := fields[field]
	return endpointsWith("        typed_filter_metadata:\n          a:\n            \"@type\": type.googleapis.com/" + f.typ + "\n            " + f.field + ": " + scalar + "\n")
}

// scalars are written by hand: words, numbers and tags that readers differ about.
var scalars = strings.Fields("y Yes yEs on off no true True tRue 010 -010 +010 08 0440 0x10 0X1F 0x -0x10 0b11 0o17 1_000 2024_11_29 2024-11-29 1.10 1.0 1.5 1e3 1E3 .5 5. +5 -5 -0 00 " +
	"2147483647 2147483648 -2147483649 9007199254740993 9223372036854775807 9223372036854775808 18446744073709551615 -9223372036854775808 ~ null Null nULL .inf -.inf .nan .NaN inf nan " +
	"Infinity -Infinity NaN 12:30:45 0x1.8p3 1e400 1e-400 3.5e38 5x '5' \"5\" '010' '1e3' '1.0' 'true' '1' 'yes' 'on' 0x80000000 0xffffffffffffffff 037777777777 << = 1,000 +0x10 1 0 t f T " +
	"TCP udp '0' 5s 0.5s 010s 1m 1e1s .5s +5s -5s aGk= '+5' '-0' '0x10' '' '.5' '5.' '1_0' '-' 1.0e0 10e-1 100e-2 4294967295.0 4294967296.0 1e9 1e10 0.1e1 2001-12-14t21:59:43.10-05:00 " +
	"2024-01-01T00:00:00Z 1.5555555555s 5.s 00.5s 0x1p-2 1e+3 -1e3 - 5e --5 0-5 a:b a#b ... 1.2.3 0777 0o8 0b2 0x_1 1_ _1 +.5 -.inf +.inf .Inf ,")

// randomScalar returns a scalar that resembles a number or a word.
func randomScalar(r *rand.Rand) string {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	s := ""
	for range 1 + r.IntN(4) {
		s += pick("0", "0", "1", "7", "8", "9", "12", "40", ".", "_", "e", "E", "x", "o", "b", "-", "+", ":", "f", "s", "y", "n", "no", "on", "Inf", "n", "00", "65536", "2147483648", "99999999999")
	}
	s = pick("", "", "", "", "-", "+", "0", "0x", "0o", "0b", "0X") + s
	s = strings.ReplaceAll(strings.TrimLeft(strings.TrimRight(s, ":"), ":"), ": ", "")
	if strings.TrimLeft(s, "-+") == "" || strings.HasPrefix(s, "- ") {
		s = "0" + s
	}
	return pick("", "", "", "", "", "", "", "!!str ", "!!int ", "!!float ", "!!bool ", "! ", "'"[:0]) + pick(s, s, s, s, s, "'"+s+"'", `"`+s+`"`)
}

const oddDocuments = 200

// A real Envoy reads 2,000 scalars and 200 odd documents as Chancery does, or a finding says that it does not. So it
// does for each text of the tables, in YAML, in JSON and in the text format.
func TestFILE7EnvoyReadsTheSame(t *testing.T) {
	needEnvoy(t)
	t.Run("YAML", func(t *testing.T) {
		compare(t, ".yaml", handWritten(oddYAML, yamlText), handWritten(oddYAML, plainText))
	})
	t.Run("text", func(t *testing.T) {
		compare(t, ".pb_text", handWritten(oddText, protoText), handWritten(oddText, plainText))
	})
	t.Run("JSON", func(t *testing.T) {
		compare(t, ".json", handWritten(oddJSON, jsonText), handWritten(oddJSON, plainText))
	})
	r := rand.New(rand.NewPCG(33, 1))
	var texts, about []string
	add := func(field int, s string) {
		if s != "" && s != "-" && s != "," {
			texts, about = append(texts, inField(field, s)), append(about, fields[field].typ+" "+s)
		}
	}
	for f := range fields[:9] {
		for _, s := range scalars {
			add(f, s)
		}
	}
	for len(texts) < 2300 {
		add(r.IntN(len(fields))*r.IntN(2), randomScalar(r))
	}
	for range oddDocuments {
		d := oddDocument(r)
		texts, about = append(texts, d), append(about, d)
	}
	compare(t, ".yaml", texts, about)
}

// compare fails the test if Envoy reads a text differently than Chancery does, and there is no finding.
func compare(t *testing.T, ext string, texts, about []string) {
	t.Helper()
	envoys := startFileReader(t, 60, ext).read(t, texts)
	ours, found := chancery(t, texts, ext)
	accepted, findings := 0, 0
	for i := range texts {
		theirs := metadata(t, envoys[i])
		if theirs != "refused" {
			accepted++
		}
		if len(found[i]) > 0 {
			findings++
		} else if ours[i] != theirs {
			t.Errorf("%s\nEnvoy: %s\nours:  %s", about[i], theirs, ours[i])
		}
	}
	t.Logf("%d texts, %d accepted by Envoy, %d with findings", len(texts), accepted, findings)
	if accepted < len(texts)/3 || findings > len(texts)*2/3 {
		t.Errorf("the texts are too odd: Envoy accepts %d of %d, and %d have findings", accepted, len(texts), findings)
	}
}

// oddDocument returns a document with unusual YAML.
func oddDocument(r *rand.Rand) string {
	parts := []string{
		"a: &x 5\nb: *x\n", "!ignore a: &y 010\nb: *y\n", "!ignore a: {b: 1}\nc: d\n", "a: !ignore b\n", "? a\n: b\n", "? [a]\n: b\n", "a: [1, 2,]\n", "a: {b: 1,}\n", "a: [,]\n",
		"a: |\n  x\n   y\n\n  z\n", "a: |+\n  x\n\n", "a: |-\n  x\n\n", "a: >\n  x\n  y\n\n  z\n   more\n  w\n", "a: >-\n  x\n\n\n  y\n", "a: >+\n  x\n\n", "a: |2\n    x\n   y\n", "a: >1\n  x\n y\n",
		"a: x\n  y\n\n  z\n", "a: 'x\n  y\n\n  z'\n", "a: \"x\n  y\\\n  z\"\n", "a: 'it''s'\n", `a: "\x41\u00e9\U0001F600\e\0\/\_\N\L\P"` + "\n", `a: "\q"` + "\n", "a: \"\\ud83d\\ude00\"\n",
		"a: x # c\n", "a: x#c\n", "a: 'x'# c\n", "# c\na: 1\n", "a:\n", "a: ''\n", "a: null\n", "~: a\n", "null: a\n", "'': a\n", "? \n: a\n", "true: a\n", "yes: a\n", "010: a\n", "1.0: a\n", "0x10: a\n",
		"a: 1\na: 2\n", "<<: {a: 1}\n", "'<<': {a: 1}\n", "a: <<\n", "a: !!map {b: 1}\n", "a: !!seq [1]\n", "a: !!set {b, c}\n", "a: !!omap [b: 1]\n", "a: !x {b: 1}\n", "a: !x [1]\n", "a: ! [1]\n",
		"a: [b: 1, c: 2]\n", "a: {b, c}\n", "a: [a, [b, [c]]]\n", "a:\n- b\n- - c\n  - d\n", "a:\n  - b: 1\n    c: 2\n", "a: {b: [1, {c: d}]}\n", "a:\t5\n", "a: 1\n\t\nb: 2\n", "a: 1\n  \t \nb: 2\n", "a: |\n  x\n  \ty\n", "a: [1,\n\t2]\n", "a: \"x\n\ty\"\n", "a: x\n\ty\n", "a: # c\n  1\n", "a:\n\n  1\n", "- a\n", "a: -\n", "a: --- b\n", "a: '---'\n", "a: |\n  ---\n", "a: 5\t\n", "a: \t5\n", "\ta: 5\n", "a: x\ty\n",
		"a: é\n", "é: a\n", "a: \u2028x\n", "a: x\u0085y\n", "a: \ufeffx\n", "a: \u00a05\n", "a: %x\n", "a: @x\n", "a: `x\n", "a: ,x\n", "a: -x\n", "a: - x\n", "a: ?x\n", "a: :x\n", "a: x:\n", "a: x: y\n", "a:b\n", "a : b\n",
		"\"a\": b\n", "'a' : b\n", "{a: b}: c\n", "a: {\"b\":1}\n", "a: {b:1}\n", "a: [b,c]\n", "a: [\"b\",\"c\"]\n", "a: {b: }\n", "a: [~]\n", "a: [ ]\n", "a: {}\n", "a: *none\n", "a: &x\nb: *x\n", "a: &x &y 5\n", "a: &x !!str 5\n", "a: !!str &x 5\n",
		"a: !!binary aGk=\n", "a: !!timestamp 2024-01-01\n", "a: 2024-01-01 10:00:00\n", "a: !<tag:yaml.org,2002:str> 5\n", "a: !!null ''\n", "a: !!str\n", "a: !!str ~\n", "a: ! ~\n", "a: !!int '7'\n", "a: |\n  010\n", "a: !!int |\n  010\n", "a: >-\n  yes\n",
		"a: &x {b: 1}\nc: {d: *x, e: [*x]}\n", "a: 1\n...\n", "a: \"a\\\n    b\"\n", "a: \"\\x0\"\n", "a: x\n b\n", "a: [x\n , y]\n", "a: {x: 1\n , y: 2}\n", "a: 5 5\n", "a: 'x' y\n", "a: 0\x07\n", "a: 12e03\n", "a: 1__0\n", "a: -0.0\n", "a: 0.0\n", "a: 1.\n", "a: 685.230_15e+03\n", "a: 190:20:30\n",
	}
	var b strings.Builder
	for i := range 1 + r.IntN(2) {
		fmt.Fprintf(&b, "m%d:\n", i)
		for line := range strings.Lines(parts[r.IntN(len(parts))]) {
			b.WriteString("  " + line)
		}
	}
	text := ""
	for line := range strings.Lines("filter_metadata:\n" + indent(b.String(), "  ")) {
		text += "        " + line
	}
	text = endpointsWith(text)
	// A file of several documents is a form of Chancery: Envoy reads the first one only.
	for _, odd := range []struct {
		one int
		do  func(s string) string
	}{
		{12, func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }},
		{12, func(s string) string { return "\ufeff" + s }},
		{12, func(s string) string { return "---\n" + s }},
		{20, func(s string) string { return "%YAML 1.2\n---\n" + s }},
		{20, func(s string) string { return "%YAML 1.1\n---\n" + s }},
		{20, func(s string) string { return "%TAG !e! tag:e.com,2000:\n---\n" + s }},
		{20, func(s string) string { return "%FOO x\n---\n" + s }},
		{20, func(s string) string { return "# c\n--- # c\n" + strings.TrimPrefix(s, "---\n") }},
		{20, func(s string) string { return s + "---\na: b\n" }},
		{20, func(s string) string { return s + "...\n" }},
		{20, func(s string) string { return s + "...\n# c\n" }},
		{20, func(s string) string { return "!ignore x: &x [1, 2]\n" + s }},
		{20, func(s string) string { return "# c\n\n" + s }},
		{20, func(s string) string { return s + "!ignore x: {a: 1}\n" }},
		{20, func(s string) string { return strings.TrimSuffix(s, "\n") }},
		{20, func(s string) string { return s + "  \n\t\n" }},
	} {
		if r.IntN(odd.one) == 0 {
			text = strings.ReplaceAll(odd.do(text), "---\n---\n", "---\n")
		}
	}
	return text
}

// indent indents all lines.
func indent(text, by string) string {
	s := ""
	for line := range strings.Lines(text) {
		s += by + line
	}
	return s
}
