package findings

import "testing"

// Names of files and groups, and their contents, may be hostile: they cannot move the terminal's cursor
// or forge a line. The caret is still below the error.
func TestProblemOnATerminal(t *testing.T) {
	p := Problem{File: "a\x1b[2J.yaml", Pos: Pos{3, 7}, Group: "x\u202ey", Message: "wrong\nok: 4 resources", Excerpt: "\ta\x1b: b", Caret: 5}
	want := `a\x1b[2J.yaml:3:7: group x\u202ey: wrong\nok: 4 resources` + "\n    3 | \ta" + `\x1b: b` + "\n        \t       ^"
	if got := p.Text(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := p.Error(); got != `a\x1b[2J.yaml:3:7: group x\u202ey: wrong\nok: 4 resources` {
		t.Error(got)
	}
}
