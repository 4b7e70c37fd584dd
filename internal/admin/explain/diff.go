package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/envoy/diff"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// A DiffQuery selects the two sets of resources of [Explainer.Diff]. A set is a word such as "served", or a word and
// a name such as "client:edge-1".
type DiffQuery struct {
	From, To   string
	Type, Name string // only this type, or this resource
	Group      string // only this group; not for clients
	Limit      int    // maximum number of differences in the answer
}

// A SideSource adds the resources of one side of a difference. The argument of is the part after the colon.
type SideSource func(ctx context.Context, of string, add func(group string, r *xds.Resource, place string)) (note string, err error)

// The sets of resources that [Explainer.Diff] knows without [Deps.Sides].
const (
	servedSide   = "served"   // the served configuration, by group
	clientSide   = "client"   // the resources that a connected client gets
	wantedSide   = "wanted"   // one resource as the client gets it
	sentSide     = "sent"     // the version of it that was sent last
	acceptedSide = "accepted" // the version of it that the client accepted last
)

// Diff compares two sets of resources field by field. It compares them with their secrets, and shows them without. The
// error is a [*NotFound] if a set, a client or a resource does not exist, or the error of a [SideSource].
func (e *Explainer) Diff(ctx context.Context, q DiffQuery) (api.Diff, error) {
	out := api.Diff{APIVersion: api.Version, Kind: api.KindDiff, Items: []api.Difference{}}
	t, err := typeNamed(q.Type)
	if err != nil {
		return out, err
	}
	q.Name = xds.CanonicalName(q.Name)
	from, byGroup, err := e.side(ctx, "from", q.From, t, &q, &out.From)
	if err != nil {
		return out, err
	}
	to, toGroup, err := e.side(ctx, "to", q.To, t, &q, &out.To)
	if err != nil {
		return out, err
	}
	if byGroup != toGroup {
		return out, &NotFound{Field: "to", Message: "a set with groups cannot be compared with the resources of one client", Hint: "compare clients with clients"}
	}
	all := diff.Sides(from, to)
	out.Total = len(all)
	plan := api.ImpactRequest{}
	for _, d := range all {
		switch d.Kind {
		case diff.Added:
			out.Added++
		case diff.Removed:
			out.Removed++
		case diff.Changed:
			out.Changed++
		}
		if !byGroup { // a client already has it, or another client gets it: nothing is drained
			d.Drains = nil
		}
		if len(out.Items) < q.Limit {
			out.Items = append(out.Items, d.Difference)
		}
		plan.Changes = append(plan.Changes, api.ImpactChange{Type: d.URL(), Name: d.Name, Group: d.Group, Bytes: d.Bytes})
	}
	if q.From == servedSide && byGroup && len(all) > 0 && len(all) <= maxPlan {
		impact, err := e.Impact(ctx, plan)
		if err != nil {
			return out, err
		}
		out.Impact = &impact
	}
	return out, nil
}

// maxPlan is the maximum number of differences whose impact is computed.
const maxPlan = 10_000

// side returns one side, and whether its resources have groups.
func (e *Explainer) side(ctx context.Context, field, spec string, t *xds.Type, q *DiffQuery, about *api.DiffSide) (s *diff.Side, byGroup bool, err error) {
	about.Of = spec
	s = diff.NewSide(e.d.Source.Types(), false)
	add := func(group string, r *xds.Resource, place string) {
		if t != nil && !r.Type.Is(t) || q.Name != "" && r.Name != q.Name || q.Group != "" && group != q.Group {
			return
		}
		s.Add(diff.Resource{Type: r.Type, Name: r.Name, Group: group, Place: place, Version: r.Version}, r.Body)
	}
	kind, of, _ := strings.Cut(spec, ":")
	byGroup = true
	switch kind {
	case servedSide:
		e.addServed(add)
	case clientSide:
		byGroup, q.Group = false, ""
		about.Note, err = e.addClient(of, add)
	case wantedSide, sentSide, acceptedSide:
		byGroup, q.Group = false, ""
		if t == nil || q.Name == "" {
			return nil, false, &NotFound{Field: "name", Message: fmt.Sprintf("%s needs a type and a name", spec)}
		}
		about.Note, err = e.addVersion(ctx, kind, of, t, q.Name, add)
	default:
		source := e.d.Sides[kind]
		if source == nil {
			return nil, false, &NotFound{Field: field, Message: fmt.Sprintf("this server cannot compare %s", quote(spec)), Hint: e.sides()}
		}
		about.Note, err = source(ctx, of, add)
	}
	about.Resources = s.Len()
	return s, byGroup, err
}

