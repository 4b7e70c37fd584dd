package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/admin/api"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/envoy/diff"
	"github.com/chancery-xds/chancery/internal/text"
)

// addImpact asks a server for the impact of the differences on all its clients, or on the clients of a
// node. Without --admin it asks the server at the default address, but only if that server serves one of
// the two directories.
func (d *diffFlags) addImpact(cmd *cobra.Command, r *diffResult, args []string, kinds [2]string, node string) {
	chosen := cmd.Flags().Changed("admin") || kinds[0] == "client"
	if len(r.Items) == 0 {
		return
	}
	impact, about, err := d.impact(cmd, r, node, func(s api.Server) bool {
		return chosen || kinds[0] == "dir" && cli.ServesDir(s, args[0]) || cli.ServesDir(s, args[1])
	}, chosen)
	switch refused, is := errors.AsType[*adminclient.Refused](err); {
	case err == nil:
		r.Impact, r.Server = impact, about
	case !chosen: // no message, because the user named no server
	case is && refused.Code == 404:
		fmt.Fprintf(cmd.ErrOrStderr(), "chancery: the impact is unknown: %s\n", text.Line(refused.Answer.Message))
	default:
		fmt.Fprintf(cmd.ErrOrStderr(), "chancery: the impact is unknown: %s\n", text.Line(err.Error()))
	}
}

// impact asks the server. If accepts returns false for the server, all results are nil.
func (d *diffFlags) impact(cmd *cobra.Command, r *diffResult, node string, accepts func(api.Server) bool, patient bool) (*api.Impact, *api.Server, error) {
	daemon, err := d.Dial()
	if err != nil {
		return nil, nil, err
	}
	limit := cli.AskTimeout
	if !patient {
		limit = cli.DefaultServerTimeout
	}
	ctx, cancel := context.WithTimeoutCause(cli.Context(cmd), limit, fmt.Errorf("no answer for %v", limit))
	defer cancel()
	about, err := daemon.About(ctx)
	if err != nil || !accepts(about.Server) {
		return nil, nil, err
	}
	groups, err := daemon.Groups(ctx)
	if err != nil {
		return nil, nil, err
	}
	known, left := map[string]bool{"": true}, map[string]bool{}
	for _, g := range groups.Items {
		known[g.Name] = true
	}
	q := api.ImpactRequest{Node: node}
	for _, x := range r.Items {
		if !known[x.Group] { // the server does not have the group, so the group has no clients
			left[x.Group] = true
			continue
		}
		q.Changes = append(q.Changes, api.ImpactChange{Type: x.URL(), Name: x.Name, Group: x.Group, Bytes: x.Bytes})
	}
	impact, err := daemon.Impact(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	if len(left) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "chancery: the impact leaves out groups that the server does not have: %s\n", text.Line(strings.Join(slices.Sorted(maps.Keys(left)), ", ")))
	}
	return impact, &about.Server, nil
}

// maxDrains is the maximum number of listeners for which the output has a DRAINS line.
const maxDrains = 10

// printImpact prints the impact of the differences.
func printImpact(w io.Writer, r *diffResult) {
	n := 0
	for _, x := range r.Items {
		if x.Drains == nil {
			continue
		}
		n++
		if n > maxDrains {
			continue
		}
		title, group := "DRAINS", ""
		if n > 1 {
			title = ""
		}
		if x.Group != "" {
			group = " [" + x.Group + "]"
		}
		fmt.Fprintf(w, "%-9s%s\n", title, text.Line(x.Name+group+": "+drainText(x.Drains)))
	}
	if n > maxDrains {
		fmt.Fprintf(w, "%-9sand %s\n", "", text.Amount(n-maxDrains, "more listener"))
	}
	i := r.Impact
	if i == nil {
		return
	}
	fmt.Fprintf(w, "IMPACT   %s of %s", text.Number(i.Clients), text.Amount(i.Connected, "client"))
	if i.Unknown > 0 {
		fmt.Fprintf(w, ", %s did not answer", text.Number(i.Unknown))
	}
	fmt.Fprintf(w, " (%s)\n", text.Line(r.Server.Replica))
	if len(i.Types) > 0 {
		var texts []string
		for _, t := range i.Types {
			texts = append(texts, t.Type+" "+text.Number(t.Pushes))
		}
		fmt.Fprintf(w, "PUSHES   %s; about %s\n", text.Line(strings.Join(texts, ", ")), cli.BytesText(i.Bytes))
	}
	if len(i.Groups) > 1 || len(i.Groups) == 1 && i.Groups[0].Group != "default" {
		var texts []string
		for _, g := range i.Groups {
			texts = append(texts, g.Group+" "+text.Number(g.Clients))
		}
		fmt.Fprintf(w, "GROUPS   %s\n", text.Line(strings.Join(texts, ", ")))
	}
}

func drainText(d *diff.Draining) string {
	if d.Whole {
		return "all connections"
	}
	return "connections of " + strings.Join(d.Chains, ", ")
}
