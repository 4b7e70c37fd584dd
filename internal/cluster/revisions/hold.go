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
	holdsMost   = 500 // groups that may be held at once
	messageMost = 500 // bytes of why, and of who: all holds are in the head
)

// A Hold says that a group is served as it is in a revision, whatever is committed after that: it is frozen.
// Commits to it are possible, and wait.
type Hold struct {
	Number  Number // the revision that the group is served of
	Author  string // who froze it
	Message string // why
	Time    time.Time
	Next    *Next // nil: all nodes of the group see the same

	id revisionID
}

// A Next is what some nodes of a held group see in the place of what is held, while a rollout is under way.
type Next struct {
	Number  Number // the revision that these are served of
	Rollout string // its ID. Which nodes are in a share of all depends on it, and on nothing that a server knows alone
	Step    int    // of it
	Pick    Pick

	id revisionID
}

// A Pick says which nodes: those of which one of these holds. The zero Pick is none.
type Pick struct {
	Percent float64           `json:"percent,omitempty"` // this share of the nodes, by the hash of their id; 100: all
	Labels  map[string]string `json:"labels,omitempty"`  // all of these are in the node's metadata
	Groups  []string          `json:"groups,omitempty"`  // the node gets one of these
}

// holdFormat is the format of a head with holds. Who does not know holds would serve what is held back: he is
// to refuse such a head, and does, since its format is another.
const holdFormat = 2

// A holdText is a Hold as it is stored.
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

// encodeHolds returns holds as they are stored.
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

// decodeHolds reads what encodeHolds wrote into a head.
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
			return fmt.Errorf("group %q is held at no revision that is kept: %w", group, ErrDamaged)
		}
		h.holds[group] = hold
	}
	return nil
}

// keeps reports whether a revision that is referred to is there, and sets its id.
func (h *head) keeps(n Number, sum string, id *revisionID) (ok bool) {
	id.hash, ok = parseHash(sum)
	return ok && n >= h.from && n <= h.at.number
}

// oldest returns the oldest revision that a group is held at; 0: none is.
func (h *head) oldest() (oldest Number) {
	for id := range h.held() {
		if oldest == 0 || id.number < oldest {
			oldest = id.number
		}
	}
	return oldest
}

// held yields the revisions that groups are held at, each at least once.
func (h *head) held() func(yield func(revisionID) bool) {
	return func(yield func(revisionID) bool) {
		for _, hold := range h.holds {
			if !yield(hold.id) || hold.Next != nil && !yield(hold.Next.id) {
				return
			}
		}
	}
}

// Holds returns which groups are held, by name.
func (r *Repository) Holds(ctx context.Context) (map[string]Hold, error) {
	_, holds, err := r.Holding(ctx)
	return holds, err
}

// Holding is as Holds, with the state that has them.
func (r *Repository) Holding(ctx context.Context) (State, map[string]Hold, error) {
	h, err := r.head(ctx)
	return State{h.at.number, h.turns}, maps.Clone(h.holds), err
}

// Holds returns which groups were held when the snapshot was the newest, by name. It must not be changed.
func (s *Snapshot) Holds() map[string]Hold { return s.head.holds }

// SetHolds lets edit change which groups are held, which it is given with the number of the newest revision, in one step:
// if somebody else has changed something meanwhile, edit is called again with that. Of what it sets,
// the numbers of revisions count; [ErrNotFound] says that one is not kept. A group that it deletes, or has at 0, is held no more: who is the author of
// that, and why, [Repository.Freed] says. An error of edit changes nothing. Any other error is as that of Commit.
func (r *Repository) SetHolds(ctx context.Context, edit func(newest Number, holds map[string]Hold) error) error {
	for {
		was, err := r.head(ctx)
		if err == nil && was.raw == nil {
			err = fmt.Errorf("a revision: %w yet", ErrNotFound)
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
		freed := was.let(holds)
		is, err := was.hold(holds, freed)
		if err != nil || bytes.Equal(is.raw, was.raw) {
			return err
		}
		err = r.engine.CompareAndSwap(ctx, headKey, was.raw, is.raw)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrConflict), refused(err):
		default: // the answer may be lost
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

// identify finds the revisions of holds that have a new number.
func (r *Repository) identify(ctx context.Context, h head, holds map[string]Hold) (err error) {
	if len(holds) > holdsMost {
		return fmt.Errorf("%d groups would be held, at most %d may be", len(holds), holdsMost)
	}
	for _, group := range slices.Sorted(maps.Keys(holds)) {
		hold := holds[group]
		if n := max(len(hold.Message), len(hold.Author)); n > messageMost {
			return fmt.Errorf("a message, or an author, of %d bytes: at most %d are allowed", n, messageMost)
		}
		if hold.id.number != hold.Number {
			if hold.id, err = r.find(ctx, h, hold.Number); err != nil {
				return err
			}
		}
		if n := hold.Next; n != nil && n.id.number != n.Number {
			next := *n
			if next.id, err = r.find(ctx, h, n.Number); err != nil {
				return err
			}
			hold.Next = &next
		}
		holds[group] = hold
	}
	return nil
}

// hold returns the head with other holds, and sets raw.
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
	if h.all["holds"] = is; len(holds) == 0 {
		delete(h.all, "holds")
	}
	if h.all[freedKey], err = json.Marshal(freed); err != nil {
		return h, err
	}
	if len(freed) == 0 {
		delete(h.all, freedKey)
	}
	h.holds, h.turns = holds, h.turns+1
	return h.next(h.at, h.from, h.swept)
}

// Serving is as Head, with what [Snapshot.Held] says. Watch yields such snapshots.
func (r *Repository) Serving(ctx context.Context) (*Snapshot, error) { return r.newest(ctx, true) }

// Held returns what a revision has that a group is held at; nil: none is.
func (s *Snapshot) Held(n Number) *Snapshot { return s.held[n] }

// hold reads the revisions that the groups of a snapshot are held at.
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
				return fmt.Errorf("%s, which a group is held at: %w", id.number, err)
			}
			s.held[id.number] = of
		}
	}
	r.held.Store(&s.held)
	return nil
}

// With returns a snapshot of the same revision in which the group as has what a group has in another snapshot, and
// more, and nothing else. It is for who serves it: a commit to it is one to the newest revision.
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
	with.head.raw = nil // a commit looks for the newest
	with.root, with.below = s.tree().apply(0, writes), nil
	return &with
}

// Holding returns a snapshot with the holds of another one: what is served if the newest revision cannot be, and holds have changed.
func (s *Snapshot) Holding(of *Snapshot) *Snapshot {
	is := *s
	is.head, is.held = head{holds: of.head.holds, turns: of.head.turns}, of.held
	return &is
}
