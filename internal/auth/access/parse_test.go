package access

import (
	"bytes"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/internal/yamlkeys"
	"github.com/chancery-xds/chancery/xds"
)

// A file of the largest size is read, and a larger one is an error.
func TestSizeOfFile(t *testing.T) {
	t.Run("SAFE-1 access.yaml", func(t *testing.T) {
		largest := append([]byte("rules: [] #"), bytes.Repeat([]byte("x"), yamlkeys.MaxFile-len("rules: [] #"))...)
		if p, problems := Parse("a.yaml", largest); p == nil {
			t.Error(problems)
		}
		if p, problems := Parse("a.yaml", append(largest, 'x')); p != nil || len(problems) != 1 || !strings.Contains(problems[0].Error(), "at most 1048576 are allowed") {
			t.Error(problems)
		}
	})
}

// Each mistake in a file is reported with its place.
func TestParseErrors(t *testing.T) {
	rule := func(text string) string { return "rules:\n- " + text }
	for text, want := range map[string]string{
		"rules: x":                                                  `a.yaml:1:8: rules: a list of rules is needed, not the string "x"`,
		"rulse: []":                                                 `did you mean "rules"?`,
		"otherwise: maybe":                                          `otherwise is refuse or default, not "maybe"`,
		"a: [":                                                      "a.yaml:1:",
		"rules: []\n---\nrules: []":                                 "an access.yaml is one document",
		rule("{node: {id: x}}"):                                     `a.yaml:2:3: rules[0]: a rule needs an identity, unless it denies`,
		rule("{identity: {}}"):                                      "an identity needs a condition",
		rule("{identity: {dns: []}}"):                               "the list is empty",
		rule("{identity: {dns: ''}}"):                               "the pattern is empty",
		rule("{identity: {dns: x, id: y}}"):                         `unknown key "id"`,
		rule("{dns: x}"):                                            "it belongs below identity",
		rule("{identity: {dns: x}, cluster: y}"):                    "it belongs below node",
		rule("{identity: {dns: {a}}}"):                              "put it in quotes",
		rule("{identity: {dns: 5}}"):                                "put it in quotes",
		rule(`{identity: {dns: "{a}{b}"}}`):                         "the boundary between {a} and {b} is ambiguous",
		rule(`{identity: {dns: "{a}-{b}"}}`):                        "the boundary between {a} and {b} is ambiguous",
		rule(`{identity: {dns: "{a}-**"}}`):                         "the boundary between {a} and ** is ambiguous",
		rule(`{identity: {dns: ["{a}.x", y]}}`):                     "all patterns here must capture the same",
		rule(`{identity: {claims: {x: ["{a}", 1]}}}`):               "all patterns here must capture the same",
		rule(`{identity: {dns: "{a"}}`):                             "{ needs a name",
		rule(`{identity: {dns: "{a b}"}}`):                          "{ needs a name",
		rule(`{identity: {dns: "a}"}}`):                             "} has no meaning in a pattern",
		rule(`{identity: {dns: "a?"}}`):                             "? has no meaning in a pattern",
		rule(`{identity: {dns: 'a\b'}}`):                            `\ must precede one of`,
		rule(`{identity: {dns: '***'}}`):                            "two wildcards next to each other",
		rule(`{identity: {dns: '**.x*.**'}}`):                       "only plain text can be between two **",
		rule(`{identity: {dns: '**.{a}.x.**'}}`):                    "a pattern with a capture can have ** only once",
		rule(`{identity: {dns: x}, node: {id: "{a}"}}`):             "{a} is not captured in identity",
		rule(`{identity: {dns: x}, secrets: ["{a}/x"]}`):            "{a} is not captured in identity",
		rule(`{identity: {dns: x}, names: {CDS: "{a}"}}`):           "{a} is not captured in identity",
		rule(`{identity: {dns: x}, node: {metadata: {k: "{a}"}}}`):  "{a} is not captured in identity",
		rule(`{identity: {subject: x}}`):                            "subject needs exactly one kind",
		rule(`{identity: {kind: [jwt, mtls], issuer: x}}`):          "issuer needs exactly one kind",
		rule(`{identity: {kind: tls}}`):                             "a kind is mtls, jwt, unix or none",
		rule(`{identity: {uid: 0100}}`):                             "readers differ about int 0100",
		rule(`{node: {metadata: {version: 010}}}`):                  "Envoy's own reader reads int 010 as 8",
		rule(`{identity: {uid: -1}}`):                               "the number of a user or group is needed",
		rule(`{identity: {uid: 1.5}}`):                              "the number of a user or group is needed",
		rule(`{identity: {uid: root}}`):                             "the number of a user or group is needed",
		rule(`{identity: {claims: {}}}`):                            "a key is needed",
		rule(`{identity: {dns: x}, types: [XDS]}`):                  `"XDS" is not a type of resources`,
		rule(`{identity: {dns: x}, types: [CDSv2]}`):                "also apply to its v2 type",
		rule(`{identity: {dns: x}, types: [SDS]}`):                  "secrets can only be allowed by name",
		rule(`{identity: {dns: x}, names: {SDS: x}}`):               "names of secrets belong below secrets",
		rule(`{identity: {dns: x}, names: {CDS: x, cds: y}}`):       "CDS is there twice",
		rule(`{identity: {dns: x}, types: EDS, names: {CDS: x}}`):   "names has a type that types does not have",
		rule(`{deny: true, types: EDS, names: {EDS: x}}`):           "has already",
		rule(`{deny: true, types: SDS, secrets: x}`):                "types denies all secrets, and secrets denies some by name",
		rule(`{deny: true, secrets: []}`):                           "the rule denies nothing",
		rule(`{deny: true, types: []}`):                             "the rule denies nothing",
		rule(`{deny: yes please}`):                                  "true or false is needed",
		rule(`{name: ""}`):                                          "the name is empty",
		rule("{name: x, deny: true}\n- {name: x, deny: true}"):      `two rules have the name "x"`,
		rule("{identity: {dns: " + strings.Repeat("x", 600) + "}}"): "a pattern of 600 bytes",
		rule(`{deny: true, types: a.b.C}`):                          "the server does not know the type \"type.googleapis.com/a.b.C\"",
	} {
		p, problems := Parse("a.yaml", []byte(text))
		var all []string
		for _, f := range problems {
			all = append(all, f.Error()+" "+f.Hint)
		}
		if got := strings.Join(all, "\n"); !strings.Contains(got, want) {
			t.Errorf("%s\ngot  %s\nwant %s", text, got, want)
		}
		if warn := strings.Contains(want, "the server does not know"); (p != nil) != warn {
			t.Errorf("%s\nis taken: %v", text, p != nil)
		}
	}
}

