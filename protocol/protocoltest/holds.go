package protocoltest

import (
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// heldBack reports whether the client has refused a name that was not sent again since.
func (a *account) heldBack(n string) bool {
	return slices.ContainsFunc(a.groups, func(g *group) bool { return g.rest[n] })
}

// mayStillAnswer reports whether the client was sent a response recently that it may still answer.
func (a *account) mayStillAnswer(now time.Time) bool {
	return slices.ContainsFunc(a.flights, func(f *flight) bool { return !f.done && !f.superseded && now.Sub(f.at) < silentAfter })
}

// everSent returns the names that the client may hold. Without sorting, a name can occur twice, and the slice
// is valid until the next call.
func (a *account) everSent(sorted bool) []string {
	all := a.sentBuffer[:0]
	for n := range a.lastSent {
		all = append(all, n)
	}
	for n := range a.acked {
		if _, told := a.lastSent[n]; !told {
			all = append(all, n)
		}
	}
	for n := range a.refused {
		all = append(all, n)
	}
	for _, f := range a.flights {
		for n := range f.dropped {
			all = append(all, n) // the client may subscribe again before the resource arrives
		}
	}
	a.sentBuffer = all
	if sorted {
		return set(slices.Clone(all))
	}
	return all
}

// holdsOnlyView reports whether the client holds exactly the state of the view, or no resource:
// this state was sent last, and no answer of the type is missing.
func (a *account) holdsOnlyView(n string, is *xds.Resource) bool {
	if len(a.flights) > 0 || len(a.refused[n]) > 0 || len(a.doubted[n]) > 0 {
		return false
	}
	told := a.lastSent[n]
	if !told.absent() && !told.is(is) {
		return false
	}
	acked := a.acked[n]
	return acked.seq == told.seq || acked.absent() || acked.is(is)
}

// set sorts names and drops duplicates.
func set(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// mayHold returns the states that the client may hold by a name (ADS-8): the state that it was sent last; for
// an unanswered response also the state before it; for a refused response both. A deadline ends only silence,
// not a refusal, unless the name was sent again and that response is unanswered. The slice is valid until the
// next call.
func (a *account) mayHold(n string, silent bool, d doubt) []fact {
	out, open := a.holds[:0], a.open[:0]
	defer func() { a.holds, a.open = out, open }()
	kept, wide := a.heldBack(n), d == possibly && a.accepts(older)
	for _, k := range a.refused[n] {
		if !k.dropped || d == possibly && a.accepts(back) {
			out = append(out, k)
		}
	}
	if d == possibly && a.accepts(doubted) {
		out = append(out, a.doubted[n]...)
	}
	told, known := a.lastSent[n]
	acked := a.acked[n]
	before := acked
	for _, f := range a.flights {
		k, ok := f.carried[n]
		switch {
		case !ok || f.done:
		case d == surely && a.accepts(merged) && a.merged(f, n):
			open = append(open, told)
		default:
			if wide || !f.superseded && f.seq >= a.answered {
				open = append(open, k)
			}
			if wide && f.superseded && f.seq > a.accepted { // a NACK has answered this response: it does not end earlier refusals
				out = append(out, f.refused[n]...)
			}
			if f.seq < a.accepted && f.seq > before.seq {
				before = k // the client ACKed a later response, so it has processed this one
			}
		}
	}
	if d == surely && before.merged && a.accepts(merged) {
		before = told
	}
	switch {
	case len(out) == 0:
	case kept || !silent || wide:
		out = append(out, before)
		if wide { // any of these states may have been in force before the refused state
			out = append(append(out, acked), open...)
		}
	default:
		out = out[:0]
	}
	for _, f := range a.flights {
		if d == surely || silent {
			break
		}
		if k, ok := f.dropped[n]; ok && a.accepts(back) {
			out = append(out, k)
		}
		if a.accepts(doubted) {
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

// merged reports whether the session may forget the state of a name in a response. That is so if
// the response is no longer tracked, and if the name occurs both before it and after it. After it
// means in the response with which it was merged, or in a response between the two.
func (a *account) merged(f *flight, n string) bool {
	return a.newerResponses(f) >= maxTracked && a.preceded(f, n) && a.followed(f.seq, n)
}

// preceded reports whether the name had a state before a response.
func (a *account) preceded(f *flight, n string) bool {
	return !a.acked[n].absent() || a.acked[n].merged || slices.ContainsFunc(a.flights, func(o *flight) bool {
		k, ok := o.carried[n]
		return ok && o.batch != f.batch && o.seq < f.seq && !k.absent()
	})
}

// followed reports whether the name occurs in a later response that is the oldest tracked one, or older.
func (a *account) followed(seq int, n string) bool {
	return slices.ContainsFunc(a.flights, func(o *flight) bool {
		_, ok := o.carried[n]
		return ok && o.seq > seq && a.newerResponses(o) >= maxTracked-1
	})
}

// markMerged marks accepted states that the session may forget after another response was sent. For
// merged responses, it is unknown which of them the client accepted.
func (a *account) markMerged() {
	for n, k := range a.acked {
		if k.late && a.followed(k.seq, n) {
			k.merged = true
			a.acked[n] = k
		}
	}
}

// newerResponses counts the unanswered responses after a response.
func (a *account) newerResponses(f *flight) int {
	later := map[int]bool{}
	for _, o := range a.flights {
		if o.seq > f.seq && o.batch != f.batch && (len(o.carried) > 0 || len(o.beats) == 0) {
			later[o.batch] = true
		}
	}
	return len(later)
}
