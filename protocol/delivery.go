package protocol

import (
	"iter"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/protocol/internal/delay"
	"github.com/chancery-xds/chancery/xds"
)

const (
	// maxInFlight is how many responses of a type may be unanswered. Each further response, also to a
	// new subscription, waits for an answer, see delay.Behind (SAFE-1).
	maxInFlight = 4

	// maxWaited is how many responses that waited in vain may be unanswered. Then the stream ends
	// (SAFE-1).
	maxWaited = 64

	// maxListed is how many unanswered responses of a type are listed.
	maxListed = maxInFlight + maxWaited
)

// A fate is the answer to a message.
type fate uint8

const (
	unanswered fate = iota
	accepted
	refused
	passed // SotW: the ACK of a later response answers this message; its own answer may still come
)

// A part is one message of a delivery. A part with the full state has all names of the delivery.
// Any other part has the upserts with names from lo to hi, and the removals with names from gone to
// last.
type part struct {
	nonce      uint64
	lo, hi     string
	gone, last string
	world      bool // full state (SotW): the client removes each name that the message lacks
	moved      bool // for at least one name of this message, the client has accepted a later response
	fate       fate
}

// within reports whether this message of the delivery has a name. The parameter `is` is the state
// of the name in the delivery: absent means a removal.
func (p *part) within(name string, is *xds.Stamp) bool {
	switch {
	case p.world:
		return true
	case is == absent:
		return p.gone <= name && name <= p.last
	}
	return p.lo <= name && name <= p.hi
}

// A delivery is a response that the client has not answered yet. A large response has several
// messages (parts). Terms: see doc.go.
//
// Invariant: each name of the delivery is in one message. Only removed names that SotW does not report are
// in no message.
type delivery struct {
	cargo
	parts   []part // at least one, by nonce
	version string
	sent    time.Time
	beats   []*xds.Resource // the resources of a heartbeat; nil: this response is not a heartbeat
	stuck   bool            // a cluster in it has no assignment: no ACK is expected

	waited bool // the response waited for an answer in vain: see maxWaited
	size   int  // number of names; zero if the response is one of the first maxInFlight

	retry  bool // the response has refused content again (HEAL-2)
	tried  bool // the same, for content that the view withheld
	untold bool // the response does not report removals (SotW, types without full state)

	// The client has accepted this delivery or a later one. So nothing waits for this one, and the
	// client no longer holds the states before it.
	superseded bool

	finding *finding // see Session.finding; nil: not computed yet
}

// addPart appends a message.
func (d *delivery) addPart(p part) { d.parts = append(d.parts, p) }

// expectNone records that no ACK is expected.
func (d *delivery) expectNone() { d.stuck = true }

// A finding lists, for one view, the resources of a delivery that each alias or collection matches.
type finding struct {
	views uint64 // number of the view (Session.views)
	found map[string][]string
}

// keepFinding stores the finding of a view.
func (d *delivery) keepFinding(f finding) { d.finding = &f }

// overtaken removes from the delivery the names that the client has accepted in a later response.
func (d *delivery) overtaken(names iter.Seq2[string, item]) {
	for name := range names {
		if is := d.Carries(name); is != nil {
			if p := d.message(name, is); p != nil {
				p.moved = true
			}
		}
	}
	d.Without(names)
}

// lapse marks all removals of the delivery as lapsed: the server removes these names, and the
// client did not unsubscribe from them.
func (d *delivery) lapse() {
	var more []item
	for name, it := range d.Each {
		switch own := d.Find(name); {
		case !stands(it.Was) || stands(it.Is):
		case own != nil:
			own.Lapse(true)
		default:
			it.Lapse(true)
			more = append(more, it)
		}
	}
	d.Add(more)
}

// open reports whether the client has not answered the message with a name yet. Each message has
// its own answer (DELTA-13).
func (d *delivery) open(name string, is *xds.Stamp) bool {
	p := d.message(name, is)
	return p == nil || p.fate == unanswered
}

