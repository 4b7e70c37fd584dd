package soak

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// wants returns random names for a subscription.
func (k *kind) wants(r *rand.Rand, delta bool) []string {
	pool := slices.Concat(k.names, k.aliases, k.asked, []string{xds.Wildcard})
	if !delta {
		pool = append(pool, "") // an empty name is unusual, and must do no harm
	}
	return some(r, pool, 3)
}

// open sends the first request of a type on a stream.
func (c *client) open(r *rand.Rand, s *sub) {
	s.steady = true
	if c.delta {
		clear(s.maybe) // the request states the resources of the client
		x := says{subscribe: slices.Sorted(maps.Keys(s.names))}
		if s.nameless && len(x.subscribe) > 0 {
			s.nameless = false
			s.names[xds.Wildcard] = true
			x.subscribe = append(x.subscribe, xds.Wildcard)
		}
		if n := r.IntN(6); n == 0 { // the client has lost all resources
			clear(s.cache)
		} else {
			x.initial = map[string]string{}
			for _, name := range slices.Sorted(maps.Keys(s.cache)) {
				switch m := r.IntN(12); {
				case m == 0 && n == 1: // the client has lost this resource
					delete(s.cache, name)
				case m == 1 && n == 1: // the client has other content
					h := s.cache[name]
					h.version, h.body = "0ld", "?"
					s.cache[name] = h
					x.initial[name] = h.version
				default:
					x.initial[name] = s.cache[name].version
				}
			}
		}
		c.say(s, x)
		return
	}
	x := says{version: s.version, nonce: one(r, []string{"", "", "7"})}
	alone := s.everything() && (s.nameless || len(s.names) == 1)
	switch {
	case r.IntN(6) == 0:
		s.losesAll()
		x.version = ""
	case alone && !s.exact:
		// With a known version the server would not send the resources again.
		x.version = one(r, []string{"", "unheard-of"})
		s.version = ""
	}
	c.say(s, x)
}

// begins makes the client subscribe to a new type.
func (c *client) begins(r *rand.Rand, k *kind) {
	s := newSub(k.typ)
	if r.IntN(3) > 0 {
		for _, n := range k.wants(r, c.delta) {
			s.names[n] = true
		}
	}
	s.nameless = len(s.names) == 0
	c.subs = append(c.subs, s)
	c.open(r, s)
}

// changes makes the client change its subscription to a type.
func (c *client) changes(r *rand.Rand, s *sub, less features) {
	k := kindOf(s.typ)
	x := says{nonce: c.someNonce(r, s), version: s.version}
	if !c.delta {
		next := map[string]bool{}
		for _, n := range k.wants(r, false) {
			next[n] = true
		}
		if len(next) == 0 && s.nameless {
			return
		}
		s.nameless = false
		s.names = next
		s.steady, s.exact = false, false
		s.forget(false)
		x.names = slices.Sorted(maps.Keys(next))
		if len(x.names) > 0 && r.IntN(6) == 0 {
			x.names = append(x.names, x.names[0]) // a duplicate has no effect
		}
		r.Shuffle(len(x.names), func(i, j int) { x.names[i], x.names[j] = x.names[j], x.names[i] })
		c.say(s, x)
		return
	}
	var phantom []string
	for _, n := range k.wants(r, true) {
		switch has := s.names[n] || n == xds.Wildcard && s.everything(); {
		case has && r.IntN(3) > 0:
			x.unsubscribe = append(x.unsubscribe, n)
			delete(s.names, n)
			s.nameless = s.nameless && n != xds.Wildcard
		case !has && r.IntN(4) == 0 && !less["phantom"]:
			phantom = append(phantom, n)
			x.unsubscribe = append(x.unsubscribe, n)
		case n == xds.Wildcard && s.nameless && s.typ.Implicit:
			x.subscribe = append(x.subscribe, n)
			s.names[n], s.nameless = true, false
		default:
			x.subscribe = append(x.subscribe, n)
			s.names[n] = true
		}
	}
	if !s.typ.Implicit {
		s.nameless = s.nameless && len(s.names) == 0
	}
	s.forget(true)
	c.say(s, x)
	// A resource that only an alias matches may have lost the alias since. The server
	// would not report this to a client that no longer subscribes to its name.
	if lost := len(x.unsubscribe) > 0 && s.byAlias(); lost || len(phantom) > 0 {
		// "Both the names and aliases of resources should be checked when matching
		// a resource in the unsubscription list". So the unsubscription may end other
		// names, depending on the aliases at that moment. The client subscribes to all its
		// names again, and holds only the resources of the new responses.
		for n := range s.names {
			delete(s.cache, n)
		}
		if names := slices.Sorted(maps.Keys(s.names)); len(names) > 0 {
			c.say(s, says{subscribe: names})
		}
	}
}

