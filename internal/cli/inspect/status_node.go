package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/admin/api"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/text"
)

// printNodeStatus prints the clients with a node id.
func printNodeStatus(cmd *cobra.Command, a *cli.AdminFlags, o *cli.Output, node string, replicas bool) error {
	list, err := clientsOf(cmd, a, node, replicas)
	if err != nil {
		return err
	}
	if err := mayBeElsewhere(list, node); err != nil {
		if !o.ForPeople() {
			return errors.Join(cli.PrintData(o, cmd.OutOrStdout(), list, list.Items, nil), err)
		}
		return err
	}
	if !o.ForPeople() {
		err = cli.PrintData(o, cmd.OutOrStdout(), list, list.Items, func(c api.Client) string { return cmp.Or(c.Node, c.Path) })
	} else {
		w := o.Page(cmd)
		printClientCards(w, o, list)
		a.PrintPage(w, o, nil, "clients", node)
	}
	if err == nil && slices.ContainsFunc(list.Items, func(c api.Client) bool {
		return c.Left == nil && (c.State == api.Nacked || c.State == api.Stale)
	}) {
		return cli.ErrNo
	}
	return err
}

// clientsOf requests the clients with a node id.
func clientsOf(cmd *cobra.Command, a *cli.AdminFlags, node string, replicas bool) (*api.ClientList, error) {
	list, err := cli.Ask(cmd, a, func(ctx context.Context, d *adminclient.Client) (*api.ClientList, error) {
		if replicas {
			return d.ClientOfAll(ctx, node)
		}
		return d.Client(ctx, node)
	})
	if err == nil && len(list.Items) == 0 && len(list.Replicas) == 0 {
		err = cli.FailWith(cli.NotFound, fmt.Errorf("no client has the node id %q", text.Line(node)), "chancery get clients lists the clients")
	}
	return list, err
}

// mayBeElsewhere returns an error if no server that answered has the node, and some servers did not
// answer.
func mayBeElsewhere(list *api.ClientList, node string) error {
	if len(list.Items) > 0 {
		return nil
	}
	n, away := len(list.Replicas), unansweredCount(list.Replicas)
	where := fmt.Sprintf("but %s did not answer", text.Amount(away, "server"))
	if away == 0 {
		where = "but there may be other servers"
	}
	return cli.FailWith(cli.Failed, fmt.Errorf("none of the %d servers of the store that answered has the node id %q, %s", n-away, text.Line(node), where), strings.ReplaceAll(unanswered(list.Replicas, list.Unsure, "shown"), "\n", " "))
}

func printClientCards(w io.Writer, o *cli.Output, list *api.ClientList) {
	for i, c := range list.Items {
		if i > 0 {
			fmt.Fprintln(w)
		}
		printClientCard(w, o, c)
	}
	if text := unanswered(list.Replicas, list.Unsure, "shown"); text != "" {
		fmt.Fprintf(w, "\n%s\n", text)
	}
}

// printClientCard prints all details of a client.
func printClientCard(w io.Writer, o *cli.Output, c api.Client) {
	line := func(title, format string, args ...any) {
		fmt.Fprintf(w, "%-9s%s\n", title, text.Line(fmt.Sprintf(format, args...)))
	}
	line("NODE", "%s%s", cmp.Or(c.Node, c.Path), text.Prefixed(", cluster ", c.Cluster))
	state := string(c.State)
	if c.Left != nil {
		state = fmt.Sprintf("left %s ago: %s%s", text.Since(c.Left.At), c.Left.Code, text.Prefixed(": ", c.Left.Why))
	}
	line("STATE", "%s", state)
	line("CLIENT", "%s%s, since %s%s", cli.OrDash(c.Agent), text.Prefixed(" at ", c.Peer), text.Since(c.Since), text.Prefixed(", identity ", c.Identity))
	if c.Replica != "" {
		line("SERVER", "%s", c.Replica)
	}
	line("GROUPS", "%s", cli.OrDash(strings.Join(c.Groups, ", ")))
	for i, s := range streamLines(c.Streams, o.Wide()) {
		title := "STREAMS"
		if i > 0 {
			title = ""
		}
		line(title, "%s", s)
	}
	t := cli.Table{Headers: []string{"TYPE", "STATE", "SUBSCRIBES TO", "SENT", "ACCEPTED"}}
	if o.Wide() {
		t.Headers = append(t.Headers, "NONCE", "RESOURCES", "BYTES", "STREAM")
	}
	for _, s := range typeRows(c.Types, o.Wide()) {
		row := []string{s.Type, stateText(s.TypeStatus), subscription(s.TypeStatus), messageText(s.Sent), messageText(s.Acked)}
		if s.streams > 1 {
			row[2] += fmt.Sprintf(" on %d streams", s.streams)
		}
		if o.Wide() {
			if m := s.Sent; m != nil {
				size := "" // the size is unknown
				if m.Bytes > 0 {
					size = cli.BytesText(m.Bytes)
				}
				row = append(row, m.Nonce, fmt.Sprintf("%d, %d removed", m.Resources, m.Removed), size, fmt.Sprint(s.Stream))
			} else {
				row = append(row, "", "", "", fmt.Sprint(s.Stream))
			}
		}
		t.Row(row...)
	}
	if len(t.Rows) > 0 {
		fmt.Fprintln(w)
		t.Print(w, o)
	}
	for _, s := range c.Types {
		if len(s.WaitsFor) > 0 {
			fmt.Fprintf(w, "\n%s waits until the client has accepted %s\n", s.Type, text.Line(refNames(s.WaitsFor)))
		}
		if s.Nacked != nil {
			nackText(w, s, c.Left != nil)
		}
	}
	if len(c.Troubles) > 0 {
		fmt.Fprintln(w)
		t := cli.Table{Headers: []string{"LOOKS WRONG", "SINCE", "WHAT"}}
		for _, x := range c.Troubles {
			t.Row(x.Code, text.Since(x.Since), x.Text)
		}
		t.Print(w, o)
	}
}

