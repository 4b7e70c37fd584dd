package daemon

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisionapi"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/cluster/rollout"
	textutil "github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/xds"
)

// frozenTimeout is the time for which an explanation waits for revisions and rollouts of the store.
const frozenTimeout = 2 * time.Second

// frozenForExplain returns a function that describes a committed resource that is not served because
// its group is frozen. The function prefers the given groups. frozenForExplain returns nil without a
// store.
func frozenForExplain(s source) func(names []string, t *xds.Type, name string) (text, advice string) {
	d, ok := s.(*storeSource)
	if !ok {
		return nil
	}
	return func(names []string, t *xds.Type, name string) (text, advice string) {
		holds := d.repo.Holds()
		if len(holds) == 0 {
			return "", ""
		}
		ctx, cancel := context.WithTimeout(context.Background(), frozenTimeout)
		defer cancel()
		newest, err := d.repo.Repository().Head(ctx)
		if err != nil {
			return "", ""
		}
		for _, group := range append(slices.Clone(names), slices.Sorted(maps.Keys(holds))...) {
			h, is := holds[group]
			if !is {
				continue
			}
			f := frozenResource{group: group, hold: h, newest: newest.Revision.Number}
			key := revisions.Key{Group: group, Type: t.URL, Name: name}
			if h.Next != nil {
				if next, err := d.repo.Repository().At(ctx, h.Next.Number); err == nil && next.Get(key) != nil {
					f.in = h.Next.Number
				}
			}
			if f.in == 0 && newest.Get(key) == nil {
				continue
			}
			f.rollout, _ = d.rollouts.Newest(ctx, group) // without an answer, the text does not mention the rollout
			return f.explain()
		}
		return "", ""
	}
}

// takenBackOf returns [admin.Server.TakenBack]; nil without a store.
func takenBackOf(s source) func(ctx context.Context, group string) (text, advice string) {
	d, ok := s.(*storeSource)
	if !ok {
		return nil
	}
	return func(ctx context.Context, group string) (text, advice string) {
		ctx, cancel := context.WithTimeout(ctx, frozenTimeout)
		defer cancel()
		newest, err := d.repo.Repository().Newest(ctx)
		if err != nil {
			return "", ""
		}
		last, _ := d.rollouts.Newest(ctx, group)
		if !isTakenBack(last, group, d.repo.Holds()[group]) {
			return "", ""
		}
		return takenBack(last, group, newest.Number)
	}
}

// isTakenBack reports whether a rollout took a group back to the revision at which the group is frozen.
func isTakenBack(s *rollout.State, group string, h revisions.Hold) bool {
	return s != nil && (s.Phase == rollout.RolledBack || s.Phase == rollout.Aborted) && s.From[group] == h.Number
}

// takenBack describes the end of a rollout that took a group back: who, when and why. The advice never serves
// the revision that was taken back.
func takenBack(s *rollout.State, group string, newest revisions.Number) (text, advice string) {
	text = fmt.Sprintf("rollout %s to %s was %s %s ago", s.ID, s.Number, s.Phase, textutil.Since(s.Since))
	if s.By != "" {
		text += " by " + s.By
	}
	if s.Why != "" {
		text += ": " + textutil.Head(s.Why, 500)
	}
	advice = "correct the cause, commit the correction (chancery apply), and start a rollout of the new revision"
	if newest > max(s.Newest, s.Number) {
		advice = fmt.Sprintf("if a later commit corrects the cause: chancery rollout start %s --of %s", newest, group)
	}
	return text, advice + fmt.Sprintf("; chancery rollout status %s shows details", s.ID)
}

// A frozenResource is a resource that a group does not have in the revision at which the group is frozen.
type frozenResource struct {
	group   string
	hold    revisions.Hold
	newest  revisions.Number
	in      revisions.Number // the revision of the active rollout, if it has the resource; else 0
	rollout *rollout.State   // the newest rollout of the group; nil: none, or unknown
}

// explain returns a text and the advice. The advice never serves a revision that a rollout took back.
func (f frozenResource) explain() (text, advice string) {
	text = fmt.Sprintf("revision %s has it, but group %q is frozen at %s", cmp.Or(f.in, f.newest), f.group, f.hold.Number)
	s, next := f.rollout, f.hold.Next
	switch {
	case isTakenBack(s, f.group, f.hold):
		why, advice := takenBack(s, f.group, f.newest)
		return text + ": " + why, advice
	case next == nil:
		return text + revisionapi.HeldBy(revisionapi.Hold(f.group, f.hold)), revisionapi.ServeAdvice(f.group, f.newest.String())
	case f.in == 0:
		text += fmt.Sprintf(", and rollout %s takes the group to %s only", next.Rollout, next.Number)
	default:
		of := ""
		if s != nil && s.ID == next.Rollout {
			of = fmt.Sprintf(" of %d", len(s.Steps))
		}
		text += fmt.Sprintf(": rollout %s has not picked this node yet (step %d%s)", next.Rollout, next.Step+1, of)
	}
	return text, fmt.Sprintf("chancery rollout status %s shows the progress of the rollout", next.Rollout)
}
