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

// most is how many resources are listed unless somebody asks for more.
const most = 1000

// ClientResources returns what a client has by name: of all types that it has opened, or of
// one, or one resource of it. At most limit are told, those with something wrong first; zero is
// 1000. The error is a [*NotFound] if the node is not connected, if there is no such type, or
// if the client neither has nor wants the name and nobody serves it.
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
	if err := c.ask(ctx, e, func(l *look, s *protocol.Session) { l.collect(e, s, t, name) }); err != nil {
		return out, err
	}
	if !c.connected() {
		return out, e.unknownNode(node)
	}
	groups := e.d.Source.Decide(c.node).Groups
	all := c.listed()
	if name != "" && !slices.ContainsFunc(all, listed.there) {
		err := &NotFound{Field: "name", Message: fmt.Sprintf("the client neither has nor asks for %s", called(t, name))}
		if near := e.d.Source.Near(t, name); near != "" {
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

// collect notes all names of a type, or one; without a type, of all types.
func (l *look) collect(e *Explainer, s *protocol.Session, t *xds.Type, name string) {
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

// A listed is a name, and the stream that says so.
type listed struct {
	*named
	on *look
}

// there reports whether there is anything to tell: a name that does not exist, and that only a
// wildcard covers, is nothing.
func (n listed) there() bool {
	idle := n.State == protocol.StateUnwanted || n.State == protocol.StateAbsent && n.Why == protocol.ByWildcard && n.Held == nil
	return !idle || n.View != nil
}

// listed returns what was collected of all streams: each name once, as it is worst off. Clients
// at several addresses that call themselves the same are one here.
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

// item is a name in the words of the API.
func (e *Explainer) item(c *client, groups []string, n listed) api.ClientResource {
	r := api.ClientResource{
		Resource: api.Resource{Type: n.t.String(), Name: n.Name, Place: e.placeIn(groups, n.t, n.Name)},
		State:    e.stateOf(&n.NameState), Why: n.Why.String(), Nonce: n.Nonce,
		Current: stampVersion(n.View), Sent: stampVersion(n.Told), Acked: stampVersion(n.Held), Since: moment(n.Since),
	}
	if wordless(n.on.Stream, n.t, &n.NameState) {
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

// placeIn returns where a resource stands that the first of some groups has; "" if none has it.
func (e *Explainer) placeIn(groups []string, t *xds.Type, name string) string {
	for _, group := range groups {
		if text, _, ok := e.registered(group, t, name); ok {
			return text
		}
		if s, ok := e.d.Source.Within(group, t, name); ok {
			return s.Pos.String()
		}
	}
	return ""
}

// registered says which endpoints of a group are registered, if it is about endpoints and some are.
func (e *Explainer) registered(group string, t *xds.Type, name string) (text string, n int, ok bool) {
	if e.d.Registered == nil || !t.Is(xds.Endpoint) {
		return "", 0, false
	}
	return e.d.Registered(group, name)
}

// registeredIn are the groups for which endpoints are registered, sorted.
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
