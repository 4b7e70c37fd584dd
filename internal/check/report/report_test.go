package report

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/chancery-xds/chancery/findings"
)

func example() Report {
	return Report{
		Program: "v1", Files: 2, Bad: true, Counts: []Count{{"CDS", 2}},
		Findings: []findings.Problem{
			{File: "a b/x,1.yaml", Pos: findings.Pos{Line: 3, Column: 7}, Path: "name", Code: findings.InvalidValue, Message: "100% wrong: \"<x>\"", Hint: "a\nb"},
			{File: "/etc/y.pb", Message: "and 3 more errors", Omitted: 3},
			{File: "a b/x,1.yaml", Pos: findings.Pos{Line: 9}, Code: findings.Dangling, Message: "leads to nothing", Warning: true},
		},
	}
}

func written(t *testing.T, format string, r Report) string {
	t.Helper()
	var b strings.Builder
	if err := Formats[format](&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestFormats(t *testing.T) {
	for name, want := range map[string]string{
		"text": `a b/x,1.yaml:3:7: name: 100% wrong: "<x>" (a\nb) [XDS0301]
/etc/y.pb: and 3 more errors
a b/x,1.yaml:9: warning: leads to nothing [XDS0201]
4 errors, 1 warning
`,
		"github": `::error file=a b/x%2C1.yaml,line=3,col=7,title=XDS0301 a value that Envoy's API does not allow::name: 100%25 wrong: "<x>" (a%0Ab)
::error file=/etc/y.pb,title=XDS0100 another error::and 3 more errors
::warning file=a b/x%2C1.yaml,line=9,title=XDS0201 a reference to a resource that no file has::leads to nothing
4 errors, 1 warning
`,
	} {
		if got := written(t, name, example()); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
	}
}

// The last line reports whether the check fails, and counts the findings.
func TestSummary(t *testing.T) {
	warnings := example()
	warnings.Findings = warnings.Findings[2:]
	if got := warnings.summary(); got != "0 errors, 1 warning" {
		t.Error("with warnings as errors:", got)
	}
	warnings.Bad = false
	if got := warnings.summary(); got != "ok: 2 resources in 2 files: CDS 2; 1 warning" {
		t.Error("with warnings:", got)
	}
	if got := (Report{Files: 1, Counts: []Count{{"CDS", 1}, {"EDS", 3}}}).summary(); got != "ok: 4 resources in 1 file: CDS 1, EDS 3" {
		t.Error(got)
	}
}

// The JSON has the fields that docs/check.md names.
func TestJSON(t *testing.T) {
	var out struct {
		Version, Files, Errors, Warnings int
		OK                               bool
		Resources                        map[string]int
		Findings                         []map[string]any
	}
	if err := json.Unmarshal([]byte(written(t, "json", example())), &out); err != nil {
		t.Fatal(err)
	}
	if out.Version != 1 || out.OK || out.Files != 2 || out.Errors != 4 || out.Warnings != 1 || out.Resources["CDS"] != 2 || len(out.Findings) != 3 {
		t.Errorf("%+v", out)
	}
	for key, want := range map[string]any{"code": "XDS0301", "severity": "error", "file": "a b/x,1.yaml", "line": 3., "column": 7., "path": "name", "message": `100% wrong: "<x>"`, "hint": "a\nb"} {
		if out.Findings[0][key] != want {
			t.Errorf("%s is %v, want %v", key, out.Findings[0][key], want)
		}
	}
	if out.Findings[1]["code"] != "XDS0100" || out.Findings[1]["line"] != nil || out.Findings[1]["others"] != 3. {
		t.Errorf("%v", out.Findings[1])
	}
	if got := written(t, "json", example()); !strings.Contains(got, `100% wrong: \"<x>\"`) {
		t.Error("HTML characters are escaped:", got)
	}
	if got := written(t, "json", Report{}); !strings.Contains(got, `"findings": []`) || !strings.Contains(got, `"ok": true`) {
		t.Error(got)
	}
}

// The table in docs/check.md has every field.
func TestJSONIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/check.md")
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal([]byte(written(t, "json", example())), &out); err != nil {
		t.Fatal(err)
	}
	finding, _ := out["findings"].([]any)[0].(map[string]any)
	for _, name := range slices.Concat(slices.Collect(maps.Keys(out)), slices.Collect(maps.Keys(finding))) {
		if !regexp.MustCompile("[`.]" + name + "`").Match(page) {
			t.Errorf("docs/check.md does not describe %q", name)
		}
	}
}

func TestSARIF(t *testing.T) {
	var log sarif
	if err := json.Unmarshal([]byte(written(t, "sarif", example())), &log); err != nil {
		t.Fatal(err)
	}
	run := log.Runs[0]
	if log.Version != "2.1.0" || run.Tool.Driver.Name != "chancery" || len(run.Tool.Driver.Rules) != 3 || len(run.Results) != 3 {
		t.Fatalf("%+v", log)
	}
	for i, r := range run.Results {
		if run.Tool.Driver.Rules[r.Index].ID != r.Rule {
			t.Errorf("result %d: rule %s does not have index %d", i, r.Rule, r.Index)
		}
	}
	at := run.Results[0].Locations[0]
	if at.Physical.Artifact.URI != "a%20b/x,1.yaml" || at.Physical.Region.Line != 3 || at.Physical.Region.Column != 7 || at.Logical[0].Name != "name" {
		t.Errorf("%+v", at)
	}
	if at := run.Results[1].Locations[0]; at.Physical.Artifact.URI != "file:///etc/y.pb" || at.Physical.Region != nil {
		t.Errorf("%+v", at)
	}
	if run.Results[2].Level != "warning" {
		t.Errorf("%+v", run.Results[2])
	}
	twice := example()
	twice.Findings = append(twice.Findings, twice.Findings...)
	if err := json.Unmarshal([]byte(written(t, "sarif", twice)), &log); err != nil {
		t.Fatal(err)
	}
	if run := log.Runs[0]; len(run.Tool.Driver.Rules) != 3 || len(run.Results) != 6 || run.Results[4].Index != run.Results[1].Index {
		t.Errorf("each rule once: %+v", run)
	}
	if got := written(t, "sarif", Report{}); !strings.Contains(got, `"results": []`) || !strings.Contains(got, `"rules": []`) {
		t.Error("an empty result must be a list:", got)
	}
}

func TestJUnit(t *testing.T) {
	read := func(r Report) junitSuite {
		var s junitSuites
		if err := xml.Unmarshal([]byte(written(t, "junit", r)), &s); err != nil {
			t.Fatal(err)
		}
		return s.Suite
	}
	s := read(example())
	if s.Tests != 3 || s.Failures != 2 || s.Cases[0].Failure.Type != "XDS0301" || s.Cases[0].Class != "a b/x,1.yaml" || s.Cases[2].Failure != nil {
		t.Errorf("%+v", s)
	}
	strict := example()
	strict.Findings = strict.Findings[2:]
	if s := read(strict); s.Failures != 1 {
		t.Errorf("with warnings as errors: %+v", s)
	}
	strict.Bad = false
	if s := read(strict); s.Failures != 0 {
		t.Errorf("with warnings: %+v", s)
	}
	if s := read(Report{}); s.Tests != 1 || s.Failures != 0 {
		t.Errorf("without findings: %+v", s)
	}
}

// The XML is well-formed for any content of files.
func TestJUnitIsWellFormed(t *testing.T) {
	hostile := "]]> <a b='c'> & \" \x00\x01\x1b[31m\x7f \xff\xfe \ufffe\uffff \u2028 \U0001f600\r\n\t"
	r := Report{Program: hostile, Files: 1, Bad: true, Findings: []findings.Problem{
		{File: hostile, Pos: findings.Pos{Line: 1, Column: 2}, Path: hostile, Code: findings.InvalidValue, Message: hostile, Hint: hostile, Excerpt: hostile},
		{File: hostile, Message: hostile, Warning: true, Omitted: 2},
	}}
	for range 2 {
		text := written(t, "junit", r)
		if !utf8.ValidString(text) {
			t.Errorf("invalid UTF-8: %q", text)
		}
		for dec, depth := xml.NewDecoder(strings.NewReader(text)), 0; ; {
			token, err := dec.Token()
			if errors.Is(err, io.EOF) {
				if depth != 0 {
					t.Errorf("%d unclosed elements", depth)
				}
				break
			}
			if err != nil {
				t.Fatalf("%v in\n%q", err, text)
			}
			switch token.(type) {
			case xml.StartElement:
				depth++
			case xml.EndElement:
				depth--
			}
		}
		r.Bad, r.Findings = false, r.Findings[1:]
	}
}

// The XML neither hides nor loses content: every unprintable character is escaped everywhere.
func TestJUnitHidesNothing(t *testing.T) {
	const hostile, shown = "a\x00\x1b[8m\u202e\u2066\u200b\x7f\xff\ufffeb", `a\x00\x1b[8m\u202e\u2066\u200b\x7f\xff\ufffeb`
	r := Report{Files: 1, Bad: true, Findings: []findings.Problem{
		{File: hostile, Pos: findings.Pos{Line: 1}, Path: hostile, Group: hostile, Message: hostile, Hint: hostile, Excerpt: hostile},
		{File: hostile, Message: hostile, Omitted: 2},
		{File: hostile, Message: hostile, Warning: true},
	}}
	text := written(t, "junit", r)
	if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsGraphic(r) || r == utf8.RuneError }); i >= 0 {
		t.Errorf("unescaped unprintable text: %q", text[i:min(i+20, len(text))])
	}
	var s junitSuites
	if err := xml.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	for i, c := range s.Suite.Cases {
		all := []string{c.Class, c.File, c.Out}
		if c.Failure != nil {
			all = []string{c.Class, c.File, c.Failure.Message, c.Failure.Text}
		}
		if i == 1 {
			all = append(all, c.Name)
		}
		for _, is := range all {
			if !strings.Contains(is, shown) {
				t.Errorf("case %d: %q has no %s", i, is, shown)
			}
		}
	}
}

type full struct{ room int }

func (f *full) Write(p []byte) (int, error) {
	if f.room -= len(p); f.room < 0 {
		return 0, errors.New("full")
	}
	return len(p), nil
}

// A failed write is an error.
func TestWriteFails(t *testing.T) {
	for name, write := range Formats {
		whole := len(written(t, name, example()))
		for _, room := range []int{0, whole / 2, whole - 1} {
			if write(&full{room}, example()) == nil {
				t.Errorf("%s: no error with room for %d of %d bytes", name, room, whole)
			}
		}
	}
}
