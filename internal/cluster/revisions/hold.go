package revisions

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	holdsMost   = 500 // maximum number of held groups
	messageMost = 500 // maximum bytes of a message and of an author; the head contains those of all holds
)

// A Hold freezes a group: servers serve the group from a fixed revision. Later commits may change the
// group, but are not served.
type Hold struct {
	Number  Number // the revision from which the group is served
	Author  string // the author of the freeze
	Message string // the reason
	Time    time.Time
	Next    *Next // the revision for some nodes during a rollout; nil: all nodes get Number

	id revisionID
}

// A Next is another revision of a held group, which some nodes get during a rollout.
type Next struct {
	Number  Number // the revision from which these nodes are served
	Rollout string // the ID of the rollout; with the node ID, it decides which nodes are in a percentage, so all servers agree
	Step    int    // the step of the rollout
	Pick    Pick

	id revisionID
}

// A Pick selects nodes: a node matches if one of the fields matches. The zero Pick matches no node.
type Pick struct {
	Percent float64           `json:"percent,omitempty"` // this share of the nodes, by the hash of their ID; 100: all
	Labels  map[string]string `json:"labels,omitempty"`  // the node's metadata has all of these labels
	Groups  []string          `json:"groups,omitempty"`  // the node gets one of these groups
}

// holdFormat is the format number of a head with holds. A release that does not know holds would
// serve frozen groups from the newest revision. Because of this number, it refuses such a head.
const holdFormat = 2

// A holdText is a stored Hold.
type holdText struct {
	Number   Number    `json:"number"`
	Revision string    `json:"revision"`
	Author   string    `json:"author,omitempty"`
	Message  string    `json:"message,omitempty"`
	Time     time.Time `json:"time"`
	Next     *nextText `json:"next,omitempty"`
}

type nextText struct {
	Number   Number `json:"number"`
	Revision string `json:"revision"`
	Rollout  string `json:"rollout"`
	Step     int    `json:"step,omitempty"`
	Pick     Pick   `json:"pick"`
}

// encodeHolds encodes holds for the head.
func encodeHolds(holds map[string]Hold) ([]byte, error) {
	all := make(map[string]holdText, len(holds))
	for group, h := range holds {
		t := holdText{h.Number, h.id.hash.String(), h.Author, h.Message, h.Time.UTC(), nil}
		if n := h.Next; n != nil {
			t.Next = &nextText{n.Number, n.id.hash.String(), n.Rollout, n.Step, n.Pick}
		}
		all[group] = t
	}
	return json.Marshal(all)
}

// decodeHolds decodes the holds of a head.
func (h *head) decodeHolds(all map[string]holdText) error {
	if len(all) == 0 {
		return nil
	}
	h.holds = make(map[string]Hold, len(all))
	for group, t := range all {
		hold := Hold{t.Number, t.Author, t.Message, t.Time, nil, revisionID{number: t.Number}}
		ok := h.keeps(t.Number, t.Revision, &hold.id)
		if n := t.Next; n != nil {
			hold.Next = &Next{n.Number, n.Rollout, n.Step, n.Pick, revisionID{number: n.Number}}
			ok = ok && h.keeps(n.Number, n.Revision, &hold.Next.id)
		}
		if !ok || group == "" {
			return fmt.Errorf("group %q is held at a revision that is not kept: %w", group, ErrDamaged)
		}
		h.holds[group] = hold
	}
	return nil
}

// keeps reports whether the revision of a hold is kept, and sets the revision's ID.
func (h *head) keeps(n Number, sum string, id *revisionID) (ok bool) {
	id.hash, ok = parseHash(sum)
	return ok && n >= h.from && n <= h.at.number
}

// oldest returns the oldest revision at which a group is held; 0: none.
func (h *head) oldest() (oldest Number) {
	for id := range h.held() {
		if oldest == 0 || id.number < oldest {
			oldest = id.number
		}
	}
	return oldest
}

