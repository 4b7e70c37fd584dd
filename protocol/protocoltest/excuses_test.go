package protocoltest

import (
	"fmt"
	"os"
	"regexp"
	"testing"
)

// Each excuse has a row in docs/simulation-excuses.md, which says the same bound, and each row is
// an excuse.
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
			t.Errorf("%s (%s) may turn the verdict in %d worlds of a million, docs/simulation-excuses.md says %q", name, x.Reason, x.PerMillion, rows[name])
		}
		delete(rows, name)
	}
	for name := range rows {
		t.Errorf("%s is listed, and is no excuse", name)
	}
}

// An excuse is counted if nothing else speaks for the session, and is not to be had
// where a world is played without it.
func TestExcuses(t *testing.T) {
	of := func(l *trial, held ...Excuse) bool { return l.excuses(held...) }
	l := newTrial("")
	if of(l) || !of(l, may) || !of(l, may, lapsed) || !of(l, lax) {
		t.Error("no excuse excuses, or one does not")
	}
	if len(l.used) != 3 || l.used[may] != 1 || l.used[lax] != 1 || l.used[several] != 1 {
		t.Errorf("counted are %v", l.used)
	}
	if !l.lets(func() bool { return true }, may) || l.used[may] != 1 {
		t.Errorf("by a rule it is right, and counted are %v", l.used)
	}
	if l = newTrial(may); of(l, may) || !of(l, may, lapsed) || !of(l, lax) {
		t.Error("without one, that excuses, or another does not")
	}
}
