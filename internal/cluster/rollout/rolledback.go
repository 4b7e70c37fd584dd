package rollout

import (
	"context"
	"slices"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// RolledBack returns the rollouts that were rolled back automatically and still need attention. One
// of their groups is still frozen at its old revision, has had no commit since, and is not in a later
// rollout. The newest rollout comes first. The result may be slightly older than the served state.
// Any goroutine may call it.
func (r *Runner) RolledBack() []*State {
	if all := r.back.Load(); all != nil {
		return *all
	}
	return nil
}

// Newest returns the newest rollout of a group in the store; nil if the group had none. Any goroutine
// may call it.
func (r *Runner) Newest(ctx context.Context, group string) (*State, error) {
	all, err := All(ctx, r.engine)
	for _, s := range all {
		if _, is := s.From[group]; is {
			return s, nil
		}
	}
	return nil, err
}

// A rolledBack is the state that the last call of findRolledBack has examined. The goroutine of Run
// owns it.
type rolledBack struct {
	seen revisions.State     // the served state at that time
	head *revisions.Snapshot // the newest revision at that time; nil: no rollout needs attention
}

// findRolledBack finds the rollouts for RolledBack when another state is served. If the store does
// not answer, the next call tries again; the source logs the error.
func (d *driver) findRolledBack(ctx context.Context) {
	d.mu.Lock()
	is := d.state
	d.mu.Unlock()
	known := d.RolledBack()
	anew := d.found.seen.Number == 0 || is.Turns != d.found.seen.Turns
	switch {
	case is.Number == 0 || is == d.found.seen:
		return
	case anew:
		all, err := All(ctx, d.engine)
		if err != nil && all == nil {
			return
		}
		known = all
	}
	var back []*State
	var head *revisions.Snapshot
	later := map[string]bool{} // groups in a later rollout of the list
	for _, s := range known {
		mine := slices.DeleteFunc(s.Groups(), func(g string) bool { return later[g] })
		for _, g := range mine {
			later[g] = true
		}
		if s.Phase != RolledBack || len(mine) == 0 {
			continue
		}
		var err error
		if head == nil {
			head, err = d.repo.Head(ctx)
			if err != nil {
				return
			}
		}
		mine = slices.DeleteFunc(mine, func(g string) bool {
			h, is := head.Holds()[g]
			return !is || h.Next != nil || h.Number != s.From[g]
		})
		if len(mine) == 0 {
			continue
		}
		was := d.found.head
		if anew || was == nil { // these revisions are kept, because a group is frozen at an earlier one
			was, err = d.repo.At(ctx, max(s.Newest, s.Number))
			if err != nil {
				return
			}
		}
		if slices.ContainsFunc(mine, func(g string) bool { differs, _ := difference(was, head, g); return !differs }) {
			back = append(back, s)
		}
	}
	d.found = (rolledBack{is, head})
	if back == nil {
		d.found.head = nil
	}
	d.back.Store(&back)
}
