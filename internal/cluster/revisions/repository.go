package revisions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A Repository is a configuration with its history in an engine. Several goroutines may call its
// methods at once, and several programs may use the same engine. It verifies everything that it
// reads: it returns a whole revision, or an error. It never returns an older revision than before
// ([ErrBackwards]).
type Repository struct {
	engine  Engine
	opts    Options
	last    atomic.Pointer[Snapshot]             // the last snapshot that was read: later ones share its pages
	held    atomic.Pointer[map[Number]*Snapshot] // the revisions at which groups are held, as Serving last read them; nil: none
	seen    atomic.Pointer[head]                 // the newest head whose revision was read; nil: none
	checked atomic.Bool                          // checkHistory has found no fault: the list of all revisions is too slow for each read
	look    chan struct{}                        // has one slot; a value: Watch must look at once
}

// Options configure a repository. The zero value works.
type Options struct {
	// Prepare is called once with each resource that is read or committed, before any other use. It may
	// set Refs, and nothing else. Several goroutines may call it at once.
	Prepare func(*xds.Resource)

	// Poll is the interval at which Watch looks for a newer revision without a hint of the engine. 0:
	// 10 s.
	Poll time.Duration

	// Retry is the first delay of Watch after an error. It doubles up to 16 times the first. 0: 250
	// ms.
	Retry time.Duration

	// Now is the clock. nil: time.Now.
	Now func() time.Time
}

// Open returns the repository in an engine. It reads nothing.
func Open(e Engine, opts Options) *Repository {
	opts.Poll = cmp.Or(opts.Poll, 10*time.Second)
	opts.Retry = cmp.Or(opts.Retry, 250*time.Millisecond)
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Repository{engine: e, opts: opts, look: make(chan struct{}, 1)}
}

// tries is the maximum number of repeated reads of a revision that a concurrent sweep has removed.
const tries = 5

// Head returns the revision that was the newest at some time after the call began. In a repository
// without revisions, the snapshot is empty and its number is 0.
func (r *Repository) Head(ctx context.Context) (*Snapshot, error) { return r.newest(ctx, false) }

// newest returns the newest revision. If held is true, it also reads the revisions at which groups
// are held.
func (r *Repository) newest(ctx context.Context, held bool) (*Snapshot, error) {
	for i := 1; ; i++ {
		h, err := r.head(ctx)
		if err != nil {
			return nil, err
		}
		s, err := r.load(ctx, h)
		if err == nil && held {
			err = r.hold(ctx, s)
		}
		if err == nil {
			r.saw(h)
			return s, nil
		}
		// The head may have changed since, and a sweep may have removed this revision.
		if now, e := r.head(ctx); !errors.Is(err, ErrNotFound) || e != nil || now.at == h.at && now.turns == h.turns || i == tries {
			return nil, fmt.Errorf("%s is %s: %w", headKey, h.at.number, missing(err))
		}
	}
}

// A State identifies a state of a repository, for comparison. Both of its numbers only grow.
type State struct {
	Number Number // of the newest revision; 0: there is none
	Turns  int    // how many times [Repository.SetHolds] has changed the holds
}

// AtLeast reports whether s is the same state as o, or a later one.
func (s State) AtLeast(o State) bool { return s.Number >= o.Number && s.Turns >= o.Turns }

// State returns the state in which the snapshot was the newest revision. A snapshot of [FromSaved]
// has the zero State, because a part of it may be missing.
func (s *Snapshot) State() State {
	if s.saved {
		return State{}
	}
	return State{s.Revision.Number, s.head.turns}
}

// Newest returns the state of the head, without the content. It was current at some time after the
// call began.
func (r *Repository) Newest(ctx context.Context) (State, error) {
	h, err := r.head(ctx)
	return State{h.at.number, h.turns}, err
}

// Refresh makes one of the running calls of Watch look for a newer revision at once.
func (r *Repository) Refresh() {
	select {
	case r.look <- struct{}{}:
	default:
	}
}

// missing turns ErrNotFound about a value that must exist into ErrDamaged.
func missing(err error) error {
	if errors.Is(err, ErrNotFound) {
		return fmt.Errorf("%w: %v", ErrDamaged, err) //nolint:errorlint // the caller must not take it for ErrNotFound of its own request
	}
	return err
}

