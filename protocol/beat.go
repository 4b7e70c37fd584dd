package protocol

import (
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// What a client says of the TTL support it has. "Clients that support TTL in
// SotW" are told it in the protocol's Resource, which not all of these know.
const (
	featureTTL     = "xds.config.supports-resource-ttl"
	featureWrapped = "xds.config.supports-resource-in-sotw"
	featureGRPC    = "xds.config.resource-in-sotw" // as gRPC spells it
)

// beatsPerTTL is how often a TTL begins anew before it would end.
const beatsPerTTL = 3

// meet takes over what the first request says of the client.
func (s *Session) meet(n *xds.Node) {
	s.met, s.agent = true, n.UserAgentName
	has := func(feature string) bool { return slices.Contains(n.ClientFeatures, feature) }
	if s.variant == xds.Delta {
		s.ttl = has(featureTTL) || s.opts.ForceTTL
	} else {
		s.ttl = has(featureTTL) && (has(featureWrapped) || has(featureGRPC))
	}
}

// beat returns the heartbeats that are due: "the server can send a Resource
// with the resource unset, and the TTL reset". They are no updates.
func (s *Session) beat(u *subscription) []*xds.Response {
	u.beatAt = time.Time{}
	t := s.table(u.typ)
	world := s.variant == xds.SotW && u.typ.FullState
	if !s.ttl {
		return nil
	}
	var out []*xds.Response
	due := map[time.Duration]time.Time{}
	for _, b := range t.Beats() {
		at, ok := u.beats[b.TTL]
		if !ok {
			if !u.coversAny(b.Changes.Beats) {
				continue
			}
			at = s.nextBeat(b.TTL)
		}
		// A world whose next state waits has to wait with it.
		if !s.now.Before(at) && !s.blocked(u) && (!world || !u.pending(t)) {
			if !u.coversAny(b.Changes.Beats) {
				continue
			}
			if c := s.beating(u, b.Changes); c != nil {
				out = append(out, s.sendBeat(u, t, c, world)...)
			}
			at = s.nextBeat(b.TTL)
		}
		due[b.TTL] = at
		if u.beatAt.IsZero() || at.Before(u.beatAt) {
			u.beatAt = at
		}
	}
	u.beats = due
	return out
}

// outlived notes that heartbeats are so late that the client may have dropped
// resources, as when the server's process was stopped for a while: they are told
// anew, for a heartbeat would not bring them back.
func (s *Session) outlived(u *subscription) {
	for ttl, at := range u.beats {
		if s.now.Before(at.Add(ttl - ttl/beatsPerTTL)) {
			continue
		}
		delete(u.beats, ttl)
		for _, b := range s.table(u.typ).Beats() {
			if b.TTL == ttl {
				u.touch(func(yield func(string, *xds.Stamp) bool) {
					for _, r := range b.Changes.Beats {
						if u.covers(r.Name) && same(u.told(r.Name), r.Stamp) && u.accepted(r.Name) && !yield(r.Name, r.Stamp) {
							return
						}
					}
				})
			}
		}
	}
}

// nextBeat is when resources with a TTL are told next. All streams with the
// same Spread beat at the same time.
func (s *Session) nextBeat(ttl time.Duration) time.Time {
	period := max(ttl/beatsPerTTL, 1)
	// A multiplication by the golden ratio spreads numbers that follow each other.
	offset := time.Duration((s.opts.Spread * 0x9e3779b97f4a7c15 >> 1) % uint64(period))
	past := time.Duration((s.now.UnixNano() - int64(offset)) % int64(period))
	if past < 0 {
		past += period
	}
	return s.now.Add(period - past)
}

// beating returns what the client is to be told again of the resources: "not
// of a resource which the client has not ACKed at that version". Nil: nothing.
func (s *Session) beating(u *subscription, all *xds.Changes) *xds.Changes {
	if len(u.spurned) > 0 {
		return nil
	}
	var some []*xds.Resource
	for _, r := range all.Beats {
		if u.shows(r) && u.covers(r.Name) && same(u.told(r.Name), r.Stamp) && u.accepted(r.Name) {
			some = append(some, r)
		}
	}
	switch len(some) {
	case 0:
		return nil
	case len(all.Beats):
		return all // as other streams
	}
	return &xds.Changes{Beats: some}
}

// coversAny reports whether any of the resources may be one of the client's.
func (u *subscription) coversAny(rs []*xds.Resource) bool {
	return u.wildcard || slices.ContainsFunc(rs, func(r *xds.Resource) bool { return u.covers(r.Name) })
}

// accepted reports whether the client has taken what it was told of a name.
func (u *subscription) accepted(name string) bool {
	for i := range u.flights {
		if f := &u.flights[i]; f.beats == nil && f.carries(name) != nil {
			return false
		}
	}
	for i := range u.refused {
		if u.refused[i].has(name) {
			return false
		}
	}
	return true
}

func (s *Session) sendBeat(u *subscription, t *xds.Table, c *xds.Changes, world bool) []*xds.Response {
	f := flight{version: t.VersionWith(u.leavingStamps()), sent: s.now, seq: u.acked, beats: c.Beats}
	if world {
		return s.send(u, f, []*xds.Changes{u.world(t)}) // without a body a resource would be gone
	}
	return s.send(u, f, c.Split(s.opts.MaxResponse))
}

// beaten is the cargo of a heartbeat, should it be refused.
func beaten(beats []*xds.Resource) (c cargo) {
	for _, r := range beats {
		c.items = append(c.items, item{r.Name, r.Stamp})
	}
	return c
}
