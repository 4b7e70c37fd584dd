package inspect

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/text"
)

// printReplicas prints the number of the store's servers, and the number of servers that do not answer.
func printReplicas(w io.Writer, s *api.Status) {
	n := len(s.Replicas)
	if n < 2 && s.Unsure == "" {
		return
	}
	fmt.Fprintf(w, "SERVERS  %s of the store", text.Number(n))
	if away := unansweredCount(s.Replicas); away > 0 {
		does := "do"
		if away == 1 {
			does = "does"
		}
		fmt.Fprintf(w, "; %s %s not answer: their clients are not counted", text.Number(away), does)
	}
	if s.Unsure != "" {
		fmt.Fprintf(w, "; there may be others: %s", text.Line(s.Unsure))
	}
	fmt.Fprintln(w)
}

func unansweredCount(all []api.Replica) (n int) {
	for _, r := range all {
		if r.Error != "" {
			n++
		}
	}
	return n
}

// unanswered returns notes about the servers that did not answer: their clients are unknown. The participle
// done completes the note, such as "shown".
func unanswered(all []api.Replica, unsure, done string) string {
	var lines []string
	for _, r := range all {
		if r.Error != "" {
			lines = append(lines, fmt.Sprintf("(clients of %s are not %s: it does not answer%s: %s)", text.Line(r.ID), done, lastSeen(r), text.Line(r.Error)))
		}
	}
	if unsure != "" {
		lines = append(lines, fmt.Sprintf("(there may be other servers: %s)", text.Line(unsure)))
	}
	return strings.Join(lines, "\n")
}

func lastSeen(r api.Replica) string {
	if r.Seen == nil {
		return ""
	}
	return ", but did " + text.Since(*r.Seen) + " ago"
}

func replicaTable(all []api.Replica, wide bool) *cli.Table {
	t := &cli.Table{Headers: []string{"SERVER", "REVISION", "CLIENTS", "UP", "STATE"}}
	if wide {
		t.Headers = slices.Insert(t.Headers, 4, "VERSION", "ADDRESS")
	}
	for _, r := range all {
		clients, state := "?", "ok"
		if r.Clients != nil {
			clients = text.Number(r.Clients.Connected)
		}
		switch {
		case r.Error != "":
			state = "does not answer" + lastSeen(r) + ": " + r.Error
		case r.Rejected != nil:
			state = "rejects the newest revision"
			if how := text.Since(r.Rejected.Since); how != "" { // zero: unknown
				state += " for " + how
			}
		case r.Trouble != "":
			state = "does not serve the newest revision: " + r.Trouble
		case r.Unwritten != "":
			state = "does not commit its directory: " + r.Unwritten
		case r.Asked:
			state = "ok, asked"
		}
		row := []string{r.ID, r.Revision, clients, text.Since(r.Since), state}
		if wide {
			row = slices.Insert(row, 4, r.Version, r.Address)
		}
		t.Row(row...)
	}
	return t
}
