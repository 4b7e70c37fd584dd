package access

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/chancery-xds/chancery/internal/tablecache"
	"github.com/chancery-xds/chancery/xds"
)

// A View is the watch of one stream, limited to the resources that the stream may see. It implements
// [server.Watch] and [server.HistoryWatch], and like these it belongs to the goroutine of the stream.
type View struct {
	shared *shared
	ctx    context.Context
	node   *xds.Node
	id     Identity

	of      Watch
	groups  groupedWatch           // the watch of, if it has groups; nil: the groups are unknown
	ringing atomic.Pointer[ringer] // the watch of as a ringer, once other goroutines may call it
	timer   *time.Timer            // checks for the expiry of the identity
	end     time.Time              // when the stream must end; zero: never

	policy       *policy  // the policy that decided
	beforeGroups Grant    // by the policy, before groups
	groupNames   []string // groups that grant is for
	grant        Grant    // zero: there is no policy
	recompute    bool     // the policy is new, and grant is not yet computed again
	denied       error    // the view shows nothing any more
	lenses       *lenses  // nil: there is no policy
	closed       bool
}

// A groupedWatch returns the groups that it sees, as a [store.Watch] does.
type groupedWatch interface{ Groups() []string }

// A ringer makes its channel C ring from another goroutine, as a [store.Watch] does.
type ringer interface{ Ring() }

// spread is the period over which streams end if their identities expire at the same time.
const spread = time.Minute

// begin registers the view for new policies, and sets when it must end.
//
// A view ends a little before its identity expires: at a random time within the last tenth of the
// remaining time, but at most a minute before. If less than a minute remains, the view ends when the
// identity expires: otherwise a client without a newer identity would reconnect again and again.
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

// watch makes the view ring for new policies and for the expiry of the identity.
func (v *View) watch() {
	r, ok := v.of.(ringer)
	if !ok {
		return
	}
	v.ringing.Store(&r)
	if !v.end.IsZero() {
		v.timer = time.AfterFunc(time.Hour, v.expires) // v.timer must be set before expires can run
		v.timer.Reset(v.nextCheck())
	}
	if v.shared.inForce() != v.policy { // the policy changed before the view could ring
		r.Ring()
	}
}

// Ring makes the view's channel C ring; any goroutine may call it. Use it when the visible resources
// change for a reason outside of the source.
func (v *View) Ring() { v.ring() }

// nextCheck returns how long to wait before the next check of the clock. Timers do not follow the wall
// clock: it may be set, and timers stop while a machine sleeps.
func (v *View) nextCheck() time.Duration { return min(v.end.Sub(v.shared.o.Now()), spread) }

// expires rings when the identity has expired. The timer calls it; Close may stop the timer at the
// same time.
func (v *View) expires() {
	r := v.ringing.Load()
	if r == nil {
		return
	}
	soon := v.nextCheck()
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

// decide asks the present policy if it is new, and denies an expired identity.
func (v *View) decide() error {
	if !v.end.IsZero() && !v.shared.o.Now().Before(v.end) {
		return v.deny(&Denied{Reason: v.id.called() + " has expired, or is about to", Unauthenticated: true})
	}
	p := v.shared.inForce()
	if p == v.policy {
		return nil
	}
	v.policy, v.recompute = p, true
	if p.Policy == nil {
		v.beforeGroups, v.grant = Grant{}, Grant{}
		return nil
	}
	var err error
	v.beforeGroups, err = p.Decide(v.id, v.node)
	if err != nil {
		return v.deny(err)
	}
	v.grant = Grant{}
	return nil
}

// enter computes the grant for the groups that the watch sees now.
func (v *View) enter() error {
	v.recompute = false
	if v.policy.Policy == nil {
		v.lenses.close()
		v.lenses = nil
		v.limit(nil)
		return nil
	}
	v.groupNames = v.Groups()
	of := slices.Clone(v.groupNames)
	for i, group := range of {
		if v.shared.o.Group != nil {
			of[i] = v.shared.o.Group(group)
		}
	}
	g, err := v.beforeGroups.In(of)
	if err != nil {
		return v.deny(err)
	}
	v.lenses.close()
	v.grant, v.lenses = g, &lenses{shared: v.shared, groups: tablecache.Key(v.groupNames), grant: g}
	v.limit(g.some)
	return nil
}

// limit passes the visible names to a watch with a method Limit; nil: all.
func (v *View) limit(sees func(t *xds.Type, name string) bool) {
	if l, ok := v.of.(interface {
		Limit(sees func(t *xds.Type, name string) bool)
	}); ok {
		l.Limit(sees)
	}
}

// groupsChanged reports whether the watch may see other groups than before.
func (v *View) groupsChanged(names []xds.Names) bool {
	switch {
	case v.policy.Policy == nil || v.groups == nil:
		return false
	case names == nil:
		return true
	}
	return v.beforeGroups.needsGroups && !slices.Equal(v.groups.Groups(), v.groupNames)
}

// deny reports the denial. The view shows nothing from then on.
func (v *View) deny(err error) error {
	v.denied = err
	if d, ok := err.(*Denied); ok { //nolint:errorlint // a Denied is never wrapped here
		v.report(d)
	}
	return err
}

func (v *View) report(d *Denied) {
	if v.shared.o.Denied != nil {
		d.reported = true
		v.shared.o.Denied(v.ctx, v.id, v.node, d)
	}
}

// Identity returns the identity of the client.
func (v *View) Identity() Identity { return v.id }

// Grant returns the present grant; limited is false if there is no policy.
func (v *View) Grant() (g Grant, limited bool) { return v.grant, v.policy.Policy != nil }

// Groups returns the groups that the watch sees; nil if they are unknown.
func (v *View) Groups() []string {
	if v.groups == nil {
		return nil
	}
	return v.groups.Groups()
}

// C implements [server.Watch].
func (v *View) C() <-chan struct{} { return v.of.C() }

// Interested implements [server.Watch]. An invisible name may be an alias of a visible resource, so
// Interested passes all names to the watch. A watch with a method Limit knows the visible names.
func (v *View) Interested(t *xds.Type, wildcard bool, added, removed []string) {
	v.of.Interested(t, wildcard, added, removed)
}

// Next implements [server.Watch]. Some of the returned names may be invisible.
func (v *View) Next() (xds.View, []xds.Names, error) {
	if v.denied != nil {
		return nil, nil, v.denied
	}
	view, names, err := v.of.Next() // resets C, so a policy set after this rings again
	if err == nil {
		err = v.decide()
	}
	if err != nil {
		return nil, names, err
	}
	if v.recompute || v.groupsChanged(names) {
		was, anew := v.grant.Key(), v.recompute
		if err := v.enter(); err != nil {
			return nil, names, err
		}
		if anew || v.grant.Key() != was {
			names = nil // any name may be visible or hidden now
		}
	}
	if view == nil || v.policy.Policy == nil {
		return view, names, nil
	}
	if u, ok := view.(xds.Undecided); ok {
		return &undecidedView{limitedView: limitedView{of: view, lenses: v.lenses}, of: u}, names, nil
	}
	return &limitedView{of: view, lenses: v.lenses}, names, nil
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

// finish releases the shared state of the view.
func (v *View) finish() {
	v.lenses.close()
	v.shared.mu.Lock()
	defer v.shared.mu.Unlock()
	delete(v.shared.views, v)
}
