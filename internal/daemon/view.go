package daemon

import (
	"errors"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/clients"
	"github.com/chancery-xds/chancery/internal/admin/wiring"
	"github.com/chancery-xds/chancery/metrics"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
)

// A view holds the events and states that the admin API shows: of clients, and of loads.
type view struct {
	parts          *wiring.Parts
	tracker        *clients.Tracker // of parts; observes all clients, if the admin API is served or rollouts need it
	rejected       atomic.Pointer[api.Rejected]
	rejectedGroups atomic.Pointer[[]api.Rejected] // groups that keep their previous configuration after the last load
	lastCommit     uint64                         // the last commit with an event; owned by the loading goroutine
}

// standings returns the state of each client, for the metrics.
func (v *view) standings() iter.Seq[metrics.Standing] {
	return func(yield func(metrics.Standing) bool) {
		for c := range v.tracker.States() {
			if !yield(metrics.Standing{Group: firstGroup(c.Groups), State: strings.ToLower(string(c.State)), Stale: c.Stale}) {
				return
			}
		}
	}
}

// firstGroup returns the group of a node for a label of metrics: the first that the node gets.
func firstGroup(all []string) string {
	if len(all) == 0 {
		return store.DefaultGroup
	}
	return all[0]
}

// loaded records the result of a load.
func (v *view) loaded(at time.Time, err error, st *store.Store) {
	kept, partly := errors.AsType[dir.RejectedGroups](err)
	if err == nil || partly {
		v.rejected.Store(nil)
		v.rejectedGroups.Store(v.groupRejections(at, kept))
		v.tracker.GroupsChanged()
		v.committed(st)
		if partly {
			v.tracker.Note(api.Event{At: at, Kind: "reject", Count: len(kept), Text: wiring.Clipped(kept.Problems())})
		}
		return
	}
	r := &api.Rejected{Since: at, Errors: wiring.ProblemsOf(err)}
	before := v.rejected.Load()
	if before != nil {
		r.Since = before.Since
	}
	v.rejected.Store(r)
	if before == nil || !slices.Equal(before.Errors, r.Errors) {
		v.tracker.Note(api.Event{At: at, Kind: "reject", Count: len(r.Errors), Text: wiring.Clipped(r.Errors)})
	}
}

// groupRejections returns the groups that keep their previous configuration, with the reasons and
// times.
func (v *view) groupRejections(at time.Time, kept dir.RejectedGroups) *[]api.Rejected {
	var before, now []api.Rejected
	if previous := v.rejectedGroups.Load(); previous != nil {
		before = *previous
	}
	for _, g := range kept {
		r := api.Rejected{Group: g.Group, Since: at, Errors: wiring.ProblemsOf(g.Err)}
		if i := slices.IndexFunc(before, func(b api.Rejected) bool { return b.Group == g.Group }); i >= 0 {
			r.Since = before[i].Since
		}
		now = append(now, r)
	}
	return &now
}

// committed records an event for each commit since the last call.
func (v *view) committed(st *store.Store) {
	for _, c := range st.Log() {
		if c.Seq <= v.lastCommit || len(c.Changes) == 0 {
			continue
		}
		e := api.Event{At: c.Time, Kind: "commit", Version: strconv.FormatUint(c.Seq, 10)}
		if store.IsOverlay(c.Changes[0].Group) { // registered endpoints may cause a hundred commits a second
			continue
		}
		for _, ch := range c.Changes {
			e.Count += ch.Set
			e.Removed += ch.Removed
		}
		v.tracker.Note(e)
	}
	v.lastCommit = st.Snapshot().Seq()
}

// config returns the served configuration, for status.
func (v *view) config(st *store.Store, src *dir.Source) api.Config {
	c := wiring.FilesConfig(st, src)
	c.Rejected, c.Earlier = v.rejected.Load(), v.parts.Earlier()
	return c
}
