package clients

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/xds"
)

// Summary counts the connected clients by state. It also returns their refusals, grouped by type and
// error text (most clients first, at most 100), and their troubles (at most 100).
func (t *Tracker) Summary() (api.Counts, []api.Refusal, []api.Trouble) {
	return t.SummaryOf(Filter{})
}

// SummaryOf is [Tracker.Summary] for the clients that f selects, healthy ones included.
func (t *Tracker) SummaryOf(f Filter) (api.Counts, []api.Refusal, []api.Trouble) {
	p := t.gather(f.Type, false)
	whole := len(p.all)
	all := p.selected(t, f)
	counts := api.Counts{Connected: len(all), By: map[api.State]int{}}
	troubles := []api.Trouble{}
	for i := range all {
		counts.By[all[i].state.name()]++
		troubles = append(troubles, all[i].troubles...)
	}
	for _, x := range p.absentTroubles {
		if x.groups == nil && len(all) == whole || x.groups != nil && (f.Group == "" || slices.Contains(x.groups, f.Group)) {
			troubles = append(troubles, x.Trouble)
		}
	}
	slices.SortFunc(troubles, func(a, b api.Trouble) int {
		return cmp.Or(strings.Compare(a.Code, b.Code), a.Since.Compare(b.Since), strings.Compare(a.Node, b.Node), strings.Compare(a.Type, b.Type))
	})
	return counts, t.refusals(all, f.Type), troubles[:min(len(troubles), maxShown)]
}

// A group has all refusals with one type, error text, and places of the resources.
type group struct {
	api.Refusal
	typ    *xds.Type
	nodes  map[string]bool // at least the first maxNodes by name
	causes []*cause
	last   *client // the client that was counted last
}

const (
	maxNodes     = 10 // nodes listed for a refusal
	maxResources = 10 // resources listed for a refusal
)

// refusals groups the refusals of clients by type and error text. Refusals of resources with one name and
// different places are in different groups, because two groups of nodes may each have such a resource. If a
// type is given, the result has only refusals of this type.
func (t *Tracker) refusals(all []snapshot, of *xds.Type) []api.Refusal {
	type key struct{ url, text string }
	groups, p := map[key][]*group{}, t.places()
	var sorted []*group
	for i := range all {
		s := &all[i]
		for _, f := range s.refusals {
			if of != nil && !of.Is(f.typ) {
				continue
			}
			k, resources := key{f.typ.URL, f.text}, p.resources(p.nodeOf(s), f.cause)
			i := slices.IndexFunc(groups[k], func(g *group) bool { return !g.elsewhere(resources) })
			if i < 0 && len(groups[k]) < maxShown {
				g := &group{Refusal: api.Refusal{Type: f.typ.Short, Error: f.text, Resources: []api.Resource{}}, typ: f.typ, nodes: map[string]bool{}}
				groups[k], sorted = append(groups[k], g), append(sorted, g)
			}
			if i < 0 {
				i = len(groups[k]) - 1
			}
			groups[k][i].add(s, &f, resources)
		}
	}
	slices.SortFunc(sorted, func(a, b *group) int {
		return cmp.Or(b.Clients-a.Clients, a.Since.Compare(b.Since), a.typ.Rank()-b.typ.Rank(), strings.Compare(a.Error, b.Error))
	})
	refusals := []api.Refusal{}
	for _, g := range sorted[:min(len(sorted), maxShown)] {
		for id := range g.nodes {
			g.Nodes = append(g.Nodes, id)
		}
		slices.Sort(g.Nodes)
		g.Nodes = g.Nodes[:min(len(g.Nodes), maxNodes)]
		refusals = append(refusals, g.Refusal)
	}
	return refusals
}

// elsewhere reports whether the group has a resource with the name of one of these resources and another place.
func (g *group) elsewhere(all []api.Resource) bool {
	return slices.ContainsFunc(all, func(r api.Resource) bool {
		return slices.ContainsFunc(g.Resources, func(o api.Resource) bool { return o.Name == r.Name && o.Place != r.Place })
	})
}

