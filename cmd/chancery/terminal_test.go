package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// Whatever is printed fits a terminal, and nothing of it is lost.
func TestPageFits(t *testing.T) {
	o := &output{format: "table"}
	long := strings.Repeat("a text of some words ", 12) + strings.Repeat("x", 90) + " 東京東京東京東京東京東京東京東京東京東京東京東京東京東京東京東京東京東京東京東京東京東京東京東京 end"
	seen := cannedStatus()
	seen.TurnedAway[0].Text, seen.Config.Warnings[0].Text, seen.Config.Rejected.Errors[0] = long, long, long
	seen.Refusals[1].Error, seen.Troubles[0].Text = long, long
	seen.TurnedAway[0].Node = "node-" + strings.Repeat("n", 70)
	sick := cannedClients()[0]
	sick.Types[1].Nacked.Error = long
	events := cannedEvents()
	events[3].Text = long
	prints := map[string]func(io.Writer){
		"status": func(w io.Writer) {
			overview{Status: &seen, list: &api.ClientList{Items: cannedClients()}}.print(w, o, api.Filter{})
		},
		"client": func(w io.Writer) { card(w, o, sick) },
		"explain": func(w io.Writer) {
			printChain(w, &api.Explanation{Links: []api.Link{{Name: "subscribed", Known: true, OK: true, Text: long, Place: "a.yaml:1:1"}}, Advice: long})
		},
		"events": func(w io.Writer) {
			for _, e := range events {
				printEvent(w, e)
			}
		},
	}
	for name, print := range prints {
		var whole bytes.Buffer
		print(newPage(&whole))
		for _, columns := range []int{60, 80, 120} {
			var b bytes.Buffer
			print(&page{w: &b, columns: columns})
			for line := range strings.Lines(b.String()) {
				if n := cells(strings.TrimSuffix(line, "\n")); n > columns {
					t.Errorf("%s of %d columns: a line of %d: %s", name, columns, n, line)
				}
			}
			if got, want := letters(b.String()), letters(whole.String()); got != want {
				t.Errorf("%s of %d columns is not what is printed whole:\n%s", name, columns, b.String())
			}
		}
	}
}

// letters counts what is printed besides spaces; in which order depends on how cells are folded.
func letters(text string) (n [256]int) {
	for _, b := range []byte(text) {
		if b != ' ' && b != '\n' {
			n[b]++
		}
	}
	return n
}

func TestPage(t *testing.T) {
	var b bytes.Buffer
	p := &page{w: &b, columns: 30}
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

	// The last column goes beneath the others if there is no room for it.
	b.Reset()
	table := table{headers: []string{"KIND", "NODE", "WHY"}}
	table.row("denied", "edge-1", "the identity may not be this node")
	table.print(p, &output{})
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

func TestRepaint(t *testing.T) {
	var b bytes.Buffer
	r := &repaint{w: &b}
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
