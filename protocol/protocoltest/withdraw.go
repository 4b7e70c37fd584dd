package protocoltest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// Withdrawal is judged by reference (ADS-8): "a name may leave when nothing that
// the client may hold, and that is not what the view has now, refers to it; what
// nothing refers to leaves with the next response, also behind a NACK."
//
// Both halves are obligations. Where the rules leave room for more than one
// answer to what a client may hold, the first half counts what it surely may
// ([surely]), and the second whatever one could think of ([possibly]).

type doubt bool

const (
	surely   doubt = false
	possibly doubt = true
)

// hasty checks that nobody may still hold something that refers to what leaves.
func (l *ledger) hasty(a *account, name string) error {
	v, ok := a.leaving[name]
	if l.only != nil {
		if ok && !v.loose && l.now.Sub(v.at) < l.opts.Grace {
			return fmt.Errorf("ADS-3: %s leaves a stream of one type after %v", name, l.now.Sub(v.at))
		}
		return nil
	}
	// Of what nobody knows there is nothing to tell to who asks for it, but that it is
	// lost.
	if _, owed := a.owe[name]; !ok || v.loose || v.free || !l.lingers(a) || owed && v.res == nil {
		return nil
	}
	if why := l.held(a, name, surely); why != "" {
		return fmt.Errorf("ADS-3, ADS-8: %s leaves while %s", name, why)
	}
	return nil
}

// release notes what may leave: it need not be kept again, though its removal waits
// its turn and an answer comes meanwhile.
func (l *ledger) release() {
	if l.only != nil {
		return
	}
	for _, a := range l.accounts {
		for n, v := range a.leaving {
			v.free = v.free || l.held(a, n, surely) == ""
			v.bound = l.held(a, n, possibly) != ""
			a.leaving[n] = v
		}
	}
}

// mayLeave reports whether a name that the view has lost need not be kept. In SotW nothing
// may tell that it has left.
func (l *ledger) mayLeave(a *account, name string) bool {
	return a.leaving[name].free || l.held(a, name, surely) == ""
}

// overdue reports whether a name that the view has lost has to leave now.
func (l *ledger) overdue(a *account, name string) bool {
	v, ok := a.leaver(name)
	switch {
	case !ok || v.loose:
		return !ok
	case l.only != nil:
		return l.now.Sub(v.at) >= l.opts.Grace
	case a.walks() && l.now.Sub(v.at) < silence:
		return false
	}
	return l.held(a, name, possibly) == ""
}

// leaver returns what of a name the view has lost. What is from before has been
// lost, for a session, since it is asked for its responses.
func (a *account) leaver(name string) (v leaver, ok bool) {
	switch v, ok = a.leaving[name]; {
	case !ok:
		v.at = latest(a.since[name], a.drained)
	case v.resumed:
		v.at = latest(v.at, a.drained)
	}
	return v, ok
}

// walks reports whether the client may have come to the type by name, as gRPC
// does: it acknowledges the routes first, then asks for the new cluster, and
// drops the old one by itself when it has that. What was referred to stays for
// it a little longer.
func (a *account) walks() bool { return a.typ.FullState && !a.wildcard }

// held says what the client may hold that keeps a name of the account, or "".
func (l *ledger) held(a *account, name string, d doubt) string {
	v, _ := a.leaver(name)
	called := []string{name}
	if c := a.typ.Collection(name); c != "" {
		called = append(called, c) // as assignments refer to endpoints
	}
	for _, r := range append([]*xds.Resource{v.res, a.told[name].res}, v.last...) {
		if r != nil {
			called = append(called, r.Aliases...)
		}
	}
	for _, by := range a.typ.ReferredBy() {
		b := l.account(by)
		if b == nil {
			if l.unopened(v, d) {
				return fmt.Sprintf("%s is not open yet, which the client may have from before", by)
			}
			continue
		}
		if what := l.keeps(b, a.typ, called, v, d); what != "" {
			return what
		}
	}
	return ""
}

// unopened reports whether a client that resumes may still open a type: "a type
// that a resuming client has not opened yet holds back what refers to it".
func (l *ledger) unopened(v leaver, d doubt) bool {
	if d == possibly {
		return l.resumes && l.now.Sub(l.began) < max(silence, l.opts.Grace)
	}
	return v.resumed && l.now.Sub(l.began) < l.opts.Grace
}

