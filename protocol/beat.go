package protocol

import (
	"cmp"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// Client features for TTLs. In SotW a TTL needs the wrapper message Resource, which not all clients
// support (TTL-1, TTL-4).
const (
	featureTTL     = "xds.config.supports-resource-ttl"
	featureWrapped = "xds.config.supports-resource-in-sotw"
	featureGRPC    = "xds.config.resource-in-sotw" // as gRPC spells this feature
)

// beatsPerTTL is the number of heartbeats in the duration of one TTL (TTL-3).
const beatsPerTTL = 3

// meet reads the client's name and features from the node of the first request.
func (s *Session) meet(n *xds.Node) {
	s.met, s.agent = true, n.UserAgentName
	has := func(feature string) bool { return slices.Contains(n.ClientFeatures, feature) }
	if s.variant == xds.Delta {
		s.ttl = has(featureTTL) || s.opts.ForceTTL
	} else {
		s.ttl = has(featureTTL) && (has(featureWrapped) || has(featureGRPC))
	}
}

// beatsOf returns the resources that need heartbeats, because they have a TTL. They are the
// resources of the view, kept resources (ADS-3), and the resources that the client holds while a
// newer state waits. Refused resources get none (TTL-5).
func (s *Session) beatsOf(u *subscription, t *xds.Table) []xds.Heartbeat {
	beats := t.Heartbeats()
	more := map[time.Duration][]*xds.Resource{}
	for _, r := range slices.AppendSeq(s.outdatedByWait(u), u.lingering) {
		if r.TTL > 0 && r != t.Lookup(r.Name) && !u.refuses(r.Name) { // t.Heartbeats already has the resources of the view
			more[r.TTL] = append(more[r.TTL], r)
		}
	}
	if len(more) == 0 {
		return beats
	}
	beats = slices.Clone(beats)
	for ttl, extra := range more {
		i := slices.IndexFunc(beats, func(b xds.Heartbeat) bool { return b.TTL == ttl })
		if i < 0 {
			i = len(beats)
			beats = append(beats, xds.Heartbeat{TTL: ttl, Changes: &xds.Changes{}})
		}
		beats[i].Changes = &xds.Changes{Beats: byName(slices.Concat(beats[i].Changes.Beats, extra))}
	}
	slices.SortFunc(beats, func(a, b xds.Heartbeat) int { return cmp.Compare(a.TTL, b.TTL) })
	return beats
}

// withTTL returns the resources that get heartbeats with this TTL.
func withTTL(beats []xds.Heartbeat, ttl time.Duration) []*xds.Resource {
	for _, b := range beats {
		if b.TTL == ttl {
			return b.Changes.Beats
		}
	}
	return nil
}

// byName sorts resources by name.
func byName(rs []*xds.Resource) []*xds.Resource {
	slices.SortFunc(rs, func(a, b *xds.Resource) int { return cmp.Compare(a.Name, b.Name) })
	return rs
}

// search returns the index of a name in resources that are sorted by name, and whether they have the name.
func search(rs []*xds.Resource, name string) (int, bool) {
	return slices.BinarySearchFunc(rs, name, func(r *xds.Resource, name string) int { return cmp.Compare(r.Name, name) })
}

// beat returns the heartbeats that are due: "the server can send a Resource with the resource
// unset, and the TTL reset". A heartbeat is not an update. Terms: see doc.go.
func (s *Session) beat(u *subscription) []*xds.Response {
	u.beatAt = time.Time{}
	if !s.ttl {
		return nil
	}
	t := s.table(u.typ)
	world := s.tellsWorld(u)
	var out []*xds.Response
	var due map[time.Duration]time.Time
	for _, b := range s.beatsOf(u, t) {
		if !u.coversAny(b.Changes.Beats) {
			continue
		}
		at, ok := u.beats[b.TTL]
		if !ok {
			at = s.nextBeat(b.TTL)
		}
		// A heartbeat with a full state would send the newest state, so it waits if that state must
		// wait.
		if !s.now.Before(at) && !s.blocked(u) && (!world || !u.pending(t)) {
			if c := s.beating(u, b.Changes); c != nil {
				out = append(out, s.sendBeat(u, t, c, world)...)
			}
			at = s.nextBeat(b.TTL)
		}
		if due == nil {
			due = map[time.Duration]time.Time{}
		}
		due[b.TTL] = at
		u.beatAt = sooner(u.beatAt, at)
	}
	u.beats = due
	return out
}

// beatBy returns the time of the next heartbeat; zero: never.
func (y *saying) beatBy() time.Time { return y.beatAt }

// overdueBeat reports whether a heartbeat is due and has not been sent.
func (y *saying) overdueBeat(now time.Time) bool { return !y.beatAt.IsZero() && !now.Before(y.beatAt) }

// feed records that a message restarts the TTLs of its resources. If a heartbeat is due now and the
// message has all resources of this heartbeat, the message replaces the heartbeat. If a heartbeat
// is due and the message has only some of them, these go to unfed.
func (s *Session) feed(u *subscription, c *xds.Changes) {
	for _, r := range c.Upserts {
		u.fed(r.Name)
	}
	for ttl, at := range u.beats {
		switch {
		case s.now.Before(at):
		case s.tellsAll(u, ttl, c):
			u.beats[ttl] = s.nextBeat(ttl)
		default:
			for _, r := range c.Upserts {
				if r.TTL == ttl {
					u.starve(r.Name, s.now)
				}
			}
		}
	}
}

// tellsAll reports whether a response has all resources with this TTL that the client wants.
func (s *Session) tellsAll(u *subscription, ttl time.Duration, c *xds.Changes) bool {
	tells := make(map[string]bool, len(c.Upserts))
	for _, r := range c.Upserts {
		tells[r.Name] = true
	}
	lacks := func(r *xds.Resource) bool { return u.covers(r.Name) && !tells[r.Name] }
	return !slices.ContainsFunc(withTTL(s.beatsOf(u, s.table(u.typ)), ttl), lacks)
}

// outlived marks resources to be sent again whose TTL may have expired at the client: a heartbeat
// does not bring a dropped resource back. There are two cases. The heartbeats may be late, for
// example after a pause of the server's process. Or the resource gets no heartbeats, because its
// response is unanswered although a later response was answered.
func (s *Session) outlived(u *subscription) {
	for ttl, at := range u.beats {
		late := !s.now.Before(at.Add(ttl - ttl/beatsPerTTL))
		odd := len(u.unfed) > 0 || len(u.deliveries) > 0 && u.deliveries[0].parts[0].nonce < u.heard
		if late {
			delete(u.beats, ttl)
		} else if s.now.Before(at) || !odd {
			continue
		}
		for _, r := range withTTL(s.beatsOf(u, s.table(u.typ)), ttl) {
			if u.covers(r.Name) && same(u.told(r.Name), r.Stamp) {
				s.revive(u, r, late)
			}
		}
	}
}

// revive marks a resource to be sent again if its TTL may have expired; late: its heartbeats are late.
func (s *Session) revive(u *subscription, r *xds.Resource, late bool) {
	told, hungry := u.unfed[r.Name]
	lost := late
	if hungry {
		lost = !s.now.Before(told.Add(r.TTL))
	}
	d, p := u.unanswered(r.Name, 0)
	passed := p != nil && p.nonce < u.heard // a later response was answered
	switch {
	case passed && !s.now.Before(d.sent.Add(r.TTL-r.TTL/beatsPerTTL)) && !u.heldBack(r.Name),
		lost && u.accepted(r.Name):
		u.repeat(r.Name)
	case late && hungry: // the TTL may end before the next heartbeat
		u.beats[r.TTL] = s.now
	}
}

// belated handles resources of a message whose ACK comes late. Before the ACK they get no heartbeats (TTL-5), so
// the client may have dropped them, or may drop them soon.
func (s *Session) belated(u *subscription, d *delivery, p *part) {
	if !s.ttl {
		return
	}
	for _, r := range d.beats { // the client refused an earlier heartbeat, and got none since
		if !p.world && p.within(r.Name, r.Stamp) && u.refuses(r.Name) {
			u.starve(r.Name, d.sent)
		}
	}
	beats := s.table(u.typ).Heartbeats()
	if early := len(beats) == 0 || s.now.Before(d.sent.Add(beats[0].TTL/beatsPerTTL)); early && len(u.leaving)+len(u.unfed) == 0 {
		return // the usual case
	}
	s.feedLate(u, d, p)
}

func (s *Session) feedLate(u *subscription, d *delivery, p *part) {
	for _, r := range s.expiring(u, d) {
		told, ok := u.unfed[r.Name]
		if !ok {
			told = d.sent
		}
		if s.now.Before(told.Add(r.TTL/beatsPerTTL)) || !p.within(r.Name, r.Stamp) {
			continue
		}
		switch end := told.Add(r.TTL); {
		case !s.now.Before(end):
			u.repeat(r.Name)
		case u.beats[r.TTL].After(end):
			u.beats[r.TTL] = s.now
			fallthrough
		default:
			u.starve(r.Name, told)
		}
	}
}

// deliver records a delivery that is sent now.
func (s *Session) deliver(u *subscription, d *delivery) {
	s.addDelivery(u, d, func(dropped *delivery) { s.starveOpen(u, dropped) })
}

// starveOpen adds the unanswered resources of a delivery to unfed. The delivery is dropped from the list, so its
// answer cannot be paired with it later.
func (s *Session) starveOpen(u *subscription, d *delivery) {
	for _, r := range s.expiring(u, d) {
		if _, ok := u.unfed[r.Name]; !ok && d.open(r.Name, r.Stamp) {
			u.starve(r.Name, d.sent)
		}
	}
}

// expiring returns the resources with a TTL in a delivery, as the client is to keep them now. Their newest told
// state is in this delivery.
func (s *Session) expiring(u *subscription, d *delivery) (all []*xds.Resource) {
	if !s.ttl || d.beats != nil {
		return nil
	}
	t := s.table(u.typ)
	if d.parts[0].world {
		for _, b := range s.beatsOf(u, t) {
			all = append(all, b.Changes.Beats...)
		}
		all = slices.DeleteFunc(all, func(r *xds.Resource) bool { return !u.covers(r.Name) })
	} else {
		for name, it := range d.Each {
			r := t.Lookup(name)
			if l := u.Lingers(name); l != nil {
				r = l.Body
			}
			if r != nil && r.TTL > 0 && same(it.Is, r.Stamp) {
				all = append(all, r)
			}
		}
	}
	return slices.DeleteFunc(all, func(r *xds.Resource) bool { return !same(u.told(r.Name), r.Stamp) || u.sentSince(d, r.Name) })
}

// sentSince reports whether a name was sent again after a delivery. A full state has all names.
func (u *subscription) sentSince(d *delivery, name string) bool {
	return slices.ContainsFunc(u.deliveries, func(o delivery) bool {
		return o.last() > d.last() && (o.parts[0].world || o.Carries(name) != nil)
	})
}

// nextBeat returns the time of the next heartbeat. Streams with the same Spread have the same
// times.
func (s *Session) nextBeat(ttl time.Duration) time.Time {
	period := max(ttl/beatsPerTTL, 1)
	// Multiplying by the golden ratio spreads consecutive numbers.
	offset := time.Duration((s.opts.Spread * 0x9e3779b97f4a7c15 >> 1) % uint64(period))
	past := time.Duration((s.now.UnixNano() - int64(offset)) % int64(period))
	if past < 0 {
		past += period
	}
	return s.now.Add(period - past)
}

// beating returns the resources for a heartbeat to this client, or nil if no resource needs one. A
// resource gets heartbeats only after the client has accepted its present state (TTL-5).
func (s *Session) beating(u *subscription, all *xds.Changes) *xds.Changes {
	if s.tellsWorld(u) && len(u.refusals) > 0 {
		return nil // the full state was refused
	}
	var some []*xds.Resource
	for _, r := range all.Beats {
		if (u.covers(r.Name) || u.Lingers(r.Name) != nil) && same(u.told(r.Name), r.Stamp) && u.accepted(r.Name) {
			u.fed(r.Name)
			some = append(some, r)
		}
	}
	switch len(some) {
	case 0:
		return nil
	case len(all.Beats):
		return all // shared with other streams
	}
	return &xds.Changes{Beats: some}
}

// coversAny reports whether the client may hold any of the resources. Kept resources count, even if
// no subscription matches them any more.
//
// The resources must be sorted by name. coversAny is called for each answer, so it loops over the
// shorter of two lists: the resources, or the client's names.
func (u *subscription) coversAny(rs []*xds.Resource) bool {
	if u.wildcard || len(rs) <= u.Set.Len() {
		return slices.ContainsFunc(rs, func(r *xds.Resource) bool { return u.covers(r.Name) || u.Lingers(r.Name) != nil })
	}
	for e := range u.Entries() { // a kept name has an entry, too
		if _, found := search(rs, e.Name); found && (u.wants(e) || u.Lingers(e.Name) != nil) {
			return true
		}
	}
	return false
}

func (s *Session) sendBeat(u *subscription, t *xds.Table, c *xds.Changes, world bool) []*xds.Response {
	d := delivery{version: s.version(u, t), sent: s.now, beats: c.Beats}
	if world {
		return s.send(u, t, &d, []*xds.Changes{s.fullState(u, t)}) // in a full state, a client would drop a resource without a body
	}
	return s.send(u, t, &d, c.Split(s.opts.MaxResponse))
}
