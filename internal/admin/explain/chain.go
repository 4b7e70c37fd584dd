package explain

import (
	"context"
	"fmt"
	"slices"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// The names of the links, in the order of the chain.
const (
	loaded     = "loaded"     // the current files are served
	defined    = "defined"    // a file has the resource
	valid      = "valid"      // the resource has no known fault
	selected   = "selected"   // the node gets a group that has the resource
	allowed    = "allowed"    // access rules let the client have the resource
	connected  = "connected"  // the client is connected
	referenced = "referenced" // another resource of the client refers to it
	subscribed = "subscribed" // the client subscribes to the resource
	sent       = "sent"       // the current state of the resource was sent
	accepted   = "accepted"   // the client has accepted the resource
	references = "references" // the node gets all resources to which it leads; only if broken
)

// A chain has the facts about one resource and one client, and builds the links of an explanation from
// them.
type chain struct {
	e *Explainer
	*client
	t    *xds.Type
	name string

	is       *protocol.NameState // state of the resource on the stream; nil: the client has not opened the type
	on       *inspection         // the stream with that state; nil: none
	of       *protocol.TypeState // state of the type on that stream
	parents  []parent            // resources of the node that refer to the explained resource
	decision groups.Decision
	before   *store.Snapshot // snapshot of the store before the streams were inspected
	all      []dir.Occurrence
	at       *dir.Occurrence // the definition that the node gets; nil: none
	live     *registration   // registered endpoints that the node gets; nil: none
	wrong    []fault
	guilty   []api.Resource // faulty resources of the refusal

	links  []api.Link
	broken string
	advice string
}

// Explain explains why a client has a resource or not. Without a name it covers all resources of the
// type, and without a type all types of the client. The type is a short name, such as "CDS" or "cds",
// or a type URL.
//
// An unknown node or resource name is a broken link and not an error. So is a client that disconnects
// during the call. The error is a [*NotFound] if the type does not exist, or the error of the
// context.
func (e *Explainer) Explain(ctx context.Context, node, typ, name string) (api.Explanation, error) {
	t, err := typeNamed(typ)
	switch {
	case err != nil:
		return api.Explanation{}, err
	case t == nil && name != "":
		return api.Explanation{}, &NotFound{Field: "type", Message: "a name needs its type", Hint: "such as CDS"}
	}
	c := &chain{e: e, t: t, name: xds.CanonicalName(name), before: e.d.Snapshot()}
	if t == nil || name == "" {
		err = c.askAll(ctx, node)
	} else {
		err = c.ask(ctx, node)
	}
	switch {
	case err != nil:
		return api.Explanation{}, err
	case t == nil || name == "":
		c.explainAll(ctx)
	default:
		c.explain()
	}
	out := api.Explanation{APIVersion: api.Version, Kind: "Explanation", Node: node, Name: name, Links: c.links, Broken: c.broken, Advice: c.advice}
	if t != nil {
		out.Type = t.String()
	}
	if c.connected() {
		out.Clients = max(c.peers(), 1)
	} else {
		out.Last = c.last()
	}
	return out, nil
}

// ask reads the state of the resource and of its parents from the streams of the node. If several
// streams have opened the type, it uses the stream with the worst state.
func (c *chain) ask(ctx context.Context, node string) error {
	c.client = c.e.find(node)
	c.decide()
	err := c.client.ask(ctx, c.e, func(l *inspection, s *protocol.Session) {
		if l.state(c.t) != nil {
			n := c.e.state(l.Stream, s, c.t, c.name)
			l.is = &n
			if n.State == protocol.StateRefused {
				l.refused = map[string][]string{c.t.URL: c.e.refusedOf(l.Stream, s, c.t)}
			}
		}
		for _, p := range c.parents {
			l.parents = append(l.parents, c.e.state(l.Stream, s, p.Type, p.Name))
		}
	})
	if err != nil {
		return err
	}
	for i := range c.streams {
		l := &c.streams[i]
		if l.is != nil && (c.is == nil || badness(l.is) > badness(c.is)) {
			c.is, c.on, c.of = l.is, l, l.state(c.t)
		}
		for j := range l.parents {
			if p, is := &c.parents[j], &l.parents[j]; p.state == nil || p.state.State == protocol.StateUnwanted {
				p.state = is
			}
		}
	}
	c.place()
	if c.on != nil {
		x := c.e.try(ctx, c.on.Stream, c.decision.Groups, c.t, "", c.on.refused[c.t.URL])
		if nack := c.nack(); nack != nil {
			x.text = nack.Error
		}
		if x.sure && slices.Contains(x.refused, c.name) { // this resource is certainly faulty; others may be, too
			x.refused = []string{c.name}
		}
		c.guilty = x.guilty()
	}
	return nil
}

// decide finds the groups of the node, the definition of the resource in these groups, and its parents.
func (c *chain) decide() {
	c.decision = c.e.d.Source.Decide(c.node)
	c.all = c.e.d.Source.Occurrences(c.t, c.name)
	for _, group := range c.decision.Groups {
		if text, n, ok := c.e.registered(group, c.t, c.name); ok && c.at == nil && c.live == nil {
			c.live = &registration{group, text, n}
		}
		i := slices.IndexFunc(c.all, func(s dir.Occurrence) bool { return s.Served && s.Group == group })
		if i >= 0 && c.at == nil {
			c.at = &c.all[i]
		}
	}
	if !c.t.Implicit || len(c.all) == 0 {
		c.parents = c.referrers()
	}
}

// badness returns a number that is larger for a worse state.
func badness(n *protocol.NameState) int {
	return slices.Index([]protocol.NameStatus{
		protocol.StateUnwanted, protocol.StateSynced, protocol.StateLingering, protocol.StateUnknown, protocol.StateAbsent,
		protocol.StateSent, protocol.StateDue, protocol.StateWaiting, protocol.StateRefused,
	}, n.State)
}

// explain adds the links for one resource.
func (c *chain) explain() {
	if c.live != nil {
		c.registered()
	} else {
		if c.at != nil {
			c.wrong = c.examine(c.at.Loaded)
		}
		c.loaded()
		c.defined()
		c.valid()
		c.selected()
	}
	c.allowed()
	c.connectedLink()
	c.referenced()
	c.subscribed()
	c.sent()
	c.accepted()
	c.referencesLink()
}

// A registration has a text about the registered endpoints of a cluster in a group of the node, and their
// number.
type registration struct {
	group, text string
	n           int
}

// registered adds the first four links for registered endpoints: they replace the endpoints of files.
func (c *chain) registered() {
	hides := ""
	if c.at != nil {
		hides = fmt.Sprintf("; the endpoints in %s are not served", c.at.Pos)
	}
	c.ok(loaded, "", "registered endpoints need no load")
	if c.live.n > 0 {
		c.ok(defined, "", "endpoints of %s are %s, in group %s%s", quote(c.name), c.live.text, quote(c.live.group), hides)
	} else {
		of := c.name
		if group := groups.BaseOf(c.live.group); group != store.DefaultGroup {
			of += " -g " + group
		}
		c.breaks(defined, "", fmt.Sprintf("register an endpoint (chancery endpoints put %s), or serve the endpoints of the files or the revision again (chancery endpoints rm --release %s)", of, of),
			"all registered endpoints of %s in group %s are gone: removed, or their leases ended%s", quote(c.name), quote(c.live.group), hides)
	}
	c.ok(valid, "", "an endpoint is checked when it is registered")
	text, place := c.reason(c.live.group)
	c.ok(selected, place, "%s", text)
}

// ok adds a link that is not broken.
func (c *chain) ok(name, place, format string, args ...any) {
	c.links = append(c.links, api.Link{Name: name, OK: true, Known: true, Text: fmt.Sprintf(format, args...), Place: place})
}

// breaks adds a broken link and the advice for it. The first broken link is the result of the chain.
func (c *chain) breaks(name, place, advice, format string, args ...any) {
	c.links = append(c.links, api.Link{Name: name, Known: true, Text: fmt.Sprintf(format, args...), Place: place})
	if c.broken == "" {
		c.broken, c.advice = name, advice
	}
}

// doubts adds a link with a likely problem that has not broken the chain.
func (c *chain) doubts(name, place, format string, args ...any) {
	c.links = append(c.links, api.Link{Name: name, Known: true, Text: fmt.Sprintf(format, args...), Place: place})
}

// unknown adds a link whose state is unknown, mostly because an earlier link is broken.
func (c *chain) unknown(name, format string, args ...any) {
	c.links = append(c.links, api.Link{Name: name, Text: fmt.Sprintf(format, args...)})
}

// title returns a text with the type and name of the explained resource, such as: CDS "pay".
func (c *chain) title() string { return title(c.t, c.name) }

// has reports whether the node's groups have the resource in a snapshot, by its name or an alias.
func (c *chain) has(s *store.Snapshot) bool {
	return slices.ContainsFunc(c.decision.Groups, func(g string) bool { return hasName(s.Effective(g), c.t, c.name) })
}

// hasName reports whether a name or alias exists in a view.
func hasName(v xds.Tables, t *xds.Type, name string) bool {
	table := v.Table(t)
	return table.Lookup(name) != nil || table.Aliased(name).Len() > 0
}

// refused reports whether the client refuses the response that had the resource.
func (c *chain) refused() bool { return c.is != nil && c.is.State == protocol.StateRefused }
