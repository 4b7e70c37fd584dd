package explain

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/admin/api"
	textutil "github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// The links from "loaded" to "subscribed", except "referenced". They use the source, the store and the
// client's subscriptions.

// loaded adds the link "loaded": does the server serve the current version of the resource's file?
func (c *chain) loaded() {
	if c.e.d.Upstream != nil {
		if text, ok := c.e.d.Upstream(); ok {
			c.ok(loaded, "", "the relay serves %s", text)
		} else {
			c.breaks(loaded, "", "look at the upstream, and at the relay's log", "the upstream is %s", text)
		}
		return
	}
	if c.e.d.Store != nil {
		if text, ok := c.e.d.Store(); ok {
			c.ok(loaded, "", "the server serves %s", text)
		} else {
			c.breaks(loaded, "", "look at the store, and at the server's log", "the server has nothing yet of %s", text)
		}
		return
	}
	if c.e.d.Program {
		if seq := c.before.Seq(); seq > 0 {
			c.ok(loaded, "", "the program has filled its store (revision %d)", seq)
		} else {
			c.breaks(loaded, "", "look at the program: it calls Update of its store when it has resources", "the program has not written to its store yet")
		}
		return
	}
	since, err := c.e.d.Source.LoadError()
	at := c.at
	if at == nil && len(c.all) > 0 && c.all[0].Served {
		at = &c.all[0]
	}
	i := slices.IndexFunc(c.all, func(s dir.Occurrence) bool { return !s.Served })
	switch {
	case err == nil && c.before.Seq() == 0:
		c.breaks(loaded, "", "wait for the first load, and look at the server's log", "nothing was loaded yet")
	case err == nil && at != nil && at.Outdated:
		_, until := c.e.d.Source.HeldUntil()
		c.breaks(loaded, "", "restore it; or, to confirm the removal, run chancery reload --allow-mass-delete", "the files do not have it any more; because many are missing, it is served until %s", until.UTC().Format(time.RFC3339))
	case err == nil:
		c.ok(loaded, "", "the files are loaded (revision %d)", c.before.Seq())
	case at != nil && at.MissingGroupFile != "":
		text, _ := mistake(err, *at)
		c.breaks(loaded, "", restore(at.MissingGroupFile), "the load was rejected %s, and the previous configuration is served: %s", c.e.since(since), text)
	case i >= 0 || at != nil && at.Outdated:
		of := at
		if i >= 0 {
			of = &c.all[i]
		}
		text, place := mistake(err, *of)
		what := "its file was read, but that load was rejected"
		if at != nil {
			what = "the served version is older than its file: the load was rejected"
		}
		c.breaks(loaded, place, "correct "+orElse(place, "the error that rejected the load")+"; the server then loads the files by itself", "%s %s: %s", what, c.e.since(since), text)
	case at == nil:
		if all := c.e.d.Source.ErrorsMentioning(c.name); len(all) > 0 {
			c.breaks(loaded, placeOf(all[0]), "correct "+placeOf(all[0])+"; the server then loads the files by itself",
				"for %s, a file that may have %s cannot be loaded: %s", c.e.ago(since), c.title(), wrongText(all[0]))
			return
		}
		fallthrough
	default:
		text, place := mistake(err, dir.Occurrence{})
		c.ok(loaded, place, "the last load was rejected %s (%s), but that changes nothing here", c.e.since(since), text)
	}
}

