package evidence

import (
	"slices"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// This file records the ACKs of clients: of whole tables, and of messages with names.

// An acceptance is the version of a name that clients accepted.
type acceptance struct {
	sum xds.Sum
	support
}

// A world is a table that clients of a kind accepted as a whole.
type world struct {
	*xds.Versions
	owners ownerSet
}

// A message identifies the ACK of a message with names. Equal messages are counted once. Different messages
// may have equal keys: then some evidence is missing.
type message struct {
	agent       int
	owner       ownerSet
	version     string
	n           int
	first, last *xds.Stamp
}

// Accept records an ACK of a client. The owner of the client is its identity, else its address.
func (s *Scope) Accept(t *xds.Type, agent, owner string, answered string, a protocol.Acceptance) {
	if a.All == nil && a.Len() == 0 {
		return
	}
	if s.accept(t, agent, ownersOf(owner), answered, a) {
		s.book.change()
	}
}

// accept reports whether the ACK is new evidence.
func (s *Scope) accept(t *xds.Type, agent string, owner ownerSet, answered string, a protocol.Acceptance) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.of(t)
	i := e.agent(agent, owner)
	news = a.All != nil && e.acceptAll(i, world{a.All, owner})
	return a.Len() > 0 && e.acceptNamed(i, owner, answered, a) || news
}

// acceptAll records that a client has accepted all resources of a table.
func (e *evidence) acceptAll(agent int, w world) (news bool) {
	if !e.keepWorld(agent, w) {
		return false
	}
	current := e.current.Load()
	if current == nil || current.Versions() == w.Versions || e.count == 0 {
		return true
	}
	for _, is := range w.Since(current.Versions()) { // a late ACK
		if is != nil {
			e.late(is, support{1 << agent, w.owners})
		}
	}
	return true
}

// keepWorld adds a table that clients of a kind accepted. It reports whether the table or an owner is new.
func (e *evidence) keepWorld(agent int, w world) (news bool) {
	worlds := e.worlds[agent]
	for i, is := range worlds {
		if is.Versions == w.Versions || is.Sum() == w.Sum() {
			worlds[i].owners |= w.owners
			return worlds[i].owners != is.owners
		}
	}
	if len(worlds) == maxWorlds {
		at := e.leastWorld(worlds)
		worlds = slices.Delete(worlds, at, at+1)
	}
	e.worlds[agent] = append(worlds, w)
	return true
}

// leastWorld returns the oldest table that is not the current one and whose owners accepted other tables,
// too. If there is none, it returns the oldest that is not the current one.
func (e *evidence) leastWorld(worlds []world) int {
	current, oldest := e.current.Load(), -1
	for i, w := range worlds {
		if current != nil && w.Sum() == current.Versions().Sum() {
			continue
		}
		if oldest < 0 {
			oldest = i
		}
		var heard ownerSet
		for k, o := range worlds {
			if k != i {
				heard |= o.owners
			}
		}
		if w.owners&^heard == 0 {
			return i
		}
	}
	return oldest
}

// late records the ACK of a replaced version. It reports whether the version is one.
func (e *evidence) late(st *xds.Stamp, by support) bool {
	vs := e.replaced[st.Name]
	for i := range vs {
		if vs[i].Sum == st.Sum {
			vs[i].add(by)
			return true
		}
	}
	return false
}

// early records the ACK of a version that only a lane has yet.
func (e *evidence) early(st *xds.Stamp, by support) {
	was, ok := e.ahead[st.Name]
	switch {
	case ok && was.sum == st.Sum:
		by.add(was.support)
	case !ok && len(e.ahead) >= maxAhead:
		return
	}
	e.ahead[st.Name] = acceptance{st.Sum, by}
}

// catchUp takes over the ACKs of a lane for the versions that the table now has, too.
func (e *evidence) catchUp(table *xds.Table) {
	for name, a := range e.ahead {
		if r := table.Lookup(name); r != nil && r.Sum == a.sum {
			e.named[name] = a
			delete(e.ahead, name)
		}
	}
}

// acceptNamed records the ACK of a message with names.
func (e *evidence) acceptNamed(agent int, owner ownerSet, answered string, a protocol.Acceptance) (news bool) {
	k := message{agent: agent, owner: owner, version: answered, n: a.Len()}
	k.first, k.last = a.Ends()
	if e.messages[k] {
		return false
	}
	if len(e.messages) >= maxMessages {
		clear(e.messages)
	}
	e.messages[k] = true
	by := support{1 << agent, owner}
	for st := range a.Each {
		r := e.visible(st.Name)
		if r == nil || r.Sum != st.Sum {
			if !e.late(st, by) {
				e.early(st, by)
			}
			continue
		}
		was, ok := e.named[st.Name]
		switch {
		case ok && was.sum == st.Sum:
			was.add(by)
		case !ok && len(e.named) >= maxNamed:
			continue
		default:
			was = acceptance{st.Sum, by}
		}
		e.named[r.Name] = was
	}
	return true
}

// Accepted reports whether a client has accepted the version, and whether a client of the given kind has.
func (s *Scope) Accepted(t *xds.Type, name string, sum xds.Sum, agent string) (any, same bool) {
	for _, o := range append([]*Scope{s}, s.book.others(s)...) {
		is, alike := o.accepted(t, name, sum, agent)
		any, same = any || is, same || alike
	}
	return any, same
}

func (s *Scope) accepted(t *xds.Type, name string, sum xds.Sum, agent string) (any, same bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(t)
	if e == nil {
		return false, false
	}
	by := e.acceptedBy(name, sum).by
	return by != 0, by.has(e, agent)
}

// acceptedBy returns the clients that accepted a current version.
func (e *evidence) acceptedBy(name string, sum xds.Sum) (by support) {
	if a, ok := e.named[name]; ok && a.sum == sum {
		by = a.support
	}
	for i := range e.agents {
		for _, w := range e.worlds[i] {
			if is := w.Get(name); is != nil && is.Sum == sum {
				by.add(support{1 << i, w.owners})
			}
		}
	}
	return by
}
