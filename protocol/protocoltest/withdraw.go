package protocoltest

import (
	"fmt"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// Removals are judged by reference (ADS-8). A name may be removed when no resource that the client
// may hold refers to the name. Resources that the view has now do not count. A name without such a
// reference must be removed in the next response, also after a NACK.
//
// Both halves are obligations. Sometimes the rules leave open which resources a client may hold.
// Then the first half counts only the certain cases ([surely]), and the second half counts all
// possible cases ([possibly]).

// A doubt chooses between the two halves of the rule about removals.
type doubt bool

const (
	surely   doubt = false
	possibly doubt = true
)

// checkRemoval checks that the client cannot hold anything that refers to a removed name.
func (l *ledger) checkRemoval(a *account, name string) error {
	v, ok := a.removed[name]
	if l.only != nil {
		if ok && (!v.loose || !l.accepts(loose)) && l.now.Sub(v.at) < l.opts.Grace {
			return fmt.Errorf("ADS-3: %s is removed from a stream of one type after %v", name, l.now.Sub(v.at))
		}
		return nil
	}
	// A client that subscribes to a name of unknown state can only get its removal.
	if _, owed := a.mustSend[name]; !ok || v.loose && l.accepts(loose) || v.free || !l.keepsRemoved(a) || owed && v.res == nil {
		return nil
	}
	if l.isReferred(a, name, surely) {
		return fmt.Errorf("ADS-3, ADS-8: %s is removed while %s", name, l.whyReferred(a, name))
	}
	return nil
}

// markRemovable marks the names that may be removed. They need not be kept again, even if their removal waits and an
// answer comes meanwhile.
func (l *ledger) markRemovable() {
	if l.only != nil {
		return
	}
	for _, a := range l.accounts {
		for n, v := range a.removed {
			sure := l.isReferred(a, n, surely)
			v.free = v.free || !sure
			v.bound = sure || l.isReferred(a, n, possibly)
			if v.bound && !v.waits { // the 15 s of the client count from now, and not from the removal
				v.waits, v.at = true, l.now
			}
			a.removed[n] = v
		}
	}
}

// mayBeRemoved reports whether a removed name need not be kept. In SotW no response may show that it was removed.
func (l *ledger) mayBeRemoved(a *account, name string) bool {
	return a.removed[name].free || !l.isReferred(a, name, surely)
}

// mustBeRemoved reports whether a removed name must leave now.
func (l *ledger) mustBeRemoved(a *account, name string) bool {
	v, ok := a.removedName(name)
	switch {
	case !ok:
		return true
	case v.loose && l.accepts(loose):
		return false
	case l.only != nil:
		return l.now.Sub(v.at) >= l.opts.Grace
	case a.walksByName() && l.now.Sub(v.at) < silentAfter && l.accepts(walks):
		return false
	}
	return !l.isReferred(a, name, possibly)
}

// removedName returns the removed resource of a name. For a session it counts as removed from the time when the
// session is first asked for responses.
func (a *account) removedName(name string) (v removal, ok bool) {
	v, ok = a.removed[name]
	if !ok {
		v.at = latest(a.firstSubscribed[name], a.drained)
	}
	return v, ok
}

// walksByName reports whether the client may have reached the type by name, as gRPC does. It ACKs the routes first,
// then subscribes to the new cluster, and drops the old one itself when it has the new one. So a referred
// resource is kept for it a little longer.
func (a *account) walksByName() bool { return a.typ.FullState && !a.wildcard }

// isReferred reports whether the client may hold a resource that keeps a name, because it refers to
// the name.
func (l *ledger) isReferred(a *account, name string, d doubt) bool {
	return l.findReferrer(a, name, d, nil)
}

// whyReferred describes what the client certainly may hold that keeps the name.
func (l *ledger) whyReferred(a *account, name string) (why string) {
	l.findReferrer(a, name, surely, &why)
	return why
}

// findReferrer finds a resource that keeps a name, and describes this resource if why is not nil.
func (l *ledger) findReferrer(a *account, name string, d doubt, why *string) bool {
	v, _ := a.removedName(name)
	var called []string
	for _, by := range a.typ.ReferredBy() {
		b := l.account(by)
		if b == nil {
			if l.unopened(v, d) {
				return because(why, "the client may hold %s from an earlier stream, and has not opened the type yet", by)
			}
			continue
		}
		if called == nil {
			called = a.referenceNames(name, v)
		}
		if l.mayRefer(b, a.typ, called, v, d, why) {
			return true
		}
	}
	return false
}

// referenceNames returns the names by which others refer to a removed resource.
func (a *account) referenceNames(name string, v removal) []string {
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
	aliases(a.lastSent[name].res)
	for _, r := range v.last {
		aliases(r)
	}
	return called
}

// because stores a reason if why is not nil.
func because(why *string, format string, args ...any) bool {
	if why != nil {
		*why = fmt.Sprintf(format, args...)
	}
	return true
}

// unopened reports whether a resuming client may still open a type. Until then, the type keeps every name that
// its resources may refer to (ADS-9).
func (l *ledger) unopened(v removal, d doubt) bool {
	if d == possibly && l.accepts(unopened) {
		return l.resumes && l.now.Sub(l.began) < max(silentAfter, l.opts.Grace)
	}
	return v.resumed && l.now.Sub(l.began) < l.opts.Grace
}

// A display formats a resource lazily.
type display struct{ *xds.Resource }

func (d display) String() string { return show(d.Resource) }

// mayRefer reports whether the client may hold a resource of b that refers to a resource of type t with one of
// the names called.
func (l *ledger) mayRefer(b *account, t *xds.Type, called []string, v removal, d doubt, why *string) bool {
	refers := func(r *xds.Stamp) bool { return r == nil || r.MayRefer(t, called[0], called[1:]...) }
	silent := l.silent(b) && (d == surely || !l.accepts(older) || l.now.Sub(v.at) >= silentAfter && l.now.Sub(b.repeated) >= silentAfter && !b.mayStillAnswer(l.now))
	for _, n := range b.everSent(why != nil) {
		is := l.shown(b, n) // in SotW a removal cannot be sent: the client keeps the resource
		if b.holdsOnlyView(n, is) {
			continue
		}
		for _, k := range b.mayHold(n, silent, d) {
			if k.absent() || k.is(is) {
				continue
			}
			r := k.res
			if r == nil && (d == surely || !l.accepts(vague)) {
				r = l.recent(b, n, k.version)
			}
			switch {
			case r != nil && refers(r.Stamp):
				return because(why, "the client may hold %s %s, which refers to it", b.typ, display{r})
			case r == nil:
				return because(why, "the client has %s %s@%s, which may refer to it", b.typ, n, k.version)
			}
		}
	}
	if from := l.mayReferFromBefore(b, refers, silent, d, why); from || silent {
		return from
	}
	if d == possibly && l.accepts(older) && slices.ContainsFunc(b.flights, func(f *flight) bool { return f.done }) {
		return because(why, "a part of a response of %s is unanswered", b.typ)
	}
	if d == possibly && b.opaque && l.accepts(opaque) {
		return because(why, "the client may hold %s from an earlier stream", b.typ)
	}
	for n := range b.stray {
		// The client stated it before it subscribed, and has not ACKed its removal.
		if k, told := b.lastSent[n]; d == possibly && l.accepts(stray) && b.claimsSubscription(n) && (!told || b.acked[n].seq != k.seq) {
			return because(why, "the client holds %s %s from an earlier stream", b.typ, n)
		}
	}
	if d == surely || !l.accepts(unheard) {
		return false
	}
	for n, is := range b.unheard {
		// This holds for a while, and while a response about the name is due or unanswered.
		r := l.shown(b, n)
		open := r != nil && !b.lastSent[n].is(r) || slices.ContainsFunc(b.flights, func(f *flight) bool { _, said := f.carried[n]; return said && !f.done })
		if is && b.covers(n) && (open || l.now.Sub(b.opened) < silentAfter) {
			return because(why, "the client may hold another %s %s from an earlier stream", b.typ, n)
		}
	}
	for n, is := range b.unsure {
		if is && b.covers(n) {
			return because(why, "the client may hold another %s from an earlier stream", b.typ)
		}
	}
	return false
}

// mayReferFromBefore reports whether the client may hold a resource of b from an earlier stream. Silence does not end
// that if the client refused the response that replaced it.
func (l *ledger) mayReferFromBefore(b *account, refers func(*xds.Stamp) bool, silent bool, d doubt, why *string) bool {
	for n, rs := range l.past[b.typ.URL] {
		// No response can remove it.
		if d == possibly && l.heldThroughWildcard(b, n) && l.accepts(hadBefore) && slices.ContainsFunc(rs, func(r *xds.Resource) bool { return !same(r, l.shown(b, n)) && refers(r.Stamp) }) {
			return because(why, "the client may hold %s %s from an earlier stream, by the wildcard", b.typ, n)
		}
	}
	for n := range b.heldBefore {
		if silent && (len(b.refused[n]) == 0 || (d == surely || !l.accepts(older)) && !b.heldBack(n)) {
			continue
		}
		is := l.shown(b, n)
		wide := d == possibly && l.accepts(opaque)
		if is == nil && !wide {
			continue // no response will ever show what it holds
		}
		if wide {
			return because(why, "the client may hold another %s %s from an earlier stream", b.typ, n)
		}
		for _, r := range l.past.of(b.typ, n) {
			if !same(r, is) && refers(r.Stamp) {
				return because(why, "the client holds %s %s from an earlier stream, which refers to it", b.typ, display{r})
			}
		}
	}
	return false
}
