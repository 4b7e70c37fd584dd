package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/admin/api"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/cli"
	textutil "github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/xds"
)

// maxRows is the maximum number of unhealthy clients that status lists. With more unhealthy clients,
// users look at the causes first.
const maxRows = 50

// Status returns the command status.
func Status() *cobra.Command {
	var a cli.AdminFlags
	var o cli.Output
	var f adminclient.Filter
	var watch, local, open bool
	cmd := &cobra.Command{
		Use:   "status [NODE]",
		Short: "Show the state of a server, its configuration and its clients",
		Long: `Status shows the state of a running server and its clients: whether the last load succeeded,
which resources clients refuse, with their places in the files, what looks wrong, and each
unhealthy client. Healthy clients are counted; --all also lists them. -g selects the clients of
one group. With NODE it shows one client, type by type.

A server of a store also asks the other servers of the store. Status shows the clients of all
servers, and which server does not answer. With --local it shows only the server itself.

With -w status continues until it is interrupted, also while the server is unreachable. On a
terminal it redraws the answer in its place; otherwise it prints the answer again when it has
changed.

--open prints only the URL of the server's page, and opens it in a browser if the output is a
terminal with a display.

States of a client with a type:

  SYNCED    it has accepted all current resources
  NACKED    it refuses the newest response, and keeps its previous resources; it may use the
            valid resources of the response
  STALE     it has not answered a response for 30 s
  SENT      a response is on its way
  WAITING   the next response waits for an answer to another type, or for content of the
            client's groups
  NOT_SENT  it subscribes, and there are no resources to send
  IDLE      it does not subscribe

Exit codes: 0 all is well, or -w was interrupted; 1 at least one of these is wrong:

  - a client refuses a response, is stale, or leaves again and again after a response
  - the last load was rejected, or the configuration refers to missing resources
  - the upstream of a relay is unreachable, or sends unusable resources
  - a server of the store does not answer, does not serve the newest revision, or does not
    commit its directory
  - a rollout was rolled back, without a commit to its group since

2 wrong usage; 3 no server answers, or it denies access; 4 the node or group does not exist.`,
		Example: `  chancery status
  chancery status edge-7d9f-x2
  chancery status --all -g edge
  chancery status --open
  chancery status -o json | jq .clients.by`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("status takes one node, not %d", len(args))
			}
			if len(args) > 0 && args[0] == "" {
				return errors.New("NODE is empty: for a client without an id use its stream, such as stream:41; chancery get clients lists it")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Check(); err != nil {
				return err
			}
			if watch && !o.ForPeople() {
				return fmt.Errorf("--watch prints one answer after the other: -o must be table or wide, not %s", o.Format)
			}
			f.Replicas = !local
			if open {
				parts, query := viewOf(args, f.Group)
				return a.OpenPage(cmd, query, parts...)
			}
			if len(args) == 1 {
				if f.All || f.Group != "" {
					return errors.New("--all and --group select from all clients: leave them out with NODE")
				}
				if watch {
					return cli.FollowWhole(cmd, &a, &o, func() (any, func(io.Writer), error) {
						list, err := clientsOf(cmd, &a, args[0], f.Replicas)
						return list, func(w io.Writer) { printClientCards(w, &o, list) }, err
					})
				}
				return printNodeStatus(cmd, &a, &o, args[0], f.Replicas)
			}
			f.Limit = maxRows
			if f.All {
				f.Limit = 0
			}
			if watch {
				return cli.FollowWhole(cmd, &a, &o, func() (any, func(io.Writer), error) {
					seen, err := statusSeen(cmd, &a, &o, f)
					return [3]any{seen.Status, seen.list, seen.rollouts}, func(w io.Writer) { seen.print(w, &o, f) }, err
				})
			}
			return showStatus(cmd, &a, &o, f)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVar(&f.All, "all", false, "also list healthy clients")
	cli.GroupFlag(cmd, &a, &f.Group)
	cli.LocalFlag(cmd.Flags(), &local)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "continue, and show the answer again when it changes")
	cmd.Flags().BoolVar(&open, "open", false, "print the URL of the server's page, and open it in a browser")
	o.Register(cmd, "table", "wide", "json", "yaml")
	a.Register(cmd.Flags())
	cmd.ValidArgsFunction = cli.CompleteArg(&a, cli.CompleteNodes)
	cli.ServerUsage(cmd)
	return cmd
}

