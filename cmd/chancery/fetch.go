package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/relay/fetch"
	textutil "github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/xds"
)

// A fetching is what fetch was asked for.
type fetching struct {
	xdsFlags
	output
	showing
	follow bool
	nack   string
	sets   []string
}

// A fetched is what fetch prints in JSON.
type fetched struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"` // "FetchedList"
	Server     string            `json:"server"`
	Items      []fetchedResource `json:"items"`
	Missing    []fetchedMissing  `json:"missing,omitempty"`
	Malformed  []fetchedBroken   `json:"malformed,omitempty"`
	Unfinished bool              `json:"unfinished,omitempty"` // news was still coming when the time was over
}

type fetchedResource struct {
	Type    string          `json:"type"`
	Name    string          `json:"name"`
	Version string          `json:"version,omitempty"` // in SotW that of the response
	Bytes   int             `json:"bytes"`
	TTL     string          `json:"ttl,omitempty"`
	Aliases []string        `json:"aliases,omitempty"`
	Error   string          `json:"error,omitempty"` // why it cannot be used
	Body    json.RawMessage `json:"body,omitempty"`
}

type fetchedMissing struct {
	Type  string `json:"type"`
	Name  string `json:"name"`
	Said  bool   `json:"said"` // the server has said that it does not exist; else it has not answered
	Error string `json:"error,omitempty"`
}

// A fetchedBroken is what came and cannot be read.
type fetchedBroken struct {
	Type  string `json:"type"`
	Name  string `json:"name,omitempty"`
	Error string `json:"error"`
}

