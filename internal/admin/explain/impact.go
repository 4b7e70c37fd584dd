package explain

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/envoy/nodemeta"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// Impact counts the clients that would get the planned changes, and the bytes that the server would push
// to them. It inspects the subscriptions of each stream. A client whose streams cannot be inspected
// counts as unknown. The error is a [*NotFound] if a type or the node does not exist, or the error of the
// context.
func (e *Explainer) Impact(ctx context.Context, q api.ImpactRequest) (api.Impact, error) {
	out := api.Impact{APIVersion: api.Version, Kind: api.KindImpact, Groups: []api.GroupImpact{}, Types: []api.TypeImpact{}}
	w := impact{e: e, now: e.d.Snapshot(), types: map[string]*xds.Type{}, pushed: map[string]*api.TypeImpact{}, groups: map[string]int{}, whole: map[string]int{}}
	for _, c := range q.Changes {
		t, err := typeNamed(c.Type)
		if err != nil || t == nil {
			return out, cmp.Or(err, error(&NotFound{Field: "type", Message: "a change needs its type", Hint: "such as CDS"}))
		}
		if w.types[t.URL] == nil {
			w.types[t.URL] = t
			w.order = append(w.order, t)
		}
		w.changes = append(w.changes, change{t: t, name: xds.CanonicalName(c.Name), group: c.Group, bytes: c.Bytes})
	}
	slices.SortFunc(w.order, func(a, b *xds.Type) int { return cmp.Or(a.Rank()-b.Rank(), strings.Compare(a.URL, b.URL)) })
	var streams []*server.Stream
	switch {
	case q.Node != "":
		streams = e.d.Tracker.Streams(q.Node)
		if len(streams) == 0 {
			return out, e.unknownNode(q.Node)
		}
	case e.d.Selected != nil:
		streams = e.d.Selected()
	}
	for _, of := range byClient(streams) {
		if err := w.client(ctx, of, &out); err != nil {
			return out, err
		}
	}
	for _, g := range slices.Sorted(maps.Keys(w.groups)) {
		out.Groups = append(out.Groups, api.GroupImpact{Group: g, Clients: w.groups[g]})
	}
	for _, t := range w.order {
		if p := w.pushed[t.URL]; p != nil {
			out.Types = append(out.Types, *p)
			out.Bytes += p.Bytes
		}
	}
	return out, nil
}

// byClient groups streams by client: by node ID and address. A stream without a node ID is a client of
// its own.
func byClient(streams []*server.Stream) (clients [][]*server.Stream) {
	type key struct {
		node, peer string
		stream     uint64
	}
	at := map[key]int{}
	for _, st := range streams {
		k := key{node: st.Node.ID}
		if st.Peer != nil {
			k.peer = st.Peer.String()
		}
		if k.node == "" {
			k.stream = st.ID
		}
		i, ok := at[k]
		if !ok {
			i = len(clients)
			at[k], clients = i, append(clients, nil)
		}
		clients[i] = append(clients[i], st)
	}
	return clients
}

// A change is a planned change.
type change struct {
	t           *xds.Type
	name, group string
	bytes       int
}

// An impact has the inputs and the counts of one call of Impact.
type impact struct {
	e       *Explainer
	now     *store.Snapshot
	changes []change
	types   map[string]*xds.Type
	order   []*xds.Type
	pushed  map[string]*api.TypeImpact
	groups  map[string]int
	whole   map[string]int // size of all resources of a type in bytes, by type and groups
}

// client adds the counts of one client, and inspects its streams.
func (w *impact) client(ctx context.Context, streams []*server.Stream, out *api.Impact) error {
	out.Connected++
	sees, asked := map[string]bool{}, false
	for _, st := range streams {
		if st.Type != nil && w.types[st.Type.URL] == nil {
			asked = true // this stream has only one type, which has no change
			continue
		}
		groups := w.e.d.Source.Decide(st.Node).Groups
		err := st.Inspect(ctx, func(s *protocol.Session) { w.stream(st, s, groups, sees) })
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		asked = asked || err == nil
	}
	switch {
	case len(sees) > 0:
		out.Clients++
	case !asked:
		out.Unknown++
	}
	for g := range sees {
		if g != "" {
			w.groups[g]++
		}
	}
	return nil
}