// viewOf returns the view of the page with the status of a node or of the clients of a group.
func viewOf(nodes []string, group string) (parts []string, query url.Values) {
	switch {
	case len(nodes) > 0:
		return []string{"clients", nodes[0]}, nil
	case group != "":
		return []string{"clients"}, url.Values{"q": {"group:" + group}}
	}
	return nil, nil
}

// An overview has the answers that status prints.
type overview struct {
	*api.Status
	list     *api.ClientList
	rollouts map[string]api.Rollout // rollouts by ID; nil: no group has one, or the request failed
}

// A statusData is the status for programs, with the clients and rollouts of the table.
type statusData struct {
	*api.Status
	Items    []api.Client           `json:"items"`
	Total    int                    `json:"total"`              // number of all clients
	Hidden   int                    `json:"hidden"`             // number of healthy clients, which the list has only with --all
	Rollouts map[string]api.Rollout `json:"rollouts,omitempty"` // rollouts of frozen groups, by ID
}

func showStatus(cmd *cobra.Command, a *cli.AdminFlags, o *cli.Output, f adminclient.Filter) error {
	seen, err := statusSeen(cmd, a, o, f)
	if err != nil {
		return err
	}
	if !o.ForPeople() {
		err = cli.PrintData[any](o, cmd.OutOrStdout(), statusData{seen.Status, seen.list.Items, seen.list.Total, seen.list.Hidden, seen.rollouts}, nil, nil)
	} else {
		w := o.Page(cmd)
		seen.print(w, o, f)
		parts, query := viewOf(nil, f.Group)
		a.PrintPage(w, o, query, parts...)
	}
	switch {
	case err != nil:
		return err
	case seen.Healthy == nil:
		return cli.Fail(fmt.Errorf("the server has an older version (%s), whose status does not state whether all is well", textutil.Line(seen.Server.Version)), "use the chancery of that version")
	case !*seen.Healthy:
		return cli.ErrNo
	}
	return nil
}

func statusSeen(cmd *cobra.Command, a *cli.AdminFlags, o *cli.Output, f adminclient.Filter) (overview, error) {
	return cli.Ask(cmd, a, func(ctx context.Context, d *adminclient.Client) (overview, error) {
		status := d.Status
		if f.Replicas {
			status = d.StatusOfAll
		}
		s, err := status(ctx, f.Group)
		if err != nil {
			return overview{}, err
		}
		list, err := d.Clients(ctx, f)
		if err != nil {
			return overview{}, err
		}
		return overview{s, list, activeRollouts(ctx, d, s.Config.Store)}, nil
	})
}

// rolloutTimeout is the timeout for the list of rollouts. The store may be unreachable, and status
// does not need the list.
const rolloutTimeout = 2 * time.Second

// activeRollouts requests the rollouts of the store, by ID. The result is nil if no served group has a
// rollout, or if the request fails.
func activeRollouts(ctx context.Context, d *adminclient.Client, s *api.Store) map[string]api.Rollout {
	if s == nil || !slices.ContainsFunc(s.Holds, func(h api.Hold) bool { return h.Rollout != "" }) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, rolloutTimeout)
	defer cancel()
	list, err := d.Rollouts(ctx, "")
	if err != nil {
		return nil
	}
	all := map[string]api.Rollout{}
	for _, r := range list.Items {
		all[r.ID] = r
	}
	return all
}

// rolloutState returns a text with the step of a rollout, and with the conditions for the next step.
func rolloutState(r api.Rollout) string {
	text := fmt.Sprintf(", step %d of %d (%s)", r.Step, len(r.Steps), textutil.Line(r.Nodes))
	if r.WaitsFor != "" {
		text += ": " + textutil.Line(r.WaitsFor)
	}
	return text
}