// someNonce returns the current nonce, an earlier one, an unknown one, or none.
func (c *client) someNonce(r *rand.Rand, s *sub) string {
	switch n := r.IntN(8); {
	case n == 0:
		return ""
	case n == 1:
		return "unheard-of"
	case n == 2 && len(s.old) > 0:
		return one(r, s.old)
	}
	if c.delta {
		return ""
	}
	return s.nonce
}

// babbles sends a request without a change, with an arbitrary nonce and version. It may be a NACK.
func (c *client) babbles(r *rand.Rand, s *sub) {
	x := says{nonce: one(r, append([]string{"", "unheard-of", s.nonce}, s.old...)), version: one(r, []string{"", s.version, "unheard-of"})}
	if x.nonce != "" && r.IntN(3) == 0 && !s.sacred && !c.meek {
		x.nack = true
		s.refused = true
	}
	s.pending = slices.DeleteFunc(s.pending, func(a answer) bool { return a.nonce == x.nonce })
	c.say(s, x)
}

// same copies the subscriptions of another client to this new client.
func (c *client) same(o *client) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range universe {
		was := o.sub(k.typ)
		if was == nil || !was.opened {
			continue
		}
		s := newSub(was.typ, slices.Collect(maps.Keys(was.names))...)
		s.nameless = was.nameless
		c.subs = append(c.subs, s)
		names := slices.Sorted(maps.Keys(s.names))
		nothing := len(names) == 0 && !s.everything()
		switch {
		case nothing && s.typ.Implicit: // this state needs two requests
			c.say(s, says{names: []string{"zz"}, subscribe: []string{"zz"}})
			c.say(s, says{unsubscribe: []string{"zz"}})
		case c.delta && s.nameless && len(names) > 0:
			s.names[xds.Wildcard] = true
			c.say(s, says{subscribe: append(names, xds.Wildcard)})
		default:
			c.say(s, says{subscribe: names})
		}
	}
}

// kept reports whether a resource that the client may hold, and a new client does not
// get, refers to this resource. Then this resource stays, too. It may stay for ever: SotW
// cannot remove routes or assignments, and a client may refuse the removal of a cluster.
func (c *client) kept(fresh *client, t *xds.Type, name string, also called) bool {
	found := append([]string{name}, also[kindOf(t)][name]...)
	refers := func(by *xds.Type, of string, h held) bool {
		f := fresh.sub(by)
		return (f == nil || f.cache[of].body != h.body) && slices.ContainsFunc(kindOf(by).references(h.body), func(to string) bool { return slices.Contains(found, to) })
	}
	for _, by := range t.ReferredBy() {
		s := c.sub(by)
		if s == nil {
			continue
		}
		for of, h := range s.cache {
			if refers(by, of, h) {
				return true
			}
		}
		for of, all := range s.maybe {
			for _, m := range all {
				if refers(by, of, m.held) {
					return true
				}
			}
		}
	}
	return false
}

// A judging has the parameters of a comparison.
type judging struct {
	renewed bool   // all resources have new content, so earlier refusals have no effect
	hasty   bool   // connections may end before the server has sent resources that wait for clusters
	called  called // the aliases of names, which references may use
}

// differs returns the first difference between the resources of a client and those of a
// new client with the same subscriptions; "": none.
func (c *client) differs(fresh *client, by judging) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	fresh.mu.Lock()
	defer fresh.mu.Unlock()
	if !by.renewed && slices.ContainsFunc(c.subs, func(s *sub) bool { return s.refused }) {
		return "" // the server does not send refused content again, and keeps the resources to which it refers
	}
	for _, s := range c.subs {
		f := fresh.sub(s.typ)
		if f == nil {
			return fmt.Sprintf("%s: the new client has not subscribed", s.typ)
		}
		for _, name := range slices.Sorted(maps.Keys(f.cache)) {
			switch h, ok := s.cache[name]; {
			case by.hasty && c.only == nil && s.typ.After != nil && c.sub(s.typ.After) == nil:
			case !ok:
				return fmt.Sprintf("%s %s: a new client has %v, this one does not", s.typ, name, f.cache[name])
			case !h.same(f.cache[name]):
				return fmt.Sprintf("%s %s: a new client has %v, this one %v", s.typ, name, f.cache[name], h)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(s.cache)) {
			// SotW reports removals only for full-state types.
			if _, ok := f.cache[name]; !ok && (c.delta || s.typ.FullState) && !c.kept(fresh, s.typ, name, by.called) {
				return fmt.Sprintf("%s %s: this client has %v, a new one does not", s.typ, name, s.cache[name])
			}
		}
	}
	return ""
}