// add counts the refusal of a client.
func (g *group) add(s *snapshot, f *refusal, resources []api.Resource) {
	if g.last != s.client {
		g.last = s.client // a client may refuse the same response on several streams
		g.Clients++
	}
	if since := time.Unix(0, f.since); g.Since.IsZero() || since.Before(g.Since) {
		g.Since = since
	}
	g.Partly = g.Partly || f.partly
	g.nodes[s.node] = true
	if len(g.nodes) > 2*maxNodes { // drop the last half by name, because sorting the map for each node would cost more
		ids := make([]string, 0, len(g.nodes))
		for id := range g.nodes {
			ids = append(ids, id)
		}
		slices.Sort(ids)
		for _, id := range ids[maxNodes:] {
			delete(g.nodes, id)
		}
	}
	if len(g.causes) < maxResources && !slices.Contains(g.causes, f.cause) {
		g.causes = append(g.causes, f.cause)
		for _, r := range resources {
			if len(g.Resources) < maxResources && !slices.Contains(g.Resources, r) {
				g.Resources = append(g.Resources, r)
			}
		}
	}
}

// GroupCounts counts the connected clients of each group. Groups without a connected client are not in
// the map.
func (t *Tracker) GroupCounts() map[string]api.Counts {
	by := map[string]api.Counts{}
	for s := range t.States() {
		for _, g := range s.Groups {
			n, ok := by[g]
			if !ok {
				n.By = map[api.State]int{}
			}
			n.Connected++
			n.By[s.State]++
			by[g] = n
		}
	}
	return by
}

// A ClientState is the state of one connected client, for metrics.
type ClientState struct {
	Groups []string // groups of its node
	State  api.State
	Stale  []*xds.Type // types with a response that has had no ACK or NACK for 30 s
}

// States yields the state of each connected client.
func (t *Tracker) States() iter.Seq[ClientState] {
	return func(yield func(ClientState) bool) {
		all := t.gather(nil, false).all
		for i := range all {
			s := ClientState{Groups: t.grouped(&all[i]).groups, State: all[i].state.name()}
			for _, o := range all[i].overdue {
				s.Stale = append(s.Stale, o.typ)
			}
			if !yield(s) {
				return
			}
		}
	}
}

// places finds the places of resources, and caches them during one call of the tracker.
type places struct {
	t     *Tracker
	known map[placeKey]string
}

type placeKey struct{ groups, url, name string }

func (t *Tracker) places() *places { return &places{t: t, known: map[placeKey]string{}} }

// A viewer is a client from whose view the places of resources are found. The field node is nil if
// the node is unknown.
type viewer struct {
	node   *xds.Node
	groups string // key of the cache: nodes with the same groups get the same resources; "": the groups are unknown
}

func (p *places) nodeOf(s *snapshot) viewer {
	if s == nil || s.first == nil || p.t.opts.Place == nil {
		return viewer{}
	}
	v := viewer{node: s.first.Node}
	if p.t.opts.Groups != nil {
		v.groups = strings.Join(p.t.grouped(s).groups, "\x00") + "\x00"
	}
	return v
}

// node returns the viewer of a connected client.
func (p *places) node(a *clientID) viewer {
	if a == nil || a.node == "" || p.t.opts.Place == nil {
		return viewer{}
	}
	p.t.mu.RLock()
	c := p.t.clients[clientKey{node: a.node, peer: a.peer}]
	var s snapshot
	if c != nil {
		s = snapshot{client: c, first: c.streams[0].stream}
	}
	p.t.mu.RUnlock()
	return p.nodeOf(&s)
}

// resources returns the resources that a cause names, with their places.
func (p *places) resources(v viewer, c *cause) []api.Resource {
	resources := make([]api.Resource, len(c.names))
	for i, name := range c.names {
		resources[i] = api.Resource{Type: c.typ.Short, Name: name}
		if v.node == nil {
			continue
		}
		k := placeKey{v.groups, c.typ.URL, name}
		at, ok := p.known[k]
		if !ok || v.groups == "" {
			at = clip(p.t.opts.Place(v.node, c.typ, name), maxName)
			p.known[k] = at
		}
		resources[i].Place = at
	}
	return resources
}

// nonceOf returns a nonce as clients see it; "" for 0.
func nonceOf(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}
