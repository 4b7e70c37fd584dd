package explain

import (
	"iter"

	"github.com/chancery-xds/chancery/internal/quarantine"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// held returns what of a type is in quarantine on a stream.
func (e *Explainer) held(st *server.Stream, t *xds.Type) []quarantine.Held {
	if e.d.Held == nil {
		return nil
	}
	return e.d.Held(st, t)
}

// state returns how a stream's client stands with a name, also if that is in quarantine.
func (e *Explainer) state(st *server.Stream, s *protocol.Session, t *xds.Type, name string) protocol.NameState {
	n := s.NameState(t, name)
	for _, h := range e.held(st, t) {
		says(h, &n)
	}
	return n
}

// states yields the same of all names that a client wants or may have.
func (e *Explainer) states(st *server.Stream, s *protocol.Session, t *xds.Type) iter.Seq[protocol.NameState] {
	return func(yield func(protocol.NameState) bool) {
		held := e.held(st, t)
		seen := map[string]bool{}
		for n := range s.NameStates(t) {
			for _, h := range held {
				if says(h, &n) {
					seen[h.Name] = true
				}
			}
			if !yield(n) {
				return
			}
		}
		for _, h := range held { // of which the session sees nothing
			if seen[h.Name] {
				continue
			}
			n := s.NameState(t, h.Name)
			says(h, &n)
			if !yield(n) {
				return
			}
		}
	}
}

// inQuarantine is the nonce of a response of which the session has forgotten that it was refused.
const inQuarantine = "quarantine"

// says has a state say that its name is refused, if it is the one that is held.
func says(h quarantine.Held, n *protocol.NameState) bool {
	if n.Name != h.Name {
		return false
	}
	is := &xds.Stamp{Name: h.Name, Version: h.Refused}
	if h.Needs.Type != nil {
		n.State, n.View, n.WaitsFor = protocol.StateWaiting, is, []xds.Ref{h.Needs}
		return true
	}
	n.State, n.RefusedIn, n.Nonce = protocol.StateRefused, inQuarantine, ""
	n.Told, n.View = is, is // what the session has instead, n.Held says
	return true
}

// kept says what the client has meanwhile of a resource in quarantine.
func (c *chain) kept() string {
	switch {
	case c.is.RefusedIn != inQuarantine:
		return ""
	case c.is.Held != nil:
		return "; it keeps version " + c.is.Held.Version + " and gets all others (" + c.why() + "), until the resource changes"
	}
	return "; it gets all others without it (" + c.why() + "), until the resource changes"
}

// why says how it came into quarantine.
func (c *chain) why() string {
	if c.on != nil {
		for _, h := range c.e.held(c.on.Stream, c.t) {
			if h.Name == c.name {
				return "quarantine: " + h.By.String()
			}
		}
	}
	return "quarantine"
}
