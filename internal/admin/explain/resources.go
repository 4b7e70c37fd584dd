package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// most is the maximum length of a list if the caller sets none.
const most = 1000

// ClientResources returns the resources that a client has or subscribes to: all, those of one type,
// or one resource. Resources with a problem come first. The list has at most limit resources (0:
// 1000). The error is a [*NotFound] if the node is not connected, if the type does not exist, or if
// the name is unknown. A name is unknown if the client neither gets it, nor has it, nor subscribes to
// it.
func (e *Explainer) ClientResources(ctx context.Context, node, typ, name string, limit int) (api.ClientResources, error) {
	out := api.ClientResources{APIVersion: api.Version, Kind: "ClientResourceList", Node: node, Items: []api.ClientResource{}}
	t, err := typeNamed(typ)
	switch {
	case err != nil:
		return out, err
	case t == nil && name != "":
		return out, &NotFound{Field: "type", Message: "a name needs its type", Hint: "such as CDS"}
	}
	name = xds.CanonicalName(name)
	c := e.find(node)
	if err := c.ask(ctx, e, func(l *inspection, s *protocol.Session) { l.collect(e, s, t, name) }); err != nil {
		return out, err
	}
	if !c.connected() {
		return out, e.unknownNode(node)
	}
	groups := e.d.Source.Decide(c.node).Groups
	all := c.listed()
	if name != "" && !slices.ContainsFunc(all, listed.exists) {
		err := &NotFound{Field: "name", Message: fmt.Sprintf("the client neither has %s nor subscribes to it", title(t, name))}
		if near := e.d.Source.Nearest(t, name); near != "" {
			err.Hint = fmt.Sprintf("did you mean %s?", quote(near))
		}
		return out, err
	}
	slices.SortStableFunc(all, func(a, b listed) int {
		return cmp.Or(cmp.Compare(badness(&b.NameState), badness(&a.NameState)), cmp.Compare(a.t.Rank(), b.t.Rank()), cmp.Compare(a.Name, b.Name))
	})
	out.Total = len(all)
	for _, n := range all[:min(len(all), cmp.Or(max(limit, 0), most))] {
		out.Items = append(out.Items, e.item(c, groups, n))
	}
	return out, nil
}

// collect adds the state of one name to l.names. Without a name it adds all names of the type, and
// without a type all names.
func (l *inspection) collect(e *Explainer, s *protocol.Session, t *xds.Type, name string) {
	if name != "" {
		l.names = append(l.names, named{t, e.state(l.Stream, s, t, name)})
		return
	}
	for _, is := range l.types {
		if t == nil || is.Type.Is(t) {
			for n := range e.states(l.Stream, s, is.Type) {
				l.names = append(l.names, named{is.Type, n})
			}
		}
	}
}

// A listed is a name with the stream that reported it.
type listed struct {
	*named
	on *inspection
}

// exists reports whether the name must be listed: the resource exists for the client, the client may
// have it, or subscribes to it by name. A missing name that only a wildcard matches is not listed.
func (n listed) exists() bool {
	idle := n.State == protocol.StateUnwanted || n.State == protocol.StateAbsent && n.Why == protocol.ByWildcard && n.Held == nil
	return !idle || n.View != nil
}

// listed returns the collected names of all streams, each name once, with its worst state on any stream.
// Several clients with the same node ID count as one client.
func (c *client) listed() (all []listed) {
	if len(c.streams) == 1 {
		l := &c.streams[0]
		for i := range l.names {
			all = append(all, listed{&l.names[i], l})
		}
		return all
	}
	at := map[xds.Ref]int{}
	for i := range c.streams {
		l := &c.streams[i]
		for j := range l.names {
			n := listed{&l.names[j], l}
			ref := xds.Ref{Type: n.t, Name: n.Name}
			switch k, twice := at[ref]; {
			case !twice:
				at[ref], all = len(all), append(all, n)
			case badness(&n.NameState) > badness(&all[k].NameState):
				all[k] = n
			}
		}
	}
	return all
}

// item converts a name to the API.
func (e *Explainer) item(c *client, groups []string, n listed) api.ClientResource {
	r := api.ClientResource{
		Resource: api.Resource{Type: n.t.String(), Name: n.Name, Place: e.placeIn(groups, n.t, n.Name)},
		State:    e.stateOf(&n.NameState), Why: n.Why.String(), Nonce: n.Nonce,
		Current: stampVersion(n.View), Sent: stampVersion(n.Told), Acked: stampVersion(n.Held), Since: moment(n.Since),
	}
	if cannotTellAbsence(n.on.Stream, n.t, &n.NameState) {
		r.State = api.NotSent
	}
	for _, ref := range n.WaitsFor[:min(len(n.WaitsFor), 10)] {
		r.WaitsFor = append(r.WaitsFor, api.Resource{Type: ref.Type.String(), Name: ref.Name, Place: e.placeIn(groups, ref.Type, ref.Name)})
	}
	if n.State == protocol.StateRefused {
		if nack := c.nacked(n.t, n.on.ID); nack != nil {
			r.Error, r.Since = clipped(nack.Error), moment(nack.Since)
		}
	}
	return r
}

func moment(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// placeIn returns the place of a resource in the first group that has it, or "". For registered
// endpoints it returns a text about them.
func (e *Explainer) placeIn(groups []string, t *xds.Type, name string) string {
	for _, group := range groups {
		if text, _, ok := e.registered(group, t, name); ok {
			return text
		}
		if s, ok := e.d.Source.Lookup(group, t, name); ok {
			return s.Pos.String()
		}
	}
	return ""
}

// registered returns a text about the registered endpoints of a cluster in a group, and their number.
// The result ok is false if the type is not EDS or no endpoints are registered.
func (e *Explainer) registered(group string, t *xds.Type, name string) (text string, n int, ok bool) {
	if e.d.Registered == nil || !t.Is(xds.Endpoint) {
		return "", 0, false
	}
	return e.d.Registered(group, name)
}

// registeredIn returns the groups with registered endpoints of a cluster, sorted.
func (e *Explainer) registeredIn(t *xds.Type, name string) (all []string) {
	if e.d.Registered == nil {
		return nil
	}
	for _, group := range slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(e.d.Snapshot().Groups()), store.DefaultGroup)))) {
		if _, _, ok := e.registered(group, t, name); ok && !strings.HasSuffix(group, groups.LaneSuffix) {
			all = append(all, group)
		}
	}
	return all
}