// printUpstream prints the state of a relay's upstream.
func printUpstream(w io.Writer, u *api.Upstream) {
	fmt.Fprintf(w, "UPSTREAM %s: ", textutil.Line(u.URL))
	switch {
	case u.Connected:
		fmt.Fprint(w, "connected")
	case u.Idle:
		fmt.Fprint(w, "not used, since no client subscribes")
	case u.Since != nil:
		fmt.Fprint(w, "lost")
	default:
		fmt.Fprint(w, "not connected")
	}
	if u.Since != nil {
		fmt.Fprintf(w, " for %s", textutil.Since(*u.Since))
	}
	if u.Refused > 0 {
		fmt.Fprintf(w, ", %s of it refused", textutil.Amount(u.Refused, "resource"))
	}
	if u.Exceeded != "" {
		fmt.Fprintf(w, ", a response of it refused: %s", textutil.Line(u.Exceeded))
	}
	if u.Error != "" && !u.Connected && u.Error != u.Exceeded {
		fmt.Fprintf(w, ": %s", textutil.Line(u.Error))
	}
	fmt.Fprintln(w)
}

// printStore prints the served revision of a store.
func printStore(w io.Writer, s *api.Store, rollouts map[string]api.Rollout) {
	fmt.Fprintf(w, "STORE    %s: ", textutil.Line(s.URL))
	switch {
	case s.Revision != "" && s.LastGood != nil:
		fmt.Fprintf(w, "%s from disk (last good), of %s ago", s.Revision, textutil.Since(*s.LastGood))
	case s.Revision != "":
		fmt.Fprintf(w, "%s by %s: %s", s.Revision, textutil.Line(s.Author), textutil.Line(s.Message))
	case s.LastGood != nil:
		fmt.Fprintf(w, "from disk (last good), of %s ago", textutil.Since(*s.LastGood))
	default:
		fmt.Fprint(w, "nothing yet")
	}
	fmt.Fprintln(w)
	for _, h := range s.Holds {
		fmt.Fprintf(w, "         group %s is frozen at %s by %s: %s\n", textutil.Line(h.Group), h.Revision, textutil.Line(h.Author), textutil.Line(h.Message))
		if h.Next != "" {
			where := ""
			if r, is := rollouts[h.Rollout]; is && r.Step == h.Step {
				where = rolloutState(r)
			} else if h.Step > 0 { // the store does not answer, or its record is older or newer
				where = fmt.Sprintf(", step %d", h.Step)
			}
			fmt.Fprintf(w, "         rollout %s takes it to %s%s\n", textutil.Line(h.Rollout), h.Next, where)
		}
	}
	for _, x := range s.RolledBack {
		fmt.Fprintf(w, "         rollout %s of %s to %s was rolled back %s ago: %s\n", textutil.Line(x.Rollout), textutil.Line(strings.Join(x.Groups, ", ")), x.Revision, textutil.Since(x.Since), textutil.Line(x.Why))
	}
	if x := s.Writer; x != nil {
		does := "another server writes its directory to the store" + textutil.Prefixed(": ", textutil.Line(x.Server)) + "; this server is on standby, for"
		if x.Writes {
			does = "this server writes " + textutil.Line(x.Dir) + " to the store, for"
		}
		fmt.Fprintln(w, "        ", does, textutil.Since(x.Since))
		if x.Error != "" {
			fmt.Fprintf(w, "         %s is not committed: %s\n", textutil.Line(x.Dir), textutil.Line(x.Error))
		}
	}
	if b := s.WentBack; b != nil {
		fmt.Fprintf(w, "         the etcd went back from its revision %d to %d, %s ago: everything was read again\n", b.From, b.To, textutil.Since(b.At))
	}
	if s.Error != "" && s.Since != nil {
		fmt.Fprintf(w, "         the newest state of the store is not served for %s: %s\n", textutil.Since(*s.Since), textutil.Line(s.Error))
	}
}

func (s overview) print(w io.Writer, o *cli.Output, f adminclient.Filter) {
	s.printServer(w, f)
	if len(s.Replicas) > 1 || s.Unsure != "" {
		fmt.Fprintln(w)
		replicaTable(s.Replicas, o.Wide()).Print(w, o)
	}
	s.printLoads(w)
	if len(s.Refusals) > 0 {
		fmt.Fprintln(w)
		printRefusals(w, o, s.Refusals)
	}
	if len(s.Troubles) > 0 {
		fmt.Fprintln(w)
		troubles(w, o, s.Troubles)
	}
	if len(s.TurnedAway) > 0 && f.Group == "" { // the group of a rejected client is unknown
		fmt.Fprintln(w)
		turnedAway(w, o, s.TurnedAway)
	}
	s.printClients(w, o)
}

