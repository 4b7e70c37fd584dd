package inspect

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/internal/admin/api"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/testkit/canned"
)

// All output fits the terminal, without losing text.
func TestStatusFitsTerminal(t *testing.T) {
	o := &cli.Output{Format: "table"}
	long := strings.Repeat("a text of some words ", 12) + strings.Repeat("x", 90) + " 東京東京東京東京東京東京東京東京東京東京東京東京東京東京東京東京東京東京東京東京東京東京東京東京 end"
	seen := canned.Status()
	seen.TurnedAway[0].Text, seen.Config.Warnings[0].Text, seen.Config.Rejected.Errors[0] = long, long, long
	seen.Refusals[1].Error, seen.Troubles[0].Text = long, long
	seen.TurnedAway[0].Node = "node-" + strings.Repeat("n", 70)
	sick := canned.Clients()[0]
	sick.Types[1].Nacked.Error = long
	events := canned.Events()
	events[3].Text = long
	prints := map[string]func(io.Writer){
		"status": func(w io.Writer) {
			overview{Status: &seen, list: &api.ClientList{Items: canned.Clients()}}.print(w, o, adminclient.Filter{})
		},
		"client": func(w io.Writer) { printClientCard(w, o, sick) },
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
		print(cli.NewPage(&whole))
		for _, columns := range []int{60, 80, 120} {
			var b bytes.Buffer
			print(&cli.Page{Out: &b, Columns: columns})
			for line := range strings.Lines(b.String()) {
				if n := cli.Cells(strings.TrimSuffix(line, "\n")); n > columns {
					t.Errorf("%s, %d columns: a line has %d: %s", name, columns, n, line)
				}
			}
			if got, want := letters(b.String()), letters(whole.String()); got != want {
				t.Errorf("%s, %d columns: text is missing:\n%s", name, columns, b.String())
			}
		}
	}
}

// letters counts the bytes of a text, except spaces. Their order depends on the folding of cells.
func letters(text string) (n [256]int) {
	for _, b := range []byte(text) {
		if b != ' ' && b != '\n' {
			n[b]++
		}
	}
	return n
}
