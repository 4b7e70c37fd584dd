package glob

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMatch(t *testing.T) {
	for _, tt := range []struct {
		pattern string
		matches []string
		others  []string
	}{
		{"edge", []string{"edge"}, []string{"", "Edge", "edge-1", "edg"}},
		{"", []string{""}, []string{"a"}},
		{"edge-*", []string{"edge-1", "edge-a_b-c", "edge-é"}, []string{"edge-", "edge", "edge-1.prod", "edge-1/admin", "an-edge-1"}},
		{"*", []string{"a", "a-b_1", "é-ü"}, []string{"", "a.b", "a b", "a:b"}},
		{"**", []string{"", "a", "a.b/c"}, nil},
		{"edge-**", []string{"edge-", "edge-1.prod", "edge-1/admin"}, []string{"edge", "an-edge-1"}},
		{"**.example.com", []string{".example.com", "a.b.example.com"}, []string{"example.com", "a.example.com.org"}},
		{"**prod**", []string{"prod", "a.prod/b", "prodprod"}, []string{"", "pro.d"}},
		{"a**b**b", []string{"abb", "axbyb", "a.b.b"}, []string{"ab", "aab", "abbc"}},
		{"a*b*b", []string{"axbyb", "abbbb"}, []string{"abb", "ab", "a.b.b"}},
		{"*-*/x", []string{"a-b/x", "a-b-c/x"}, []string{"-/x", "a/x", "a-b-c/y"}},
		{"é*é", []string{"éaé"}, []string{"éé"}},
		{`\**`, []string{"*x"}, []string{"x", "*"}},
		{`a\?\{b\}\\`, []string{`a?{b}\`}, []string{`ax{b}\`}},
		{"*b", []string{"ab"}, []string{"\x80b"}},
	} {
		p, err := Compile(tt.pattern)
		if err != nil {
			t.Errorf("%q: %v", tt.pattern, err)
			continue
		}
		for _, text := range tt.matches {
			if !p.Match(text, nil) {
				t.Errorf("%q does not match %q", tt.pattern, text)
			}
		}
		for _, text := range tt.others {
			if p.Match(text, nil) {
				t.Errorf("%q matches %q", tt.pattern, text)
			}
		}
	}
}

func TestCompileErrors(t *testing.T) {
	for pattern, want := range map[string]string{
		"a?":                              `? has no meaning in a pattern: write \? for the character`,
		"a}":                              `} has no meaning here`,
		"web-{a,b}":                       `{ has no meaning here: write a list for one of several values, and \{ for the character`,
		`a\b`:                             `\ must precede one of *, ?, {, } and \`,
		`a\`:                              `\ must precede one of *, ?, {, } and \`,
		"***":                             "two wildcards next to each other",
		"**a*b**":                         "only plain text can be between two **",
		strings.Repeat("x", MaxPattern+1): "a pattern of 513 bytes: at most 512 are allowed",
		"\xff":                            "the pattern is not valid UTF-8",
	} {
		if _, err := Compile(pattern); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.20q: got %v, want %s", pattern, err, want)
		}
	}
	for pattern, want := range map[string]string{
		"{a": "{ needs a name", "{a b}": "{ needs a name", "{}": "{ needs a name", "a}": "} has no meaning in a pattern",
		"**/{a}/**": "a pattern with a capture can have ** only once",
	} {
		if _, err := CompileCaptures(pattern); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", pattern, err, want)
		}
	}
}

// A pattern that has captures is valid for Compile only without them.
func TestCapturesNeedCompileCaptures(t *testing.T) {
	if _, err := Compile("{a}"); err == nil {
		t.Error("Compile accepts a capture")
	}
	p, err := CompileCaptures("{a}.x/**/{b}")
	if err != nil || !slices.Equal(p.Captures(), []string{"a", "b"}) {
		t.Fatal(p.Captures(), err)
	}
}

func TestPrefix(t *testing.T) {
	for pattern, want := range map[string]struct {
		text  string
		whole bool
	}{"": {"", true}, "a": {"a", true}, `a\*`: {"a*", true}, "a-*": {"a-", false}, "**a": {"", false}} {
		p, err := Compile(pattern)
		if err != nil {
			t.Fatal(err)
		}
		if text, whole := p.Prefix(); text != want.text || whole != want.whole {
			t.Errorf("%q: %q, %v", pattern, text, whole)
		}
	}
}

// The worst pattern with the longest text takes a few milliseconds, and a longer text does not match.
// The values of captures join the literals around them, because only the first literal is the prefix.
func TestWith(t *testing.T) {
	all := map[string]string{"x": "1*", "y": "2", "none": ""}
	for _, tt := range []struct {
		pattern, prefix string // prefix "": not all captures have a value
		parts           []Part
	}{
		{"a{x}b", "a1*b", []Part{{Literal, "a1*b"}}},
		{"{x}{y}", "1*2", []Part{{Literal, "1*2"}}},
		{"a{x}{y}b*c{y}/**", "a1*2b", []Part{{Literal, "a1*2b"}, {Kind: Word}, {Literal, "c2/"}, {Kind: Any}}},
		{"a*{x}", "a", []Part{{Literal, "a"}, {Kind: Word}, {Literal, "1*"}}},
		{"plain", "plain", []Part{{Literal, "plain"}}},
		{"a{x}{missing}", "", nil},
		{"a{none}", "", nil},
	} {
		p, err := CompileCaptures(tt.pattern)
		if err != nil {
			t.Fatal(err)
		}
		before := slices.Clone(p.parts)
		with, ok := p.With(all)
		if ok != (tt.prefix != "") || !slices.Equal(with.parts, tt.parts) {
			t.Errorf("%s: %q, %v", tt.pattern, with.parts, ok)
		}
		if prefix, _ := with.Prefix(); prefix != tt.prefix {
			t.Errorf("%s: prefix %q, want %q", tt.pattern, prefix, tt.prefix)
		}
		if !slices.Equal(p.parts, before) {
			t.Errorf("%s has changed: %q", tt.pattern, p.parts)
		}
	}
}

func TestMatchIsBounded(t *testing.T) {
	for _, pattern := range []string{strings.Repeat("a*", 255) + "b", "**" + strings.Repeat("a*", 250) + "b", strings.Repeat("**a", 160) + "**b"} {
		p, err := Compile(pattern)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if p.Match(strings.Repeat("a", MaxText), nil) {
			t.Errorf("%.10q matches", pattern)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("%.10q: %v", pattern, took)
		}
		if p.Match(strings.Repeat("a", MaxText)+"b", nil) {
			t.Errorf("%.10q matches a text that is too long", pattern)
		}
	}
	long, _ := Compile("a*")
	if !long.Match(strings.Repeat("a", MaxText), nil) {
		t.Error("the longest text does not match")
	}
}

// expression returns the regular expression of a pattern.
func expression(p Pattern) *regexp.Regexp {
	const word = `[-_0-9\p{L}\p{M}\p{Nd}]`
	var b strings.Builder
	b.WriteString(`(?s)^`)
	for _, w := range p.parts {
		switch w.Kind {
		case Literal:
			b.WriteString(regexp.QuoteMeta(w.Text))
		case Word:
			b.WriteString(word + "+")
		case Capture:
			b.WriteString("(" + word + "+)")
		case Any:
			b.WriteString(".*")
		}
	}
	b.WriteString("$")
	return regexp.MustCompile(b.String())
}

// A pattern matches the same texts as its regular expression, and its captures are the only possible ones.
func FuzzPattern(f *testing.F) {
	for _, s := range [][2]string{
		{"a*b", "axxb"}, {"*-*", "a-b-c"}, {"*-*/x", "a-b-c/x"}, {"**/x", "/a/x"}, {"a/**", "a/"}, {"*", "é-ü"}, {"*", "a.b"}, {"{a}/{b}", "x/y"},
		{"{a}.x/**/{b}", "q.x/1/2/z"}, {"a-*-b-*", "a-1-b-b-2"}, {"**-*-b", "a-b-b"}, {"*aa", "aaaa"}, {"é*é", "éaé"}, {`\**`, "*x"}, {"**é-*", "é-a"}, {"*b", "\x80b"},
		{"edge-*", "edge-1"}, {`a\*b*\\`, `a*xb\`}, {"**😀**", "😀"}, {"**a**a**a**b", "aaaa"}, {"a**b**b", "axbyb"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, text, v string) {
		p, err := CompileCaptures(text)
		if err != nil || len(text) > 40 || len(v) > 100 {
			return
		}
		if again, err := CompileCaptures(p.String()); err != nil || again.String() != p.String() {
			t.Fatalf("%q is written %q: %v", text, p.String(), err)
		}
		for i := range len(p.parts) - 1 {
			if p.parts[i].Kind != Literal && p.parts[i+1].Kind != Literal {
				return // the reader of access.yaml reports captures next to a wildcard
			}
		}
		captured := map[string]string{}
		got := p.Match(v, func(name, value string) { captured[name] = value })
		if strings.ToValidUTF8(v, "") == v {
			if want := expression(p).MatchString(v); got != want {
				t.Fatalf("%q of %q: %v, %v", text, v, got, want)
			}
		}
		if !got || p.Ambiguous(func(Part, Part) bool { return true }) != "" {
			return
		}
		for _, value := range captured {
			if wordLen(value) != len(value) || value == "" {
				t.Fatalf("%q captures %q of %q", text, value, v)
			}
		}
		seen := map[string]bool{}
		for _, name := range p.Captures() {
			if seen[name] {
				return
			}
			seen[name] = true
		}
		if with, ok := p.With(captured); !ok || !with.Match(v, nil) {
			t.Fatalf("%q captures %v of %q, and does not match it with these", text, captured, v)
		}
	})
}

// A captured text matches only itself.
func FuzzCaptured(f *testing.F) {
	f.Add("*", "x")
	f.Add("a/**", "a/b")
	f.Add(`\*{b}?`, "x")
	f.Fuzz(func(t *testing.T, captured, v string) {
		p, _ := CompileCaptures("{a}")
		with, ok := p.With(map[string]string{"a": captured})
		if ok != (captured != "") || ok && with.Match(v, nil) != (v == captured) {
			t.Fatalf("the captured text %q matches %q", captured, v)
		}
	})
}
