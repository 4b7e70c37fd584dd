package protocoltest

import (
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// heldBack reports whether a name is among those of a refused response that were not told
// since.
func (a *account) heldBack(n string) bool {
	return slices.ContainsFunc(a.groups, func(g *group) bool { return g.rest[n] })
}

// answering reports whether the client has been sent something of late.
func (a *account) answering(now time.Time) bool {
	return slices.ContainsFunc(a.flights, func(f *flight) bool { return !f.done && !f.superseded && now.Sub(f.at) < silence })
}

// everTold lists the names of which the client may hold something: sorted, or some of them
// twice and until it is asked again.
func (a *account) everTold(sorted bool) []string {
	all := a.ever[:0]
	for n := range a.told {
		all = append(all, n)
	}
	for n := range a.acked {
		if _, told := a.told[n]; !told {
			all = append(all, n)
		}
	}
	for n := range a.refused {
		all = append(all, n)
	}
	for _, f := range a.flights {
		for n := range f.dropped {
			all = append(all, n) // the client may ask for it again before it arrives
		}
	}
	a.ever = all
	if sorted {
		return set(slices.Clone(all))
	}
	return all
}

// plain reports whether all that the client may hold of a name is what the view has, or
// nothing: it was told that last, and nothing of the type is open.
func (a *account) plain(n string, is *xds.Resource) bool {
	if len(a.flights) > 0 || len(a.refused[n]) > 0 || len(a.doubted[n]) > 0 {
		return false
	}
	told := a.told[n]
	if !told.absent() && !told.is(is) {
		return false
	}
	acked := a.acked[n]
	return acked.seq == told.seq || acked.absent() || acked.is(is)
}

// set sorts names, and drops those that come twice.
func set(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// mayHold lists what the client may hold of a name: "what it was told and has not
// been told otherwise; a response not yet answered: both what was before and what
// it carries; refused: both". A deadline ends silence only: no refusal, unless the
// name was told anew since, and it is that which is not answered. The list is good until
// the next is asked for.
func (a *account) mayHold(n string, silent bool, d doubt) []fact {
	out, open := a.holds[:0], a.open[:0]
	defer func() { a.holds, a.open = out, open }()
	kept, wide := a.heldBack(n), d == possibly && a.grants(older)
	for _, k := range a.refused[n] {
		if !k.dropped || d == possibly && a.grants(back) {
			out = append(out, k)
		}
	}
	if d == possibly && a.grants(doubted) {
		out = append(out, a.doubted[n]...)
	}
	told, known := a.told[n]
	acked := a.acked[n]
	before := acked
	for _, f := range a.flights {
		k, ok := f.carried[n]
		switch {
		case !ok || f.done:
		case d == surely && a.grants(merged) && a.merged(f, n):
			open = append(open, told)
		default:
			if wide || !f.superseded && f.seq >= a.answered {
				open = append(open, k)
			}
			if f.seq < a.accepted && f.seq > before.seq {
				before = k // it has acknowledged a later one, so it has dealt with this
			}
		}
	}
	if d == surely && before.merged && a.grants(merged) {
		before = told
	}
	switch {
	case len(out) == 0:
	case kept || !silent || wide:
		out = append(out, before)
		if wide { // what it has refused may have found any of these in force
			out = append(append(out, acked), open...)
		}
	default:
		out = out[:0]
	}
	for _, f := range a.flights {
		if d == surely || silent {
			break
		}
		if k, ok := f.dropped[n]; ok && a.grants(back) {
			out = append(out, k)
		}
		if a.grants(doubted) {
			out = append(out, f.joined[n]...)
		}
	}
	switch {
	case silent:
		return out
	case known && acked.seq == told.seq:
		return append(out, told)
	}
	out = append(append(out, open...), told)
	if len(open) > 0 {
		out = append(out, before)
	}
	if wide {
		out = append(out, acked)
	}
	return out
}

// merged reports whether what a response told of a name need not be remembered: it is not
// listed any more, and beside what was in force before it the one that it has become one
// with, or one between them, tells of the name.
func (a *account) merged(f *flight, n string) bool {
	return a.newer(f) >= listed && a.preceded(f, n) && a.followed(f.seq, n)
}

// preceded reports whether there was something of a name before a response.
func (a *account) preceded(f *flight, n string) bool {
	return !a.acked[n].absent() || a.acked[n].merged || slices.ContainsFunc(a.flights, func(o *flight) bool {
		k, ok := o.carried[n]
		return ok && o.drain != f.drain && o.seq < f.seq && !k.absent()
	})
}

// followed reports whether a later response that tells of a name is the oldest that is
// listed, or is not listed any more.
func (a *account) followed(seq int, n string) bool {
	return slices.ContainsFunc(a.flights, func(o *flight) bool {
		_, ok := o.carried[n]
		return ok && o.seq > seq && a.newer(o) >= listed-1
	})
}

// fade notes what need not be remembered of what was accepted, now that another response
// has left: of several that became one nobody knows which was accepted.
func (a *account) fade() {
	for n, k := range a.acked {
		if k.late && a.followed(k.seq, n) {
			k.merged = true
			a.acked[n] = k
		}
	}
}

// newer counts the responses after one that are not answered.
func (a *account) newer(f *flight) int {
	later := map[int]bool{}
	for _, o := range a.flights {
		if o.seq > f.seq && o.drain != f.drain && (len(o.carried) > 0 || len(o.beats) == 0) {
			later[o.drain] = true
		}
	}
	return len(later)
}