// kept is like missing for an error about revision n. The error stays ErrNotFound if a sweep has removed the revision
// since.
func (r *Repository) kept(ctx context.Context, n Number, err error) error {
	if !errors.Is(err, ErrNotFound) {
		return err
	}
	if now, e := r.head(ctx); e == nil && now.from > n {
		return err
	}
	return missing(err)
}

// head reads the head. In a repository without revisions, the head has the number 0.
func (r *Repository) head(ctx context.Context) (h head, err error) {
	seen := r.seen.Load() // before the request, because of two concurrent requests one may get an older answer
	h, err = r.readHead(ctx)
	if err != nil {
		return head{}, err
	}
	if !r.checked.Load() {
		if err := r.checkHistory(ctx, h); err != nil {
			return head{}, err
		}
		r.checked.Store(true)
	}
	if err := r.follows(ctx, seen, h); err != nil {
		return head{}, err
	}
	if h.at.number == 0 { // all keys may be lost (SAFE-15)
		err = r.checkServers(ctx, h)
		if errors.Is(err, ErrConflict) {
			return r.head(ctx) // the first commit has just ended
		}
		if err != nil {
			return head{}, err
		}
	}
	return h, nil
}

// load returns the snapshot of a head.
func (r *Repository) load(ctx context.Context, h head) (*Snapshot, error) {
	if h.at.number == 0 {
		return &Snapshot{head: h}, nil
	}
	last := r.last.Load()
	if last != nil && last.Revision.id == h.at {
		s := *last
		s.head = h
		return &s, nil
	}
	s, err := r.read(ctx, h.at, r.loader(last))
	if err != nil {
		return nil, err
	}
	s.head = h
	r.last.Store(s)
	return s, nil
}

// read returns the snapshot of a revision.
func (r *Repository) read(ctx context.Context, id revisionID, l *loader) (*Snapshot, error) {
	rev, err := r.revision(ctx, id)
	if err != nil {
		return nil, err
	}
	root, below, err := l.tree(ctx, rev.root)
	if err != nil {
		return nil, err
	}
	if root.items != rev.Items {
		return nil, fmt.Errorf("%s: its tree has %d items, its record %d: %w", id.key(), root.items, rev.Items, ErrDamaged)
	}
	return &Snapshot{Revision: *rev, root: root.canonical(), below: below}, nil
}

func (r *Repository) revision(ctx context.Context, id revisionID) (*Revision, error) {
	b, err := r.engine.Get(ctx, id.key())
	if err != nil {
		return nil, err
	}
	rev, err := decodeRevision(id, b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", id.key(), err)
	}
	return rev, nil
}

// At returns a revision by its number. The error is [ErrNotFound] if the revision is no longer kept,
// or does not exist yet.
func (r *Repository) At(ctx context.Context, n Number) (*Snapshot, error) {
	h, err := r.head(ctx)
	if err != nil {
		return nil, err
	}
	id, err := r.find(ctx, h, n)
	if err != nil {
		return nil, err
	}
	s, err := r.read(ctx, id, r.loader(r.last.Load()))
	return s, r.kept(ctx, n, err)
}

// Revision is like At, but does not read the content.
func (r *Repository) Revision(ctx context.Context, n Number) (*Revision, error) {
	h, err := r.head(ctx)
	if err != nil {
		return nil, err
	}
	id, err := r.find(ctx, h, n)
	if err != nil {
		return nil, err
	}
	rev, err := r.revision(ctx, id)
	return rev, r.kept(ctx, n, err)
}

