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

// Names of links, in the order of the chain.
const (
	loaded     = "loaded"     // what the files say is served
	defined    = "defined"    // a file has the resource
	valid      = "valid"      // nothing is known to be wrong with it
	selected   = "selected"   // the node gets the group that has it
	allowed    = "allowed"    // and may have it
	connected  = "connected"  // the client is there
	referenced = "referenced" // something that the client has leads to it
	subscribed = "subscribed" // the client asks for it
	sent       = "sent"       // the client was told
	accepted   = "accepted"   // and has accepted that
)

// A chain is what is found out about one resource and one client, and the links that say so.
type chain struct {
	e *Explainer
	*client
	t    *xds.Type
	name string

	is       *protocol.NameState // how the client stands with it; nil: it has not opened the type
	on       *look               // the stream that says so; nil: there is none
	of       *protocol.TypeState // of the type on that
	parents  []parent            // what the client's configuration has that refers to it
	decision groups.Decision
	before   *store.Snapshot // from before the client was asked
	all      []dir.Standing
	at       *dir.Standing // where what the node gets stands; nil: it gets none
	live     *live         // the endpoints that the node gets are registered; nil: they are not
	wrong    []fault
	guilty   []api.Resource // of a refusal

	links  []api.Link
	broken string
	advice string
}

// Explain follows the chain from the file to the client. Without a name it is about all of
// the type, and without a type about the client. The type is a short name, such as "CDS" or
// "cds", or a type URL.
//
// A node that nobody knows, and a name that no file has, are broken links and no errors. The
// error is a [*NotFound] if there is no such type, and that of the context if it ends before.
// A client that leaves meanwhile is a broken link, too.
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
		if err = c.askAll(ctx, node); err == nil {
			c.explainAll(ctx)
		}
	} else if err = c.ask(ctx, node); err == nil {
		c.explain()
	}
	if err != nil {
		return api.Explanation{}, err
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

// ask asks the streams of the node about the resource, and about what refers to it. Of several
// that have opened its type the one counts that is worst off.
func (c *chain) ask(ctx context.Context, node string) error {
	c.client = c.e.find(node)
	c.decide()
	err := c.client.ask(ctx, c.e, func(l *look, s *protocol.Session) {
		if l.state(c.t) != nil {
			n := c.e.state(l.Stream, s, c.t, c.name)
			if l.is = &n; n.State == protocol.StateRefused {
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
		if x.sure && slices.Contains(x.refused, c.name) { // whatever else is
			x.refused = []string{c.name}
		}
		c.guilty = x.guilty()
	}
	return nil
}

// decide finds out what the node gets.
func (c *chain) decide() {
	c.decision = c.e.d.Source.Decide(c.node)
	c.all = c.e.d.Source.Standings(c.t, c.name)
	for _, group := range c.decision.Groups {
		if text, n, ok := c.e.registered(group, c.t, c.name); ok && c.at == nil && c.live == nil {
			c.live = &live{group, text, n}
		}
		i := slices.IndexFunc(c.all, func(s dir.Standing) bool { return s.Served && s.Group == group })
		if i >= 0 && c.at == nil {
			c.at = &c.all[i]
		}
	}
	if !c.t.Implicit || len(c.all) == 0 {
		c.parents = c.referrers()
	}
}

// badness orders the states of a name, the worst last.
func badness(n *protocol.NameState) int {
	return slices.Index([]protocol.NameStatus{
		protocol.StateUnwanted, protocol.StateSynced, protocol.StateLingering, protocol.StateUnknown, protocol.StateAbsent,
		protocol.StateSent, protocol.StateDue, protocol.StateWaiting, protocol.StateRefused,
	}, n.State)
}

// explain makes the links of one resource.
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
}

// A live is that endpoints are registered, of a group of the node.
type live struct {
	group, text string
	n           int
}

// registered says that endpoints are registered, and what that hides.
func (c *chain) registered() {
	hides := ""
	if c.at != nil {
		hides = fmt.Sprintf("; what %s says of them is not served", c.at.Pos)
	}
	c.ok(loaded, "", "what is registered needs no load")
	if c.live.n > 0 {
		c.ok(defined, "", "endpoints of %s are %s, in group %s%s", quote(c.name), c.live.text, quote(c.live.group), hides)
	} else {
		of := c.name
		if group := groups.BaseOf(c.live.group); group != store.DefaultGroup {
			of += " -g " + group
		}
		c.breaks(defined, "", fmt.Sprintf("register one (chancery endpoints put %s), or have what files or revisions say count again (chancery endpoints rm --release %s)", of, of),
			"no endpoint of %s is left of those registered in group %s: they were removed, or their leases ended%s", quote(c.name), quote(c.live.group), hides)
	}
	c.ok(valid, "", "an endpoint is checked when it is registered")
	text, place := c.reason(c.live.group)
	c.ok(selected, place, "%s", text)
}

// ok adds a link that holds.
func (c *chain) ok(name, place, format string, args ...any) {
	c.links = append(c.links, api.Link{Name: name, OK: true, Known: true, Text: fmt.Sprintf(format, args...), Place: place})
}

// breaks adds a link that does not, with what to do about it. The first of them is the one that
// counts.
func (c *chain) breaks(name, place, advice, format string, args ...any) {
	c.links = append(c.links, api.Link{Name: name, Known: true, Text: fmt.Sprintf(format, args...), Place: place})
	if c.broken == "" {
		c.broken, c.advice = name, advice
	}
}

// unknown adds a link of which nobody can say anything, because of one before it.
func (c *chain) unknown(name, format string, args ...any) {
	c.links = append(c.links, api.Link{Name: name, Text: fmt.Sprintf(format, args...)})
}

// here is how the resource is called.
func (c *chain) here() string { return called(c.t, c.name) }

// has reports whether the groups of the node have it, by whatever name, in a snapshot.
func (c *chain) has(s *store.Snapshot) bool {
	return slices.ContainsFunc(c.decision.Groups, func(g string) bool { return hasName(s.Effective(g), c.t, c.name) })
}

// hasName reports whether a name finds something in a view.
func hasName(v xds.Tables, t *xds.Type, name string) bool {
	table := v.Table(t)
	return table.Lookup(name) != nil || table.Aliased(name).Len() > 0
}

// refused reports whether the client refuses the resource, or what it came with.
func (c *chain) refused() bool { return c.is != nil && c.is.State == protocol.StateRefused }
