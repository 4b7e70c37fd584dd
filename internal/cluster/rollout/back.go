package rollout

import (
	"context"
	"slices"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// Back returns the rollouts that were taken back by themselves and of which nobody has taken notice since: a group of theirs
// is frozen as it was then, nothing was committed to it, and no other rollout of it has begun. The newest comes first.
// They are those of the state that is served, more or less. It may be called by anyone at any time.
func (r *Runner) Back() []*State {
	if all := r.back.Load(); all != nil {
		return *all
	}
	return nil
}

// backs are what is known of these. It is used by the goroutine of Run alone.
type backs struct {
	seen revisions.State     // at which they were looked for
	head *revisions.Snapshot // what was the newest then; nil: there are none
}

// lookBack finds them when something else is served. While the store does not answer, which the source says, it is tried again.
func (d *driver) lookBack(ctx context.Context) {
	d.mu.Lock()
	is := d.state
	d.mu.Unlock()
	known := d.Back()
	anew := d.backs.seen.Number == 0 || is.Turns != d.backs.seen.Turns
	switch {
	case is.Number == 0 || is == d.backs.seen:
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
	later := map[string]bool{} // groups of which a later one is known
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
			if head, err = d.repo.Head(ctx); err != nil {
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
		was := d.backs.head
		if anew || was == nil { // all after what a group is frozen at is kept
			if was, err = d.repo.At(ctx, max(s.Newest, s.Number)); err != nil {
				return
			}
		}
		if slices.ContainsFunc(mine, func(g string) bool { differs, _ := difference(was, head, g); return !differs }) {
			back = append(back, s)
		}
	}
	if d.backs = (backs{is, head}); back == nil {
		d.backs.head = nil
	}
	d.back.Store(&back)
}
