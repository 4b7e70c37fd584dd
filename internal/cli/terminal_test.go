package cli

import (
	"bytes"
	"testing"
)

func TestPageFoldsLines(t *testing.T) {
	var b bytes.Buffer
	p := &Page{Out: &b, Columns: 30}
	for _, part := range []string{"SERVER   one two three", " four five six seven\n  indented text that goes on and on\n", "short\n"} {
		if n, err := p.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	want := `SERVER   one two three four
         five six seven
  indented text that goes on
    and on
short
`
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}

	// A last column without enough room moves below the others.
	b.Reset()
	table := Table{Headers: []string{"KIND", "NODE", "WHY"}}
	table.Row("denied", "edge-1", "the identity may not be this node")
	table.Print(p, &Output{})
	want = `KIND    NODE
    WHY
denied  edge-1
    the identity may not be
    this node
`
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
}

func TestRepaintDrawsInPlace(t *testing.T) {
	var b bytes.Buffer
	r := &Repaint{w: &b}
	for _, step := range []struct {
		text  string
		lines int
		want  string
	}{
		{"a\nb\n", 24, "a\nb\n"},
		{"c\n", 24, "\x1b[2A\x1b[Jc\n"},
		{"1\n2\n3\n4\n", 4, "\x1b[H\x1b[2J1\n2\n(2 lines more: without -w all are shown)\n"},
	} {
		b.Reset()
		if err := r.paint(step.text, 80, step.lines); err != nil || b.String() != step.want {
			t.Errorf("%q: %q, %v", step.text, b.String(), err)
		}
	}
}
