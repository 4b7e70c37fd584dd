package clients

import (
	"fmt"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// A state is an [api.State] as a number, worst first.
type state uint8

const (
	nacked state = iota
	stale
	waiting
	sent
	notSent
	synced
	idle
	unopened // the client has not opened the type in the query
)

var states = [...]api.State{api.Nacked, api.Stale, api.Waiting, api.Sent, api.NotSent, api.Synced, api.Idle, ""}

func (s state) name() api.State { return states[s] }

// A snapshot is the state of a client at one time. It has the fields that are needed to select and
// sort clients.
type snapshot struct {
	*client
	rows     []*row
	first    *server.Stream // nil: the client has disconnected
	departed *departed      // nil: the client is connected
	now      int64          // time of the snapshot; for a disconnected client: the time of its disconnection

	state    state // worst state of its types
	of       state // state of the type in the query
	refusals []refusal
	troubles []api.Trouble

	overdue   []overdueAnswer
	large     []message   // last responses whose size is near the message limit of gRPC clients
	largest   []*xds.Type // the type of each response in large
	unbegun   int64       // when the first stream without an opened type began; 0: there is none
	accepted  int64       // time when the client first accepted clusters
	warmed    bool        // the client has subscribed to endpoints
	exclusive bool        // the client has a stream for ADS, CDS or LDS; a client opens only one
}

// An overdueAnswer is a type with a response that has had no ACK or NACK for staleAfter.
type overdueAnswer struct {
	typ   *xds.Type
	since int64
}

// healthy reports whether the client needs no attention from an operator.
func (s *snapshot) healthy() bool {
	return len(s.troubles) == 0 && (s.state >= synced)
}

// A roster is a list of client snapshots, taken at one time.
type roster struct {
	now            int64
	all            []snapshot             // clients with the same node ID are neighbours
	trouble        map[string]api.Trouble // trouble of each node whose clients disconnect again and again
	absentTroubles []absentTrouble
}

// An absentTrouble is the trouble of a node without a connected client.
type absentTrouble struct {
	api.Trouble
	groups []string // groups of the node; nil: unknown
}

// gather takes snapshots of all connected clients. If left is true, it also takes those of the
// remembered disconnected clients.
func (t *Tracker) gather(of *xds.Type, left bool) *roster {
	return t.inspectAll(t.present(left, nil), of)
}

func (t *Tracker) inspectAll(p *roster, of *xds.Type) *roster {
	for i := range p.all {
		p.all[i].inspect(of)
	}
	t.findTroubles(p)
	return p
}

// present lists the connected clients, and if left is true also the remembered disconnected ones. If
// only is not nil, it lists only the clients with this node ID. The state of the clients is not set
// yet.
func (t *Tracker) present(left bool, only *string) *roster {
	p := &roster{now: t.now(), trouble: map[string]api.Trouble{}}
	t.mu.RLock()
	defer t.mu.RUnlock()
	nodes, n := t.nodes, len(t.clients)
	if only != nil {
		nodes, n = map[string]*node{}, 0
		if it := t.nodes[*only]; it != nil {
			nodes[*only], n = it, len(it.clients)
		}
	}
	p.all = make([]snapshot, 0, n)
	rows := make([]*row, 0, n)
	for id, n := range nodes {
		if x, groups, ok := n.trouble(id, p.now); ok {
			p.trouble[id] = x
			if len(n.clients) == 0 {
				p.absentTroubles = append(p.absentTroubles, absentTrouble{x, groups})
			}
		}
		for _, c := range n.clients {
			from := len(rows)
			rows = append(rows, c.streams...)
			p.all = append(p.all, snapshot{client: c, rows: rows[from:len(rows):len(rows)], first: c.streams[0].stream, now: p.now})
		}
	}
	if left {
		for _, d := range t.left {
			if only != nil && d.node != *only {
				continue
			}
			p.all = append(p.all, snapshot{client: d.client, rows: d.rows, departed: d, now: d.at})
		}
	}
	return p
}

// inspect sets the fields that come from the client's streams.
func (s *snapshot) inspect(of *xds.Type) {
	s.state, s.of = idle, unopened
	for _, r := range s.rows {
		r.mu.Lock()
		if s.departed == nil {
			s.exclusive = s.exclusive || r.info.API == "ADS"
			if len(r.types) == 0 { // the client has not subscribed to anything yet
				s.state = min(s.state, waiting)
				if since := r.info.Since.UnixNano(); s.unbegun == 0 || since < s.unbegun {
					s.unbegun = since
				}
			}
		}
		for i := range r.types {
			s.add(&r.types[i], of)
		}
		r.mu.Unlock()
	}
}

func (s *snapshot) add(u *typeRow, of *xds.Type) {
	state := u.state(s.now)
	s.state = min(s.state, state)
	if of != nil && of.Is(u.typ) {
		s.of = min(s.of, state)
	}
	if u.refusal != nil {
		s.refusals = append(s.refusals, *u.refusal)
	}
	if at := u.oldest(); at != 0 && s.now-at >= int64(staleAfter) {
		s.overdue = append(s.overdue, overdueAnswer{u.typ, at})
	}
	if u.sent.bytes > nearLimit {
		s.large, s.largest = append(s.large, u.sent), append(s.largest, u.typ)
	}
	switch u.typ {
	case xds.Cluster:
		s.accepted = u.accepted
	case xds.Endpoint:
		s.warmed = true
	}
	s.exclusive = s.exclusive || u.typ.FullState
}

const (
	maxFlaps    = 5
	flapsWithin = time.Minute
	sameAfter   = 10 * time.Second // age from which a connection counts for "same-node", because a reconnecting client may have two for a moment
	fillsAfter  = 10 * time.Second // time for the first load
	warmsAfter  = 15 * time.Second
	nearLimit   = xds.GRPCMessageSize / 8 * 7
	maxShown    = 100 // maximum number of refusals, of troubles and of regressions in an answer
)

// findTroubles adds the troubles of all clients.
func (t *Tracker) findTroubles(p *roster) {
	for from := 0; from < len(p.all); {
		to := from + 1
		for to < len(p.all) && p.all[to].node == p.all[from].node && p.all[from].departed == nil && p.all[to].departed == nil {
			to++
		}
		same := p.all[from:to]
		from = to
		if same[0].departed != nil {
			continue
		}
		for i := range same {
			t.clientTroubles(&same[i])
		}
		if same[0].node == "" {
			continue
		}
		if x, ok := p.trouble[same[0].node]; ok {
			same[0].troubles = append(same[0].troubles, x)
		}
		duplicateNodes(same, p.now)
	}
}

// trouble returns the trouble of a node whose clients disconnect again and again, and the groups of the node
// if they are known. A loop explains why a node flaps.
func (n *node) trouble(id string, now int64) (x api.Trouble, groups []string, ok bool) {
	l, since := n.leaving.Load(), n.connects[maxFlaps-1]
	switch {
	case l.certain(now):
		return l.trouble(id), l.groups, true
	case id == "" || since == 0 || now-since > int64(flapsWithin):
		return x, nil, false
	}
	return api.Trouble{Code: "flaps", Node: id, Since: time.Unix(0, since), Text: fmt.Sprintf("it has connected %d times within %v", maxFlaps, flapsWithin)}, nil, true
}

// clientTroubles adds the troubles of one client.
func (t *Tracker) clientTroubles(s *snapshot) {
	for _, o := range s.overdue {
		s.troubles = append(s.troubles, api.Trouble{
			Code: "unanswered", Node: s.node, Type: o.typ.Short, Since: time.Unix(0, o.since),
			Text: fmt.Sprintf("it has not answered a response for %v", time.Duration(s.now-o.since).Round(time.Second)),
		})
	}
	if s.unbegun != 0 && s.now-s.unbegun >= int64(fillsAfter) && t.opts.Unfilled != nil {
		if group := t.opts.Unfilled(t.grouped(s).groups); group != "" {
			s.troubles = append(s.troubles, api.Trouble{
				Code: "no-resources", Node: s.node, Since: time.Unix(0, s.unbegun),
				Text: fmt.Sprintf("its group %q has no resources, so the server sends nothing to it", group),
			})
		}
	}
	for i, m := range s.large {
		if s.envoy { // Envoy has no such limit
			break
		}
		s.troubles = append(s.troubles, api.Trouble{
			Code: "near-limit", Node: s.node, Type: s.largest[i].Short, Since: time.Unix(0, m.at),
			Text: fmt.Sprintf("the last response had about %.1f MiB: gRPC clients accept at most 4 MiB by default", float64(m.bytes)/(1<<20)),
		})
	}
	if s.envoy && s.accepted != 0 && !s.warmed && s.now-s.accepted >= int64(warmsAfter) && (t.opts.Expects == nil || t.opts.Expects(s.first.Node, xds.Endpoint)) {
		s.troubles = append(s.troubles, api.Trouble{
			Code: "no-eds", Node: s.node, Type: xds.Endpoint.Short, Since: time.Unix(0, s.accepted),
			Text: "it has accepted clusters but not subscribed to endpoints; an Envoy with EDS clusters does so immediately",
		})
	}
}

// duplicateNodes adds a trouble if several clients use one node ID. An Envoy has only one stream for ADS,
// CDS or LDS. A gRPC program may have one connection for each server name. So the connections of gRPC
// programs from one IP address count as one client.
func duplicateNodes(same []snapshot, now int64) {
	if len(same) < 2 {
		return
	}
	var here []*snapshot
	for i := range same {
		if s := &same[i]; s.exclusive && now-s.since >= int64(sameAfter) {
			here = append(here, s)
		}
	}
	slices.SortFunc(here, func(a, b *snapshot) int { return int(a.since - b.since) })
	seen := map[string]bool{}
	here = slices.DeleteFunc(here, func(s *snapshot) bool {
		from := s.peer
		if !s.envoy {
			from = host(s.peer)
		}
		was := seen[from]
		seen[from] = true
		return was
	})
	if len(here) < 2 {
		return
	}
	here[1].troubles = append(here[1].troubles, api.Trouble{
		Code: "same-node", Node: here[1].node, Since: time.Unix(0, here[1].since),
		Text: fmt.Sprintf("%d clients say that they are this node, from %s and %s", len(here), clip(here[0].peer, maxName), clip(here[1].peer, maxName)),
	})
}