// A pattern that may match another identity than intended is a warning.
func TestAmbiguousPatternsWarn(t *testing.T) {
	for pattern, unclear := range map[string]bool{
		"{a}-*": true, "*-{a}": true, "{a}-{b}": true, "{a}{b}": true, "{a}**": true, "x-{a}-y-*": true,
		"{a}/*": false, "{a}.{b}": false, "{a}/**": false, "x-{a}-y": false, "*-*": false, "{a}": false, "{a}-/-*": false,
	} {
		p, problems := Parse("a", []byte(`rules: [{identity: {uri: "{a}/{b}"}, node: {id: "`+pattern+`"}}]`))
		if p == nil || (len(problems) == 1) != unclear {
			t.Errorf("%s: %v", pattern, problems)
		}
	}
}

// Too many values and too deep nesting are errors. Parse finds them fast.
func TestParseLimits(t *testing.T) {
	var b strings.Builder
	b.WriteString("a: &a [")
	b.WriteString(strings.Repeat("x,", 50_000))
	b.WriteString("x]\nrules:\n")
	for range 5000 {
		b.WriteString("- {identity: {dns: *a}}\n")
	}
	if p, problems := Parse("a", []byte(b.String())); p != nil || len(problems) == 0 {
		t.Error("the file is accepted")
	}
}

// For any access.yaml, Parse does not panic, each problem has a code and a place, and a policy
// without errors can decide.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		example, "otherwise: default", "rules: [{deny: true}]", "rules: &a [{<<: *a}]", "rules: [{identity: {kind: [none, jwt], claims: {a: {b: [1, true, '{x}/*']}}}}]",
		"rules: [{identity: {kind: unix, uid: 0, gid: [1]}, node: {metadata: {a: 1}}, names: {RDS: []}, secrets: []}]", "a: [\n", "rules: [{types: [a.b/c.D]}]",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, problems := Parse("f", []byte(text))
		failed := false
		for _, f := range problems {
			failed = failed || !f.Warning
			if f.Code == "" || f.File != "f" || f.Error() == "" {
				t.Fatalf("%#v", f)
			}
		}
		if failed != (p == nil) {
			t.Fatalf("%v: %v", p, problems)
		}
		if p == nil {
			return
		}
		for _, id := range []Identity{{}, spiffe("spiffe://prod/ns/a/sa/web"), {Kind: JWT, Subject: "x", Claims: map[string]any{"a": map[string]any{"b": []any{"x/y", 1.0}}}}, {Kind: Unix}} {
			g, err := p.Decide(id, &xds.Node{ID: "a/web/1", Cluster: "a", Metadata: metadata(t, map[string]any{"namespace": "a"})})
			if err != nil {
				if _, ok := err.(*Denied); !ok { //nolint:errorlint // Decide returns only this type
					t.Fatalf("%T", err)
				}
				continue
			}
			g, _ = g.In([]string{"default"})
			g.Allows(xds.Secret, "a/web/x")
		}
	})
}
