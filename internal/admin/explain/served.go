package explain

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/clients"
	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	"github.com/chancery-xds/chancery/internal/envoy/secrets"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A Query selects the resources that [Explainer.Served] lists. The zero value selects all.
type Query struct {
	Type        string
	Name        string // needs a Type
	Group       string
	Limit       int  // maximum number of resources; 0: 1000
	Offset      int  // number of resources to skip
	Subscribers bool // count the clients of each resource, for at most 100 resources
	Body        bool // include the body; needs a Name
	Places      bool // include the lines of the fields; needs Body
}

// maxCounted is the maximum number of resources whose clients are counted in one answer.
const maxCounted = 100

// Served returns the resources that the server serves, sorted by type, name and group. The error is a
// [*NotFound] if the type, group or name does not exist.
func (e *Explainer) Served(ctx context.Context, q Query) (api.ResourceList, error) {
	out := api.ResourceList{APIVersion: api.Version, Kind: "ResourceList", Items: []api.ServedResource{}}
	t, err := typeNamed(q.Type)
	if err != nil {
		return out, err
	}
	if t == nil && q.Name != "" {
		return out, &NotFound{Field: "type", Message: "a name needs its type", Hint: "such as CDS"}
	}
	all, err := e.served(t, q)
	if err != nil {
		return out, err
	}
	out.Total = len(all)
	all = all[min(max(q.Offset, 0), len(all)):]
	all = all[:min(len(all), cmp.Or(max(q.Limit, 0), most))]
	for _, r := range all {
		item := api.ServedResource{
			Resource: api.Resource{Type: r.Type.String(), Name: r.Name, Place: e.placeIn([]string{r.group}, r.Type, r.Name)},
			Group:    r.group, Version: r.Version, Bytes: len(r.Body),
		}
		if r.TTL > 0 {
			item.TTL = r.TTL.String()
		}
		if q.Body && q.Name != "" {
			item.Body = e.body(r.Resource)
			if q.Places {
				item.Lines = e.lines(&r, item.Body)
			}
			for _, ref := range r.Refs {
				item.Refs = append(item.Refs, api.Resource{Type: ref.Type.String(), Name: ref.Name})
			}
		}
		out.Items = append(out.Items, item)
	}
	if q.Subscribers && e.d.Selected != nil {
		return out, e.count(ctx, all, out.Items)
	}
	return out, nil
}

// A groupedResource is a resource and its group.
type groupedResource struct {
	*xds.Resource
	group string
}

// served returns the resources that a query selects, sorted by type, name and group.
func (e *Explainer) served(t *xds.Type, q Query) (all []groupedResource, err error) {
	now := e.d.Snapshot()
	groups := now.Groups()
	if q.Group != "" {
		if now.View(q.Group) == nil {
			err := &NotFound{Field: "group", Message: fmt.Sprintf("there is no group %s", quote(q.Group))}
			if near := protoyaml.Nearest(q.Group, slices.Values(groups)); near != "" {
				err.Hint = fmt.Sprintf("did you mean %s?", quote(near))
			}
			return nil, err
		}
		groups = []string{q.Group}
	}
	name := xds.CanonicalName(q.Name)
	for _, group := range groups {
		for _, table := range now.Effective(group).All() {
			switch {
			case table.Type() == nil || t != nil && !table.Type().Is(t):
			case q.Name == "":
				for r := range table.All() {
					all = append(all, groupedResource{r, group})
				}
			default:
				if r := table.Lookup(name); r != nil {
					all = append(all, groupedResource{r, group})
				}
				for r := range table.Aliased(name).All() {
					all = append(all, groupedResource{r, group})
				}
			}
		}
	}
	if q.Name != "" && len(all) == 0 {
		err := &NotFound{Field: "name", Message: fmt.Sprintf("no group has %s", title(t, name))}
		if near := e.d.Source.Nearest(t, name); near != "" {
			err.Hint = fmt.Sprintf("did you mean %s?", quote(near))
		}
		return nil, err
	}
	slices.SortFunc(all, compareGrouped)
	return all, nil
}

// compareGrouped orders resources by type, name and group.
func compareGrouped(a, b groupedResource) int {
	return cmp.Or(cmp.Compare(a.Type.Rank(), b.Type.Rank()), cmp.Compare(a.Type.URL, b.Type.URL), cmp.Compare(a.Name, b.Name), cmp.Compare(a.group, b.group))
}