// find returns the ID of the revision with the number n among the ancestors of the head.
func (r *Repository) find(ctx context.Context, h head, n Number) (revisionID, error) {
	switch {
	case h.at.number == 0:
		return revisionID{}, fmt.Errorf("revision %s: %w: the store has no revision yet", n, ErrNotFound)
	case n > h.at.number:
		return revisionID{}, fmt.Errorf("revision %s: %w: the newest is %s", n, ErrNotFound, h.at.number)
	case n < h.from || n == 0:
		return revisionID{}, fmt.Errorf("revision %s: %w: the oldest kept is %s", n, ErrNotFound, h.from)
	}
	if n == h.at.number {
		return h.at, nil
	}
	// Several writers may have stored a revision with this number, but only one of these revisions
	// was committed. The parents of a later revision identify it.
	for at := n; ; at++ {
		found := []revisionID{h.at}
		if at < h.at.number {
			found = nil
			for key, err := range r.engine.List(ctx, numberPrefix(at)) {
				if err != nil {
					return revisionID{}, err
				}
				if id, ok := parseRevisionKey(key); ok {
					found = append(found, id)
				}
			}
		}
		if len(found) == 0 {
			return revisionID{}, r.kept(ctx, n, fmt.Errorf("%s…: %w", numberPrefix(at), ErrNotFound))
		}
		if len(found) > 1 {
			continue
		}
		id := found[0]
		for id.number > n {
			rev, err := r.revision(ctx, id)
			if err != nil {
				return id, r.kept(ctx, n, err)
			}
			id = revisionID{id.number - 1, rev.parent}
		}
		return id, nil
	}
}

// History calls yield with the kept revisions, the newest first, until yield returns false.
func (r *Repository) History(ctx context.Context, yield func(Revision) bool) error {
	h, err := r.head(ctx)
	if err != nil {
		return err
	}
	for id := h.at; id.number > 0 && id.number >= h.from; {
		rev, err := r.revision(ctx, id)
		if err != nil {
			err = r.kept(ctx, id.number, err)
			if errors.Is(err, ErrNotFound) {
				return nil // a sweep has just removed it
			}
			return err
		}
		if !yield(*rev) {
			return nil
		}
		id = revisionID{id.number - 1, rev.parent}
	}
	return nil
}

// A Snapshot is the whole content of one revision. It is immutable. The zero value is empty.
type Snapshot struct {
	Revision Revision // the number is 0 before the first revision

	root  *node
	below map[*node]*place // the places of the manifests of the tree
	head  head             // the head when the snapshot was the newest; zero: the snapshot was not
	held  map[Number]*Snapshot
	saved bool // made by [FromSaved]
}

// Len returns the number of items.
func (s *Snapshot) Len() int { return s.tree().items }

// tree returns the root.
func (s *Snapshot) tree() *node {
	if s.root == nil {
		return build(0, nil)
	}
	return s.root
}

// Get returns an item, or nil.
func (s *Snapshot) Get(k Key) *Item {
	if e := s.tree().get(k); e != nil {
		return e.item
	}
	return nil
}

// All yields all items. Their order depends only on the keys, but it is not the order of Compare.
func (s *Snapshot) All(yield func(*Item) bool) {
	s.tree().walk(func(e *entry) bool { return yield(e.item) })
}

// Since calls f with each item that differs from another snapshot, until f returns false. A new item
// has a nil `was`, and a removed item has a nil `is`. The cost grows with the number of differences.
// An item that only moved to another place in the files does not differ.
func (s *Snapshot) Since(old *Snapshot, f func(was, is *Item) bool) {
	differ(old.tree(), s.tree(), func(was, is *entry) bool {
		var a, b *Item
		if was != nil {
			a = was.item
		}
		if is != nil {
			b = is.item
		}
		return f(a, b)
	})
}

// An Edit is a set of changes to a snapshot.
type Edit struct {
	Set    []*Item
	Remove []Key
}

// To returns the edit after which the snapshot has exactly these items. The edit leaves out unchanged
// items.
func (s *Snapshot) To(items []*Item) Edit {
	var e Edit
	have := make(map[Key]bool, len(items))
	for _, it := range items {
		k := it.Key()
		have[k] = true
		if old := s.Get(k); old == nil || !old.same(it) {
			e.Set = append(e.Set, it)
		}
	}
	for it := range s.All {
		if k := it.Key(); !have[k] {
			e.Remove = append(e.Remove, k)
		}
	}
	slices.SortFunc(e.Remove, Key.Compare)
	return e
}

// Of returns a snapshot of items that is not in a repository, such as the items that an earlier process
// served. Its revision has the number 0.
func Of(items []*Item) (*Snapshot, error) {
	base, p := &Snapshot{}, packer{}
	writes, err := p.writes(base, Edit{Set: items}, &Revision{})
	if err != nil {
		return nil, err
	}
	return &Snapshot{root: base.tree().apply(0, writes)}, nil
}