// printServer prints the server, its configuration and the number of its clients.
func (s overview) printServer(w io.Writer, f adminclient.Filter) {
	c := s.Config
	fmt.Fprintf(w, "SERVER   %s, up %s%s\n", textutil.Line(cmp.Or(s.Server.Replica, "chancery "+s.Server.Version)), textutil.Since(s.Server.Since), textutil.Prefixed(", xDS on ", textutil.Line(s.Server.XDS)))
	if c.Store != nil {
		printStore(w, c.Store, s.rollouts)
		printReplicas(w, s.Status)
		fmt.Fprintf(w, "CONFIG   %s", textutil.Amount(c.Resources, "resource"))
	} else if c.Upstream != nil {
		printUpstream(w, c.Upstream)
		fmt.Fprintf(w, "CONFIG   %s", textutil.Amount(c.Resources, "resource"))
	} else if s.Server.Dir == "" { // a program with package admin
		fmt.Fprintf(w, "CONFIG   %s", textutil.Amount(c.Resources, "resource"))
		if c.Files > 0 {
			fmt.Fprintf(w, ", and %s", textutil.Amount(c.Files, "file"))
		}
	} else {
		fmt.Fprintf(w, "CONFIG   %s: %s in %s", textutil.Line(s.Server.Dir), textutil.Amount(c.Resources, "resource"), textutil.Amount(c.Files, "file"))
	}
	if c.Groups > 1 {
		fmt.Fprintf(w, " of %s", textutil.Amount(c.Groups, "group"))
	}
	if c.Store == nil {
		fmt.Fprintf(w, ", revision %d", c.Revision)
	}
	switch u := c.Upstream; {
	case u != nil && !u.Connected && !u.Idle && u.Since == nil && c.Resources > 0:
		fmt.Fprint(w, " from disk (last good), the upstream is unreachable")
	case c.At != nil:
		fmt.Fprintf(w, " loaded %s ago", textutil.Since(*c.At))
	}
	if c.Removals != nil {
		fmt.Fprintf(w, "\n         %s; if they are intended, chancery reload --allow-mass-delete removes at once", c.Removals.Text())
	}
	fmt.Fprintf(w, "\nCLIENTS  %s", s.Clients.Text())
	if f.Group != "" {
		fmt.Fprintf(w, ", in group %s", textutil.Line(f.Group))
	}
	fmt.Fprintln(w)
}

// printLoads prints the errors of rejected loads, and the warnings of the configuration.
func (s overview) printLoads(w io.Writer) {
	c := s.Config
	if c.Rejected != nil {
		fmt.Fprintf(w, "\nThe load of %s ago was rejected; the previous configuration is served:\n", textutil.Since(c.Rejected.Since))
		few(w, c.Rejected.Errors, 5, "error")
	}
	for _, r := range s.RejectedGroups {
		fmt.Fprintf(w, "\nThe load of group %s %s ago was rejected; its previous configuration is served:\n", textutil.Line(r.Group), textutil.Since(r.Since))
		few(w, r.Errors, 5, "error")
	}
	for _, e := range c.Earlier[:min(len(c.Earlier), 5)] {
		run, refuse := "run", "they refuse"
		if e.Clients == 1 {
			run, refuse = "runs", "it refuses"
		}
		fmt.Fprintf(w, "\n%s %s on %s of %s %s, which others accepted: %s %s\n", textutil.Amount(e.Clients, "client"), run,
			versionText(e.ServedSince, e.Served), textutil.Line(e.Type), textutil.Line(e.Name), refuse, versionText(e.RefusedSince, e.Refused))
	}
	if more := len(c.Earlier) - 5; more > 0 {
		fmt.Fprintf(w, "and so for %s (-o json lists them)\n", textutil.Amount(more, "more version"))
	}
	if len(s.Emptied) > 0 {
		fmt.Fprintln(w, "\nAll registered endpoints of a cluster are removed or expired, so clients get none:")
		var texts []string
		for _, x := range s.Emptied {
			texts = append(texts, fmt.Sprintf("EDS %s of group %s (chancery endpoints rm %[1]s -g %[2]s --release serves those in files or revisions)", x.Cluster, x.Group))
		}
		few(w, texts, 5, "cluster")
	}
	if c.Doubts > 0 {
		fmt.Fprintf(w, "\nThe configuration has %s", textutil.Amount(c.Doubts, "warning"))
		switch {
		case c.Dangling == c.Doubts:
			fmt.Fprint(w, " for missing resources")
		case c.Dangling > 0:
			fmt.Fprintf(w, ", %s for missing resources", textutil.Number(c.Dangling))
		}
		fmt.Fprintln(w, ":")
		var texts []string
		for _, x := range c.Warnings {
			texts = append(texts, x.Text)
		}
		few(w, texts, 5, "warning")
	}
}