// body returns the JSON of a resource without secrets; nil if the resource must not be shown or cannot be
// encoded.
func (e *Explainer) body(r *xds.Resource) json.RawMessage {
	types := e.d.Source.Types()
	m, _ := secrets.NewFinder(types).Shown(r.Type.URL, r.Body)
	if m == nil {
		return nil
	}
	b, err := protojson.MarshalOptions{Resolver: types, UseProtoNames: true}.Marshal(m)
	if err != nil {
		return nil
	}
	return b
}

// maxLines is the maximum number of fields whose lines are in an answer.
const maxLines = 5000

// lines returns the lines of the fields of a body in the file of the resource, by path.
func (e *Explainer) lines(r *groupedResource, body json.RawMessage) map[string]int {
	s, ok := e.d.Source.Lookup(r.group, r.Type, r.Name)
	if !ok || s.Sum != r.Sum {
		return nil
	}
	var m any
	if json.Unmarshal(body, &m) != nil {
		return nil
	}
	return e.d.Source.Lines(s.Loaded, pathsOf(nil, "", m))
}

// pathsOf appends the paths of the fields of a message in JSON, such as virtual_hosts[0].name. It leaves out keys of
// maps that have other characters than names of fields.
func pathsOf(all []string, at string, v any) []string {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if len(all) < maxLines && !strings.ContainsAny(key, ".[]@\"") {
				in := strings.TrimPrefix(at+"."+key, ".")
				all = pathsOf(append(all, in), in, v[key])
			}
		}
	case []any:
		for i := range v {
			if len(all) < maxLines {
				in := fmt.Sprintf("%s[%d]", at, i)
				all = pathsOf(append(all, in), in, v[i])
			}
		}
	}
	return all
}

// maxNamed is the maximum number of clients that are named for a resource.
const maxNamed = 20

// nameWorst adds a client to the worst ones of a resource.
func nameWorst(all []api.SubscribedNode, n api.SubscribedNode) []api.SubscribedNode {
	rank := func(n api.SubscribedNode) int {
		if n.State == api.Synced {
			return 1
		}
		return 0
	}
	at, _ := slices.BinarySearchFunc(all, n, func(a, b api.SubscribedNode) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.State, b.State), cmp.Compare(a.Node, b.Node))
	})
	if at == maxNamed {
		return all
	}
	all = slices.Insert(all, at, n)
	return all[:min(len(all), maxNamed)]
}

// count sets the number of subscribers of each resource, by state.
func (e *Explainer) count(ctx context.Context, of []groupedResource, items []api.ServedResource) error {
	of = of[:min(len(of), maxCounted)]
	for i := range of {
		items[i].Clients = &api.Subscribers{By: map[api.State]int{}}
	}
	states, now := make([]*protocol.NameState, len(of)), e.d.Snapshot()
	for _, st := range e.d.Selected() {
		clear(states)
		_ = st.Inspect(ctx, func(s *protocol.Session) { // if the stream has ended or has not begun, it does not count
			for i, r := range of {
				if st.Type == nil || st.Type.Is(r.Type) {
					n := e.state(st, s, r.Type, r.Name)
					states[i] = &n
				}
			}
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		groups := e.d.Source.Decide(st.Node).Groups
		for i, n := range states {
			if n != nil && n.State != protocol.StateUnwanted && of[i].group == owner(now, groups, of[i].Type, of[i].Name) {
				items[i].Clients.Total++
				state := e.stateOf(n)
				items[i].Clients.By[state]++
				if len(of) < maxNamed { // otherwise the answer is a list of resources
					items[i].Clients.Nodes = nameWorst(items[i].Clients.Nodes, api.SubscribedNode{Node: cmp.Or(st.Node.ID, clients.PathOf(st.ID)), State: state})
				}
			}
		}
	}
	return nil
}

// owner returns the first of a node's groups that has the resource; "" if none has it. The node gets
// the resource of that group.
func owner(now *store.Snapshot, groups []string, t *xds.Type, name string) string {
	for _, group := range groups {
		if now.Effective(group).Table(t).Lookup(name) != nil {
			return group
		}
	}
	return ""
}

// Certificates returns the certificates in served resources that expire first, at most so many.
func (e *Explainer) Certificates(most int) (all []api.Certificate) {
	for _, c := range e.d.Source.Certificates() {
		if len(all) == most {
			break
		}
		all = append(all, api.Certificate{Resource: api.Resource{Type: c.Type.String(), Name: c.Name, Place: c.Pos.String()}, Group: c.Group, Path: c.Path, Ends: c.Ends.UTC()})
	}
	return all
}