// restore returns the advice about the missing file of a group.
func restore(file string) string {
	return fmt.Sprintf("restore %s; or, to confirm the removal of its group, run chancery reload --allow-mass-delete", file)
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// mistake returns the reason why a load was rejected, and the place of the error. Of several errors
// it prefers one in the file of the resource, then one in the resource's group, then the first.
func mistake(err error, of dir.Occurrence) (text, place string) {
	var all []findings.Problem
	if errs, ok := errors.AsType[dir.Errors](err); ok {
		all = errs
	} else if kept, ok := errors.AsType[dir.RejectedGroups](err); ok {
		for _, g := range kept {
			errs, ok := errors.AsType[dir.Errors](g.Err)
			if !ok && (text == "" || g.Group == of.Group) {
				text = fmt.Sprintf("group %q: %v", g.Group, g.Err)
			}
			all = append(all, errs...)
		}
	}
	if len(all) == 0 {
		if text == "" {
			text = err.Error()
		}
		return textutil.Head(text, maxText), ""
	}
	at := slices.IndexFunc(all, func(p findings.Problem) bool { return of.Resource != nil && p.File == of.File })
	if at < 0 {
		at = slices.IndexFunc(all, func(p findings.Problem) bool { return p.Group != "" && p.Group == of.Group })
	}
	p := all[max(at, 0)]
	text = wrongText(p)
	if n := findings.Count(all); n > 1 {
		text += fmt.Sprintf(" (and %d more)", n-1)
	}
	return text, placeOf(p)
}

// placeOf returns the place of a finding.
func placeOf(p findings.Problem) string {
	return dir.Pos{File: p.File, Line: p.Pos.Line, Col: p.Pos.Column, Path: p.Path}.String()
}

// wrongText returns the text of a finding, without its place.
func wrongText(p findings.Problem) string {
	text := p.Message
	if p.Path != "" {
		text = p.Path + ": " + text
	}
	if p.Hint != "" {
		text += " (" + p.Hint + ")"
	}
	return textutil.Head(text, maxText)
}

// defined adds the link "defined": which file has the resource?
func (c *chain) defined() {
	at := c.at
	if at == nil && len(c.all) > 0 {
		at = &c.all[0]
	}
	switch {
	case at != nil:
		what := c.title()
		if at.Name != c.name {
			what = fmt.Sprintf("%s, which is an alias of %s,", what, quote(at.Name))
		}
		if !at.Served {
			c.ok(defined, at.Pos.String(), "%s is in a file that is not served", what)
			return
		}
		if of := groups.BaseOf(at.Group); of != at.Group { // only the lane of a rollout has it
			c.ok(defined, at.Pos.String(), "%s is of group %s, in the revision of its rollout", what, quote(of))
			return
		}
		c.ok(defined, at.Pos.String(), "%s is of group %s", what, quote(at.Group))
	case c.has(c.before) && c.e.d.Upstream != nil:
		c.ok(defined, "", "the relay has %s of its upstream", c.title())
	case c.e.d.Upstream != nil:
		c.breaks(defined, "", "ask the upstream with chancery fetch, and use the relay's node id", "the upstream has not given %s", c.title())
	case c.has(c.before) && c.e.d.Program:
		c.ok(defined, "", "%s is served", c.title())
	case c.has(c.before):
		c.ok(defined, "", "%s is served, but no file has it", c.title())
	case c.broken == loaded:
		c.unknown(defined, "unknown until the file can be loaded")
	default:
		advice := "put it into a file of the directory"
		text, place := c.e.nowhere()+" has "+c.title(), ""
		if c.e.d.Program {
			advice = "let the program set it in its store"
		}
		if c.e.d.Store != nil {
			text, advice = "no revision that is served has "+c.title(), "commit it by chancery apply"
		}
		if text, advice := c.frozen(); text != "" {
			c.breaks(defined, "", advice, "%s", text)
			return
		}
		if all := c.e.registeredIn(c.t, c.name); len(all) > 0 && len(c.decision.Groups) > 0 {
			c.breaks(defined, "", fmt.Sprintf("register them for a group of the node: chancery endpoints put %s -g %s", c.name, groups.BaseOf(c.decision.Groups[0])),
				"endpoints of %s are registered in group %s, which the node does not get", quote(c.name), list(all, 5))
			return
		}
		if c.is != nil && c.is.State == protocol.StateLingering {
			c.breaks(defined, "", c.untilRemoved(advice), "%s", text)
			return
		}
		if near := c.e.d.Source.Nearest(c.t, c.name); near != "" {
			advice = fmt.Sprintf("did you mean %s?", quote(near))
		}
		if p := c.mainParent(); p != nil {
			text, place = fmt.Sprintf("%s, to which %s refers", text, title(p.Type, p.Name)), p.place
			if advice[:3] != "did" {
				advice += ", or correct the reference"
			}
		}
		c.breaks(defined, place, advice, "%s", text)
	}
}

// untilRemoved returns the advice for a removed resource that the client still has. The argument restore is the
// advice to have it back.
func (c *chain) untilRemoved(restore string) string {
	lead := "the server removes it from the client by itself"
	if at := slices.IndexFunc(c.is.WaitsFor, func(r xds.Ref) bool { return r.Name != xds.Wildcard }); at >= 0 {
		by := c.is.WaitsFor[at]
		lead = fmt.Sprintf("the client keeps it because of %s: %s", title(by.Type, by.Name), c.command(by.Type, by.Name))
	}
	return lead + ". If it is missing by mistake, " + restore
}

// frozen returns a text and the advice about a resource that the node does not get because its group is
// frozen, or because a rollout has not picked the node yet; else "".
func (c *chain) frozen() (text, advice string) {
	if c.e.d.Frozen == nil {
		return "", ""
	}
	var names []string
	for _, group := range c.decision.Groups {
		names = append(names, groups.BaseOf(group))
	}
	return c.e.d.Frozen(names, c.t, c.name)
}

// valid adds the link "valid" about known faults of the resource. The link is broken only if the
// client refuses the resource, or if one of its references has no resource.
func (c *chain) valid() {
	switch {
	case c.at == nil && len(c.all) == 0:
		c.unknown(valid, "there is nothing to look at")
	case c.at == nil:
		c.ok(valid, "", "not looked at: the node does not get it")
	case len(c.wrong) == 0:
		c.ok(valid, "", "nothing is known to be wrong with it")
	default:
		f := c.wrong[0]
		text := f.text
		if len(c.wrong) > 1 {
			text += fmt.Sprintf(" (and %d more)", len(c.wrong)-1)
		}
		switch {
		case f.code == findings.Dangling:
			c.breaks(valid, f.place, "define the missing resource, or correct the reference"+textutil.Prefixed(" at ", f.place), "%s", text)
		case c.refused():
			c.breaks(valid, f.place, "correct "+orElse(f.place, "it"), "%s", text)
		case c.is != nil && c.is.State == protocol.StateSynced:
			c.ok(valid, f.place, "Envoy is known to refuse this, but the client has accepted it: %s", text)
		default:
			c.doubts(valid, f.place, "Envoy is known to refuse this: %s", text)
		}
	}
}

// selected adds the link "selected": through which group does the node get the resource, and by which
// rule?
func (c *chain) selected() {
	var in []string
	for _, s := range c.all {
		if s.Served {
			in = append(in, s.Group)
		}
	}
	switch {
	case c.e.d.Upstream != nil:
		c.ok(selected, "", "a relay has no groups: all nodes get what its upstream gives")
	case c.decision.Groups == nil && c.e.d.Program:
		c.breaks(selected, "", "look at the function that chooses the groups of nodes (store.WithGroups)", "the program gives %s no group%s", c.nodeText(), notes(c.decision))
	case c.decision.Groups == nil:
		c.breaks(selected, "", `give the node another id or cluster, or set the groups of nodes that match no rule, with "otherwise" in the root group.yaml`,
			"no group matches %s, and nodes that match none are refused%s", c.nodeText(), notes(c.decision))
	case c.at != nil:
		text, place := c.reason(c.at.Group)
		if len(in) > 1 {
			text += fmt.Sprintf("; groups %s have the resource, and the first that the node gets wins", list(quoted(in), 5))
		}
		c.ok(selected, place, "%s", text)
	case len(in) > 0:
		if of := groups.BaseOf(in[0]); of != in[0] { // people do not write lanes, so the advice is about the rollout
			if text, advice := c.frozen(); text != "" && slices.Contains(c.decision.Groups, of) {
				c.breaks(selected, "", advice, "%s", text)
				return
			}
			in = []string{of}
		}
		rule, place := c.e.d.Source.Rule(in[0])
		advice := fmt.Sprintf("put the resource into a group of the node's, or include group %s there", quote(in[0]))
		if rule != "" {
			advice = fmt.Sprintf("group %s is for nodes that match %s (%s). Change the node's id, cluster or metadata, or the rule; or put the resource into a group of the node's", quote(in[0]), rule, place)
		}
		if gone := c.all[0].MissingGroupFile; gone != "" {
			place, advice = "", restore(gone)
		}
		c.breaks(selected, place, advice, "%s is of group %s, and %s gets %s%s", c.title(), list(quoted(in), 5), c.nodeText(), c.reasons(), notes(c.decision))
	case c.has(c.before):
		c.ok(selected, "", "the node gets it: %s", c.reasons())
	default:
		c.unknown(selected, "no group has it; the node gets %s", c.reasons())
	}
}

// nodeText describes the node by its ID and cluster.
func (c *chain) nodeText() string {
	text := fmt.Sprintf("the node (id %s, cluster %s)", quote(c.node.ID), quote(c.node.Cluster))
	if !c.connected() {
		text = fmt.Sprintf("a node with id %s", quote(c.id))
		if c.node.Cluster != "" {
			text += fmt.Sprintf(" and cluster %s", quote(c.node.Cluster))
		}
	}
	return text
}

func notes(d groups.Decision) string {
	if len(d.Notes) == 0 {
		return ""
	}
	return "; " + textutil.Head(strings.Join(d.Notes, "; "), maxText)
}

// reason returns a text about the rule by which the node gets a group, and the place of that rule.
func (c *chain) reason(group string) (text, place string) {
	for _, r := range c.decision.Reasons {
		if r.Group == group {
			place = r.Place.String()
			r.Place = groups.Place{}
			return "the node gets " + r.String(), place
		}
	}
	return "the node gets group " + quote(group), ""
}

// reasons returns a text with the groups of the node and their rules.
func (c *chain) reasons() string {
	var all []string
	for _, r := range c.decision.Reasons {
		if r.Group != "" {
			r.Place = groups.Place{}
			all = append(all, r.String())
		}
	}
	return list(all, 5)
}

func quoted(names []string) (all []string) {
	for _, name := range names {
		all = append(all, quote(name))
	}
	return all
}

// denied has the status codes of streams that access rules refused.
var denied = map[string]bool{"PermissionDenied": true, "Unauthenticated": true, "PERMISSION_DENIED": true, "UNAUTHENTICATED": true}

// allowed adds the link "allowed": do access rules let the client have the resource?
func (c *chain) allowed() {
	const advice = "look at the access rules (--access) and at the client's certificate or token"
	if !c.connected() && len(c.clients) > 0 {
		if left := c.clients[0].Left; left != nil && denied[left.Code] {
			c.breaks(allowed, "", advice, "the client was refused %s: %s", c.e.since(left.At), textutil.Head(left.Why, maxText))
			return
		}
	}
	if e, was := c.deniedBefore(); was {
		c.breaks(allowed, "", advice, "the client at %s was refused %s: %s", e.Peer, c.e.since(e.At), textutil.Head(e.Text, maxText))
		return
	}
	if c.e.d.Allowed != nil {
		name := c.name // access rules match the resource's name, not an alias
		if c.at != nil {
			name = c.at.Name
		} else if len(c.all) > 0 {
			name = c.all[0].Name
		}
		var st *server.Stream
		if c.on != nil {
			st = c.on.Stream
		} else if c.connected() {
			st = c.streams[0].Stream
		}
		ok, why := c.e.d.Allowed(st, c.node, c.t, name)
		if !ok {
			c.breaks(allowed, "", advice, "the client may not have it: %s", why)
			return
		}
		c.ok(allowed, "", "%s", orElse(why, "the client may have it"))
		return
	}
	if c.is != nil && c.is.View == nil && c.is.Finds == 0 && c.has(c.before) && c.has(c.e.d.Snapshot()) {
		c.breaks(allowed, "", advice, "the node's groups have %s, and the client does not see it", c.title())
		return
	}
	c.ok(allowed, "", "no access rule hides it from the client")
}

// deniedBefore returns the event of a client with the node ID that was refused before it had a
// stream. It returns false if a client with this node ID is connected, because the refused client is
// then another one.
func (c *chain) deniedBefore() (api.Event, bool) {
	if c.e.d.Denied == nil || c.connected() {
		return api.Event{}, false
	}
	e, was := c.e.d.Denied(c.id)
	if was && len(c.clients) > 0 && c.clients[0].Left != nil && c.clients[0].Left.At.After(e.At) {
		return api.Event{}, false
	}
	return e, was
}

// connectedLink adds the link "connected" about the client's connection.
func (c *chain) connectedLink() {
	if x := c.loop(); x != nil {
		place, advice := "", "look at the client's log: it may not accept a response of this size, or end at the content"
		text := c.large()
		if text != "" {
			place, advice = c.at.Pos.String(), smaller
		}
		c.breaks(connected, place, advice, "%s%s", x.Text, textutil.Prefixed(": ", text))
		return
	}
	if c.connected() {
		l := c.on
		if l == nil {
			l = &c.streams[0]
		}
		text := fmt.Sprintf("%s, connected %s%s", orElse(c.agent(), "a client"), c.e.since(l.Since), from(l))
		if others := c.peers(); others > 1 {
			text += fmt.Sprintf("; clients at %d addresses use this node id", others)
		}
		if group := Unfilled(c.e.d.Snapshot(), c.decision.Groups); l.err != nil && group != "" && c.e.d.Upstream == nil {
			c.breaks(connected, "", fmt.Sprintf("put resources into group %s, or give the node another group; chancery get groups lists the groups that have resources", quote(group)),
				"%s, but group %s, which the node gets, has no resources: the server sends nothing", text, quote(group))
			return
		}
		if l.err != nil {
			c.breaks(connected, "", "wait until the server has loaded the content of the client's groups", "%s, but %v", text, l.err)
			return
		}
		c.ok(connected, "", "%s", text)
		return
	}
	if len(c.clients) > 0 && c.clients[0].Left != nil {
		left := c.clients[0].Left
		c.breaks(connected, "", "look at the client's log: whether it runs, and whether it can reach the server", "it left %s: %s", c.e.since(left.At), orElse(textutil.Head(left.Why, maxText), orElse(left.Code, "it ended its stream")))
		return
	}
	if e, was := c.deniedBefore(); was {
		c.breaks(connected, "", "", "the server ended its stream %s: the step \"allowed\" has the reason", c.e.since(e.At))
		return
	}
	advice := "look at the node id in the client's bootstrap, and at its log: whether it can reach the server"
	if near := c.e.nearNode(c.id); near != "" {
		advice = fmt.Sprintf("did you mean %s? Else %s", quote(near), advice)
	}
	c.breaks(connected, "", advice, "no client with node id %s is connected, and none was lately", quote(c.id))
}

// Unfilled returns the first of the groups whose content is unknown, or "". The server sends nothing to a new
// client until all its groups have content.
func Unfilled(s *store.Snapshot, groups []string) string {
	if i := slices.IndexFunc(groups, func(g string) bool { return s.View(g) == nil }); i >= 0 {
		return groups[i]
	}
	return ""
}

// loop returns the trouble of clients that disconnect again and again after a response, or nil.
func (c *chain) loop() *api.Trouble {
	for i := range c.clients {
		for j := range c.clients[i].Troubles {
			if x := &c.clients[i].Troubles[j]; x.Code == api.DisconnectLoop {
				return x
			}
		}
	}
	return nil
}

func from(l *inspection) string {
	if l.Peer == nil {
		return ""
	}
	return " from " + l.Peer.String()
}

// peers counts the addresses with connected clients of this node ID.
func (c *chain) peers() int {
	n := 0
	for i := range c.clients {
		if c.clients[i].Left == nil {
			n++
		}
	}
	return n
}

// last returns the time when a client with the node ID last disconnected or was refused; nil if that is
// unknown.
func (c *chain) last() *time.Time {
	var at time.Time
	for i := range c.clients {
		if left := c.clients[i].Left; left != nil && left.At.After(at) {
			at = left.At
		}
	}
	if e, was := c.deniedBefore(); was && e.At.After(at) {
		at = e.At
	}
	if at.IsZero() {
		return nil
	}
	return &at
}

// subscribed adds the link "subscribed": does the client subscribe to the resource?
func (c *chain) subscribed() {
	switch {
	case !c.connected():
		c.unknown(subscribed, "the client is not connected")
	case c.is == nil:
		if c.streams[0].err != nil {
			c.unknown(subscribed, "its stream has not begun")
			return
		}
		c.breaks(subscribed, "", c.whyAsk(), "the client has not subscribed to any %s; it subscribes to %s", c.t, orElse(c.opened(), "no type"))
	case c.is.Why == protocol.NotWanted:
		how := fmt.Sprintf("%s of %s", count(c.of.Names, "name"), c.t)
		if c.of.Wildcard {
			all := fmt.Sprintf("all %s that are not on demand", c.t)
			how = all + ", and to " + how
			if c.of.Names == 0 {
				how = all
			}
		}
		c.breaks(subscribed, "", c.whyAsk(), "the client subscribes to %s, and not to this one", how)
	case c.is.Why == protocol.ByWildcard:
		c.ok(subscribed, "", "the client subscribes to all %s", c.t)
	case c.is.Why == protocol.ByName:
		c.ok(subscribed, "", "the client subscribes to it by name")
	default:
		c.ok(subscribed, "", "the client subscribes to %s, the %s of it", quote(c.is.By), c.is.Why)
	}
}

// whyAsk returns the advice for a client that does not subscribe to the resource.
func (c *chain) whyAsk() string {
	switch {
	case c.onDemand():
		return "the resource is on demand (on_demand in its file), so a wildcard does not include it: the client must subscribe to it by name"
	case c.t.Implicit && c.is != nil && c.is.Why == protocol.NotWanted:
		return fmt.Sprintf("the client subscribes to %s by name, without a wildcard: it must subscribe to this one by name, too", c.t)
	case c.t.Implicit:
		return fmt.Sprintf("the client's bootstrap must subscribe to %s: look at its dynamic_resources or its xDS authorities", c.t)
	case len(c.parents) > 0:
		return fmt.Sprintf("%[1]s refers to it, so the client should subscribe to it: look at the client's log. The config_source in %[1]s must name this server", title(c.parents[0].Type, c.parents[0].Name))
	}
	return "clients subscribe to the resources that their configuration names: refer to it, or name it in the bootstrap"
}

// onDemand reports whether the client would get the resource only by name, although it subscribes to the
// wildcard.
func (c *chain) onDemand() bool {
	return c.is != nil && c.of != nil && c.of.Wildcard && c.at != nil && c.at.OnDemand
}

// opened returns a list of the types that the client has opened.
func (c *chain) opened() string {
	var all []string
	for i := range c.streams {
		for _, is := range c.streams[i].types {
			if name := is.Type.String(); !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return list(all, 12)
}

// nack returns the client's current refusal of the type, or nil.
func (c *chain) nack() *api.NackedStatus {
	id := uint64(0)
	if c.on != nil {
		id = c.on.ID
	}
	return c.nacked(c.t, id)
}
