package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const code = `package p

// Between reports whether n is between two bounds.
func Between(n, low, high int) bool {
	return n >= low && n < high
}

func First(list []int, want int) (int, bool) {
	at := -1
scan:
	for i, n := range list {
		switch {
		case n == want:
			at = i
			break scan
		case n < 0:
			continue
		}
	}
	return at, at >= 0
}

func Unreached(n int) int { return n + 1 }

var Double = func(n int) int {
	defer func() {}()
	return n * 2
}
`

const tests = `package p

import "testing"

func TestBetween(t *testing.T) {
	if !Between(1, 1, 3) || Between(3, 1, 3) || Between(0, 1, 3) {
		t.Error("Between")
	}
}

func TestFirst(t *testing.T) {
	if at, ok := First([]int{4, 5, 5}, 5); at != 1 || !ok {
		t.Error("First", at, ok)
	}
	if _, ok := First(nil, 5); ok {
		t.Error("found in nothing")
	}
}

func TestDouble(t *testing.T) {
	if Double(3) != 6 {
		t.Error("Double")
	}
}
`

func keys(mutants []*mutant) []string {
	var keys []string
	for _, m := range mutants {
		keys = append(keys, m.key())
	}
	return keys
}

func TestFind(t *testing.T) {
	mutants, err := find("p", "p/p.go", []byte(code))
	if err != nil {
		t.Fatal(err)
	}
	got := keys(mutants)
	for _, want := range []string{
		"p Between | drop term of && | n >= low",
		"p Between | boundary | n < high",
		"p Between | return negated | n >= low && n < high",
		"p First | drop case | case n == want: at = i break scan",
		"p First | swap break | break scan",
		"p First | swap continue | continue",
		"p First | return zero 1 | return at, at >= 0",
		"p First | return negated | at >= 0",
		"p First | remove | at = i",
		"p First | +1 | 0",
		"p First | +1 | 0 | #2",
		"p Unreached | arithmetic | n + 1",
		"p var Double | remove | defer func() {}()",
		"p var Double | return zero | return n * 2",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("missing: %s", want)
		}
	}
	sorted := slices.Sorted(slices.Values(got))
	if len(slices.Compact(sorted)) != len(got) {
		t.Errorf("two mutants have the same key:\n%s", strings.Join(got, "\n"))
	}
	if t.Failed() {
		t.Log(strings.Join(got, "\n"))
	}
}

// Each mutant, put into the file alone, is valid Go.
func TestMutantsParse(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		mutants, err := find("tools/mutants", file, src)
		if err != nil {
			t.Fatal(err)
		}
		number := map[*mutant]int{}
		for i, m := range mutants {
			number[m] = i + 1
			text, _ := weave(src, []*mutant{m}, number)
			if _, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution); err != nil {
				t.Fatalf("%v: %v", m, err)
			}
		}
	}
}

