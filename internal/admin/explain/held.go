package explain

import (
	"iter"
	"time"

	"github.com/chancery-xds/chancery/internal/quarantine"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// held returns the resources of a type that are in quarantine for a stream.
func (e *Explainer) held(st *server.Stream, t *xds.Type) []quarantine.Held {
	if e.d.Held == nil {
		return nil
	}
	return e.d.Held(st, t)
}

// keeps returns the removed resources of a type that a stream is still shown because of the quarantine.
func (e *Explainer) keeps(st *server.Stream, t *xds.Type) []quarantine.Kept {
	if e.d.Kept == nil {
		return nil
	}
	return e.d.Kept(st, t)
}

// state returns the state of a name on a stream. For a name in quarantine it returns StateRefused or
// StateWaiting, because the session serves another version and does not know about the quarantine. For a removed
// name to which a replacement refers it returns StateLingering.
func (e *Explainer) state(st *server.Stream, s *protocol.Session, t *xds.Type, name string) protocol.NameState {
	n := s.NameState(t, name)
	markKept(e.keeps(st, t), &n)
	for _, h := range e.held(st, t) {
		markRefused(h, &n)
	}
	return n
}

// states yields the states of all names that a client subscribes to or may have. It corrects the
// states as the method state does.
func (e *Explainer) states(st *server.Stream, s *protocol.Session, t *xds.Type) iter.Seq[protocol.NameState] {
	return func(yield func(protocol.NameState) bool) {
		held, kept := e.held(st, t), e.keeps(st, t)
		seen := map[string]bool{}
		for n := range s.NameStates(t) {
			markKept(kept, &n)
			for _, h := range held {
				if markRefused(h, &n) {
					seen[h.Name] = true
				}
			}
			if !yield(n) {
				return
			}
		}
		for _, h := range held { // names in quarantine that the session does not have
			if seen[h.Name] {
				continue
			}
			n := s.NameState(t, h.Name)
			markRefused(h, &n)
			if !yield(n) {
				return
			}
		}
	}
}

// inQuarantine is the value of RefusedIn for a name in quarantine, because the session has forgotten
// the nonce of the refused response.
const inQuarantine = "quarantine"

// markRefused sets the state of n if it has the name of h: to StateRefused, or to StateWaiting if the
// resource only refers to a faulty one. It reports whether the names are equal.
func markRefused(h quarantine.Held, n *protocol.NameState) bool {
	if n.Name != h.Name {
		return false
	}
	is := &xds.Stamp{Name: h.Name, Version: h.Refused}
	if h.RefersTo.Type != nil {
		n.State, n.View, n.WaitsFor = protocol.StateWaiting, is, []xds.Ref{h.RefersTo}
		return true
	}
	n.State, n.RefusedIn, n.Nonce = protocol.StateRefused, inQuarantine, ""
	if !h.RetryAt.IsZero() {
		n.RetryAt = h.RetryAt
	}
	n.Told, n.View = is, is // n.Held keeps the version that the session serves instead
	return true
}

// markKept sets the state of a name that the client has accepted, if it is one of the removed resources that the
// client keeps.
func markKept(all []quarantine.Kept, n *protocol.NameState) {
	for _, k := range all {
		if k.Name == n.Name && n.State == protocol.StateSynced {
			n.State, n.View, n.WaitsFor = protocol.StateLingering, nil, []xds.Ref{k.By}
		}
	}
}

// kept returns a text about the version that the client keeps of a refused resource, and about the next retry.
func (c *chain) kept() string {
	until := "until the resource changes"
	if c.on.Retries() {
		until = "until the client accepts a retry, or the resource changes"
	}
	next := ""
	if in := c.retryIn(); in != "" {
		next = "; next retry " + in
	}
	switch {
	case c.is.RefusedIn != inQuarantine:
		return next
	case c.others() != "":
		return "; it had none, and gets version " + c.others() + ", which other clients accepted, " + until + " (" + c.why() + ")" + next
	case c.is.Held != nil:
		return "; it keeps version " + c.is.Held.Version + " " + until + ", and gets all other resources (" + c.why() + ")" + next
	}
	return "; it has none, and gets only the other resources " + until + " (" + c.why() + ")" + next
}

// retryIn returns the time until the next retry of the refused resource (HEAL-2), such as "in 4 s"; "": no retry
// is scheduled.
func (c *chain) retryIn() string {
	if c.is.RetryAt.IsZero() {
		return ""
	}
	return "in " + seconds(max(c.is.RetryAt.Sub(c.e.d.Now()), time.Second))
}

// others returns the version that the client gets because other clients accepted it, or "".
func (c *chain) others() string {
	if c.on == nil {
		return ""
	}
	for _, h := range c.e.held(c.on.Stream, c.t) {
		if h.Name == c.name && h.Others {
			return h.Instead
		}
	}
	return ""
}

// why returns the reason for the quarantine of the resource.
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
