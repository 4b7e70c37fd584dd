package server

import (
	"slices"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// maxStatements is how many answers of a type a stream's client may state: the
// first is what it accepted last, and stays; of what came since the newest.
const maxStatements = 8

// An account remembers what the client of one stream is told. Its stream's
// goroutine owns it.
type account struct {
	told  *told
	node  string
	owner string // from which address it comes
	types []accountOf
}

// An accountOf is what the client of a stream was told of a type.
type accountOf struct {
	typ   *xds.Type
	broad bool // it asked for everything at some time
	named bool // and now for names, too

	// What it came with, until it is known which of it the client still wants. Mine is of it.
	came *holding

	// What it has by name, in types whose answers have a part of it. It shares
	// memory with holdings.
	mine stampList

	may []*holding // what it may state, the oldest first
}

func (a *account) of(typ *xds.Type) *accountOf {
	for i := range a.types {
		if a.types[i].typ.Is(typ) {
			return &a.types[i]
		}
	}
	a.types = append(a.types, accountOf{typ: typ})
	return &a.types[len(a.types)-1]
}

// subscribed notes what the client asks for.
func (a *account) subscribed(e protocol.Event) {
	p := a.of(e.Type)
	p.broad, p.named = p.broad || e.Wildcard, e.Count > 0
}

// interested forgets names that the client does not want.
func (a *account) interested(i protocol.Interest) {
	p := a.of(i.Type)
	came := p.came
	if p.came = nil; len(p.mine) == 0 || came == nil && len(i.Removed) == 0 {
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
			// What its collection has lost is not listed.
			if wanted, listed := names[st.Name]; wanted || !listed && (came == nil || names[p.typ.Collection(st.Name)]) {
				out = append(out, st)
			}
		}
		return inPieces(out)
	}
	p.mine = left(p.mine)
	if came != nil && !i.Wildcard { // what other streams of its node have is remembered with them
		a.told.narrow(came, left(came.each))
	}
}

// sent notes what the client has when it accepts a response.
func (a *account) sent(now time.Time, e protocol.Event, c *xds.Changes) {
	p, h := a.of(e.Type), &holding{of: stating(a.node, e.Type.URL, e.Version), nonce: e.Nonce}
	if a.node != "" {
		h.content = p.content(e.World, c)
	} else if proof, ok := proven(e.World, e.Version); ok && p.broad && e.Type.FullState {
		h.content = proof
	} else {
		return
	}
	a.may(now, p, h)
}

// content returns what of a world is the client's, whom a response brings up to
// it.
func (p *accountOf) content(w *protocol.World, c *xds.Changes) content {
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
		out.each = inPieces(told)
	} else {
		p.mine = p.mine.with(told)
		out.each = p.mine
	}
	if len(w.Others) > 0 {
		var before stampList // the next is nearly the same
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

func (a *account) may(now time.Time, p *accountOf, h *holding) {
	if len(p.may) == maxStatements {
		a.told.release(p.may[1:2], p.may[0])
		p.may = slices.Delete(p.may, 1, 2)
	}
	var after *holding
	if len(p.may) > 0 {
		after = p.may[len(p.may)-1]
	}
	p.may = append(p.may, h)
	a.told.hold(now, h, after)
}

// acked notes that the client is not in a state before the response.
func (a *account) acked(e protocol.Event) {
	p := a.of(e.Type)
	i := slices.IndexFunc(p.may, func(h *holding) bool { return h.nonce == e.Nonce })
	if i > 0 {
		a.told.release(p.may[:i], nil)
		p.may = slices.Delete(p.may, 0, i)
	}
}

// recall returns what a client has that states a version, nil if that is not
// known: what it was told, or what the table of that version has. As long as it is
// told nothing else it may state the same again.
func (a *account) recall(now time.Time, typ *xds.Type, version string, table *protocol.World) *protocol.World {
	of := stating(a.node, typ.URL, version)
	c, ok := a.told.recall(now, of)
	if !ok && table != nil {
		c, ok = content{all: table.Versions}, true
	}
	if !ok {
		return nil
	}
	p, h := a.of(typ), &holding{content: c, of: of}
	if !typ.FullState && !c.isAnything() {
		mine := slices.Collect(c.each.all)
		p.mine, p.came = inPieces(slices.CompactFunc(mine, func(a, b *xds.Stamp) bool { return a.Name == b.Name })), h
	}
	a.may(now, p, h)
	return c.world()
}

// end notes that the stream has ended.
func (a *account) end(now time.Time) {
	for i := range a.types {
		a.told.end(now, a.owner, a.types[i].may)
	}
	a.types = nil
}