// versionText returns the revision that set a version; else the version.
func versionText(revision, version string) string {
	if revision != "" {
		return textutil.Line(revision)
	}
	return "version " + cli.ShortVersion(textutil.Line(version))
}

// printClients prints the table of clients.
func (s overview) printClients(w io.Writer, o *cli.Output) {
	if len(s.list.Items) > 0 {
		fmt.Fprintln(w)
		clientTable(s.list.Items, o.Wide()).Print(w, o)
	}
	if s.list.Total-s.list.Hidden > len(s.list.Items) {
		fmt.Fprintf(w, "(more of them: chancery get clients)\n")
	}
	if s.list.Hidden > 0 && len(s.list.Items) > 0 {
		fmt.Fprintf(w, "(%s not shown: --all)\n", textutil.Amount(s.list.Hidden, "healthy client"))
	}
}

// few prints the first n texts, and the number of the others.
func few(w io.Writer, texts []string, n int, what string) {
	for _, t := range texts[:min(n, len(texts))] {
		fmt.Fprintf(w, "  %s\n", textutil.Line(t))
	}
	if more := len(texts) - n; more > 0 {
		fmt.Fprintf(w, "  and %s\n", textutil.Amount(more, "more "+what))
	}
}

var refusalHeaders = []string{"REFUSED BY", "SINCE", "TYPE", "RESOURCE", "FILE", "REASON"}

// refusalTable lists refusals with their reasons and places. A refusal that may concern several resources
// has a line for each resource.
func refusalTable(all []api.Refusal, wide bool) *cli.Table {
	t := &cli.Table{Headers: refusalHeaders}
	for _, r := range all {
		reason := r.Error
		if !wide {
			reason = textutil.Clip(reason, 200)
		}
		client := textutil.Amount(r.Clients, "client")
		if r.Clients == 1 && len(r.Nodes) == 1 {
			client = nodeCell(r.Nodes[0], wide)
		}
		typ := r.Type
		if r.Partly {
			typ += "*"
		}
		if len(r.Resources) == 0 {
			t.Row(client, textutil.Since(r.Since), typ, "", "", reason)
		}
		for i, at := range r.Resources {
			if i == 0 {
				t.Row(client, textutil.Since(r.Since), typ, at.Name, at.Place, cmp.Or(at.Reason, reason))
			} else {
				t.Row(`"`, `"`, `"`, at.Name, at.Place, cmp.Or(at.Reason, `"`))
			}
		}
	}
	return t
}

// partly explains the mark * of a refusal.
const partly = "* that response had other resources, which the client may use"

func printRefusals(w io.Writer, o *cli.Output, all []api.Refusal) {
	refusalTable(all, o.Wide()).Print(w, o)
	if slices.ContainsFunc(all, func(r api.Refusal) bool { return r.Partly }) {
		fmt.Fprintln(w, partly)
	}
}

func troubles(w io.Writer, o *cli.Output, all []api.Trouble) {
	t := cli.Table{Headers: []string{"LOOKS WRONG", "SINCE", "NODE", "WHAT"}}
	for _, x := range all {
		t.Row(x.Code, textutil.Since(x.Since), nodeCell(x.Node, o.Wide()), x.Text)
	}
	t.Print(w, o)
}