// stream adds the pushes on one stream. The stream's goroutine runs it, so it must be quick.
func (w *impact) stream(st *server.Stream, s *protocol.Session, groups []string, sees map[string]bool) {
	for _, is := range s.States() {
		if w.types[is.Type.URL] == nil {
			continue
		}
		n, size := 0, 0
		for i := range w.changes {
			c := &w.changes[i]
			if !c.t.Is(is.Type) || !w.seen(c, groups) || s.NameState(c.t, c.name).Why == protocol.NotWanted {
				continue
			}
			if w.e.d.Allowed != nil {
				if ok, _ := w.e.d.Allowed(st, st.Node, c.t, c.name); !ok {
					continue
				}
			}
			sees[c.group] = true
			switch had := w.sizeOf(groups, c.t, c.name); {
			case st.Variant == xds.SotW && is.Type.FullState:
				n, size = n+1, size+c.bytes-had // the sizes of the other resources are added below
			case st.Variant == xds.SotW && c.bytes == 0: // SotW has no removals for this type
			case c.bytes == 0:
				n, size = n+1, size+len(c.name)
			default:
				n, size = n+1, size+c.bytes
			}
		}
		if n == 0 {
			continue
		}
		if st.Variant == xds.SotW && is.Type.FullState {
			size += w.all(s, is, groups)
		}
		p := w.pushed[is.Type.URL]
		if p == nil {
			p = &api.TypeImpact{Type: is.Type.String()}
			w.pushed[is.Type.URL] = p
		}
		p.Pushes, p.Bytes = p.Pushes+1, p.Bytes+max(size, 0)
	}
}

// seen reports whether a node with these groups gets the changed resource. If an earlier group has a
// resource with the same name, the node gets that resource instead.
func (w *impact) seen(c *change, groups []string) bool {
	if c.group == "" {
		return true
	}
	for _, g := range groups {
		if g == c.group {
			return true
		}
		if w.now.View(g).Table(c.t).Lookup(c.name) != nil {
			return false
		}
	}
	return false
}

func (w *impact) sizeOf(groups []string, t *xds.Type, name string) int {
	for _, g := range groups {
		if r := w.now.View(g).Table(t).Lookup(name); r != nil {
			return len(r.Body)
		}
	}
	return 0
}

// all returns the approximate bytes of a response with all subscribed resources of a type.
func (w *impact) all(s *protocol.Session, is protocol.TypeState, groups []string) (size int) {
	if !is.Wildcard {
		for n := range s.NameStates(is.Type) {
			if n.Why != protocol.NotWanted {
				size += w.sizeOf(groups, is.Type, n.Name)
			}
		}
		return size
	}
	key := is.Type.URL + "\x00" + strings.Join(groups, "\x00")
	size, ok := w.whole[key]
	if !ok {
		for r := range w.now.View(groups...).Table(is.Type).All() {
			size += len(r.Body)
		}
		w.whole[key] = size
	}
	return size
}

// Node returns the node message of a connected client, with the client's groups. The error is a
// [*NotFound] if no client with the node ID is connected.
func (e *Explainer) Node(node string) (api.NodeInfo, error) {
	streams := e.d.Tracker.Streams(node)
	if len(streams) == 0 {
		return api.NodeInfo{}, e.unknownNode(node)
	}
	n := streams[0].Node
	out := api.NodeInfo{
		APIVersion: api.Version, Kind: api.KindNodeInfo, Groups: append([]string{}, e.d.Source.Decide(n).Groups...),
		Node: api.Node{ID: n.ID, Cluster: n.Cluster, UserAgentName: n.UserAgentName, UserAgentVersion: n.UserAgentVersion, ClientFeatures: n.ClientFeatures},
	}
	if n.Region+n.Zone+n.SubZone != "" {
		out.Node.Locality = &api.Locality{Region: n.Region, Zone: n.Zone, SubZone: n.SubZone}
	}
	if m, err := nodemeta.Decode(n.Metadata); err == nil && len(m) > 0 {
		out.Node.Metadata, _ = json.Marshal(finite(m)) // cannot fail: finite has removed the values that JSON cannot express
	}
	return out, nil
}

// finite replaces numbers that JSON cannot express by the strings that protobuf uses for them.
func finite(v any) any {
	switch v := v.(type) {
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return strings.Replace(strings.TrimPrefix(strconv.FormatFloat(v, 'g', -1, 64), "+"), "Inf", "Infinity", 1)
		}
	case map[string]any:
		for k := range v {
			v[k] = finite(v[k])
		}
	case []any:
		for i := range v {
			v[i] = finite(v[i])
		}
	}
	return v
}
