package access

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/chancery-xds/chancery/internal/tablecache"
	"github.com/chancery-xds/chancery/xds"
)

// A View is one stream's watch of a source, as far as it may see it. It implements
// [server.Watch] and [server.HistoryWatch], and belongs to the stream's goroutine like these.
type View struct {
	shared *shared
	ctx    context.Context
	node   *xds.Node
	id     Identity

	of      Watch
	groups  grouped                // of; nil: it has none, or does not say which
	ringing atomic.Pointer[ringer] // of, once it can be called by others
	timer   *time.Timer            // looks for the end of the identity
	end     time.Time              // of the stream; zero: none

	policy *policy  // that decided
	wide   Grant    // by the policy, before groups
	seen   []string // groups
	grant  Grant    // zero: there is no policy
	anew   bool     // something else is seen than before
	denied error    // nothing is seen any more
	lenses *lenses  // nil: there is no policy
	closed bool
}

// A grouped watch says which groups it sees, as a [store.Watch].
type grouped interface{ Groups() []string }

// A ringer has its doorbell rung by others, as a [store.Watch].
type ringer interface{ Ring() }

// spread is over how long streams end whose identities expire at once.
const spread = time.Minute

// begin makes the view known to who sets policies, and finds out when it ends.
//
// It ends somewhat before its identity does: within the last tenth of its time, or minute if that
// is less. Of its last minute nothing is taken away, so that a client that has nothing newer
// yet does not come back again and again.
func (v *View) begin() {
	if !v.id.Expires.IsZero() {
		v.end = v.id.Expires
		if left := v.id.Expires.Sub(v.shared.o.Now()); left > spread {
			v.end = v.end.Add(-time.Duration(v.shared.o.Jitter() * float64(min(left/10, spread))))
		}
	}
	v.shared.mu.Lock()
	defer v.shared.mu.Unlock()
	v.shared.views[v] = true
}

// watch has the view rung from now on.
func (v *View) watch() {
	r, ok := v.of.(ringer)
	if !ok {
		return
	}
	v.ringing.Store(&r)
	if !v.end.IsZero() {
		v.timer = time.AfterFunc(time.Hour, v.expires) // which is set before it can run
		v.timer.Reset(v.soon())
	}
	if v.shared.inForce() != v.policy { // it was set before the view could be rung
		r.Ring()
	}
}

// Ring has the view's doorbell rung, by others than the stream: something else is seen that is not in
// the source.
func (v *View) Ring() { v.ring() }

// soon is how long to wait before the clock is looked at again. Timers do not follow it: it may be
// set, and they stand while a machine sleeps.
func (v *View) soon() time.Duration { return min(v.end.Sub(v.shared.o.Now()), spread) }

// expires rings at the end of the identity. It is called by the timer, which Close may stop only
// meanwhile.
func (v *View) expires() {
	r := v.ringing.Load()
	if r == nil {
		return
	}
	soon := v.soon()
	if soon <= 0 {
		(*r).Ring()
		soon = spread
	}
	v.timer.Reset(soon)
}

func (v *View) ring() {
	if r := v.ringing.Load(); r != nil {
		(*r).Ring()
	}
}

// decide asks the policy in force, if it has not decided yet, and sees to the end of the identity.
func (v *View) decide() error {
	if !v.end.IsZero() && !v.shared.o.Now().Before(v.end) {
		return v.deny(&Denied{Reason: v.id.called() + " has expired, or is about to", Unauthenticated: true})
	}
	p := v.shared.inForce()
	if p == v.policy {
		return nil
	}
	v.policy, v.anew = p, true
	if p.Policy == nil {
		v.wide, v.grant = Grant{}, Grant{}
		return nil
	}
	var err error
	if v.wide, err = p.Decide(v.id, v.node); err != nil {
		return v.deny(err)
	}
	v.grant = Grant{}
	return nil
}