func TestSample(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"go.mod": "module example.com/m\n\ngo 1.26\n", "p/p.go": code, "p/p_test.go": tests} {
		err := os.MkdirAll(filepath.Dir(name), 0o777)
		if err == nil {
			err = os.WriteFile(name, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	root, module, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	p, all, err := load(root, module, "p")
	if err != nil {
		t.Fatal(err)
	}
	r, err := settings{n: 100, seed: 1, parallel: 2, slow: limit(nil)}.sample(p, all, nil)
	if err != nil {
		t.Fatal(err)
	}
	known := survivors{"p var Double | remove | defer func() {}()": "equivalent: the function does nothing"}
	alive, equivalent := r.alive(known)
	got := keys(alive)
	for _, want := range []string{ // that no test reaches, or that no test notices
		"p Unreached | arithmetic | n + 1",
		"p Unreached | return zero | return n + 1",
		"p First | +1 | 0",
		"p First | swap continue | continue",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("missing survivor: %s", want)
		}
	}
	for _, m := range alive {
		if m.fn == "Between" && m.kind != "flip" || m.fn == "var Double" {
			t.Errorf("not caught: %v", m)
		}
		if m.fn == "Unreached" && !strings.HasPrefix(r.why(m, known), "not covered") {
			t.Errorf("%v: %s", m, r.why(m, known))
		}
	}
	if equivalent != 1 {
		t.Errorf("%d equivalent mutants", equivalent)
	}
	if n := r.count(caught); n < 15 {
		t.Errorf("only %d of %d mutants are caught", n, len(r.mutants))
	}
	if r.count(invalid) > 0 {
		t.Error("mutants that do not compile count")
	}

	// The report keeps the sections of other packages.
	other := *r
	other.pkg = "other"
	for _, r := range []*result{&other, r, r} {
		if err := r.update("report.md", known); err != nil {
			t.Fatal(err)
		}
	}
	report, err := os.ReadFile("report.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, once := range []string{"# Report", "\n## other\n", "\n## p\n", "\n| `other` |", "\n| `p` |"} {
		if n := strings.Count("\n"+string(report), "\n"+strings.TrimPrefix(once, "\n")); n != 1 {
			t.Errorf("%q is in the report %d times", once, n)
		}
	}
	if t.Failed() {
		t.Logf("%s\n%s", strings.Join(got, "\n"), report)
	}
}

func TestSurvivorsFile(t *testing.T) {
	known, err := readSurvivors("survivors.txt")
	if err != nil {
		t.Fatal(err)
	}
	for key, sentence := range known {
		if sentence == "" {
			t.Errorf("no sentence: %s", key)
		}
	}
	file := filepath.Join(t.TempDir(), "survivors.txt")
	for text, ok := range map[string]bool{
		"# comment\np f | remove | x++\n    equivalent: nobody\n    reads x\n": true,
		"    a sentence without a key\n":                                       false,
		"p f | remove | x++\n    one\np f | remove | x++\n    two\n":           false,
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := readSurvivors(file)
		if ok != (err == nil) {
			t.Errorf("%q: %v", text, err)
		}
		if ok && got["p f | remove | x++"] != "equivalent: nobody reads x" {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// Each fault of the history fits the code: a change of the code that moves one must move it here, too.
func TestFaultsFile(t *testing.T) {
	t.Chdir("../..")
	root, module, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	dirs, err := filepath.Glob("protocol/internal/*")
	if err != nil {
		t.Fatal(err)
	}
	var pkgs []*pkg
	mutants := map[*pkg][]*mutant{}
	for _, dir := range append(dirs, "protocol") {
		p, all, err := load(root, module, dir)
		if err != nil {
			t.Fatal(err)
		}
		pkgs, mutants[p] = append(pkgs, p), all
	}
	if err := placeFaults("tools/mutants/faults.txt", pkgs, mutants); err != nil {
		t.Error(err)
	}
}

func TestParseDiff(t *testing.T) {
	changed := parseDiff(`diff --git a/p/p.go b/p/p.go
--- a/p/p.go
+++ b/p/p.go
@@ -3 +3,2 @@ func f() {
-a
+b
+c
@@ -9,2 +10,0 @@ func g() {
-d
-e
@@ -20 +19 @@
-f
+g
--- a/p/p_test.go
+++ b/p/p_test.go
@@ -1 +1 @@
-f
+g
--- a/gone.go
+++ /dev/null
@@ -1,2 +0,0 @@
-f
-g
`)
	if len(changed) != 1 || !slices.Equal(changed["p/p.go"], []span{{3, 4}, {19, 19}}) {
		t.Error(changed)
	}
}

func TestCovered(t *testing.T) {
	mutants, err := find("p", "p/p.go", []byte(code))
	if err != nil {
		t.Fatal(err)
	}
	// A profile in which the loop of First is reached, but not the case n < 0.
	blocks := []block{
		{"m/p/p.go", 9, 2, 11, 26, true},
		{"m/p/p.go", 12, 3, 12, 10, true},
		{"m/p/p.go", 13, 18, 15, 14, true},
		{"m/p/p.go", 16, 14, 17, 12, false},
	}
	got := keys(mutants)
	reached := covered(&pkg{path: "m/p"}, mutants, blocks)
	for key, want := range map[string]bool{
		"p First | equality | n == want":             true, // in no block, but in a function that is reached
		"p First | remove | at = i":                  true,
		"p First | drop case | case n < 0: continue": false,
		"p Between | boundary | n < high":            false,
		"p Unreached | arithmetic | n + 1":           false,
	} {
		i := slices.Index(got, key)
		if i < 0 {
			t.Fatalf("no mutant %s", key)
		}
		if reached[mutants[i]] != want {
			t.Errorf("%s: reached %v", key, !want)
		}
	}
}
