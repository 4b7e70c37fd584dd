package daemon

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/wiring"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/cluster/rollout"
	textutil "github.com/chancery-xds/chancery/internal/text"
)

// maxRevisionEvents limits the events of one look: only the newest revisions have an event.
const maxRevisionEvents = 100

// An auditor records changes of a store since its start, with their authors, as events and in the log.
type auditor struct {
	repo    *revisions.Repository
	rollout func(ctx context.Context, id string) (*rollout.State, error)
	log     *slog.Logger
	note    func(api.Event)
	bell    chan struct{} // has one slot; a value: the store may have changed

	began bool
	at    revisions.State // the state up to which changes are recorded
	holds map[string]revisions.Hold
}

// run records changes until ctx is done. If the store was unreachable, run then finds the missed
// changes in the history.
func (a *auditor) run(ctx context.Context) {
	for {
		var retry <-chan time.Time
		if a.look(ctx) != nil { // the source has logged the error
			retry = time.After(10 * time.Second)
		}
		select {
		case <-ctx.Done():
			return
		case <-a.bell:
		case <-retry:
		}
	}
}

func (a *auditor) look(ctx context.Context) error {
	now, holds, err := a.repo.HoldsWithState(ctx)
	if err != nil || a.began && !now.AtLeast(a.at) {
		return err // the source does not serve a store that went back
	}
	if a.began {
		var all []revisions.Revision
		if now.Number > a.at.Number {
			err = a.repo.History(ctx, func(r revisions.Revision) bool {
				if r.Number > a.at.Number && r.Number <= now.Number {
					all = append(all, r)
				}
				return r.Number > a.at.Number+1 && len(all) < maxRevisionEvents
			})
		}
		if err != nil {
			return err
		}
		for _, r := range slices.Backward(all) {
			text := "by " + r.Author + ": " + r.Message
			if r.Restores > 0 {
				text += " (content of " + r.Restores.String() + ")"
			}
			a.log.Info("revision was committed", "revision", r.Number.String(), "author", r.Author, "message", r.Message, "set", r.Set, "removed", r.Removed)
			a.note(api.Event{At: r.Time, Kind: "store", Version: r.Number.String(), Count: r.Set, Removed: r.Removed, Author: r.Author, Message: r.Message, Text: text})
		}
		a.holdsChanged(ctx, holds)
	}
	a.began, a.at, a.holds = true, now, holds
	return nil
}

// holdsChanged records the groups that were frozen, changed or released, at most maxRevisionEvents of
// them.
func (a *auditor) holdsChanged(ctx context.Context, now map[string]revisions.Hold) {
	recorded := 0
	for _, group := range slices.Sorted(maps.Keys(now)) {
		before, h := a.holds[group], now[group]
		if (holdText(before) != holdText(h) || !sameHold(before, h)) && recorded < maxRevisionEvents {
			recorded++
			a.noteHold(group, h.Number, holdText(h), a.changedBy(ctx, before, h))
		}
	}
	for _, group := range slices.Sorted(maps.Keys(a.holds)) {
		if _, frozen := now[group]; !frozen && recorded < maxRevisionEvents {
			recorded++
			var by revisions.Hold
			if freed, err := a.repo.Released(ctx); err == nil && freed[group].Number == a.holds[group].Number {
				by = freed[group]
			}
			a.noteHold(group, a.at.Number, "is no longer frozen", by)
		}
	}
}

// sameHold reports whether two holds have the same revision, author and message.
func sameHold(a, b revisions.Hold) bool {
	return a.Number == b.Number && a.Author == b.Author && a.Message == b.Message
}

// changedBy returns the author and the reason of a hold's change: those of the freeze, of the
// rollout, or of the rollout's step.
func (a *auditor) changedBy(ctx context.Context, before, after revisions.Hold) (by revisions.Hold) {
	n := cmp.Or(after.Next, before.Next)
	if n == nil {
		return after
	}
	s, err := a.rollout(ctx, n.Rollout)
	done := err == nil && s.Phase == rollout.Done && after.Next == nil && after.Number == n.Number
	switch {
	case !sameHold(before, after) && !done:
		return after
	case err != nil:
	case done && s.By == "": // the rollout ended without an author's action
		by.Message = "rollout " + s.ID + " is done: enough clients have accepted it, for its bake time"
	case before.Next == nil:
		by.Author, by.Message = s.Author, s.Message
	default: // remove the author from the reason, because the author has a field
		by.Author, by.Message = s.By, strings.Replace(s.Why, " by "+s.By, "", 1)
	}
	return by
}

// noteHold records the change of a hold.
func (a *auditor) noteHold(group string, n revisions.Number, state string, by revisions.Hold) {
	text := "group " + group + " " + state
	switch {
	case by.Author != "":
		text = byText(text, by.Author, by.Message)
	case by.Message != "":
		text += ": " + by.Message
	}
	a.log.Info("frozen group changed", "group", group, "is", state, "author", by.Author, "message", by.Message)
	a.note(api.Event{Kind: "store", Version: n.String(), Author: by.Author, Message: by.Message, Text: text})
}

// holdText describes the revision and the rollout of a hold, without its author.
func holdText(h revisions.Hold) string {
	if h.Number == 0 {
		return ""
	}
	text := "is frozen at " + h.Number.String()
	if n := h.Next; n != nil {
		text += fmt.Sprintf(", rollout %s to %s at step %d", n.Rollout, n.Number, n.Step+1)
	}
	return text
}

// byText describes a change, with its author and reason.
func byText(what, author, message string) string {
	text := what + " by " + author
	if message != "" {
		text += ": " + message
	}
	return text
}

// refusedText returns the event of a refused change.
func refusedText(what, author, message string, err error) api.Event {
	return api.Event{Kind: "store", Author: author, Message: message, Text: "refused: " + byText(what, author, message) + ": " + strings.Join(wiring.ProblemsOf(err), "; ")}
}

// sweptText returns the event of a sweep by this server.
func sweptText(s revisions.Swept) api.Event {
	return api.Event{Kind: "store", Version: s.Oldest.String(), Removed: s.Revisions, Text: fmt.Sprintf("swept: %s is the oldest revision; removed %s in %s", s.Oldest, cli.BytesText(int(s.Bytes)), textutil.Amount(s.Packs, "pack"))}
}
