package protocoltest

import (
	"fmt"
	"slices"

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
		if ok && (!v.loose || !l.grants(loose)) && l.now.Sub(v.at) < l.opts.Grace {
			return fmt.Errorf("ADS-3: %s leaves a stream of one type after %v", name, l.now.Sub(v.at))
		}
		return nil
	}
	// Of what nobody knows there is nothing to tell to who asks for it, but that it is
	// lost.
	if _, owed := a.owe[name]; !ok || v.loose && l.grants(loose) || v.free || !l.lingers(a) || owed && v.res == nil {
		return nil
	}
	if l.held(a, name, surely) {
		return fmt.Errorf("ADS-3, ADS-8: %s leaves while %s", name, l.whyHeld(a, name))
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
			sure := l.held(a, n, surely)
			v.free = v.free || !sure
			v.bound = sure || l.held(a, n, possibly)
			if v.bound && !v.waits { // who answers is waited for since then, and not since it was lost
				v.waits, v.at = true, l.now
			}
			a.leaving[n] = v
		}
	}
}

// mayLeave reports whether a name that the view has lost need not be kept. In SotW nothing
// may tell that it has left.
func (l *ledger) mayLeave(a *account, name string) bool {
	return a.leaving[name].free || !l.held(a, name, surely)
}

// overdue reports whether a name that the view has lost has to leave now.
func (l *ledger) overdue(a *account, name string) bool {
	v, ok := a.leaver(name)
	switch {
	case !ok:
		return true
	case v.loose && l.grants(loose):
		return false
	case l.only != nil:
		return l.now.Sub(v.at) >= l.opts.Grace
	case a.walks() && l.now.Sub(v.at) < silence && l.grants(walks):
		return false
	}
	return !l.held(a, name, possibly)
}

// leaver returns what of a name the view has lost. It has been lost, for a session, since it
// is asked for its responses.
func (a *account) leaver(name string) (v leaver, ok bool) {
	v, ok = a.leaving[name]
	if !ok {
		v.at = latest(a.since[name], a.drained)
	}
	return v, ok
}

// walks reports whether the client may have come to the type by name, as gRPC
// does: it acknowledges the routes first, then asks for the new cluster, and
// drops the old one by itself when it has that. What was referred to stays for
// it a little longer.
func (a *account) walks() bool { return a.typ.FullState && !a.wildcard }

// held reports whether the client may hold something that keeps a name of the account.
func (l *ledger) held(a *account, name string, d doubt) bool {
	return l.keeper(a, name, d, nil)
}

// whyHeld says what the client surely may hold of that.
func (l *ledger) whyHeld(a *account, name string) (why string) {
	l.keeper(a, name, surely, &why)
	return why
}

// keeper looks for what keeps a name, and says what it is if anybody asks.
func (l *ledger) keeper(a *account, name string, d doubt, why *string) bool {
	v, _ := a.leaver(name)
	var called []string
	for _, by := range a.typ.ReferredBy() {
		b := l.account(by)
		if b == nil {
			if l.unopened(v, d) {
				return because(why, "%s is not open yet, which the client may have from before", by)
			}
			continue
		}
		if called == nil {
			called = a.called(name, v)
		}
		if l.keeps(b, a.typ, called, v, d, why) {
			return true
		}
	}
	return false
}

// called lists the names by which others refer to what the view has lost.
func (a *account) called(name string, v leaver) []string {
	called := []string{name}
	if c := a.typ.Collection(name); c != "" {
		called = append(called, c) // as assignments refer to endpoints
	}
	aliases := func(r *xds.Resource) {
		if r != nil {
			called = append(called, r.Aliases...)
		}
	}
	aliases(v.res)
	aliases(a.told[name].res)
	for _, r := range v.last {
		aliases(r)
	}
	return called
}

// because notes a reason, if anybody asks.
func because(why *string, format string, args ...any) bool {
	if why != nil {
		*why = fmt.Sprintf(format, args...)
	}
	return true
}

// unopened reports whether a client that resumes may still open a type: "a type
// that a resuming client has not opened yet holds back what refers to it".
func (l *ledger) unopened(v leaver, d doubt) bool {
	if d == possibly && l.grants(unopened) {
		return l.resumes && l.now.Sub(l.began) < max(silence, l.opts.Grace)
	}
	return v.resumed && l.now.Sub(l.began) < l.opts.Grace
}