// streamLines returns a line for each stream. Without wide, the streams of a type with a stream for each name
// have one line.
func streamLines(all []api.Stream, wide bool) (lines []string) {
	for i, s := range all {
		same := func(o api.Stream) bool { return !wide && o.API == s.API && o.Variant == s.Variant }
		if slices.ContainsFunc(all[:i], same) {
			continue
		}
		id := fmt.Sprint(s.ID)
		n := 0
		for _, o := range all[i:] {
			if same(o) {
				n++
			}
		}
		if n > 1 {
			id = fmt.Sprintf("%d and %d more", s.ID, n-1)
		}
		lines = append(lines, fmt.Sprintf("%s: %s %s, since %s", id, s.API, s.Variant, text.Since(s.Since)))
	}
	return lines
}

// A typeRow is the state of a type on one or more streams.
type typeRow struct {
	api.TypeStatus
	streams int
}

// typeRows returns a row for each type of each stream. Without wide, the streams of a type on which the client has
// accepted all resources of its names have one row, with the newest messages.
func typeRows(all []api.TypeStatus, wide bool) (rows []typeRow) {
	for _, s := range all {
		at := slices.IndexFunc(rows, func(o typeRow) bool { return o.URL == s.URL && isSyncedByName(o.TypeStatus) })
		if wide || at < 0 || !isSyncedByName(s) {
			rows = append(rows, typeRow{s, 1})
			continue
		}
		is := &rows[at]
		is.streams++
		is.Names += s.Names
		is.Sent, is.Acked = newest(is.Sent, s.Sent), newest(is.Acked, s.Acked)
	}
	return rows
}

func isSyncedByName(s api.TypeStatus) bool { return s.State == api.Synced && !s.Wildcard }

// newest returns the later one of two messages; nil if both are nil.
func newest(a, b *api.Message) *api.Message {
	if a == nil || b != nil && b.At.After(a.At) {
		return b
	}
	return a
}

// nackText prints the resources that a client refuses, with their places. For a disconnected client it
// uses the past tense.
func nackText(w io.Writer, s api.TypeStatus, left bool) {
	n := s.Nacked
	what := "refused for " + text.Since(n.Since)
	if left {
		what = "had refused"
	}
	fmt.Fprintf(w, "\n%s %s, last %s ago (nonce %s, version %s):\n  %s\n", s.Type, what, text.Since(n.At), text.Line(n.Nonce), cli.ShortVersion(text.Line(n.Version)), text.Line(n.Error))
	for _, r := range n.Resources {
		fmt.Fprintf(w, "  %s %s%s%s\n", text.Line(r.Type), text.Line(r.Name), text.Prefixed(" at ", text.Line(r.Place)), text.Prefixed(": ", text.Line(r.Reason)))
	}
	for _, k := range n.Kept {
		has := "has no resource of that name"
		switch {
		case k.Others:
			has = "runs on version " + cli.ShortVersion(text.Line(k.Kept)) + ", which other clients accepted"
		case k.Kept != "":
			has = "keeps version " + cli.ShortVersion(text.Line(k.Kept))
		}
		fmt.Fprintf(w, "  in quarantine: %s version %s; it %s (%s)\n", text.Line(k.Name), cli.ShortVersion(text.Line(k.Refused)), has, text.Line(k.Why))
	}
}

func subscription(s api.TypeStatus) string {
	switch {
	case s.Wildcard && s.Names > 0:
		return "all, " + text.Amount(s.Names, "name")
	case s.Wildcard:
		return "all"
	case s.Names > 0:
		return text.Amount(s.Names, "name")
	}
	return "nothing"
}

func messageText(m *api.Message) string {
	if m == nil {
		return ""
	}
	return cli.ShortVersion(m.Version) + " " + text.Since(m.At) + " ago"
}