// keeps says what of b the client may hold that refers to a resource of type t
// which has these names, or "".
func (l *ledger) keeps(b *account, t *xds.Type, called []string, v leaver, d doubt) string {
	refers := func(r *xds.Stamp) bool { return r == nil || r.MayRefer(t, called[0], called[1:]...) }
	silent := l.silent(b) && (d == surely || l.now.Sub(v.at) >= silence && l.now.Sub(b.repeated) >= silence && !b.answering(l.now))
	for _, n := range b.everTold() {
		is := l.shown(b, n) // in SotW what is gone cannot be told: the client keeps what it has
		for _, k := range b.mayHold(n, silent, d) {
			if k.absent() || k.is(is) {
				continue
			}
			r := k.res
			if r == nil && d == surely {
				r = l.had(b, n, k.version)
			}
			switch {
			case r != nil && refers(r.Stamp):
				return fmt.Sprintf("the client may hold %s %s, which refers to it", b.typ, show(r))
			case r == nil:
				return fmt.Sprintf("the client has %s %s@%s, which may refer to it", b.typ, n, k.version)
			}
		}
	}
	if what := l.fromBefore(b, refers, silent, d); what != "" || silent {
		return what
	}
	if d == possibly && slices.ContainsFunc(b.flights, func(f *flight) bool { return f.done }) {
		return fmt.Sprintf("a part of a response of %s is not answered", b.typ) // "the flight by all"
	}
	if d == possibly && l.resumes && b.opaque {
		return fmt.Sprintf("the client may have %s from before", b.typ)
	}
	for _, n := range slices.Sorted(maps.Keys(b.stray)) {
		// It stated that before it asked for it, and has not accepted that it is gone.
		if k, told := b.told[n]; d == possibly && b.covers(n) && (!told || b.acked[n].seq != k.seq) {
			return fmt.Sprintf("the client has %s %s from before", b.typ, n)
		}
	}
	for n, unheard := range b.unheard {
		// It is so for a while, and for as long as something of the name is to be told or is not answered.
		is := l.shown(b, n)
		open := is != nil && !b.told[n].is(is) || slices.ContainsFunc(b.flights, func(f *flight) bool { _, said := f.carried[n]; return said && !f.done })
		if unheard && d == possibly && b.covers(n) && (open || l.now.Sub(b.opened) < silence) {
			return fmt.Sprintf("the client may have another %s %s from before", b.typ, n)
		}
	}
	for n, unsure := range b.unsure {
		if unsure && d == possibly && b.covers(n) {
			return fmt.Sprintf("the client may have another %s from before", b.typ)
		}
	}
	return ""
}