// held yields the revisions at which groups are held, each at least once.
func (h *head) held() func(yield func(revisionID) bool) {
	return func(yield func(revisionID) bool) {
		for _, hold := range h.holds {
			if !yield(hold.id) || hold.Next != nil && !yield(hold.Next.id) {
				return
			}
		}
	}
}

// Holds returns the held groups, by name.
func (r *Repository) Holds(ctx context.Context) (map[string]Hold, error) {
	_, holds, err := r.HoldsWithState(ctx)
	return holds, err
}

// HoldsWithState is like Holds, and also returns the state of the repository.
func (r *Repository) HoldsWithState(ctx context.Context) (State, map[string]Hold, error) {
	h, err := r.head(ctx)
	return State{h.at.number, h.turns}, maps.Clone(h.holds), err
}

// Holds returns the groups that were held when the snapshot was the newest, by name. The caller must
// not change the map.
func (s *Snapshot) Holds() map[string]Hold { return s.head.holds }

// SetHolds changes the holds in one atomic step. It calls edit with the number of the newest revision
// and the current holds. If another writer changes the head in the meantime, it calls edit again with
// the new values.
//
// The edit sets the numbers of revisions; SetHolds finds these revisions. The error is [ErrNotFound]
// if one is not kept. A group that edit deletes, or sets to number 0, is released: then
// [Repository.Released] returns the author and the message. If edit returns an error, nothing
// changes. Any other error is like an error of Commit.
func (r *Repository) SetHolds(ctx context.Context, edit func(newest Number, holds map[string]Hold) error) error {
	for {
		was, err := r.head(ctx)
		if err == nil && was.at.number == 0 {
			err = fmt.Errorf("the store has no revision yet: %w", ErrNotFound)
		}
		if err != nil {
			return err
		}
		err = r.checkServers(ctx, was)
		if errors.Is(err, ErrConflict) {
			continue
		}
		if err != nil {
			return err
		}
		holds := maps.Clone(was.holds)
		if holds == nil {
			holds = map[string]Hold{}
		}
		if err := edit(was.at.number, holds); err != nil {
			return err
		}
		if err := r.identify(ctx, was, holds); err != nil {
			return err
		}
		freed := was.release(holds)
		is, err := was.hold(holds, freed)
		if err != nil || bytes.Equal(is.raw, was.raw) {
			return err
		}
		err = r.engine.CompareAndSwap(ctx, headKey, was.raw, is.raw)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrConflict), refused(err):
		default: // the swap may have succeeded without an answer
			now, e := r.head(context.WithoutCancel(ctx))
			switch {
			case e == nil && bytes.Equal(now.raw, is.raw):
				return nil
			case e != nil || bytes.Equal(now.raw, was.raw):
				return fmt.Errorf("%w: %w", ErrUnknown, err)
			}
			err = ErrConflict
		}
		if !errors.Is(err, ErrConflict) {
			return err
		}
	}
}

// identify finds the IDs of the revisions whose numbers edit has set.
func (r *Repository) identify(ctx context.Context, h head, holds map[string]Hold) (err error) {
	if len(holds) > holdsMost {
		return fmt.Errorf("%d groups to hold: at most %d are allowed", len(holds), holdsMost)
	}
	for _, group := range slices.Sorted(maps.Keys(holds)) {
		hold := holds[group]
		if n := max(len(hold.Message), len(hold.Author)); n > messageMost {
			return fmt.Errorf("a message or an author of %d bytes: at most %d are allowed", n, messageMost)
		}
		if hold.id.number != hold.Number {
			hold.id, err = r.find(ctx, h, hold.Number)
			if err != nil {
				return err
			}
		}
		if n := hold.Next; n != nil && n.id.number != n.Number {
			next := *n
			next.id, err = r.find(ctx, h, n.Number)
			if err != nil {
				return err
			}
			hold.Next = &next
		}
		holds[group] = hold
	}
	return nil
}