// maxTurned is the maximum number of rejected clients that status lists.
const maxTurned = 10

func turnedAway(w io.Writer, o *cli.Output, all []api.TurnedAway) {
	t := cli.Table{Headers: []string{"TURNED AWAY", "LAST", "TIMES", "NODE", "FROM", "WHY"}}
	shown := all
	if !o.Wide() {
		shown = all[:min(len(all), maxTurned)]
	}
	for _, x := range shown {
		text := x.Text
		if !o.Wide() {
			text = textutil.Clip(text, 200)
		}
		t.Row(x.Kind, textutil.Since(x.At), textutil.Number(x.Times), nodeCell(x.Node, o.Wide()), x.From, text)
	}
	t.Print(w, o)
	if more := len(all) - len(shown); more > 0 {
		fmt.Fprintf(w, "(%s more: -o wide)\n", textutil.Number(more))
	}
}

// maxNodeCell is the maximum number of characters of a node ID in a table that is not wide. A client chooses
// its ID, and the longest cell of a column sets the width of all rows.
const maxNodeCell = 64

// nodeCell returns a node ID for a table.
func nodeCell(id string, wide bool) string {
	if wide {
		return id
	}
	return textutil.Clip(id, maxNodeCell)
}

// clientTable has a row for each client, and a column for each type to which at least one client
// subscribes.
func clientTable(all []api.Client, wide bool) *cli.Table {
	found := map[string]string{} // URL by short name
	for _, c := range all {
		for _, s := range c.Types {
			found[s.Type] = s.URL
		}
	}
	types := slices.SortedFunc(maps.Keys(found), func(a, b string) int {
		return cmp.Or(cmp.Compare(xds.TypeOf(found[a]).Rank(), xds.TypeOf(found[b]).Rank()), cmp.Compare(a, b))
	})
	t := &cli.Table{Headers: slices.Concat([]string{"NODE", "GROUPS"}, types, []string{"CONNECTED"})}
	if wide {
		t.Headers = append(t.Headers, "PEER", "CLIENT", "IDENTITY", "STREAMS")
	}
	several := slices.ContainsFunc(all, func(c api.Client) bool { return c.Replica != all[0].Replica })
	if several {
		t.Headers = append(t.Headers, "SERVER")
	}
	for _, c := range all {
		row := []string{nodeCell(cmp.Or(c.Node, c.Path), wide), strings.Join(c.Groups, ",")}
		for _, name := range types {
			row = append(row, typeCell(c, name))
		}
		if c.Left != nil {
			row = append(row, "left "+textutil.Since(c.Left.At)+" ago")
		} else {
			row = append(row, textutil.Since(c.Since))
		}
		if wide {
			row = append(row, c.Peer, c.Agent, c.Identity, streamsText(c.Streams))
		}
		if several {
			row = append(row, c.Replica)
		}
		t.Row(row...)
	}
	return t
}

// typeCell returns the worst state of a client's streams for a type.
func typeCell(c api.Client, name string) string {
	worst, text := len(api.States), ""
	for _, s := range c.Types {
		if i := slices.Index(api.States, s.State); s.Type == name && i < worst {
			worst, text = i, stateText(s)
		}
	}
	return text
}

// stateText returns a state, for some states with the duration.
func stateText(s api.TypeStatus) string {
	switch {
	case s.State == api.Nacked && s.Nacked != nil:
		return string(s.State) + " " + textutil.Since(s.Nacked.Since)
	case (s.State == api.Stale || s.State == api.Sent) && s.Sent != nil:
		return string(s.State) + " " + textutil.Since(s.Sent.At)
	}
	return string(s.State)
}

// streamsText returns the kinds of the streams, each once, with its number.
func streamsText(all []api.Stream) string {
	var kinds []string
	number := map[string]int{}
	for _, s := range all {
		kind := s.API + " " + s.Variant
		number[kind]++
		if number[kind] == 1 {
			kinds = append(kinds, kind)
		}
	}
	for i, kind := range kinds {
		if n := number[kind]; n > 1 {
			kinds[i] = fmt.Sprintf("%d %s", n, kind)
		}
	}
	return strings.Join(kinds, ", ")
}