// A display shows a resource when somebody asks.
type display struct{ *xds.Resource }

func (d display) String() string { return show(d.Resource) }

// keeps reports whether of b the client may hold something that refers to a resource of
// type t which has these names.
func (l *ledger) keeps(b *account, t *xds.Type, called []string, v leaver, d doubt, why *string) bool {
	refers := func(r *xds.Stamp) bool { return r == nil || r.MayRefer(t, called[0], called[1:]...) }
	silent := l.silent(b) && (d == surely || !l.grants(older) || l.now.Sub(v.at) >= silence && l.now.Sub(b.repeated) >= silence && !b.answering(l.now))
	for _, n := range b.everTold(why != nil) {
		is := l.shown(b, n) // in SotW what is gone cannot be told: the client keeps what it has
		if b.plain(n, is) {
			continue
		}
		for _, k := range b.mayHold(n, silent, d) {
			if k.absent() || k.is(is) {
				continue
			}
			r := k.res
			if r == nil && (d == surely || !l.grants(vague)) {
				r = l.had(b, n, k.version)
			}
			switch {
			case r != nil && refers(r.Stamp):
				return because(why, "the client may hold %s %s, which refers to it", b.typ, display{r})
			case r == nil:
				return because(why, "the client has %s %s@%s, which may refer to it", b.typ, n, k.version)
			}
		}
	}
	if from := l.fromBefore(b, refers, silent, d, why); from || silent {
		return from
	}
	if d == possibly && l.grants(older) && slices.ContainsFunc(b.flights, func(f *flight) bool { return f.done }) {
		return because(why, "a part of a response of %s is not answered", b.typ) // "the flight by all"
	}
	if d == possibly && b.opaque && l.grants(opaque) {
		return because(why, "the client may have %s from before", b.typ)
	}
	for n := range b.stray {
		// It stated that before it asked for it, and has not accepted that it is gone.
		if k, told := b.told[n]; d == possibly && l.grants(stray) && b.claims(n) && (!told || b.acked[n].seq != k.seq) {
			return because(why, "the client has %s %s from before", b.typ, n)
		}
	}
	if d == surely || !l.grants(unheard) {
		return false
	}
	for n, is := range b.unheard {
		// It is so for a while, and for as long as something of the name is to be told or is not answered.
		r := l.shown(b, n)
		open := r != nil && !b.told[n].is(r) || slices.ContainsFunc(b.flights, func(f *flight) bool { _, said := f.carried[n]; return said && !f.done })
		if is && b.covers(n) && (open || l.now.Sub(b.opened) < silence) {
			return because(why, "the client may have another %s %s from before", b.typ, n)
		}
	}
	for n, is := range b.unsure {
		if is && b.covers(n) {
			return because(why, "the client may have another %s from before", b.typ)
		}
	}
	return false
}

// fromBefore reports whether of b the client may have something from an earlier stream. No
// silence makes it let go of that where it has refused what it was told instead.
func (l *ledger) fromBefore(b *account, refers func(*xds.Stamp) bool, silent bool, d doubt, why *string) bool {
	for n, rs := range l.past[b.typ.URL] {
		// Nothing tells it that this is gone.
		if d == possibly && l.hadBefore(b, n) && l.grants(hadBefore) && slices.ContainsFunc(rs, func(r *xds.Resource) bool { return !same(r, l.shown(b, n)) && refers(r.Stamp) }) {
			return because(why, "the client may have %s %s from before, by way of the wildcard", b.typ, n)
		}
	}
	for n := range b.before {
		if silent && (len(b.refused[n]) == 0 || (d == surely || !l.grants(older)) && !b.heldBack(n)) {
			continue
		}
		is := l.shown(b, n)
		wide := d == possibly && l.grants(opaque)
		if is == nil && !wide {
			continue // nothing will ever tell what it has
		}
		if wide {
			return because(why, "the client may have another %s %s from before", b.typ, n)
		}
		for _, r := range l.past.of(b.typ, n) {
			if !same(r, is) && refers(r.Stamp) {
				return because(why, "the client has %s %s from before, which refers to it", b.typ, display{r})
			}
		}
	}
	return false
}
