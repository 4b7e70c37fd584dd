package clients

import (
	"crypto/sha256"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

const (
	maxSpells  = 10_000 // nodes with a type
	maxOfSpell = 8      // of each, the newest
)

// A spell is that a node refuses something of a type: in which groups it began, from when to when. It goes on when the
// client leaves, for who comes back has what it had.
type spell struct {
	*cause   // nil: it had nothing. Of the names the first
	groups   []string
	from, to int64 // to 0: it goes on
	had      bool  // the client had something of the type: what it accepted on its stream, or said that it has
}

// A patient is a node at an address, and a type. Nodes that say no id are one there. It is a digest, for ids may be long.
type patient struct {
	node [sha256.Size]byte
	typ  *xds.Type
}

// A history is that of a patient.
type history struct {
	node   string  // as far as it is shown; "": it never had anything
	spells []spell // the last may go on
}

// spells remember who refused what, for whoever looks may come too late. The oldest patients are forgotten.
type spells struct {
	open   atomic.Int64 // that go on
	causes causes
	mu     sync.Mutex // before that of causes
	all    map[patient]*history
	come   []patient // in order, in a ring
	at     int       // of the oldest, once the ring is full
}

func patientOf(r *row, t *xds.Type) patient {
	return patient{sha256.Sum256([]byte(r.client.node + "\x00" + host(r.client.peer))), t}
}

// begin notes that a client begins to refuse what it did not refuse on its stream.
func (t *Tracker) begin(r *row, st *server.Stream, c *cause, had bool, now int64) {
	s := spell{from: now, had: had}
	if t.opts.Groups != nil {
		s.groups = slices.Clone(t.opts.Groups(st.Node))
	}
	k := patientOf(r, c.typ)
	d := &t.spells
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.all[k]
	if p == nil {
		p = &history{}
		t.admit(k, p)
	}
	of := p.spells
	if n := len(of); n > 0 && of[n-1].to == 0 {
		if slices.Equal(of[n-1].groups, s.groups) {
			return
		}
		of[n-1].to = now
		d.open.Add(-1)
	}
	if len(of) == maxOfSpell {
		d.causes.drop(of[0].cause)
		of = slices.Delete(of, 0, 1)
	}
	if had {
		if p.node == "" {
			p.node = clip(r.client.node, maxName)
		}
		s.cause = d.causes.take(newCause(c.typ, text.Head(c.text, maxName), c.names[:min(len(c.names), 1)]))
	}
	p.spells = append(of, s)
	d.open.Add(1)
}

// admit makes room for one more; by spells.mu.
func (t *Tracker) admit(k patient, p *history) {
	d := &t.spells
	if d.all == nil {
		d.all = map[patient]*history{}
	}
	d.all[k] = p
	if len(d.come) < maxSpells {
		d.come = append(d.come, k)
		return
	}
	for _, s := range d.all[d.come[d.at]].spells {
		d.causes.drop(s.cause)
		if s.to == 0 {
			d.open.Add(-1)
		}
	}
	delete(d.all, d.come[d.at])
	d.come[d.at] = k
	d.at = (d.at + 1) % maxSpells
}

// well notes that a client refuses nothing of a type since a time.
func (t *Tracker) well(r *row, typ *xds.Type, since int64) {
	d := &t.spells
	if d.open.Load() == 0 { // as almost always
		return
	}
	k := patientOf(r, typ)
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.all[k]; p != nil {
		if last := &p.spells[len(p.spells)-1]; last.to == 0 {
			last.to = max(since, last.from)
			d.open.Add(-1)
		}
	}
}

// fallen lists who began to refuse something in one of some groups, since a time or later, and was well till then: it had something
// of the type, and refused nothing of it since that time that it saw in other groups.
func (d *spells) fallen(groups []string, since int64) (all []Fallen) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, p := range d.all {
		if s := first(p.spells, groups, since); s != nil {
			all = append(all, Fallen{p.node, k.typ, s.names, s.text})
			if len(all) == maxShown {
				return all
			}
		}
	}
	return all
}

// first returns the first spell of a patient since a time, if that shows that it has fallen; else nil.
func first(of []spell, groups []string, since int64) *spell {
	for i := range of {
		s := &of[i]
		if s.to != 0 && s.to < since {
			continue
		}
		if s.from < since || !s.had || !slices.ContainsFunc(s.groups, func(g string) bool { return slices.Contains(groups, g) }) {
			return nil
		}
		return s
	}
	return nil
}
