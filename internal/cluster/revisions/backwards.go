package revisions

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// ErrBackwards means that the newest revision is older than one read before, or does not descend from
// it. Somebody has replaced the repository by a backup, or by another repository. Until the right
// repository is back, or is opened again, nothing is read or written. Otherwise commits to the wrong
// repository would be lost, and clients would silently return to an old configuration.
var ErrBackwards = errors.New("the repository was replaced by an older or different one")

// Observe sets the oldest revision that the repository may return: that of a snapshot which an
// earlier process has read from it ([FromSaved]).
func (r *Repository) Observe(s *Snapshot) { r.saw(head{at: s.Revision.id, turns: s.head.turns}) }

// saw records a head, unless a newer one was read meanwhile.
func (r *Repository) saw(h head) {
	for {
		was := r.seen.Load()
		if was != nil && (was.at == h.at && was.turns == h.turns || was.at.number > h.at.number || was.turns > h.turns) {
			return
		}
		if r.seen.CompareAndSwap(was, &h) {
			return
		}
	}
}

// follows returns [ErrBackwards] with the reason, unless the head `is` descends from the head `was`.
func (r *Repository) follows(ctx context.Context, was *head, is head) error {
	switch {
	case was == nil || was.at.number == 0:
		return nil
	case is.raw != nil && is.at.number == 0:
		return fmt.Errorf("%w: it has no revision, it was at %s", ErrBackwards, was.at.number)
	case is.at.number == 0:
		return fmt.Errorf("%w: the key %s is missing, it was at %s", ErrBackwards, headKey, was.at.number)
	case is.turns < was.turns:
		return fmt.Errorf("%w: its freezes have changed %d times, before that %d times", ErrBackwards, is.turns, was.turns)
	case is.turns == was.turns && was.raw != nil && !bytes.Equal(is.raw, was.raw) && !sameHolds(is, *was):
		return fmt.Errorf("%w: it has other freezes after as many changes, %d", ErrBackwards, is.turns)
	case is.at == was.at, was.at.number < is.from: // the ancestors are no longer kept, so this cannot be checked
		return nil
	}
	rev, err := r.revision(ctx, is.at)
	if err != nil {
		return fmt.Errorf("%s is %s: %w", headKey, is.at.number, missing(err))
	}
	when := rev.Time.UTC().Format(time.RFC3339)
	if is.at.number <= was.at.number {
		return fmt.Errorf("%w: from %s to another %s, of %s", ErrBackwards, was.at.number, is.at.number, when)
	}
	then := revisionID{is.at.number - 1, rev.parent}
	if then.number > was.at.number {
		then, err = r.find(ctx, is, was.at.number)
	}
	switch {
	case errors.Is(err, ErrNotFound): // a concurrent sweep may have removed it
		return nil
	case err != nil:
		return err
	case then != was.at:
		return fmt.Errorf("%w: to %s, of %s, whose ancestor %s is not the one read before", ErrBackwards, is.at.number, when, was.at.number)
	}
	return nil
}

// sameHolds reports whether two heads have equal holds.
func sameHolds(a, b head) bool {
	x, _ := json.Marshal(a.holds) // encoding cannot fail
	y, _ := json.Marshal(b.holds)
	return bytes.Equal(x, y)
}

// Replaced returns [ErrBackwards] if this program has read a later head, or a running server serves a later revision or
// later holds.
func (r *Repository) Replaced(ctx context.Context) error {
	for {
		h, err := r.head(ctx)
		if err == nil {
			err = r.checkServers(ctx, h)
		}
		if !errors.Is(err, ErrConflict) { // the head has not changed meanwhile
			return err
		}
	}
}

// ServerPrefix is the prefix of the keys under which servers announce themselves ([Announcer]). The values are
// JSON. Their field "revision" is the number of the served revision, "turns" how many times its holds have changed.
const ServerPrefix = "replica/"

// maxServers limits how many announcements are read.
const maxServers = 128

// checkServers returns [ErrBackwards] if a running server serves a later revision than the head, or later holds. Then
// the repository was replaced by a backup. A writer calls it before it changes the head. If the head has changed since
// it was read, the error is [ErrConflict].
func (r *Repository) checkServers(ctx context.Context, h head) error {
	e, ok := r.engine.(Announcer)
	if !ok {
		return nil
	}
	all, _, err := e.Announced(ctx, ServerPrefix, maxServers)
	if err != nil {
		return err
	}
	for key, value := range all {
		var about struct {
			Revision string `json:"revision"`
			Turns    int    `json:"turns"`
		}
		if json.Unmarshal(value, &about) != nil || about.Revision == "" {
			continue
		}
		n, err := ParseNumber(about.Revision)
		if err != nil || n <= h.at.number && about.Turns <= h.turns {
			continue
		}
		now, err := r.readHead(ctx)
		switch {
		case err != nil:
			return err
		case !bytes.Equal(now.raw, h.raw):
			return fmt.Errorf("%s: %w", headKey, ErrConflict)
		}
		if n <= h.at.number {
			return fmt.Errorf("%w: a running server (%s) serves freezes that have changed %d times, and those of the repository %d times", ErrBackwards, key, about.Turns, h.turns)
		}
		if h.at.number == 0 {
			return fmt.Errorf("%w: a running server (%s) serves %s, and the repository has no revision", ErrBackwards, key, n)
		}
		return fmt.Errorf("%w: a running server (%s) serves %s, and the newest revision is %s", ErrBackwards, key, n, h.at.number)
	}
	return nil
}
