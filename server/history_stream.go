package server

import (
	"slices"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// maxStatements is how many versions of a type are remembered for an open stream: the last accepted
// version, and the newest versions sent since.
const maxStatements = 8

// A streamHistory remembers which resources the client of one stream got. The goroutine of the stream owns it.
type streamHistory struct {
	history *sentHistory
	node    string
	owner   string // the address of the client
	types   []typeHistory
}

// A typeHistory is the history of one type.
type typeHistory struct {
	typ   *xds.Type
	broad bool // the client subscribed to the wildcard at some time
	named bool // the client subscribes to names now

	// The content that the client had when the stream began, until its subscription is known. The
	// field mine has a part of it.
	came *statedContent

	// The content by name, for types whose responses have only a part of the content. This list
	// shares memory with the contents in may.
	mine stampList

	may []*statedContent // versions that the client may state, oldest first
}

func (a *streamHistory) of(typ *xds.Type) *typeHistory {
	for i := range a.types {
		if a.types[i].typ.Is(typ) {
			return &a.types[i]
		}
	}
	a.types = append(a.types, typeHistory{typ: typ})
	return &a.types[len(a.types)-1]
}

// subscribed records the subscription of the client.
func (a *streamHistory) subscribed(e protocol.Event) {
	p := a.of(e.Type)
	p.broad, p.named = p.broad || e.Wildcard, e.Count > 0
}

// interested forgets names to which the client does not subscribe.
func (a *streamHistory) interested(i protocol.Interest) {
	p := a.of(i.Type)
	came := p.came
	p.came = nil
	if len(p.mine) == 0 || came == nil && len(i.Removed) == 0 {
		return
	}
	names := make(map[string]bool, len(i.Added)+len(i.Removed))
	for _, n := range i.Removed {
		names[n] = false
	}
	for _, n := range i.Added {
		names[n] = true
	}
	left := func(l stampList) stampList {
		var out []*xds.Stamp
		for st := range l.all {
			// Lost members of a collection are not in names.
			if wanted, listed := names[st.Name]; wanted || !listed && (came == nil || names[p.typ.Collection(st.Name)]) {
				out = append(out, st)
			}
		}
		return piecesOf(out)
	}
	p.mine = left(p.mine)
	if came != nil && !i.Wildcard { // other streams of the node are remembered separately
		a.history.narrow(came, left(came.each))
	}
}

// sent records the content of the client after it accepts a response.
func (a *streamHistory) sent(e protocol.Event, c *xds.Changes) {
	p, h := a.of(e.Type), &statedContent{of: stateKeyOf(a.node, e.Type.URL, e.Version), nonce: e.Nonce}
	if a.node != "" {
		h.content = p.content(e.World, c)
	} else if proof, ok := contentOfVersion(e.World, e.Version); ok && p.broad && e.Type.FullState {
		h.content = proof
	} else {
		return
	}
	a.may(p, h)
}

// content returns the part of a world that the client has after a response.
func (p *typeHistory) content(w *protocol.World, c *xds.Changes) content {
	var told []*xds.Stamp
	if !p.broad || p.named {
		for _, r := range c.Upserts {
			if !p.broad || r.OnDemand {
				told = append(told, r.Stamp)
			}
		}
	}
	var out content
	if p.typ.FullState {
		out.each = piecesOf(told)
	} else {
		p.mine = p.mine.with(told)
		out.each = p.mine
	}
	if len(w.Others) > 0 {
		var before stampList // nearly equal to the new one
		if n := len(p.may); n > 0 {
			before = p.may[n-1].each
		}
		out.each = before.like(distinct(slices.Concat(out.each.flat(), w.Others)))
	}
	if p.broad {
		out.all, out.lacks = w.Versions, w.Lacks
	}
	return out
}

func (a *streamHistory) may(p *typeHistory, h *statedContent) {
	if len(p.may) == maxStatements {
		a.history.release(p.may[1:2], p.may[0])
		p.may = slices.Delete(p.may, 1, 2)
	}
	var after *statedContent
	if len(p.may) > 0 {
		after = p.may[len(p.may)-1]
	}
	p.may = append(p.may, h)
	a.history.hold(h, after)
}

// acked forgets the versions before an acknowledged response.
func (a *streamHistory) acked(e protocol.Event) {
	p := a.of(e.Type)
	i := slices.IndexFunc(p.may, func(h *statedContent) bool { return h.nonce == e.Nonce })
	if i > 0 {
		a.history.release(p.may[:i], nil)
		p.may = slices.Delete(p.may, 0, i)
	}
}

// recall returns the content of a client that states a version, or nil if it is unknown. That is
// the content that this client got, or the content of the table with that version. Until the client
// gets another response, it may state the same version again.
func (a *streamHistory) recall(now time.Time, typ *xds.Type, version string, table *protocol.World) *protocol.World {
	of := stateKeyOf(a.node, typ.URL, version)
	c, ok := a.history.recall(now, of)
	if !ok && table != nil {
		c, ok = content{all: table.Versions}, true
	}
	if !ok {
		return nil
	}
	p, h := a.of(typ), &statedContent{content: c, of: of}
	if !typ.FullState && !c.isAnything() {
		mine := slices.Collect(c.each.all)
		p.mine, p.came = piecesOf(slices.CompactFunc(mine, func(a, b *xds.Stamp) bool { return a.Name == b.Name })), h
	}
	a.may(p, h)
	return c.world()
}

// end moves the history to the ended streams.
func (a *streamHistory) end(now time.Time) {
	for i := range a.types {
		a.history.end(now, a.owner, a.types[i].may)
	}
	a.types = nil
}