// message returns the message with a name, or nil.
func (d *delivery) message(name string, is *xds.Stamp) *part {
	for i := range d.parts {
		if p := &d.parts[i]; p.within(name, is) {
			return p
		}
	}
	return nil
}

// in yields the names of a message.
func (d *delivery) in(p *part) iter.Seq2[string, item] {
	return func(yield func(string, item) bool) {
		for name, it := range d.Each {
			if p.within(name, it.Is) && !yield(name, it) {
				return
			}
		}
	}
}

// says returns the state of a name in the delivery, or nil. Unlike carries, says returns nil for a
// removal that the response does not report.
func (d *delivery) says(name string) *xds.Stamp {
	if is := d.Carries(name); is != absent || !d.untold {
		return is
	}
	return nil
}

func (d *delivery) settled() bool {
	return !slices.ContainsFunc(d.parts, func(p part) bool { return p.fate == unanswered })
}

// accepted reports whether the client has accepted all messages.
func (d *delivery) accepted() bool {
	return !slices.ContainsFunc(d.parts, func(p part) bool { return p.fate != accepted && p.fate != passed })
}

// answered reports whether the client has answered the newest message.
func (d *delivery) answered() bool { return d.parts[len(d.parts)-1].fate != unanswered }

// first returns the oldest nonce of the delivery.
func (d *delivery) first() uint64 { return d.parts[0].nonce }

// last returns the newest nonce of the delivery.
func (d *delivery) last() uint64 { return d.parts[len(d.parts)-1].nonce }

// answered reports whether the newest message of the type needs no answer any more. The answer to
// the newest message is enough. In SotW it also answers all earlier messages. In delta a client
// that answers in order has already answered the earlier messages.
func (u *subscription) answered() bool {
	n := len(u.deliveries)
	return !u.unacked || n > 0 && u.deliveries[n-1].answered()
}

// addDelivery records a delivery that is sent now. It calls drops for each delivery that it drops from the list
// before its answer.
func (s *Session) addDelivery(u *subscription, d *delivery, drops func(*delivery)) {
	if u.answered() {
		u.silent = s.now
	}
	u.makeRoom(drops)
	waited := d.counts() && u.crowded()
	u.deliveries, u.unacked, u.nonce = append(u.deliveries, *d), true, d.last()
	if waited {
		s.limitUnanswered(u)
	}
	u.noteContent(&d.cargo)
}

// noteContent notes all names of a response, and the empty name, because the answer itself may end
// waits.
func (u *subscription) noteContent(c *cargo) {
	if !u.Watched {
		return
	}
	u.Note("")
	for name := range c.Each {
		u.Note(name)
	}
}

// stuck reports whether no ACK is expected for a response in flight. Envoy withholds the ACK while
// any of the clusters is warming, and one of the clusters has no assignment (ADS-6).
func (u *subscription) stuck() bool {
	return slices.ContainsFunc(u.deliveries, func(d delivery) bool { return d.stuck && !d.superseded })
}

// makeRoom drops responses from the list that do not count: superseded ones and heartbeats. It keeps
// some, because a late answer may still come.
func (u *subscription) makeRoom(drops func(*delivery)) {
	for i := 0; i < len(u.deliveries) && len(u.deliveries) >= maxInFlight; {
		d := &u.deliveries[i]
		if d.counts() {
			i++
			continue
		}
		drops(d)
		u.deliveries = slices.Delete(u.deliveries, i, i+1)
		u.NoteAll()
	}
}

// crowded reports whether so many responses are in flight that a further one must wait (SAFE-1).
func (u *subscription) crowded() bool {
	n := 0
	for i := range u.deliveries {
		if u.deliveries[i].counts() {
			n++
		}
	}
	return n >= maxInFlight
}

// counts reports whether a delivery counts towards maxInFlight: a later one is not accepted, and the
// delivery is not only a heartbeat. A full state counts, even if it is sent as a heartbeat.
func (d *delivery) counts() bool { return !d.superseded && (d.beats == nil || d.parts[0].world) }

