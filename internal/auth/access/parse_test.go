package access

import (
	"regexp"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/xds"
)

// What is wrong with a file is told with its place.
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
		rule("{identity: {dns: ''}}"):                               "a pattern is empty",
		rule("{identity: {dns: x, id: y}}"):                         `unknown key "id"`,
		rule("{dns: x}"):                                            "it belongs below identity",
		rule("{identity: {dns: x}, cluster: y}"):                    "it belongs below node",
		rule("{identity: {dns: {a}}}"):                              "put it in quotes",
		rule("{identity: {dns: 5}}"):                                "put it in quotes",
		rule(`{identity: {dns: "{a}{b}"}}`):                         "nobody can say where {a} and {b} end and begin",
		rule(`{identity: {dns: "{a}-{b}"}}`):                        "nobody can say where {a} and {b} end and begin",
		rule(`{identity: {dns: "{a}-**"}}`):                         "nobody can say where {a} and ** end and begin",
		rule(`{identity: {dns: ["{a}.x", y]}}`):                     "all patterns here must capture the same",
		rule(`{identity: {claims: {x: ["{a}", 1]}}}`):               "all patterns here must capture the same",
		rule(`{identity: {dns: "{a"}}`):                             "behind { stands a name",
		rule(`{identity: {dns: "{a b}"}}`):                          "behind { stands a name",
		rule(`{identity: {dns: "a}"}}`):                             "} alone means nothing here",
		rule(`{identity: {dns: "a?"}}`):                             "? alone means nothing here",
		rule(`{identity: {dns: 'a\b'}}`):                            `behind \ stands none of`,
		rule(`{identity: {dns: '***'}}`):                            "two wildcards stand side by side",
		rule(`{identity: {dns: '**.x.**'}}`):                        "** stands there twice",
		rule(`{identity: {dns: x}, node: {id: "{a}"}}`):             "{a} is captured by nothing in identity",
		rule(`{identity: {dns: x}, secrets: ["{a}/x"]}`):            "{a} is captured by nothing in identity",
		rule(`{identity: {dns: x}, names: {CDS: "{a}"}}`):           "{a} is captured by nothing in identity",
		rule(`{identity: {dns: x}, node: {metadata: {k: "{a}"}}}`):  "{a} is captured by nothing in identity",
		rule(`{identity: {subject: x}}`):                            "subject needs kind",
		rule(`{identity: {kind: [jwt, mtls], issuer: x}}`):          "issuer needs kind",
		rule(`{identity: {kind: tls}}`):                             "a kind is mtls, jwt, unix or none",
		rule(`{identity: {uid: -1}}`):                               "a number of a user or group is needed",
		rule(`{identity: {uid: 1.5}}`):                              "a number of a user or group is needed",
		rule(`{identity: {uid: root}}`):                             "a number of a user or group is needed",
		rule(`{identity: {claims: {}}}`):                            "a key is needed",
		rule(`{identity: {dns: x}, types: [XDS]}`):                  `"XDS" is no type of resources`,
		rule(`{identity: {dns: x}, types: [CDSv2]}`):                "holds for its type before v3, too",
		rule(`{identity: {dns: x}, types: [SDS]}`):                  "secrets are never seen by their type",
		rule(`{identity: {dns: x}, names: {SDS: x}}`):               "names of secrets stand below secrets",
		rule(`{identity: {dns: x}, names: {CDS: x, cds: y}}`):       "CDS stands there twice",
		rule(`{identity: {dns: x}, types: EDS, names: {CDS: x}}`):   "names of a type that types does not have",
		rule(`{deny: true, types: EDS, names: {EDS: x}}`):           "has already",
		rule(`{deny: true, types: SDS, secrets: x}`):                "all secrets are denied, and some by name",
		rule(`{deny: true, secrets: []}`):                           "a rule that denies nothing",
		rule(`{deny: true, types: []}`):                             "a rule that denies nothing",
		rule(`{deny: yes please}`):                                  "true or false is needed",
		rule(`{name: ""}`):                                          "the name is empty",
		rule("{name: x, deny: true}\n- {name: x, deny: true}"):      `two rules have the name "x"`,
		rule("{identity: {dns: " + strings.Repeat("x", 600) + "}}"): "a pattern of 600 bytes",
		rule(`{deny: true, types: a.b.C}`):                          "is no type that the server knows",
	} {
		p, problems := Parse("a.yaml", []byte(text))
		var all []string
		for _, f := range problems {
			all = append(all, f.Error()+" "+f.Hint)
		}
		if got := strings.Join(all, "\n"); !strings.Contains(got, want) {
			t.Errorf("%s\ngot  %s\nwant %s", text, got, want)
		}
		if warn := strings.Contains(want, "the server knows"); (p != nil) != warn {
			t.Errorf("%s\nis taken: %v", text, p != nil)
		}
	}
}

