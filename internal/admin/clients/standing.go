package clients

import (
	"fmt"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// A state is one of [adminapi.State], in numbers: the worst first.
type state uint8

const (
	nacked state = iota
	stale
	waiting
	sent
	notSent
	synced
	idle
	unopened // the client has not opened the type
)

var states = [...]api.State{api.Nacked, api.Stale, api.Waiting, api.Sent, api.NotSent, api.Synced, api.Idle, ""}

func (s state) told() api.State { return states[s] }

// A standing is how a client stands, as far as one must know to choose among many.
type standing struct {
	*client
	rows     []*row
	first    *server.Stream // nil: it has left
	departed *departed      // nil: it has not
	now      int64          // when it left, of one that has

	state    state // the worst of its types
	of       state // of the type that is asked for
	refusals []refusal
	troubles []api.Trouble

	late     []owed
	large    []message // sent last, near what clients accept
	largest  []*xds.Type
	accepted int64 // clusters, first
	warmed   bool  // it has asked for endpoints
	alone    bool  // it has a stream of which a client has one at most
}

// An owed answer has not come for long.
type owed struct {
	typ   *xds.Type
	since int64
}

// healthy reports whether nobody needs to look at the client.
func (s *standing) healthy() bool {
	return len(s.troubles) == 0 && (s.state >= synced)
}

// A presence is who is there at a time.
type presence struct {
	now     int64
	all     []standing // those of a node stand together
	flapped map[string]int64
	roam    []api.Trouble // of nodes that are not there
}

// gather looks at all clients; with left, also at those that have left.
func (t *Tracker) gather(of *xds.Type, left bool) *presence {
	return t.looked(t.present(left, nil), of)
}

func (t *Tracker) looked(p *presence, of *xds.Type) *presence {
	for i := range p.all {
		p.all[i].look(of)
	}
	t.worry(p)
	return p
}

// present lists those that are here; with only, those of a node.
func (t *Tracker) present(left bool, only *string) *presence {
	p := &presence{now: t.now(), flapped: map[string]int64{}}
	t.mu.RLock()
	defer t.mu.RUnlock()
	nodes, n := t.nodes, len(t.clients)
	if only != nil {
		nodes, n = map[string]*node{}, 0
		if it := t.nodes[*only]; it != nil {
			nodes[*only], n = it, len(it.clients)
		}
	}
	p.all = make([]standing, 0, n)
	rows := make([]*row, 0, n)
	for id, n := range nodes {
		if at := n.connects[maxFlaps-1]; id != "" && at != 0 && p.now-at <= int64(flapsWithin) {
			p.flapped[id] = at
			if len(n.clients) == 0 {
				p.roam = append(p.roam, flaps(id, at))
			}
		}
		for _, c := range n.clients {
			from := len(rows)
			rows = append(rows, c.streams...)
			p.all = append(p.all, standing{client: c, rows: rows[from:len(rows):len(rows)], first: c.streams[0].stream, now: p.now})
		}
	}
	if left {
		for _, d := range t.left {
			if only != nil && d.node != *only {
				continue
			}
			p.all = append(p.all, standing{client: d.client, rows: d.rows, departed: d, now: d.at})
		}
	}
	return p
}

// look fills in what the client's streams say.
func (s *standing) look(of *xds.Type) {
	s.state, s.of = idle, unopened
	for _, r := range s.rows {
		r.mu.Lock()
		if s.departed == nil {
			s.alone = s.alone || r.about.API == "ADS"
			if len(r.types) == 0 { // nobody knows yet what it may see
				s.state = min(s.state, waiting)
			}
		}
		for i := range r.types {
			s.add(&r.types[i], of)
		}
		r.mu.Unlock()
	}
}

func (s *standing) add(u *typeRow, of *xds.Type) {
	state := u.state(s.now)
	s.state = min(s.state, state)
	if of != nil && of.Is(u.typ) {
		s.of = min(s.of, state)
	}
	if u.refusal != nil {
		s.refusals = append(s.refusals, *u.refusal)
	}
	if at := u.oldest(); at != 0 && s.now-at >= int64(staleAfter) {
		s.late = append(s.late, owed{u.typ, at})
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
	s.alone = s.alone || u.typ.FullState
}

const (
	maxFlaps    = 5
	flapsWithin = time.Minute
	sameAfter   = 10 * time.Second // clients that come back may be here twice for a moment
	warmsAfter  = 15 * time.Second
	nearLimit   = 7 << 19 // of the 4 MiB that clients of gRPC accept by default
	maxShown    = 100     // refusals, troubles
)

// worry adds what looks wrong.
func (t *Tracker) worry(p *presence) {
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
			t.worryOf(&same[i])
		}
		if same[0].node == "" {
			continue
		}
		if since, ok := p.flapped[same[0].node]; ok {
			same[0].troubles = append(same[0].troubles, flaps(same[0].node, since))
		}
		twice(same, p.now)
	}
}

func flaps(node string, since int64) api.Trouble {
	return api.Trouble{Code: "flaps", Node: node, Since: time.Unix(0, since), Text: fmt.Sprintf("it has connected %d times within %v", maxFlaps, flapsWithin)}
}

// worryOf adds what looks wrong with a client by itself.
func (t *Tracker) worryOf(s *standing) {
	for _, o := range s.late {
		s.troubles = append(s.troubles, api.Trouble{
			Code: "unanswered", Node: s.node, Type: o.typ.Short, Since: time.Unix(0, o.since),
			Text: fmt.Sprintf("it has not answered what it was sent for %v", time.Duration(s.now-o.since).Round(time.Second)),
		})
	}
	for i, m := range s.large {
		s.troubles = append(s.troubles, api.Trouble{
			Code: "near-limit", Node: s.node, Type: s.largest[i].Short, Since: time.Unix(0, m.at),
			Text: fmt.Sprintf("the last response had about %.1f MiB: clients accept 4 MiB by default", float64(m.bytes)/(1<<20)),
		})
	}
	if s.envoy && s.accepted != 0 && !s.warmed && s.now-s.accepted >= int64(warmsAfter) && (t.opts.Expects == nil || t.opts.Expects(s.first.Node, xds.Endpoint)) {
		s.troubles = append(s.troubles, api.Trouble{
			Code: "no-eds", Node: s.node, Type: xds.Endpoint.Short, Since: time.Unix(0, s.accepted),
			Text: "it has accepted clusters and asks for no endpoints, which an Envoy with EDS clusters does at once",
		})
	}
}

// twice adds that several clients say that they are one node. A client has one stream of ADS, of
// clusters or of listeners; but who uses gRPC has a connection for each server that it names.
func twice(same []standing, now int64) {
	if len(same) < 2 {
		return
	}
	var here []*standing
	for i := range same {
		if s := &same[i]; s.alone && now-s.since >= int64(sameAfter) {
			here = append(here, s)
		}
	}
	slices.SortFunc(here, func(a, b *standing) int { return int(a.since - b.since) })
	seen := map[string]bool{}
	here = slices.DeleteFunc(here, func(s *standing) bool {
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