// sides describes all sets of resources.
func (e *Explainer) sides() string {
	all := []string{servedSide, "client:NODE", "wanted:NODE", "sent:NODE", "accepted:NODE"}
	for kind := range e.d.Sides {
		all = append(all, kind)
	}
	slices.Sort(all)
	return "it knows " + strings.Join(all, ", ")
}

// addServed adds the served configuration, without registered endpoints and without the lanes of rollouts.
func (e *Explainer) addServed(add func(group string, r *xds.Resource, place string)) {
	now := e.d.Snapshot()
	for _, group := range now.Groups() {
		if strings.HasSuffix(group, groups.LaneSuffix) {
			continue
		}
		for _, table := range now.View(group).All() {
			for r := range table.All() {
				add(group, r, e.placeIn([]string{group}, r.Type, r.Name))
			}
		}
	}
}

// addClient adds the resources that a connected client gets, and returns a text about its groups.
func (e *Explainer) addClient(node string, add func(group string, r *xds.Resource, place string)) (note string, err error) {
	streams := e.d.Tracker.Streams(node)
	if len(streams) == 0 {
		return "", e.unknownNode(node)
	}
	st := streams[0]
	in := e.d.Source.Decide(st.Node).Groups
	if len(in) == 0 {
		return "no group matches the client", nil
	}
	for _, table := range e.d.Snapshot().Effective(in...).All() {
		for r := range table.All() {
			if e.allowed(st, r.Type, r.Name) {
				add("", r, e.placeIn(in, r.Type, r.Name))
			}
		}
	}
	return "of group " + strings.Join(in, ", "), nil
}

func (e *Explainer) allowed(st *server.Stream, t *xds.Type, name string) bool {
	if e.d.Allowed == nil {
		return true
	}
	ok, _ := e.d.Allowed(st, st.Node, t, name)
	return ok
}

// addVersion adds one version of a resource of a client. Without the version, the note says so.
func (e *Explainer) addVersion(ctx context.Context, kind, node string, t *xds.Type, name string, add func(group string, r *xds.Resource, place string)) (note string, err error) {
	c := e.find(node)
	if !c.connected() {
		return "", e.unknownNode(node)
	}
	var v versions
	err = c.ask(ctx, e, func(l *inspection, s *protocol.Session) {
		if l.Type == nil || l.Type.Is(t) {
			v.read(e, l.Stream, s, t, name)
		}
	})
	if err != nil {
		return "", err
	}
	in := e.d.Source.Decide(c.node).Groups
	wanted := e.d.Snapshot().Effective(in...).Table(t).Lookup(name)
	if wanted != nil && !e.allowed(c.streams[0].Stream, t, name) {
		wanted = nil
	}
	v.known = append(v.known, wanted)
	stamp := v.sent
	switch kind {
	case wantedSide:
		if wanted == nil {
			return "the client does not get the resource", nil
		}
		stamp = wanted.Stamp
	case acceptedSide:
		stamp = v.accepted
	}
	switch {
	case stamp == nil && kind == sentSide:
		return "no version was sent on this stream", nil
	case stamp == nil:
		return "the client has accepted no version", nil
	}
	for _, r := range v.known {
		if r != nil && (r.Stamp == stamp || r.Version == stamp.Version) {
			add("", r, e.placeIn(in, t, name))
			return "version " + r.Version, nil
		}
	}
	return "", &NotFound{Field: "name", Message: fmt.Sprintf("the server no longer has version %s of %s", quote(stamp.Version), title(t, name)),
		Hint: "chancery diff client:NODE envoy://HOST:PORT compares with the client itself"}
}

// versions are the versions of one resource on a client.
type versions struct {
	sent, accepted *xds.Stamp
	known          []*xds.Resource // those whose content is known
}

// read takes the versions from a session. The stream's goroutine runs it.
func (v *versions) read(e *Explainer, st *server.Stream, s *protocol.Session, t *xds.Type, name string) {
	n := s.NameState(t, name)
	if n.Why == protocol.NotWanted && n.Told == nil && n.Held == nil {
		return
	}
	v.sent, v.accepted = n.Told, n.Held
	v.known = append(v.known, s.Resource(t, name))
	for _, h := range e.held(st, t) {
		if h.Name != name || h.Body == nil {
			continue
		}
		v.known = append(v.known, h.Body)
		if h.RefersTo.Type == nil { // a refused version was sent; one that only refers to a refused resource was not
			v.sent = h.Body.Stamp
		}
	}
}