// limitUnanswered limits the memory for unanswered responses (SAFE-1). The newest response has
// waited in vain for an answer. If the client leaves too many such responses unanswered, the stream
// ends. If a warming cluster may withhold the ACKs, the session forgets the oldest response instead.
func (s *Session) limitUnanswered(u *subscription) {
	withheld := u.stuck() || s.only != nil && u.typ.Warms != nil
	newest := &u.deliveries[len(u.deliveries)-1]
	newest.wait(!withheld)
	waited, names := 0, 0
	for i := range u.deliveries {
		d := &u.deliveries[i]
		names += d.size
		if d.waited {
			waited++
		}
	}
	most := 4 * s.opts.MaxNames
	switch {
	case !withheld && (waited > maxWaited || names > most):
		s.end(exceeds(xds.LimitUnanswered, "%d responses of %s with %d names are unanswered: a client must answer each response with an ACK or a NACK", len(u.deliveries), u.typ, names))
	case withheld:
		for len(u.deliveries) > maxListed || names > most && len(u.deliveries) > maxInFlight {
			names -= u.deliveries[0].size
			s.forget(u, &u.deliveries[0])
		}
	}
}

// wait records that a delivery waited in vain. With counts set, it counts towards maxWaited.
func (d *delivery) wait(counts bool) {
	d.waited = counts
	for range d.Each {
		d.size++
	}
}

// forget drops d, the oldest delivery, from the list. The client may then hold any content of its
// names.
func (s *Session) forget(u *subscription, d *delivery) {
	u.doubt(s.now.Add(delay.Earlier.Limit(0)), u.vagueAll || d.Whole)
	var names []string
	for name := range d.Each {
		names = append(names, name)
	}
	u.bring(names)
	u.NoteAll()
	if d.stuck { // Envoy ACKs the later responses after this one
		u.deliveries[1].expectNone()
	}
	u.gone(d)
}

// letGo records that the client has unsubscribed from names. The client holds no resource with
// these names now, but it may subscribe again before the deliveries in flight arrive. A full state
// in flight also brings the names that it did not change.
func (u *subscription) letGo(dropped map[string]bool) {
	if len(dropped) == 0 {
		return
	}
	for i := range u.deliveries {
		d := &u.deliveries[i]
		world := d.parts[0].world && d.beats == nil && !d.superseded
		var more []item
		for n := range dropped {
			switch it, told := d.Find(n), u.told(n); {
			case it != nil && it.Is != nil:
				it.Was = absent
			case !world || !stands(told) || d.Carries(n) != nil:
			case it != nil:
				it.Was, it.Is = absent, told
			default:
				more = append(more, item{Name: n, Was: absent, Is: told})
			}
		}
		d.Add(more)
	}
}

// letGoAll records that the client has unsubscribed from the wildcard. From now on the client holds
// only names that have an entry. A client may drop the wildcard and subscribe again any number of
// times. So the cost is the number of entries and items, not the size of the table.
func (u *subscription) letGoAll() {
	for i := range u.deliveries {
		d := &u.deliveries[i]
		for j := range d.Items {
			if it := &d.Items[j]; it.Is != nil && u.Entry(it.Name) == nil {
				it.Was = absent
			}
		}
		if d.Dropped {
			continue
		}
		var more []item // names with an entry keep the state that they had before this delivery
		for e := range u.Entries() {
			if is := d.Carries(e.Name); is != nil && d.Find(e.Name) == nil {
				more = append(more, item{Name: e.Name, Was: d.Before(e.Name), Is: is})
			}
		}
		world := d.parts[0].world && d.beats == nil // a full state brings all names, changed or not
		d.Whole, d.Dropped = d.Whole || world, true
		d.Add(more)
	}
	for e := range u.Entries() {
		u.trace(e)
	}
}
