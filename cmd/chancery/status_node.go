package main

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
	"github.com/chancery-xds/chancery/internal/text"
)

// statusOf prints the clients of one node id.
func statusOf(cmd *cobra.Command, a *asking, o *output, node string, replicas bool) error {
	list, err := clientsOf(cmd, a, node, replicas)
	if err != nil {
		return err
	}
	if err := elsewhere(list, node); err != nil {
		if !o.people() {
			return errors.Join(data(o, cmd.OutOrStdout(), list, list.Items, nil), err)
		}
		return err
	}
	if !o.people() {
		err = data(o, cmd.OutOrStdout(), list, list.Items, func(c api.Client) string { return cmp.Or(c.Node, c.Path) })
	} else {
		cards(o.page(cmd), o, list)
	}
	if err == nil && slices.ContainsFunc(list.Items, func(c api.Client) bool {
		return c.Left == nil && (c.State == api.Nacked || c.State == api.Stale)
	}) {
		return errNo
	}
	return err
}

// clientsOf asks for the clients of one node id.
func clientsOf(cmd *cobra.Command, a *asking, node string, replicas bool) (*api.ClientList, error) {
	list, err := ask(cmd, a, func(ctx context.Context, d *api.Daemon) (*api.ClientList, error) {
		if replicas {
			return d.ClientOfAll(ctx, node)
		}
		return d.Client(ctx, node)
	})
	if err == nil && len(list.Items) == 0 && len(list.Replicas) == 0 {
		err = failWith(notFound, fmt.Errorf("no client has the node id %q", text.Line(node)), "chancery get clients lists them")
	}
	return list, err
}

// elsewhere is an error if no client is known of a node, and servers that do not answer may have it.
func elsewhere(list *api.ClientList, node string) error {
	if len(list.Items) > 0 {
		return nil
	}
	n, away := len(list.Replicas), silentOf(list.Replicas)
	where := fmt.Sprintf("and may be at one of the %d that did not", away)
	if away == 0 {
		where = "and there may be others"
	}
	return failWith(failed, fmt.Errorf("node id %q is at none of the %d servers of the store that answered, %s", text.Line(node), n-away, where), strings.ReplaceAll(silent(list.Replicas, list.Unsure), "\n", " "))
}

func cards(w io.Writer, o *output, list *api.ClientList) {
	for i, c := range list.Items {
		if i > 0 {
			fmt.Fprintln(w)
		}
		card(w, o, c)
	}
	if text := silent(list.Replicas, list.Unsure); text != "" {
		fmt.Fprintf(w, "\n%s\n", text)
	}
}

// card prints all that is known of a client.
func card(w io.Writer, o *output, c api.Client) {
	line := func(title, format string, args ...any) {
		fmt.Fprintf(w, "%-9s%s\n", title, text.Line(fmt.Sprintf(format, args...)))
	}
	line("NODE", "%s%s", cmp.Or(c.Node, c.Path), after(", cluster ", c.Cluster))
	state := string(c.State)
	if c.Left != nil {
		state = fmt.Sprintf("left %s ago: %s%s", since(c.Left.At), c.Left.Code, after(": ", c.Left.Why))
	}
	line("STATE", "%s", state)
	line("CLIENT", "%s%s, since %s%s", orDash(c.Agent), after(" at ", c.Peer), since(c.Since), after(", identity ", c.Identity))
	if c.Replica != "" {
		line("SERVER", "%s", c.Replica)
	}
	line("GROUPS", "%s", orDash(strings.Join(c.Groups, ", ")))
	for i, s := range c.Streams {
		title := "STREAMS"
		if i > 0 {
			title = ""
		}
		line(title, "%d: %s %s, since %s", s.ID, s.API, s.Variant, since(s.Since))
	}
	t := table{headers: []string{"TYPE", "STATE", "SUBSCRIBES TO", "SENT", "ACCEPTED"}}
	if o.wide() {
		t.headers = append(t.headers, "NONCE", "RESOURCES", "BYTES", "STREAM")
	}
	for _, s := range c.Types {
		row := []string{s.Type, stateText(s), subscription(s), messageText(s.Sent), messageText(s.Acked)}
		if o.wide() {
			if m := s.Sent; m != nil {
				size := "" // not known
				if m.Bytes > 0 {
					size = bytesText(m.Bytes)
				}
				row = append(row, m.Nonce, fmt.Sprintf("%d, %d removed", m.Resources, m.Removed), size, fmt.Sprint(s.Stream))
			} else {
				row = append(row, "", "", "", fmt.Sprint(s.Stream))
			}
		}
		t.row(row...)
	}
	if len(t.rows) > 0 {
		fmt.Fprintln(w)
		t.print(w, o)
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
		t := table{headers: []string{"LOOKS WRONG", "SINCE", "WHAT"}}
		for _, x := range c.Troubles {
			t.row(x.Code, since(x.Since), x.Text)
		}
		t.print(w, o)
	}
}

// nackText says what a client refuses, and where it is. One that has left refuses nothing any more.
func nackText(w io.Writer, s api.TypeStatus, left bool) {
	n := s.Nacked
	what := "refused for " + since(n.Since)
	if left {
		what = "had refused"
	}
	fmt.Fprintf(w, "\n%s %s, last %s ago (nonce %s, version %s):\n  %s\n", s.Type, what, since(n.At), text.Line(n.Nonce), short(text.Line(n.Version)), text.Line(n.Error))
	for _, r := range n.Resources {
		fmt.Fprintf(w, "  %s %s%s%s\n", text.Line(r.Type), text.Line(r.Name), after(" at ", text.Line(r.Place)), after(": ", text.Line(r.Reason)))
	}
	for _, k := range n.Kept {
		has := "has nothing of that name"
		if k.Kept != "" {
			has = "keeps version " + short(text.Line(k.Kept))
		}
		fmt.Fprintf(w, "  in quarantine: %s version %s; it %s (%s)\n", text.Line(k.Name), short(text.Line(k.Refused)), has, text.Line(k.Why))
	}
}

func subscription(s api.TypeStatus) string {
	switch {
	case s.Wildcard && s.Names > 0:
		return "all, " + amount(s.Names, "name")
	case s.Wildcard:
		return "all"
	case s.Names > 0:
		return amount(s.Names, "name")
	}
	return "nothing"
}

func messageText(m *api.Message) string {
	if m == nil {
		return ""
	}
	return short(m.Version) + " " + since(m.At) + " ago"
}

// after is a text with what leads to it, or "" if there is none.
func after(lead, text string) string {
	if text == "" {
		return ""
	}
	return lead + text
}

func orDash(text string) string { return after("", text) + map[bool]string{true: "-"}[text == ""] }
