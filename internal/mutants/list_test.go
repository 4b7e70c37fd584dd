package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// all returns the lists.
func all(t *testing.T) (lists []list) {
	t.Helper()
	files, err := filepath.Glob("*.txt")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		l, err := read(f)
		if err != nil {
			t.Fatal(err)
		}
		lists = append(lists, l)
	}
	return lists
}

// Every mutant still fits the code it is to break.
func TestListFits(t *testing.T) {
	for _, l := range all(t) {
		if len(l.mutants) < 25 {
			t.Errorf("%s: %d mutants", l.name, len(l.mutants))
		}
		for _, m := range l.mutants {
			source, err := os.ReadFile(filepath.Join("../..", m.file))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := m.apply(string(source)); err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
		}
	}
}

// pending says of which lists the report is known to be old, and why. Take a
// list off when it was run.
var pending = map[string]string{}

// The report is of the lists that there are, not of what they were once.
func TestReportFits(t *testing.T) {
	report, err := os.ReadFile("../../docs/mutants.md")
	if err != nil {
		t.Fatal(err)
	}
	told := sections(string(report))
	for _, l := range all(t) {
		t.Run(l.name, func(t *testing.T) {
			fits := reported(told[l.name]) == l.sum
			switch why := pending[l.name]; {
			case !fits && why != "":
				t.Skipf("%s.txt was not run since it changed: %s", l.name, why)
			case !fits:
				t.Errorf("docs/mutants.md is not of the present %s.txt (%s): make mutants LISTS=%[1]s", l.name, l.sum)
			case why != "":
				t.Errorf("docs/mutants.md is of the present %s.txt: take it off the pending ones", l.name)
			}
		})
		delete(told, l.name)
	}
	for name := range told {
		t.Errorf("docs/mutants.md has a section of %s, which is no list", name)
	}
}

// What the output of go test says about who noticed.
func TestNoticed(t *testing.T) {
	for out, want := range map[string]string{
		"--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/sub (0.00s)\n--- FAIL: TestB (0.1s)\nFAIL\nFAIL\tx/a\t0.1s\n": "TestA TestB",
		"goleak: Errors on successful test run: found unexpected goroutines:\nFAIL\tx/a\t0.1s\n":                    "goleak",
		"panic: test timed out after 5m0s\nFAIL\tx/a\t0.1s\n":                                                       "test timed out",
		"panic: runtime error: boom\n\nFAIL\tx/a\t0.1s\n":                                                           "panic",
		"signal: killed\nFAIL\tx/a\t0.1s\nFAIL\n":                                                                   "x/a",
		"a.go:1:1: undefined: x\nFAIL\tx/a [build failed]\n":                                                        "",
	} {
		by, err := noticed(out)
		got := ""
		for i, name := range by {
			if i > 0 {
				got += " "
			}
			got += name
		}
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%q: noticed by %q, %v; want %q", out, got, err, want)
		}
	}
}

// What a report says was caught is found in it again.
func TestReport(t *testing.T) {
	l := list{name: "x", sum: "0123456789abcdef", mutants: []mutant{{name: "a", old: "1"}, {name: "b", old: "2"}, {name: "c", old: "3"}}}
	m := l.mutants
	text := section(l, []verdict{{mutant: m[0], failed: []string{"TestA", "TestB"}}, {mutant: m[1]}, {mutant: m[2], failed: []string{"panic"}, kept: true}}, "commit 2", "Run at commit 1. Then")
	got := caughtBefore(text)
	if len(got) != 2 || !slices.Equal(got[m[0].id()], []string{"TestA", "TestB"}) || !slices.Equal(got[m[2].id()], []string{"panic"}) {
		t.Errorf("%v were caught, by\n%s", got, text)
	}
	if reported(text) != l.sum || !strings.Contains(text, "Run at commit 2; 1 were caught before, at commit 1 or later.") {
		t.Error(text)
	}
	if text = section(l, []verdict{{mutant: m[0], kept: true}}, "commit 3", text); !strings.Contains(text, "Run at commit 3; 1 were caught before, at commit 1 or later.") {
		t.Error(text)
	}
	if all := sections(head + "\n" + text + "\n## y\n\nz\n"); all["x"] != text || all["y"] != "## y\n\nz\n" {
		t.Errorf("%q", all)
	}
}
