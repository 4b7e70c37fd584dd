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

// weigh asks a server what the differences mean for its clients, or for those of a node. If nobody
// has named one, it is the one of the default address, provided that it serves one of the two: the
// clients of another have nothing to do with it.
func (d *diffFlags) weigh(cmd *cobra.Command, r *diffResult, args []string, kinds [2]string, node string) {
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
	case !chosen: // nobody has asked for it
	case is && refused.Code == 404:
		fmt.Fprintf(cmd.ErrOrStderr(), "chancery: the impact is not known: %s\n", text.Line(refused.Answer.Message))
	default:
		fmt.Fprintf(cmd.ErrOrStderr(), "chancery: the impact is not known: %s\n", text.Line(err.Error()))
	}
}

// impact asks the server, if it is one that counts; else all it returns is nil.
func (d *diffFlags) impact(cmd *cobra.Command, r *diffResult, node string, counts func(api.Server) bool, patient bool) (*api.Impact, *api.Server, error) {
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
	if err != nil || !counts(about.Server) {
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
		if !known[x.Group] { // its rules are not the server's yet: nobody has the group
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
		fmt.Fprintf(cmd.ErrOrStderr(), "chancery: the impact is without that of groups which the server does not have: %s\n", text.Line(strings.Join(slices.Sorted(maps.Keys(left)), ", ")))
	}
	return impact, &about.Server, nil
}

// maxDrains is of how many listeners it is told what is drained.
const maxDrains = 10

// printImpact prints what the differences would mean.
func printImpact(w io.Writer, r *diffResult) {
	n := 0
	for _, x := range r.Items {
		if x.Drains == nil {
			continue
		}
		if n++; n > maxDrains {
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
		fmt.Fprintf(w, "%-9sand of %s more\n", "", cli.Count(n-maxDrains, "listener"))
	}
	i := r.Impact
	if i == nil {
		return
	}
	fmt.Fprintf(w, "IMPACT   %s of %s", cli.Number(i.Clients), cli.Amount(i.Connected, "client"))
	if i.Unknown > 0 {
		fmt.Fprintf(w, ", %s that did not answer", cli.Number(i.Unknown))
	}
	fmt.Fprintf(w, " (%s)\n", text.Line(r.Server.Replica))
	if len(i.Types) > 0 {
		var texts []string
		for _, t := range i.Types {
			texts = append(texts, t.Type+" "+cli.Number(t.Pushes))
		}
		fmt.Fprintf(w, "PUSHES   %s; about %s\n", text.Line(strings.Join(texts, ", ")), cli.BytesText(i.Bytes))
	}
	if len(i.Groups) > 1 || len(i.Groups) == 1 && i.Groups[0].Group != "default" {
		var texts []string
		for _, g := range i.Groups {
			texts = append(texts, g.Group+" "+cli.Number(g.Clients))
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
