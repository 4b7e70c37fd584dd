package main

import (
	"os"
	"os/exec"
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

// The report is of the lists that there are, not of what they were once, and was made at
// commits that led to what there is.
func TestReportFits(t *testing.T) {
	report, err := os.ReadFile("../../docs/mutants.md")
	if err != nil {
		t.Fatal(err)
	}
	told := sections(string(report))
	for _, l := range all(t) {
		t.Run(l.name, func(t *testing.T) {
			if reported(told[l.name]) != l.sum {
				t.Errorf("docs/mutants.md is not of the present %s.txt (%s): make mutants LISTS=%[1]s", l.name, l.sum)
			}
			commits := commitsOf(told[l.name])
			if len(commits) == 0 {
				t.Error("docs/mutants.md does not say at which commit it was run")
			}
			if out, err := exec.Command("git", "rev-parse", "--is-shallow-repository").Output(); err != nil || string(out) != "false\n" {
				t.Skip("this tree has no history in which the commit could be found")
			}
			for _, c := range commits {
				if out, err := exec.Command("git", "merge-base", "--is-ancestor", c, "HEAD").CombinedOutput(); err != nil {
					t.Errorf("docs/mutants.md was made at %s, which did not lead here: make mutants LISTS=%s; %v %s", c, l.name, err, out)
				}
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
	if got := commitsOf(section(l, nil, "commit 0123456789ab", "Run at commit fedcba987654.")); !slices.Equal(got, []string{"0123456789ab"}) {
		t.Errorf("at commits %q", got)
	}
	if got := commitsOf("Run at commit 0123456789ab and what was not committed then; 7 were caught before, at commit fedcba987654 or later."); !slices.Equal(got, []string{"0123456789ab", "fedcba987654"}) {
		t.Errorf("at commits %q", got)
	}
	if all := sections(head + "\n" + text + "\n## y\n\nz\n"); all["x"] != text || all["y"] != "## y\n\nz\n" {
		t.Errorf("%q", all)
	}
}
