package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/internal/admin/api"
	textutil "github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/xds"
)

// An explanation without a name covers all resources of a type, and without a type all types of the
// client. Each broken link names the first resource with that problem.

// askAll collects from all streams of the node the resources that are not synced.
func (c *chain) askAll(ctx context.Context, node string) error {
	c.client = c.e.find(node)
	c.decision = c.e.d.Source.Decide(c.node)
	f := c.follower()
	return c.client.ask(ctx, c.e, func(l *inspection, s *protocol.Session) {
		l.refused = map[string][]string{}
		for _, is := range l.types {
			if c.t != nil && !is.Type.Is(c.t) {
				continue
			}
			found := 0
			var refused []string
			for n := range c.e.states(l.Stream, s, is.Type) {
				if n.Why != protocol.NotWanted && len(l.missing) < maxUnsettled {
					if m := f.direct(xds.Ref{Type: is.Type, Name: n.Name}); m != nil {
						l.missing = append(l.missing, m)
					}
				}
				if n.State == protocol.StateSynced || n.State == protocol.StateLingering {
					continue
				}
				if n.RefusedIn != "" && !cannotTellAbsence(l.Stream, is.Type, &n) { // as in Session.refuses (HEAL-5)
					refused = append(refused, n.Name)
				}
				if n.State == protocol.StateRefused {
					continue
				}
				l.names = append(l.names, named{is.Type, n})
				found++
				if found == maxUnsettled {
					break
				}
			}
			l.refused[is.Type.URL] = refused
		}
	})
}

// maxUnsettled is the maximum number of names of a type that are collected. Refused names do not count.
const maxUnsettled = 100

// explainAll adds the links for all resources in question.
func (c *chain) explainAll(ctx context.Context) {
	c.loadedAll()
	c.missing()
	if c.decision.Groups == nil {
		c.selected()
	} else {
		place := ""
		if len(c.decision.Reasons) > 0 {
			place = c.decision.Reasons[0].Place.String()
		}
		c.ok(selected, place, "the node gets %s%s", c.reasons(), notes(c.decision))
	}
	c.allowedAll()
	c.connectedLink()
	c.subscribedAll()
	c.sentAll()
	c.acceptedAll(ctx)
	c.referencesAll()
}

