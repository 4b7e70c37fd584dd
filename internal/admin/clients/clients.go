package clients

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// Clients lists the clients that f selects, worst first, then by node ID. Total is their number
// without the limit, and includes hidden healthy clients.
func (t *Tracker) Clients(f Filter) api.ClientList {
	all := t.selected(f)
	list := api.ClientList{APIVersion: api.Version, Kind: "ClientList", Total: len(all), Items: []api.Client{}}
	if !f.All && len(f.States) == 0 {
		all = slices.DeleteFunc(all, func(s snapshot) bool { return s.healthy() && s.departed == nil })
		list.Hidden = list.Total - len(all)
	}
	sorted := make([]*snapshot, len(all)) // pointers are cheaper to sort
	for i := range all {
		sorted[i] = &all[i]
	}
	most := len(sorted)
	if f.Limit > 0 {
		most = min(most, f.Offset+f.Limit)
	}
	sorted = leading(sorted, most, worse)
	sorted = sorted[min(f.Offset, len(sorted)):]
	list.Items = make([]api.Client, len(sorted))
	p := t.places()
	for i, s := range sorted {
		list.Items[i] = t.client(s, p)
	}
	return list
}

// worse is negative if a comes before b in a list.
func worse(a, b *snapshot) int {
	return cmp.Or(a.rank()-b.rank(), strings.Compare(a.node, b.node), strings.Compare(a.peer, b.peer), cmp.Compare(a.now, b.now))
}

// leading returns the first n elements of a list in the order of compare. It changes the list. A page of a long list costs
// little more than one comparison for each element.
func leading[E any](all []E, n int, compare func(a, b E) int) []E {
	kept, cut := all[:0], false
	for _, e := range all {
		if cut && compare(kept[n-1], e) <= 0 { // kept[:n] are the first n so far, in order
			continue
		}
		kept = append(kept, e)
		if len(kept) == 2*n {
			slices.SortFunc(kept, compare)
			kept, cut = kept[:n], true
		}
	}
	slices.SortFunc(kept, compare)
	return kept[:min(n, len(kept))]
}

// rank orders clients, worst first. Disconnected clients come last.
func (s *snapshot) rank() int {
	n := 2 * int(s.state)
	if s.departed != nil {
		return n + 2*len(states)
	}
	if len(s.troubles) > 0 {
		n = min(n, 2*int(synced)-1)
	}
	return n
}

// selected returns the clients that f selects, healthy ones included.
func (t *Tracker) selected(f Filter) []snapshot {
	return t.gather(f.Type, f.Left).selected(t, f)
}

func (p *roster) selected(t *Tracker, f Filter) []snapshot {
	if f.Node == nil && f.Agent == nil && f.Group == "" && f.Type == nil && len(f.States) == 0 {
		return p.all
	}
	return slices.DeleteFunc(p.all, func(s snapshot) bool {
		state := s.state
		if f.Type != nil {
			state = s.of
		}
		switch {
		case state == unopened || len(f.States) > 0 && !slices.Contains(f.States, state.name()):
			return true
		case f.Node != nil && !f.Node.Match(s.node, nil), f.Agent != nil && *f.Agent != s.agent:
			return true
		}
		return f.Group != "" && !slices.Contains(t.grouped(&s).groups, f.Group)
	})
}

// Client returns all clients with a node ID: first the connected clients, then the recently disconnected
// ones, newest first.
//
// A client without a node ID has the name of its stream instead, such as "stream:41" ([api.Client.Path]).
func (t *Tracker) Client(node string) []api.Client {
	id := ""
	stream, unnamed := t.unnamed(node)
	if !unnamed {
		id = node
	}
	here := t.present(true, &id)
	if unnamed {
		here.all = slices.DeleteFunc(here.all, func(s snapshot) bool { return s.key.stream != stream })
	}
	seen := t.inspectAll(here, nil)
	all := seen.all
	slices.SortStableFunc(all, func(a, b snapshot) int {
		switch {
		case a.departed == nil && b.departed == nil:
			return cmp.Or(a.rank()-b.rank(), strings.Compare(a.peer, b.peer))
		case a.departed == nil:
			return -1
		case b.departed == nil:
			return 1
		}
		return cmp.Compare(b.now, a.now)
	})
	if len(all) > 0 && all[0].departed != nil && len(seen.absentTroubles) > 0 {
		all[0].troubles = append(all[0].troubles, seen.absentTroubles[0].Trouble)
	}
	var clients []api.Client
	p := t.places()
	for i := range all {
		clients = append(clients, t.client(&all[i], p))
	}
	return clients
}

// streamPath begins the name of a client without a node ID; the number of its stream follows.
const streamPath = "stream:"

// PathOf returns the name of a client without a node ID ([api.Client.Path]).
func PathOf(stream uint64) string { return streamPath + strconv.FormatUint(stream, 10) }

