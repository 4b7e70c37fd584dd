package protocoltest

import (
	"fmt"
	"os"
	"regexp"
	"testing"
)

// TestExcusesAreListed compares the excuses and their bounds with the table of docs/simulation-excuses.md.
func TestExcusesAreListed(t *testing.T) {
	text, err := os.ReadFile("../../docs/simulation-excuses.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|.*\\| ([\\d,]+) \\|$").FindAllStringSubmatch(string(text), -1) {
		if rows[m[1]] != "" {
			t.Errorf("%s has two rows", m[1])
		}
		rows[m[1]] = regexp.MustCompile(",").ReplaceAllString(m[2], "")
	}
	for _, x := range Excuses() {
		name := string(x.Excuse)
		if rows[name] != fmt.Sprint(x.PerMillion) || x.Reason == "" {
			t.Errorf("%s (%s) may change the verdict in %d worlds of a million, docs/simulation-excuses.md has %q", name, x.Reason, x.PerMillion, rows[name])
		}
		delete(rows, name)
	}
	for name := range rows {
		t.Errorf("%s is listed, but is not an excuse", name)
	}
}

// TestExcuses checks that an excuse counts only if it changes the verdict, and is not accepted in a world that
// is played without it.
func TestExcuses(t *testing.T) {
	of := func(l *trial, held ...Excuse) bool { return l.excuses(held...) }
	l := newTrial("")
	if of(l) || !of(l, may) || !of(l, may, lapsed) || !of(l, lax) {
		t.Error("a failure is excused without an excuse, or not excused with one")
	}
	if len(l.used) != 3 || l.used[may] != 1 || l.used[lax] != 1 || l.used[several] != 1 {
		t.Errorf("the counts are %v", l.used)
	}
	if !l.allows(func() bool { return true }, may) || l.used[may] != 1 {
		t.Errorf("a rule allows it, but the counts are %v", l.used)
	}
	if l = newTrial(may); of(l, may) || !of(l, may, lapsed) || !of(l, lax) {
		t.Error("the excluded excuse is accepted, or another one is not")
	}
}