func first(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

func (c *chain) loadedAll() {
	if c.e.d.Store != nil || c.e.d.Upstream != nil || c.e.d.Program { // a server of a store or a relay loads no files
		c.loaded()
		return
	}
	since, err := c.e.d.Source.LoadError()
	if kept, ok := errors.AsType[dir.RejectedGroups](err); ok {
		kept = slices.DeleteFunc(slices.Clone(kept), func(g dir.RejectedGroup) bool { return !slices.Contains(c.decision.Groups, g.Group) })
		err = kept
		if len(kept) == 0 { // only groups of other nodes have errors
			err = nil
		}
	}
	if err == nil && c.before.Seq() == 0 {
		c.loaded()
		return
	}
	if err == nil {
		c.ok(loaded, "", "the files of the node's groups are loaded (revision %d)", c.before.Seq())
		return
	}
	text, place := mistake(err, dir.Occurrence{Group: first(c.decision.Groups)})
	advice := "correct " + place + "; the server then loads the files by itself"
	if place == "" { // the load was rejected because files are missing, not because of an error in a file
		advice = "restore the removed files; or, to confirm the removal, run chancery reload --allow-mass-delete"
	}
	c.breaks(loaded, place, advice,
		"the served configuration is older than the files: the load was rejected %s: %s", c.e.since(since), text)
}

// missing adds the link "defined" about names that the client subscribes to, and that the node's groups
// do not have.
func (c *chain) missing() {
	var all []string
	var one *named
	for n := range c.unsettled(protocol.StateAbsent, protocol.StateDue) { // StateDue: the server may not have reported the absence yet
		if n.Why == protocol.ByName && n.View == nil && n.Finds == 0 {
			all = append(all, title(n.t, n.Name))
			if one == nil {
				one = n
			}
		}
	}
	if one == nil {
		c.ok(defined, "", "every resource to which the client subscribes by name exists")
		return
	}
	of := &chain{e: c.e, client: c.client, t: one.t, name: one.Name, before: c.before}
	of.decide()
	of.place()
	advice := "define it, or correct what refers to it: " + c.command(one.t, one.Name)
	if near := c.e.d.Source.Nearest(one.t, one.Name); near != "" {
		advice = fmt.Sprintf("did you mean %s? Else %s", quote(near), advice)
	}
	place := ""
	if p := of.mainParent(); p != nil {
		place = p.place
	}
	c.breaks(defined, place, advice, "the client subscribes to resources that the node does not get: %s", list(all, 5))
}

// unsettled yields the collected names in one of the states.
func (c *chain) unsettled(states ...protocol.NameStatus) func(func(*named) bool) {
	return func(yield func(*named) bool) {
		for i := range c.streams {
			for j := range c.streams[i].names {
				if n := &c.streams[i].names[j]; slices.Contains(states, n.State) && !yield(n) {
					return
				}
			}
		}
	}
}

func (c *chain) allowedAll() {
	if !c.connected() {
		c.allowed()
		return
	}
	c.ok(allowed, "", "no access rule refuses the client")
}

// each yields the state of each type in question on each stream.
func (c *chain) each(yield func(*inspection, *protocol.TypeState) bool) {
	for i := range c.streams {
		l := &c.streams[i]
		for j := range l.types {
			if is := &l.types[j]; (c.t == nil || is.Type.Is(c.t)) && !yield(l, is) {
				return
			}
		}
	}
}

func (c *chain) subscribedAll() {
	if !c.connected() || c.streams[0].err != nil {
		c.unknown(subscribed, "the client is not connected, or its stream has not begun")
		return
	}
	var all []string
	for _, is := range c.openedTypes() {
		switch {
		case is.Wildcard && is.Names == 0:
			all = append(all, "all "+is.Type.String())
		case is.Wildcard:
			all = append(all, fmt.Sprintf("all %s and %s", is.Type, count(is.Names, "name")))
		case is.Names > 0:
			all = append(all, fmt.Sprintf("%s of %s", count(is.Names, "name"), is.Type))
		}
	}
	switch {
	case len(all) > 0:
		c.ok(subscribed, "", "the client subscribes to %s", list(all, 12))
	case c.t != nil:
		c.breaks(subscribed, "", c.whyAsk(), "the client has not subscribed to any %s; it subscribes to %s", c.t, orElse(c.opened(), "no type"))
	default:
		c.breaks(subscribed, "", "look at the client's bootstrap: it must subscribe to something", "the client has no subscription")
	}
}

// openedTypes returns the subscriptions of the types in question, each type once: a client with a stream for each
// ClusterLoadAssignment subscribes to the names of all of them.
func (c *chain) openedTypes() (all []protocol.TypeState) {
	for _, is := range c.each {
		at := slices.IndexFunc(all, func(o protocol.TypeState) bool { return o.Type.Is(is.Type) })
		if at < 0 {
			at, all = len(all), append(all, protocol.TypeState{Type: is.Type})
		}
		all[at].Wildcard = all[at].Wildcard || is.Wildcard
		all[at].Names += is.Names
	}
	slices.SortStableFunc(all, func(a, b protocol.TypeState) int { return a.Type.Rank() - b.Type.Rank() })
	return all
}

func (c *chain) sentAll() {
	if !c.connected() {
		c.unknown(sent, "the client is not connected")
		return
	}
	if c.streams[0].err != nil {
		c.unknown(sent, "its stream has not begun")
		return
	}
	for n := range c.unsettled(protocol.StateWaiting) {
		what, advice := c.waits(n.WaitsFor)
		c.breaks(sent, "", advice, "%s waits, since %s, for %s", title(n.t, n.Name), c.e.ago(n.Since), orElse(what, "content"))
		return
	}
	for l, is := range c.each {
		if is.Due && len(is.Unanswered) > 0 {
			m := is.Unanswered[0]
			c.on, c.of = l, is
			c.breaks(sent, "", c.stalled(), "changes of %s are not sent: the client has not answered an earlier response (nonce %s), sent %s", is.Type, m.Nonce, c.e.since(m.Sent))
			return
		}
	}
	c.ok(sent, "", "the client was sent everything to which it subscribes")
}

func (c *chain) acceptedAll(ctx context.Context) {
	if !c.connected() {
		c.unknown(accepted, "the client is not connected")
		return
	}
	if c.streams[0].err != nil {
		c.unknown(accepted, "its stream has not begun")
		return
	}
	if c.refusalsAll(ctx) {
		return
	}
	var texts []string
	for l, is := range c.each {
		if len(is.Unanswered) > 0 {
			m := is.Unanswered[0]
			c.on, c.of = l, is
			c.breaks(accepted, "", c.stalled(), "the client has not answered a response of %s (nonce %s), sent %s", is.Type, m.Nonce, c.e.since(m.Sent))
			return
		}
		texts = append(texts, is.Type.String())
	}
	slices.Sort(texts)
	c.ok(accepted, "", "the client has accepted what it was sent: %s", orElse(strings.Join(slices.Compact(texts), ", "), "nothing"))
}

// refusalsAll adds the link "accepted" if the client refuses resources, and reports whether it does. The link has
// the first refused type with its error text, and the faulty resources of the others.
func (c *chain) refusalsAll(ctx context.Context) bool {
	var place, advice, text string
	var more []string
	for l, is := range c.each {
		if len(l.refused[is.Type.URL]) == 0 { // includes resources in quarantine, which the session does not know
			continue
		}
		says, at := "its error text is no longer known", ""
		if nack := c.nacked(is.Type, l.ID); nack != nil {
			says, at = nack.Error, " "+c.e.since(nack.Since)
		}
		x := c.e.try(ctx, l.Stream, c.decision.Groups, is.Type, says, l.refused[is.Type.URL])
		if len(x.refused) == 0 {
			continue // the client has accepted the resources in the meantime
		}
		guilty := x.guilty()
		if text != "" {
			more = append(more, otherRefusal(is.Type, guilty))
			continue
		}
		advice = "look at the client's log; chancery check --envoy finds what only Envoy knows"
		why := fmt.Sprintf("; which of %s is faulty is unknown", count(len(x.refused), "resource"))
		if len(guilty) > 0 {
			place, why = guilty[0].Place, ", because of "+blamed(guilty)
			advice = "correct " + placed(guilty)
			if guilty[0].Reason != "" {
				why += ": " + guilty[0].Reason
			}
		}
		text = fmt.Sprintf("the client refused %s%s%s; it says: %s", is.Type, at, why, clipped(says))
	}
	if text == "" {
		return false
	}
	if more != nil {
		text += "; it also refuses " + list(more, 5)
	}
	if c.broken == defined { // a subscription to a missing resource may be a remnant, and stops no other resource
		c.broken, c.advice = "", ""
	}
	c.breaks(accepted, place, advice, "%s", text)
	return true
}

// otherRefusal returns a text about a refused type: its faulty resources with the first place, if they are known.
func otherRefusal(t *xds.Type, guilty []api.Resource) string {
	if len(guilty) == 0 {
		return t.String()
	}
	return placed(guilty)
}

// command returns the command that explains a resource of the node.
func (c *chain) command(t *xds.Type, name string) string {
	return fmt.Sprintf("chancery explain %s %s/%s", textutil.Head(c.id, maxText), t, textutil.Head(name, maxText))
}
