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
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/cluster/rollout"
)

// toldMost is how many revisions that came at once are told one by one, the newest of them.
const maxRevisionEvents = 100

// An auditor tells who has changed a store, and what, since it began: as events, and in the log.
type auditor struct {
	repo    *revisions.Repository
	rollout func(ctx context.Context, id string) (*rollout.State, error)
	log     *slog.Logger
	note    func(api.Event)
	bell    chan struct{} // with one slot: the store may have changed

	began bool
	at    revisions.State // that was told
	holds map[string]revisions.Hold
}

// run tells until ctx is done. Nothing is lost while the store is away: the history says what came meanwhile.
func (a *auditor) run(ctx context.Context) {
	for {
		var again <-chan time.Time
		if a.look(ctx) != nil { // the source says why
			again = time.After(10 * time.Second)
		}
		select {
		case <-ctx.Done():
			return
		case <-a.bell:
		case <-again:
		}
	}
}

func (a *auditor) look(ctx context.Context) error {
	now, holds, err := a.repo.HoldsWithState(ctx)
	if err != nil || a.began && !now.AtLeast(a.at) {
		return err // a store that has gone back is not served
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

// held tells which groups are held otherwise than before, the first of them.
func (a *auditor) holdsChanged(ctx context.Context, now map[string]revisions.Hold) {
	told := 0
	for _, group := range slices.Sorted(maps.Keys(now)) {
		was, h := a.holds[group], now[group]
		if (holdText(was) != holdText(h) || !sameHold(was, h)) && told < maxRevisionEvents {
			told++
			a.noteHold(group, h.Number, holdText(h), a.changedBy(ctx, was, h))
		}
	}
	for _, group := range slices.Sorted(maps.Keys(a.holds)) {
		if _, is := now[group]; !is && told < maxRevisionEvents {
			told++
			var by revisions.Hold
			if freed, err := a.repo.Released(ctx); err == nil && freed[group].Number == a.holds[group].Number {
				by = freed[group]
			}
			a.noteHold(group, a.at.Number, "is not frozen any more", by)
		}
	}
}

// same reports whether the same froze a group at the same.
func sameHold(a, b revisions.Hold) bool {
	return a.Number == b.Number && a.Author == b.Author && a.Message == b.Message
}

// who has changed a hold, and why: who froze the group, or began a rollout, or wanted its step. The message says the rest.
func (a *auditor) changedBy(ctx context.Context, was, is revisions.Hold) (by revisions.Hold) {
	n := cmp.Or(is.Next, was.Next)
	if n == nil {
		return is
	}
	s, err := a.rollout(ctx, n.Rollout)
	done := err == nil && s.Phase == rollout.Done && is.Next == nil && is.Number == n.Number
	switch {
	case !sameHold(was, is) && !done:
		return is
	case err != nil:
	case done && s.By == "": // who began it had no part in that
		by.Message = "rollout " + s.ID + " is done: enough clients have accepted it, for its bake time"
	case was.Next == nil:
		by.Author, by.Message = s.Author, s.Message
	default: // who wanted it is told by itself
		by.Author, by.Message = s.By, strings.Replace(s.Why, " by "+s.By, "", 1)
	}
	return by
}

func (a *auditor) noteHold(group string, n revisions.Number, is string, by revisions.Hold) {
	text := "group " + group + " " + is
	switch {
	case by.Author != "":
		text = byText(text, by.Author, by.Message)
	case by.Message != "":
		text += ": " + by.Message
	}
	a.log.Info("frozen group changed", "group", group, "is", is, "author", by.Author, "message", by.Message)
	a.note(api.Event{Kind: "store", Version: n.String(), Author: by.Author, Message: by.Message, Text: text})
}

// holdText is what a hold says but who it is by; it differs if the hold is another one.
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

// byText says what was done, for whom and why.
func byText(what, author, message string) string {
	text := what + " by " + author
	if message != "" {
		text += ": " + message
	}
	return text
}

// refusedText is the event of a change that was not made.
func refusedText(what, author, message string, err error) api.Event {
	return api.Event{Kind: "store", Author: author, Message: message, Text: "refused: " + byText(what, author, message) + ": " + strings.Join(problemsOf(err), "; ")}
}

// sweptText is the event of a sweep of this server.
func sweptText(s revisions.Swept) api.Event {
	return api.Event{Kind: "store", Version: s.Oldest.String(), Removed: s.Revisions, Text: fmt.Sprintf("swept: %s is the oldest revision; %s of %s are gone", s.Oldest, cli.BytesText(int(s.Bytes)), cli.Amount(s.Packs, "pack"))}
}