// fromBefore says what of b the client may have from an earlier stream, or "". No silence
// makes it let go of that where it has refused what it was told instead.
func (l *ledger) fromBefore(b *account, refers func(*xds.Stamp) bool, silent bool, d doubt) string {
	for n, rs := range l.past[b.typ.URL] {
		// Nothing tells it that this is gone.
		if d == possibly && l.hadBefore(b, n) && slices.ContainsFunc(rs, func(r *xds.Resource) bool { return !same(r, l.shown(b, n)) && refers(r.Stamp) }) {
			return fmt.Sprintf("the client may have %s %s from before, by way of the wildcard", b.typ, n)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(b.before)) {
		if silent && (len(b.refused[n]) == 0 || d == surely && !b.heldBack(n)) {
			continue
		}
		is := l.shown(b, n)
		if is == nil && d == surely {
			continue // nothing will ever tell what it has
		}
		if d == possibly {
			return fmt.Sprintf("the client may have another %s %s from before", b.typ, n)
		}
		for _, r := range l.past.of(b.typ, n) {
			if !same(r, is) && refers(r.Stamp) {
				return fmt.Sprintf("the client has %s %s from before, which refers to it", b.typ, show(r))
			}
		}
	}
	return ""
}

// heldBack reports whether a name is among those of a refused response that were not told
// since.
func (a *account) heldBack(n string) bool {
	return slices.ContainsFunc(a.groups, func(g *group) bool { return g.rest[n] })
}

// answering reports whether the client has been sent something of late.
func (a *account) answering(now time.Time) bool {
	return slices.ContainsFunc(a.flights, func(f *flight) bool { return !f.done && !f.superseded && now.Sub(f.at) < silence })
}

// everTold lists the names of which the client may hold something.
func (a *account) everTold() []string {
	all := make([]string, 0, 2*len(a.told))
	for _, facts := range []map[string]fact{a.told, a.acked} {
		for n := range facts {
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
	return set(all)
}

// set sorts names, and drops those that come twice.
func set(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// mayHold lists what the client may hold of a name: "what it was told and has not
// been told otherwise; a response not yet answered: both what was before and what
// it carries; refused: both". A deadline ends silence only: no refusal, unless the
// name was told anew since, and it is that which is not answered.
func (a *account) mayHold(n string, silent bool, d doubt) []fact {
	var out []fact
	back := a.heldBack(n)
	refused := slices.Clone(a.refused[n])
	if d == surely {
		refused = slices.DeleteFunc(refused, func(k fact) bool { return k.dropped })
	} else {
		refused = append(refused, a.doubted[n]...)
	}
	told, known := a.told[n]
	acked := a.acked[n]
	open, before := []fact(nil), acked
	for _, f := range a.flights {
		k, ok := f.carried[n]
		switch {
		case !ok || f.done:
		case d == surely && a.merged(f, n):
			open = append(open, told)
		case d == possibly || !f.superseded && f.seq >= a.answered:
			open = append(open, k)
		case f.seq < a.accepted && f.seq > before.seq:
			before = k // it has acknowledged a later one, so it has dealt with this
		}
	}
	if d == surely && before.merged {
		before = told
	}
	if len(refused) > 0 && (back || !silent || d == possibly) {
		if out = append(refused, before); d == possibly {
			out = append(out, acked)
		}
	}
	for _, f := range a.flights {
		if d == surely || silent {
			break
		}
		if k, ok := f.dropped[n]; ok {
			out = append(out, k)
		}
		out = append(out, f.joined[n]...)
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
	if d == possibly {
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

// A past is what a client has from earlier streams, by type and name.
type past map[string]map[string][]*xds.Resource

func (p past) of(t *xds.Type, name string) []*xds.Resource { return p[t.URL][name] }

// A sending is what one response told, on whatever stream.
type sending struct {
	version string
	told    []*xds.Resource
}

// since drops what a client has let go of: it has accepted the response of the version
// that it states, so of what that told it has that, or what came later. Of responses of
// one version it may be the first.
func (p past) since(t *xds.Type, version string, sent []sending) {
	i := slices.IndexFunc(sent, func(s sending) bool { return s.version == version })
	if version == "" || i < 0 {
		return
	}
	if t.FullState { // what came between two of one version it surely has no more
		for j, s := range sent {
			if s.version == version {
				i = j
			}
		}
	}
	later := func(x *xds.Resource) bool {
		return slices.ContainsFunc(sent[i:], func(s sending) bool {
			return slices.ContainsFunc(s.told, func(r *xds.Resource) bool { return r.Name == x.Name && same(r, x) })
		})
	}
	for name, has := range p[t.URL] {
		if t.FullState || slices.ContainsFunc(sent[i].told, func(r *xds.Resource) bool { return r.Name == name }) {
			p[t.URL][name] = slices.DeleteFunc(slices.Clone(has), func(x *xds.Resource) bool { return !later(x) })
		}
	}
}

// earlier is what the client of a stream that broke may hold.
func earlier(l *ledger) past {
	p := past{}
	if l == nil {
		return p
	}
	maps.Copy(p, l.past) // of types that it did not open
	for _, a := range l.accounts {
		has := map[string][]*xds.Resource{}
		for n, before := range l.past[a.typ.URL] {
			// In SotW nothing has told it otherwise.
			if _, told := a.told[n]; l.variant == xds.SotW && !a.world && (a.wildcard || a.names[n]) && (!told || a.before[n]) {
				has[n] = slices.Clone(before)
			}
		}
		for _, n := range a.everTold() {
			for _, k := range a.mayHold(n, false, surely) {
				if r := l.content(a, n, k); r != nil {
					has[n] = append(has[n], r)
				}
			}
		}
		p[a.typ.URL] = has
	}
	return p
}