// unnamed returns the stream number in a path such as "stream:41". A node may choose its ID, also such a path: the
// path is the ID of that node only if no client without a node ID has or had the stream.
func (t *Tracker) unnamed(path string) (stream uint64, ok bool) {
	number, is := strings.CutPrefix(path, streamPath)
	if !is {
		return 0, false
	}
	stream, err := strconv.ParseUint(number, 10, 64)
	if err != nil || stream == 0 {
		return 0, false
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.nodes[path] == nil {
		return stream, true
	}
	if n := t.nodes[""]; n != nil && slices.ContainsFunc(n.clients, func(c *client) bool { return c.key.stream == stream }) {
		return stream, true
	}
	return stream, slices.ContainsFunc(t.left, func(d *departed) bool { return d.key.stream == stream })
}

// Streams returns the open streams of a node ID. A stream may end before the caller uses it.
func (t *Tracker) Streams(node string) (streams []*server.Stream) {
	stream, unnamed := t.unnamed(node)
	if unnamed {
		node = ""
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if n := t.nodes[node]; n != nil {
		for _, c := range n.clients {
			if unnamed && c.key.stream != stream {
				continue
			}
			for _, r := range c.streams {
				streams = append(streams, r.stream)
			}
		}
	}
	return streams
}

// Selected returns the open streams of all clients that f selects, healthy ones included. A stream may end
// before the caller uses it.
func (t *Tracker) Selected(f Filter) (streams []*server.Stream) {
	f.Left = false
	all := t.selected(f)
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, s := range all {
		for _, r := range s.client.streams {
			streams = append(streams, r.stream)
		}
	}
	return streams
}

// Nodes returns the sorted IDs of connected nodes that begin with prefix, at most `most` of them.
func (t *Tracker) Nodes(prefix string, most int) []string {
	t.mu.RLock()
	var ids []string
	for id, n := range t.nodes {
		if len(n.clients) > 0 && strings.HasPrefix(id, prefix) {
			ids = append(ids, id)
		}
	}
	t.mu.RUnlock()
	slices.Sort(ids)
	return ids[:min(len(ids), max(most, 0))]
}

// client converts a client to the API. The state of the client may be newer than the snapshot s.
func (t *Tracker) client(s *snapshot, p *places) api.Client {
	g := t.grouped(s)
	c := api.Client{
		Node: s.node, Cluster: s.cluster, Agent: s.agent, Peer: s.peer, Identity: g.identity, Groups: g.groups,
		Since: time.Unix(0, s.since), State: s.state.name(), Streams: make([]api.Stream, 0, len(s.rows)), Types: []api.TypeStatus{}, Troubles: s.troubles,
	}
	if s.key.stream != 0 {
		c.Path = PathOf(s.key.stream)
	}
	if d := s.departed; d != nil {
		c.Left = &api.Left{At: time.Unix(0, d.at), Code: d.code.String(), Why: d.why}
	}
	type refused struct {
		at     int // index in client.Types
		cause  *cause
		stream *server.Stream
	}
	var nacked []refused
	for _, r := range s.rows {
		c.Streams = append(c.Streams, r.info)
		r.mu.Lock()
		c.Types = slices.Grow(c.Types, len(r.types))
		messages := make([]api.Message, 2*len(r.types)) // one allocation, because there may be many clients
		for i := range r.types {
			u := &r.types[i]
			if u.refusal != nil {
				nacked = append(nacked, refused{len(c.Types), u.refusal.cause, r.stream})
			}
			c.Types = append(c.Types, u.status(r.info.ID, s.now, messages[2*i:]))
		}
		r.mu.Unlock()
	}
	for _, n := range nacked {
		nacked := c.Types[n.at].Nacked
		nacked.Resources = p.resources(p.nodeOf(s), n.cause)
		if t.opts.Kept != nil && n.stream != nil {
			nacked.Kept = clipKept(t.opts.Kept(n.stream, n.cause.typ))
		}
	}
	if len(s.rows) > 1 {
		rank := func(u api.TypeStatus) int { return xds.TypeOf(u.URL).Rank() }
		slices.SortStableFunc(c.Types, func(a, b api.TypeStatus) int { return rank(a) - rank(b) })
	}
	return c
}

// maxKept is the maximum number of resources in quarantine that are listed for one type.
const maxKept = 10

func clipKept(all []api.Kept) []api.Kept {
	all = all[:min(len(all), maxKept)]
	for i := range all {
		k := &all[i]
		k.Name, k.Refused, k.Kept = clip(k.Name, maxName), clip(k.Refused, maxName), clip(k.Kept, maxName)
	}
	return all
}

func (u *typeRow) status(stream uint64, now int64, room []api.Message) api.TypeStatus {
	s := api.TypeStatus{
		Type: u.typ.Short, URL: u.typ.URL, Stream: stream, State: u.state(now).name(), Wildcard: u.wildcard, Names: int(u.names),
		Sent: u.sent.status(&room[0]), Acked: u.acked.status(&room[1]),
	}
	if f := u.refusal; f != nil {
		s.Nacked = &api.NackedStatus{
			Since: time.Unix(0, f.since), At: time.Unix(0, f.at), Nonce: nonceOf(f.nonce), Version: f.version, Error: f.text, Resources: []api.Resource{},
		}
	}
	return s
}

func (m *message) status(into *api.Message) *api.Message {
	if m.at == 0 {
		return nil
	}
	*into = api.Message{At: time.Unix(0, m.at), Version: m.version, Nonce: nonceOf(m.nonce), Resources: int(m.count), Removed: int(m.removed), Bytes: int(m.bytes)}
	return into
}

var none = &grouping{groups: []string{}}

// grouped returns the groups and the identity of a client. It calls Options.Groups and Options.Identity
// once in each epoch.
func (t *Tracker) grouped(s *snapshot) *grouping {
	was, epoch := s.groups.Load(), t.epoch.Load()
	if s.first == nil || was != nil && was.epoch == epoch {
		return cmp.Or(was, none)
	}
	g := &grouping{epoch: epoch, groups: []string{}}
	if t.opts.Groups != nil {
		g.groups = append(g.groups, t.opts.Groups(s.first.Node)...)
	}
	if t.opts.Identity != nil {
		g.identity = clip(t.opts.Identity(s.first), maxName)
	}
	s.groups.Store(g)
	return g
}