func fetchCommand() *cobra.Command {
	var x fetching
	cmd := &cobra.Command{
		Use:   "fetch xds://HOST:PORT [TYPE[/NAME] [NAME...]]...",
		Short: "Get resources from any xDS server, as a client of it",
		Long: `Fetch asks an xDS server, of whatever make, as a client would, prints what it gives,
and ends. TYPE is cds, clusters, lds, listeners, … or a type's URL; names after it are
of that type; without a name it is everything (*). Without a TYPE it is all that a
proxy gets: all listeners and clusters, and what they refer to.

The server is xds://HOST:PORT, xds://[IPV6]:PORT or xds://unix:/PATH; without a port it
is 18000. The connection is in plain text unless one of the --tls flags is given. After a
? there may be flags for this server, which win: xds://HOST:PORT?node=edge-1&tls-ca=ca.pem

The YAML is what chancery check and serve read, unless it has secrets: they are shown
with --show-secrets only.

When is the answer whole? A name is answered when it came, or when the server said that
there is none, for which SotW has no words. Of all names (*), SotW gives all listeners or
clusters at once; after any other response there may be another part, so fetch waits until
nothing new has come for --settle. What has not come when nothing was new for --timeout is
missing. If what is new has no end, fetch prints what came within --timeout; all in all it
takes ten times --timeout at most. Some servers give routes, endpoints and secrets only
to who asks for them by name; --follow finds the names.

With --nack each response is refused with this message, and for --timeout what client and
server say to each other is printed: also what the server does with a refusal.

Exit codes: 0 printed; 1 it could not be done, or some of it cannot be used; 2 wrong
usage; 3 the server cannot be reached, or it lets nobody in; 4 something does not exist,
or the server gave others and not this; 124 it answers nothing, or without end.`,
		Example: `  chancery fetch xds://127.0.0.1:18000
  chancery fetch xds://127.0.0.1:18000 clusters -o table --node edge-1
  chancery fetch xds://127.0.0.1:18000 cds pay search eds/pay --delta
  chancery fetch xds://127.0.0.1:18000 listener/in --follow >in.yaml
  chancery fetch xds://127.0.0.1:18000 cds --nack 'no such filter'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("fetch needs the server: xds://HOST:PORT")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return x.run(cmd, args) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	x.nodeFlags.flags(f)
	f.Lookup("node").Usage = "`ID` of the node that asks; default: the host name of this machine"
	followRefsFlag(f, &x.follow)
	nackFlag(f, &x.nack)
	x.output.flags(cmd, "yaml", "json", "jsonl", "name", "table")
	x.xdsFlags.waits(f)
	x.showing.flags(f)
	setFlag(f, &x.sets)
	x.xdsFlags.flags(f)
	cmd.ValidArgsFunction = completeTypes
	usageWith(cmd, "CHANCERY_NODE for --node,\nCHANCERY_CLIENT_TLS_CERT for --tls-cert and CHANCERY_CLIENT_TLS_KEY for --tls-key")
	return cmd
}

func (x *fetching) run(cmd *cobra.Command, args []string) error {
	if err := x.output.check(); err != nil {
		return err
	}
	s, err := x.server(args[0])
	if err != nil {
		return err
	}
	asked, err := questions(args[1:])
	if err != nil {
		return err
	}
	types, err := readSets(x.sets)
	if err != nil {
		return err
	}
	o, err := s.options(cmd, types)
	if err != nil {
		return err
	}
	if o.Asked = asked; len(asked) == 0 {
		o.Asked, x.follow = everything(), true
	}
	if x.follow {
		o.Refs = references(types)
	}
	if x.nack != "" {
		if x.format != "yaml" && x.format != "jsonl" {
			return errors.New("--nack prints a conversation, line by line, or with -o jsonl")
		}
		o.Refuse = x.nack
		return s.converse(cmd, o, x.timeout, func(step fetch.Step) {
			messageOf(step, s).print(cmd.OutOrStdout(), x.format == "jsonl")
		})
	}
	a, err := fetch.All(contextOf(cmd), o)
	if err != nil {
		return fail(err, "")
	}
	x.types = types
	if err := x.print(cmd.OutOrStdout(), cmd.ErrOrStderr(), s, a); err != nil {
		return err
	}
	return s.verdict(a, cmd.ErrOrStderr())
}

// print prints what there is.
func (x *fetching) print(w, stderr io.Writer, s *xdsServer, a *fetch.Answer) error {
	all := fetched{APIVersion: api.Version, Kind: "FetchedList", Server: s.text, Items: []fetchedResource{}, Unfinished: a.Unfinished}
	var docs []*bytes.Buffer
	var unshown []string
	hidden := 0
	for _, r := range a.Resources {
		item := fetchedResource{Type: r.Type.String(), Name: r.Name, Version: r.Version}
		if r.Refused != nil {
			item.Error = textutil.Lines(r.Refused.Error())
		}
		if r.Resource == nil {
			all.Items = append(all.Items, item)
			continue
		}
		item.Bytes, item.Aliases = len(r.Body), r.Aliases
		if r.TTL > 0 {
			item.TTL = r.TTL.String()
		}
		body, whole, err := x.body(r.Resource)
		switch {
		case err != nil:
			unshown = append(unshown, fmt.Sprintf("%s/%s: %v", r.Type, r.Name, err))
		case !whole:
			hidden++
		}
		item.Body = body
		all.Items = append(all.Items, item)
		if body != nil && x.format == "yaml" {
			var doc bytes.Buffer
			if err := writeYAML(&doc, wrapped(r.Resource, body)); err != nil {
				unshown = append(unshown, fmt.Sprintf("%s/%s: %v", r.Type, r.Name, err))
				continue
			}
			docs = append(docs, &doc)
		}
	}
	for _, m := range a.Missing {
		missing := fetchedMissing{Type: m.Type.String(), Name: m.Name, Said: m.Said}
		if m.Err != nil {
			missing.Error = textutil.Lines(m.Err.Error())
		}
		all.Missing = append(all.Missing, missing)
	}
	for _, m := range a.Malformed {
		all.Malformed = append(all.Malformed, fetchedBroken{m.Type.String(), m.Name, textutil.Lines(m.Err.Error())})
	}
	var err error
	switch x.format {
	case "yaml":
		for i, doc := range docs {
			if i > 0 {
				fmt.Fprintln(w, "---")
			}
			if _, err = doc.WriteTo(w); err != nil {
				break
			}
		}
	case "table":
		t := table{headers: []string{"TYPE", "NAME", "VERSION", "SIZE"}}
		for _, r := range all.Items {
			t.row(r.Type, r.Name, short(r.Version), bytesText(r.Bytes))
		}
		t.print(w, &x.output)
	default:
		err = data(&x.output, w, all, all.Items, func(r fetchedResource) string { return r.Type + "/" + r.Name })
	}
	if err != nil {
		return fail(err, "")
	}
	if x.format == "table" || x.format == "name" {
		return nil // which show no content
	}
	if hidden > 0 {
		fmt.Fprintf(stderr, "chancery: warning: %s not shown whole, because of secrets or of messages that nobody knows: --show-secrets shows all\n", are(hidden, "resource"))
	}
	if len(unshown) > 0 {
		for _, u := range unshown {
			fmt.Fprintln(stderr, textutil.Line("not shown: "+u))
		}
		return fail(fmt.Errorf("%s not shown", are(len(unshown), "resource")), "--proto-set FILE adds messages that are not Envoy's")
	}
	return nil
}

func are(n int, what string) string {
	if n == 1 {
		return amount(n, what) + " is"
	}
	return amount(n, what) + " are"
}

// verdict says what an answer lacks.
func (s *xdsServer) verdict(a *fetch.Answer, stderr io.Writer) error {
	switch {
	case len(a.Ends) > 0 && len(a.Resources) > 0:
		return s.lacking(a.Ends)
	case len(a.Ends) > 0:
		return s.ended(a.Ends[0])
	}
	for _, m := range a.Malformed {
		fmt.Fprintf(stderr, "chancery: warning: %s: %s\n", m.Type, textutil.Line(m.Err.Error()))
	}
	for _, r := range a.Resources {
		if r.Refused != nil {
			return fail(fmt.Errorf("%s/%s cannot be used: %s", r.Type, textutil.Line(r.Name), textutil.Lines(r.Refused.Error())), "")
		}
	}
	if n := len(a.Malformed); n > 0 {
		return fail(fmt.Errorf("%s: %s of the answer cannot be used", s.text, amount(n, "resource")), "")
	}
	if a.Unfinished {
		return failWith(timedOut, fmt.Errorf("%s: something new kept coming, and what there was until then is not all (--timeout)", s.text), "")
	}
	var said, silent []string
	for _, m := range a.Missing {
		text := m.Type.String() + "/" + textutil.Line(m.Name)
		if m.Err != nil {
			text += ": " + textutil.Line(m.Err.Error())
		}
		switch {
		case m.Name == xds.Wildcard && len(a.Resources) > 0: // some servers say nothing where they have nothing
			fmt.Fprintf(stderr, "chancery: warning: no answer for %s\n", text)
		case !m.Asked:
			fmt.Fprintf(stderr, "chancery: warning: %s is referred to, and the server has none\n", text)
		case m.Said:
			said = append(said, text)
		default:
			silent = append(silent, text)
		}
	}
	switch {
	case len(said) > 0:
		return failWith(notFound, fmt.Errorf("the server has no %s", someOf(append(said, silent...))), "")
	case len(silent) > 0 && len(a.Resources) > 0:
		hint := "in SotW a server says nothing of what it does not have"
		switch {
		case s.delta:
			hint = "this server does not say what it lacks"
		case !s.rest:
			hint += "; in delta it does: --delta"
		}
		return failWith(notFound, fmt.Errorf("no answer for %s within %v (--timeout)", someOf(silent), s.timeout), hint)
	case len(silent) > 0:
		return s.silent(someOf(silent))
	}
	return nil
}

// silent is the error of a server that answers nothing.
func (s *xdsServer) silent(of string) error {
	hint := "many servers give something only to a node that they know: --node"
	if s.nodeFlags.given() {
		hint = "the server may have nothing of this for this node, or give it by name only"
	}
	return failWith(timedOut, fmt.Errorf("%s: no answer for %s within %v (--timeout)", s.text, of, s.timeout), hint)
}

// someOf are some of many.
func someOf(all []string) string {
	const most = 5
	if len(all) > most {
		return strings.Join(all[:most], ", ") + fmt.Sprintf(" and %s more", number(len(all)-most))
	}
	return strings.Join(all, ", ")
}

// completeTypes completes the arguments after the server.
func completeTypes(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return []string{ofXDS}, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}
	return typeWords(), cobra.ShellCompDirectiveNoFileComp
}