// enter finds out what is seen of the groups that the watch sees now.
func (v *View) enter() error {
	v.anew = false
	if v.policy.Policy == nil {
		v.lenses.close()
		v.lenses = nil
		v.limit(nil)
		return nil
	}
	v.seen = v.Groups()
	of := slices.Clone(v.seen)
	for i, group := range of {
		if v.shared.o.Group != nil {
			of[i] = v.shared.o.Group(group)
		}
	}
	g, err := v.wide.In(of)
	if err != nil {
		return v.deny(err)
	}
	v.lenses.close()
	v.grant, v.lenses = g, &lenses{shared: v.shared, groups: tablecache.Key(v.seen), grant: g}
	v.limit(g.some)
	return nil
}

// limit tells a watch that asks others for what a stream asks for what that sees; nil: all.
func (v *View) limit(sees func(t *xds.Type, name string) bool) {
	if l, ok := v.of.(interface {
		Limit(sees func(t *xds.Type, name string) bool)
	}); ok {
		l.Limit(sees)
	}
}

// moved reports whether the watch sees other groups than before.
func (v *View) moved(names []xds.Names) bool {
	switch {
	case v.policy.Policy == nil || v.groups == nil:
		return false
	case names == nil:
		return true
	}
	return v.wide.asks && !slices.Equal(v.groups.Groups(), v.seen)
}

// deny passes on why the client gets nothing. It never gets anything again.
func (v *View) deny(err error) error {
	v.denied = err
	if d, ok := err.(*Denied); ok { //nolint:errorlint // it is no other
		v.tell(d)
	}
	return err
}

func (v *View) tell(d *Denied) {
	if v.shared.o.Denied != nil {
		d.told = true
		v.shared.o.Denied(v.ctx, v.id, v.node, d)
	}
}

// Identity returns whose stream it is.
func (v *View) Identity() Identity { return v.id }

// Grant returns what it sees now, and whether it does not see all: there is a policy.
func (v *View) Grant() (g Grant, limited bool) { return v.grant, v.policy.Policy != nil }

// Groups returns the groups that the watch sees, nil if it does not say.
func (v *View) Groups() []string {
	if v.groups == nil {
		return nil
	}
	return v.groups.Groups()
}

// C implements [server.Watch].
func (v *View) C() <-chan struct{} { return v.of.C() }

// Interested implements [server.Watch]. A name that is not seen may be an alias of one that is, so
// it is passed on, too; a watch with a method Limit is told what is seen.
func (v *View) Interested(t *xds.Type, wildcard bool, added, removed []string) {
	v.of.Interested(t, wildcard, added, removed)
}

// Next implements [server.Watch]. Of the names that may differ some may be hidden.
func (v *View) Next() (xds.View, []xds.Names, error) {
	if v.denied != nil {
		return nil, nil, v.denied
	}
	view, names, err := v.of.Next() // takes back what rang: what is decided now, is decided after that
	if err == nil {
		err = v.decide()
	}
	if err != nil {
		return nil, names, err
	}
	if v.anew || v.moved(names) {
		was, anew := v.grant.Key(), v.anew
		if err := v.enter(); err != nil {
			return nil, names, err
		}
		if anew || v.grant.Key() != was {
			names = nil // other names may be hidden
		}
	}
	if view == nil || v.policy.Policy == nil {
		return view, names, nil
	}
	if u, ok := view.(xds.Undecided); ok {
		return &undecided{limited: limited{of: view, lenses: v.lenses}, of: u}, names, nil
	}
	return &limited{of: view, lenses: v.lenses}, names, nil
}

// Recent implements [server.HistoryWatch].
func (v *View) Recent(t *xds.Type) []*xds.Table {
	of, ok := v.of.(interface {
		Recent(t *xds.Type) []*xds.Table
	})
	if !ok || t == nil {
		return nil
	}
	tables := of.Recent(t)
	if v.policy.Policy == nil || len(tables) == 0 || v.grant.All(t) {
		return tables
	}
	return v.lenses.of(t).recent(tables)
}

// Close implements [server.Watch].
func (v *View) Close() {
	if v.closed {
		return
	}
	v.closed = true
	v.ringing.Store(nil)
	if v.timer != nil {
		v.timer.Stop()
	}
	v.of.Close()
	v.finish()
}

// finish lets go of what the view shares.
func (v *View) finish() {
	v.lenses.close()
	v.shared.mu.Lock()
	defer v.shared.mu.Unlock()
	delete(v.shared.views, v)
}
