package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/admin/api"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/text"
)

// getFlags are the flags of chancery get.
type getFlags struct {
	cli.AdminFlags
	cli.Output
	node, group string
	left, local bool
	watch       bool
	limit       int
	kinds       []string
}

// A listing is an answer, prepared for each output format.
type listing struct {
	answer  any
	items   []item
	headers []string
	none    string // printed instead of an empty table
	more    string // printed after the table
}

// An item is an element of a listing.
type item struct {
	value any
	name  string // for -o name
	rows  [][]string
}

func (l *listing) add(value any, name string, rows ...[]string) {
	l.items = append(l.items, item{value, name, rows})
}

// kinds are the lists that get prints in addition to resources.
var kinds = map[string]func(*getFlags, context.Context, *adminclient.Client) (*listing, error){
	"clients": (*getFlags).clients, "nacks": (*getFlags).nacks, "groups": (*getFlags).groupList,
}

// onlyOwnClients are the kinds for which a server of a store lists only its own clients.
var onlyOwnClients = map[string]bool{"nacks": true, "nack": true, "refusals": true, "groups": true, "group": true}

// Get returns the command get.
func Get() *cobra.Command {
	var g getFlags
	cmd := &cobra.Command{
		Use:   "get clients|nacks|groups|events|all|TYPE[/NAME]",
		Short: "List clients, refusals, groups, events or resources of a running server",
		Long: `Get lists the state of a running server:

  clients      all clients, also healthy ones, of all servers of a store
  nacks        refusals of clients, grouped by cause, with the places in the files
  groups       the groups of resources, and the number of clients in each state
  events       past events; chancery watch prints new ones
  TYPE         the served resources of a type: cds, clusters, listeners, …
  TYPE/NAME    one resource
  all          the resources of all types

With --node it lists the resources of one client: the versions that were sent and that it has
accepted, and the reason if it refuses a resource or waits for one. -o json prints the whole
answer of the admin API; for a single resource the answer has its content, without secrets.

With several servers of a store, only get clients asks all of them. For other lists about clients
get prints a note to standard error that it has asked one server; chancery status has the nacks
of all servers.

With -w get continues until it is interrupted, also while the server is unreachable. On a
terminal it redraws the list in its place. Otherwise, and with -o name and jsonl, it prints
the changes.

Exit codes: 0 printed, also if the list is empty; 1 it failed; 2 wrong usage; 3 no server
answers, or it denies access; 4 the node or resource does not exist.`,
		Example: `  chancery get nacks
  chancery get clients -g edge -o wide
  chancery get clusters --node edge-7d9f-x2
  chancery get cluster/pay -o yaml
  chancery get clients -o name -w`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 2 && slices.Contains([]string{"client", "clients", "node", "nodes"}, args[0]) {
				return fmt.Errorf("get lists all clients: did you mean chancery status %s, or chancery get all --node %s?", text.Line(args[1]), text.Line(args[1]))
			}
			if len(args) == 2 {
				if t, name, err := cli.ParseTypeAndName(args[0]); err == nil && name == "" && t != nil { // get TYPE NAME, as with kubectl
					return nil
				}
			}
			if len(args) != 1 {
				return fmt.Errorf("get needs one of clients, nacks, groups, events, all and TYPE[/NAME], not %d arguments", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			what := strings.Join(args, "/")
			if what == "nodes" || what == "node" {
				what = "clients"
			}
			return g.run(cmd, what)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&g.node, "node", "", "with resources: the state of the client with this node `ID`; with clients and events: only these nodes, such as edge-*")
	_ = cmd.RegisterFlagCompletionFunc("node", cli.CompleteFlag(&g.AdminFlags, cli.CompleteNodes))
	cli.GroupFlag(cmd, &g.AdminFlags, &g.group)
	cli.LocalFlag(f, &g.local)
	f.BoolVar(&g.left, "left", false, "with clients: also clients that have left recently")
	f.IntVar(&g.limit, "limit", 0, "maximum `number` of lines; 0: the server's maximum")
	f.StringSliceVar(&g.kinds, "kind", nil, "with events: only these `KINDS`, separated by commas")
	cli.OfferValues(cmd, "kind", eventKinds...)
	f.BoolVarP(&g.watch, "watch", "w", false, "continue, and print the changes")
	g.Output.Register(cmd)
	g.AdminFlags.Register(f)
	cmd.ValidArgsFunction = cli.CompleteArg(&g.AdminFlags, cli.CompleteKindsAndResources)
	cli.ServerUsage(cmd)
	return cmd
}

func (g *getFlags) run(cmd *cobra.Command, what string) error {
	if err := g.Output.Check(); err != nil {
		return err
	}
	if g.limit < 0 {
		return fmt.Errorf("--limit: must be 0 or more, not %d", g.limit)
	}
	if g.watch && (g.Format == "json" || g.Format == "yaml") {
		return fmt.Errorf("--watch prints one answer after the other: -o must be table, wide, jsonl or name, not %s", g.Format)
	}
	if len(g.kinds) > 0 && what != "events" && what != "event" {
		return errors.New("only get events takes --kind")
	}
	if what == "events" || what == "event" {
		if g.group != "" || g.left {
			return errors.New("get events takes neither --group nor --left")
		}
		w := watchFlags{AdminFlags: g.AdminFlags, Output: g.Output, filter: adminclient.EventFilter{Node: g.node, Kinds: g.kinds, Stop: !g.watch}}
		return w.run(cmd)
	}
	list, err := g.lister(what)
	if err != nil {
		return err
	}
	if g.watch {
		return g.follow(cmd, list)
	}
	l, err := cli.Ask(cmd, &g.AdminFlags, list)
	if err == nil {
		w := g.Page(cmd)
		err = g.print(w, cmd.ErrOrStderr(), l)
		if parts, query := g.view(what); err == nil {
			g.PrintPage(w, &g.Output, query, parts...)
		}
	}
	if what != "clients" && what != "client" && !g.local && (g.node != "" || g.Wide() || onlyOwnClients[what]) {
		g.noteOneServer(cmd)
	}
	return err
}

// view returns the view of the page with the same list.
func (g *getFlags) view(what string) (parts []string, query url.Values) {
	search := func(words ...string) url.Values {
		if g.group != "" {
			words = append(words, "group:"+g.group)
		}
		if g.node != "" {
			words = append(words, "node:"+g.node)
		}
		if len(words) == 0 {
			return nil
		}
		return url.Values{"q": {strings.Join(words, " ")}}
	}
	switch what {
	case "clients", "client":
		return []string{"clients"}, search()
	case "nacks", "nack", "refusals":
		return []string{"clients"}, search("state:nacked")
	case "groups", "group":
		return []string{"groups"}, nil
	}
	if g.node != "" {
		return []string{"clients", g.node}, nil
	}
	parts = []string{"resources"}
	if t, name, err := cli.ParseTypeAndName(what); err == nil && t != nil {
		parts = append(parts, cli.TypeInPath(t))
		if name != "" {
			parts = append(parts, name)
		}
	}
	if g.group != "" {
		query = url.Values{"group": {g.group}}
	}
	return parts, query
}

// noteOneServer prints a note with the name of the server that answered, if the store has several
// servers. The clients of the other servers are not in the list.
func (g *getFlags) noteOneServer(cmd *cobra.Command) {
	d, err := g.Dial()
	if err != nil {
		return
	}
	defer d.Close()
	ctx, cancel := context.WithTimeout(cli.Context(cmd), cli.DefaultServerTimeout)
	defer cancel()
	about, err := d.About(ctx)
	if err != nil || about.Server.ID == "" {
		return
	}
	if all, err := d.Clients(ctx, adminclient.Filter{Limit: 1, Replicas: true}); err == nil && len(all.Replicas) > 1 {
		fmt.Fprintf(cmd.ErrOrStderr(), "chancery: only %s was asked, one of the %d servers of the store: chancery status, get clients and explain ask all\n", text.Line(about.Server.ID), len(all.Replicas))
	}
}

// lister returns the function that requests the list for the argument what.
func (g *getFlags) lister(what string) (func(context.Context, *adminclient.Client) (*listing, error), error) {
	for kind, list := range kinds {
		if what == kind || what+"s" == kind || what == "refusals" && kind == "nacks" {
			if g.left && kind != "clients" {
				return nil, fmt.Errorf("get %s does not take --left", kind)
			}
			if kind != "clients" && (g.node != "" || g.group != "") {
				return nil, fmt.Errorf("get %s takes neither --node nor --group", kind)
			}
			return func(ctx context.Context, d *adminclient.Client) (*listing, error) { return list(g, ctx, d) }, nil
		}
	}
	if g.left {
		return nil, errors.New("resources do not take --left")
	}
	typ, name := "", ""
	if what != "all" && what != "resources" {
		t, n, err := cli.ParseTypeAndName(what)
		if err != nil {
			return nil, fmt.Errorf("%w; or clients, nacks, groups, events, all", err)
		}
		typ, name = cli.TypeInPath(t), n
	}
	if g.node != "" {
		if g.group != "" {
			return nil, errors.New("--node and --group: give only one of them, since a client has the resources of its own groups")
		}
		return func(ctx context.Context, d *adminclient.Client) (*listing, error) {
			return g.clientResources(ctx, d, typ, name)
		}, nil
	}
	return func(ctx context.Context, d *adminclient.Client) (*listing, error) { return g.served(ctx, d, typ, name) }, nil
}

func (g *getFlags) clients(ctx context.Context, d *adminclient.Client) (*listing, error) {
	all, err := d.Clients(ctx, adminclient.Filter{Node: g.node, Group: g.group, All: true, Left: g.left, Limit: g.limit, Replicas: !g.local})
	if err != nil {
		return nil, err
	}
	t := clientTable(all.Items, g.Wide())
	l := &listing{answer: all, headers: t.Headers, none: "No clients are connected.", more: strings.Trim(notShown(all.Total, len(all.Items))+"\n"+unanswered(all.Replicas, all.Unsure, "shown"), "\n")}
	if g.node != "" || g.group != "" {
		l.none = "No such clients are connected."
	}
	for i, c := range all.Items {
		l.add(c, cmp.Or(c.Node, c.Path), t.Rows[i])
	}
	return l, nil
}

// notShown returns a note about the items beyond the limit.
func notShown(total, shown int) string {
	if total <= shown {
		return ""
	}
	return fmt.Sprintf("(%s more: --limit)", text.Number(total-shown))
}

func (g *getFlags) nacks(ctx context.Context, d *adminclient.Client) (*listing, error) {
	all, err := d.Refusals(ctx)
	if err != nil {
		return nil, err
	}
	l := &listing{answer: all, headers: refusalHeaders, none: "No client refuses a resource."}
	for _, r := range all.Items {
		name := r.Type
		if len(r.Resources) > 0 {
			name += "/" + r.Resources[0].Name
		}
		if r.Partly {
			l.more = partly
		}
		l.add(r, name, refusalTable([]api.Refusal{r}, g.Wide()).Rows...)
	}
	return l, nil
}

func (g *getFlags) groupList(ctx context.Context, d *adminclient.Client) (*listing, error) {
	all, err := d.Groups(ctx)
	if err != nil {
		return nil, err
	}
	l := &listing{answer: all, headers: []string{"GROUP", "RESOURCES", "CLIENTS", "REJECTED", "FILE"}, none: "There are no groups."}
	for _, x := range all.Items {
		rejected := ""
		if x.Rejected != nil {
			rejected = text.Since(x.Rejected.Since)
		}
		l.add(x, x.Name, []string{x.Name, text.Number(x.Resources), x.Clients.Text(), rejected, x.Place})
	}
	return l, nil
}

// served lists the served resources of all clients.
func (g *getFlags) served(ctx context.Context, d *adminclient.Client, typ, name string) (*listing, error) {
	all, err := d.Resources(ctx, adminclient.ResourceFilter{Type: typ, Name: name, Group: g.group, Subscribers: g.Wide(), Limit: g.limit})
	if err != nil {
		return nil, err
	}
	l := &listing{answer: all, headers: []string{"NAME", "GROUP", "VERSION", "SIZE", "FILE"}, none: "There are no such resources.", more: notShown(all.Total, len(all.Items))}
	if g.Wide() {
		l.headers = append(l.headers, "TTL", "CLIENTS", "SYNCED")
	}
	if typ == "" {
		l.headers = append([]string{"TYPE"}, l.headers...)
	}
	for _, r := range all.Items {
		cells := []string{r.Name, r.Group, cli.ShortVersion(r.Version), cli.BytesText(r.Bytes), r.Place}
		if g.Wide() {
			total, synced := "", ""
			if r.Clients != nil {
				total, synced = text.Number(r.Clients.Total), text.Number(r.Clients.By[api.Synced])
			}
			cells = append(cells, r.TTL, total, synced)
		}
		if typ == "" {
			cells = append([]string{r.Type}, cells...)
		}
		l.add(r, r.Type+"/"+r.Name, cells)
	}
	return l, nil
}

// clientResources lists the resources of a client with their state.
func (g *getFlags) clientResources(ctx context.Context, d *adminclient.Client, typ, name string) (*listing, error) {
	all, err := d.ClientResources(ctx, g.node, typ, name, g.limit)
	if err != nil {
		return nil, err
	}
	l := &listing{answer: all, headers: []string{"NAME", "STATE", "CURRENT", "ACCEPTED", "FILE", "WHY"}, none: "The client has no resources, and no subscriptions.", more: notShown(all.Total, len(all.Items))}
	if g.Wide() {
		l.headers = []string{"NAME", "STATE", "SUBSCRIBED BY", "CURRENT", "SENT", "ACCEPTED", "NONCE", "SINCE", "FILE", "WHY"}
	}
	if typ == "" {
		l.headers = append([]string{"TYPE"}, l.headers...)
	}
	for _, r := range all.Items {
		cells := []string{r.Name, string(r.State), cli.ShortVersion(r.Current), cli.ShortVersion(r.Acked), r.Place, whyOf(r)}
		if g.Wide() {
			at := ""
			if r.Since != nil {
				at = text.Since(*r.Since)
			}
			cells = []string{r.Name, string(r.State), r.Why, r.Current, r.Sent, r.Acked, r.Nonce, at, r.Place, whyOf(r)}
		}
		if typ == "" {
			cells = append([]string{r.Type}, cells...)
		}
		l.add(r, r.Type+"/"+r.Name, cells)
	}
	if !slices.ContainsFunc(all.Items, func(r api.ClientResource) bool { return whyOf(r) != "" }) {
		l.headers = l.headers[:len(l.headers)-1] // the last column is empty
		for _, i := range l.items {
			i.rows[0] = i.rows[0][:len(l.headers)]
		}
	}
	return l, nil
}

// whyOf returns the reason why a client does not have the current version of a resource, or "".
func whyOf(r api.ClientResource) string {
	var texts []string
	if why := cmp.Or(r.Reason, r.Error); why != "" {
		texts = append(texts, why)
	}
	if len(r.WaitsFor) > 0 {
		lead := "waits for "
		if r.State == api.Leaving {
			lead = "still used by "
		}
		texts = append(texts, lead+refNames(r.WaitsFor))
	}
	return strings.Join(texts, "; ")
}

// refNames returns a text with the first resources and the number of the others.
func refNames(all []api.Resource) string {
	var names []string
	for _, x := range all[:min(3, len(all))] {
		names = append(names, x.Type+" "+x.Name)
	}
	if more := len(all) - 3; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// print prints a listing.
func (g *getFlags) print(out, stderr io.Writer, l *listing) error {
	if g.ForPeople() {
		if len(l.items) == 0 {
			fmt.Fprintln(stderr, l.none)
		}
		t := cli.Table{Headers: l.headers}
		for _, i := range l.items {
			t.Rows = append(t.Rows, i.rows...)
		}
		t.Print(out, &g.Output)
		if l.more != "" {
			fmt.Fprintln(stderr, l.more)
		}
		return nil
	}
	return cli.PrintData(&g.Output, out, l.answer, l.items, func(i item) string { return i.name })
}

// follow prints the changes of a listing, or redraws it on a terminal.
func (g *getFlags) follow(cmd *cobra.Command, list func(context.Context, *adminclient.Client) (*listing, error)) error {
	var before *listing
	out := g.Page(cmd)
	return cli.Follow(cmd, &g.AdminFlags, &g.Output, func(on *cli.Repaint) error {
		now, err := cli.Ask(cmd, &g.AdminFlags, list)
		if err != nil {
			return err
		}
		if on != nil {
			return on.Draw(func(w io.Writer) { _ = g.print(w, w, now) }) // an error is impossible: w is in memory
		}
		if before == nil {
			before = now
			return g.print(out, cmd.ErrOrStderr(), now)
		}
		g.NoHeaders = true
		if err := g.print(out, io.Discard, changed(before, now)); err != nil {
			return err
		}
		for _, name := range removed(before, now) {
			if g.ForPeople() {
				fmt.Fprintf(out, "(gone: %s)\n", text.Line(name))
			}
		}
		before = now
		return nil
	})
}

// changed returns the new and changed items of a listing.
func changed(before, now *listing) *listing {
	old := map[string]bool{}
	for _, i := range before.items {
		old[contentOf(i)] = true
	}
	l := &listing{answer: now.answer, headers: now.headers}
	for _, i := range now.items {
		if !old[contentOf(i)] {
			l.items = append(l.items, i)
		}
	}
	return l
}

// removed returns the names of the old listing that the new one lacks.
func removed(before, now *listing) (names []string) {
	listed := map[string]bool{}
	for _, i := range now.items {
		listed[i.name] = true
	}
	for _, i := range before.items {
		if !listed[i.name] {
			names = append(names, i.name)
			listed[i.name] = true // list the name only once
		}
	}
	return names
}

func contentOf(i item) string {
	b, _ := json.Marshal(i) // cannot fail: the values came from JSON
	return string(b)
}

// MarshalJSON implements [json.Marshaler].
func (i item) MarshalJSON() ([]byte, error) { return json.Marshal(i.value) }