// hold returns the head with other holds, encoded.
func (h head) hold(holds map[string]Hold, freed map[string]freedText) (head, error) {
	was, err := encodeHolds(h.holds)
	if err != nil {
		return h, err
	}
	is, err := encodeHolds(holds)
	if err != nil || bytes.Equal(was, is) {
		return h, err
	}
	h.all = maps.Clone(h.all)
	h.all["holds"] = is
	if len(holds) == 0 {
		delete(h.all, "holds")
	}
	h.all[freedKey], err = json.Marshal(freed)
	if err != nil {
		return h, err
	}
	if len(freed) == 0 {
		delete(h.all, freedKey)
	}
	h.holds, h.turns = holds, h.turns+1
	return h.next(h.at, h.from, h.swept)
}

// Serving is like Head, but also reads the revisions that [Snapshot.Held] returns. Watch yields such
// snapshots.
func (r *Repository) Serving(ctx context.Context) (*Snapshot, error) { return r.newest(ctx, true) }

// Held returns revision n if a group is held at it; otherwise nil.
func (s *Snapshot) Held(n Number) *Snapshot { return s.held[n] }

// hold reads the revisions at which the groups of a snapshot are held.
func (r *Repository) hold(ctx context.Context, s *Snapshot) error {
	if len(s.head.holds) == 0 {
		r.held.Store(nil)
		return nil
	}
	var known map[Number]*Snapshot
	if all := r.held.Load(); all != nil {
		known = *all
	}
	s.held = map[Number]*Snapshot{}
	for id := range s.head.held() {
		switch of := known[id.number]; {
		case s.held[id.number] != nil:
		case of != nil && of.Revision.id == id:
			s.held[id.number] = of
		case id == s.Revision.id:
			s.held[id.number] = &Snapshot{Revision: s.Revision, root: s.root, below: s.below}
		default:
			of, err := r.read(ctx, id, r.loader(append(slices.Collect(maps.Values(s.held)), s)...))
			if err != nil {
				return fmt.Errorf("%s, at which a group is held: %w", id.number, err)
			}
			s.held[id.number] = of
		}
	}
	r.held.Store(&s.held)
	return nil
}

// With returns a copy of s with another content of the group `as`: the items of `group` in the
// snapshot `of`, and the items of more. The copy is for serving. A commit based on it is applied to
// the newest revision.
func (s *Snapshot) With(as string, of *Snapshot, group string, more ...*Item) *Snapshot {
	all := map[Key]write{}
	set := func(e *entry) {
		k := e.item.Key()
		all[k] = write{k.position(), k, e}
	}
	if as == group {
		differ(s.tree(), of.tree(), func(was, is *entry) bool {
			switch {
			case is != nil && is.item.Group == group:
				set(is)
			case is == nil && was.item.Group == group:
				k := was.item.Key()
				all[k] = write{at: was.at, key: k}
			}
			return true
		})
	} else {
		for it := range s.All {
			if k := it.Key(); k.Group == as {
				all[k] = write{at: k.position(), key: k}
			}
		}
		of.tree().walk(func(e *entry) bool {
			if e.item.Group == group {
				it := *e.item
				it.Group = as
				set(&entry{at: it.Key().position(), raw: e.raw, item: &it})
			}
			return true
		})
	}
	for _, it := range more {
		set(&entry{at: it.Key().position(), item: it})
	}
	writes := slices.SortedFunc(maps.Values(all), write.compare)
	with := *s
	with.head.raw = nil // a commit must first read the newest revision
	with.root, with.below = s.tree().apply(0, writes), nil
	return &with
}

// WithHoldsOf returns a copy of s with the holds of another snapshot. A server serves the copy if the
// holds have changed, but the newest revision cannot be served.
func (s *Snapshot) WithHoldsOf(of *Snapshot) *Snapshot {
	is := *s
	is.head, is.held = head{holds: of.head.holds, turns: of.head.turns}, of.held
	return &is
}