// What may be meant for one identity and hold for another is a warning.
func TestUnclear(t *testing.T) {
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

// Too many values and rules in each other are an error, and soon.
func TestParseMuch(t *testing.T) {
	var b strings.Builder
	b.WriteString("a: &a [")
	b.WriteString(strings.Repeat("x,", 50_000))
	b.WriteString("x]\nrules:\n")
	for range 5000 {
		b.WriteString("- {identity: {dns: *a}}\n")
	}
	if p, problems := Parse("a", []byte(b.String())); p != nil || len(problems) == 0 {
		t.Error("it is taken")
	}
}

// A pattern as an expression: slow, and as it is described.
func expression(p pattern) *regexp.Regexp {
	const word = `[-_0-9\p{L}\p{M}\p{Nd}]`
	var b strings.Builder
	b.WriteString(`(?s)^`)
	for _, w := range p.parts {
		switch w.kind {
		case literal:
			b.WriteString(regexp.QuoteMeta(w.text))
		case star:
			b.WriteString(word + "+")
		case capture:
			b.WriteString("(" + word + "+)")
		case rest:
			b.WriteString(".*")
		}
	}
	b.WriteString("$")
	return regexp.MustCompile(strings.NewReplacer(`[A-Za-z0-9]`, word).Replace(b.String()))
}

// Patterns stand for what they are said to, and what they capture is the only thing that they could.
func FuzzPattern(f *testing.F) {
	for _, s := range [][2]string{
		{"a*b", "axxb"}, {"*-*", "a-b-c"}, {"*-*/x", "a-b-c/x"}, {"**/x", "/a/x"}, {"a/**", "a/"}, {"*", "é-ü"}, {"*", "a.b"}, {"{a}/{b}", "x/y"},
		{"{a}.x/**/{b}", "q.x/1/2/z"}, {"a-*-b-*", "a-1-b-b-2"}, {"**-*-b", "a-b-b"}, {"*aa", "aaaa"}, {"é*é", "éaé"}, {`\**`, "*x"}, {"**é-*", "é-a"}, {"*b", "\x80b"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, text, v string) {
		p, err := compile(text)
		if err != nil || len(text) > 40 || len(v) > 100 {
			return
		}
		if again, err := compile(p.quoted()); err != nil || again.quoted() != p.quoted() {
			t.Fatalf("%q is written %q: %v", text, p.quoted(), err)
		}
		for i := range len(p.parts) - 1 {
			if p.parts[i].kind != literal && p.parts[i+1].kind != literal {
				return // captures side by side are told by the parser
			}
		}
		captured := map[string]string{}
		got := p.match(v, func(name, value string) { captured[name] = value })
		if strings.ToValidUTF8(v, "") == v {
			if want := expression(p).MatchString(v); got != want {
				t.Fatalf("%q of %q: %v, %v", text, v, got, want)
			}
		}
		if !got || p.unclear(func(part, part) bool { return true }) != "" {
			return
		}
		for _, value := range captured {
			if words(value) != len(value) || value == "" {
				t.Fatalf("%q captures %q of %q", text, value, v)
			}
		}
		seen := map[string]bool{}
		for _, name := range p.captures() {
			if seen[name] {
				return
			}
			seen[name] = true
		}
		if with, ok := p.with(captured); !ok || !with.match(v, nil) {
			t.Fatalf("%q captures %v of %q, and is not like it with that", text, captured, v)
		}
	})
}

// Whatever is captured stands for itself alone.
func FuzzCaptured(f *testing.F) {
	f.Add("*", "x")
	f.Add("a/**", "a/b")
	f.Add(`\*{b}?`, "x")
	f.Fuzz(func(t *testing.T, captured, v string) {
		p, _ := compile("{a}")
		with, ok := p.with(map[string]string{"a": captured})
		if ok != (captured != "") || ok && with.match(v, nil) != (v == captured) {
			t.Fatalf("%q, captured, is like %q", captured, v)
		}
	})
}

// Whatever stands in an access.yaml: nothing panics, what is wrong has a code and a place, and what
// is taken can be asked.
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
				if _, ok := err.(*Denied); !ok { //nolint:errorlint // it is no other
					t.Fatalf("%T", err)
				}
				continue
			}
			g, _ = g.In([]string{"default"})
			g.Allows(xds.Secret, "a/web/x")
		}
	})
}
