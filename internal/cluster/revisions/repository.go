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

// A Repository is a configuration with its history in an engine. Its methods may be called by
// several goroutines at once, and several programs may work on the same engine. What it
// reads it verifies: it returns a whole revision, or an error. What it reads is never older than what it read before ([ErrBackwards]).
type Repository struct {
	engine Engine
	opts   Options
	last   atomic.Pointer[Snapshot]             // of what others share pages
	held   atomic.Pointer[map[Number]*Snapshot] // that groups are held at, as Serving read them last; nil: none
	seen   atomic.Pointer[head]                 // the newest whose revision was read; nil: none
	look   chan struct{}                        // with one slot
}

// Options are how a repository is used. The zero value is good.
type Options struct {
	// Prepare is called with each resource that is read or committed, before anybody else sees it: it may set
	// Refs, and nothing else. It may be called by several goroutines at once.
	Prepare func(*xds.Resource)

	// Poll is how often Watch looks for a newer revision if nothing says that there is one.
	// 0: 10 s.
	Poll time.Duration

	// Retry is how long Watch waits after an error, at first; up to 16 times that later. 0: 250 ms.
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

// tries is how often something is read that was removed while it was read.
const tries = 5

// Head returns the newest revision: one that was the newest after Head was called. In a
// repository without any it is an empty one with the number 0.
func (r *Repository) Head(ctx context.Context) (*Snapshot, error) { return r.newest(ctx, false) }

// newest returns the newest revision, and those that groups are held at, if that is wanted.
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
		// A sweep may have removed what was the newest, and is no more.
		if now, e := r.head(ctx); !errors.Is(err, ErrNotFound) || e != nil || now.at == h.at && now.turns == h.turns || i == tries {
			return nil, fmt.Errorf("%s is %s: %w", headKey, h.at.number, missing(err))
		}
	}
}

// A State says which of two states of a repository is the newer: both of its numbers only grow.
type State struct {
	Number Number // of the newest revision; 0: there is none
	Turns  int    // how often [Repository.SetHolds] has changed something
}

// Has reports whether a state is another one, or came after it.
func (s State) Has(o State) bool { return s.Number >= o.Number && s.Turns >= o.Turns }

// State returns that with which the snapshot was the newest.
// One of [Kept] has none: some of it may be missing.
func (s *Snapshot) State() State {
	if s.kept {
		return State{}
	}
	return State{s.Revision.Number, s.head.turns}
}

// Newest returns the state: one that was the newest after Newest was called. It reads no content.
func (r *Repository) Newest(ctx context.Context) (State, error) {
	h, err := r.head(ctx)
	return State{h.at.number, h.turns}, err
}

// Look has Watch look at once for a newer revision, whoever of several that watch.
func (r *Repository) Look() {
	select {
	case r.look <- struct{}{}:
	default:
	}
}

// missing makes of the error that something is not there one that it should be.
func missing(err error) error {
	if errors.Is(err, ErrNotFound) {
		return fmt.Errorf("%w: %v", ErrDamaged, err) //nolint:errorlint // nobody is to take it for what he has asked for
	}
	return err
}

// head reads the head. One of a repository without any has the number 0.
func (r *Repository) head(ctx context.Context) (h head, err error) {
	seen := r.seen.Load() // before the engine is asked: of two who ask at once one may get an older answer
	b, err := r.engine.Get(ctx, headKey)
	switch {
	case errors.Is(err, ErrNotFound):
	case err != nil:
		return head{}, err
	default:
		if h, err = decodeHead(b); err != nil {
			return head{}, fmt.Errorf("%s: %w", headKey, err)
		}
	}
	if err := r.follows(ctx, seen, h); err != nil {
		return head{}, err
	}
	return h, nil
}

// load returns the snapshot of a head.
func (r *Repository) load(ctx context.Context, h head) (*Snapshot, error) {
	if h.raw == nil {
		return &Snapshot{}, nil
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
		return nil, fmt.Errorf("%s: it has %d items, and says %d: %w", id.key(), root.items, rev.Items, ErrDamaged)
	}
	return &Snapshot{Revision: *rev, root: root, below: below}, nil
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

// At returns a revision by its number. [ErrNotFound] says that it is not kept any more, or
// does not exist yet.
func (r *Repository) At(ctx context.Context, n Number) (*Snapshot, error) {
	h, err := r.head(ctx)
	if err != nil {
		return nil, err
	}
	id, err := r.find(ctx, h, n)
	if err != nil {
		return nil, err
	}
	return r.read(ctx, id, r.loader(r.last.Load()))
}

// Revision is as At, but does not read the content.
func (r *Repository) Revision(ctx context.Context, n Number) (*Revision, error) {
	h, err := r.head(ctx)
	if err != nil {
		return nil, err
	}
	id, err := r.find(ctx, h, n)
	if err != nil {
		return nil, err
	}
	return r.revision(ctx, id)
}

// find returns the id of the revision with a number in the line of the head.
func (r *Repository) find(ctx context.Context, h head, n Number) (revisionID, error) {
	switch {
	case h.at.number == 0:
		return revisionID{}, fmt.Errorf("revision %s: %w: the store has no revision yet", n, ErrNotFound)
	case n > h.at.number:
		return revisionID{}, fmt.Errorf("revision %s: %w yet: the newest is %s", n, ErrNotFound, h.at.number)
	case n < h.from || n == 0:
		return revisionID{}, fmt.Errorf("revision %s: %w any more: the oldest that is kept is %s", n, ErrNotFound, h.from)
	}
	if n == h.at.number {
		return h.at, nil
	}
	// What several writers wrote under a number, one of which was first, is found from above.
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
			return revisionID{}, fmt.Errorf("%s…: %w", numberPrefix(at), ErrNotFound)
		}
		if len(found) > 1 {
			continue
		}
		id := found[0]
		for id.number > n {
			rev, err := r.revision(ctx, id)
			if err != nil {
				return id, err
			}
			id = revisionID{id.number - 1, rev.parent}
		}
		return id, nil
	}
}

// History calls yield with the revisions that are kept, the newest first, until it returns false.
func (r *Repository) History(ctx context.Context, yield func(Revision) bool) error {
	h, err := r.head(ctx)
	if err != nil {
		return err
	}
	for id := h.at; id.number > 0 && id.number >= h.from; {
		rev, err := r.revision(ctx, id)
		if err != nil {
			if now, e := r.head(ctx); errors.Is(err, ErrNotFound) && e == nil && now.from > id.number {
				return nil // it was removed meanwhile
			}
			return missing(err)
		}
		if !yield(*rev) {
			return nil
		}
		id = revisionID{id.number - 1, rev.parent}
	}
	return nil
}

// A Snapshot is all of a revision. It is immutable. The zero value has nothing in it.
type Snapshot struct {
	Revision Revision // its number is 0 before the first

	root  *node
	below map[*node]*place // where the manifests of the tree are
	head  head             // with which it was the newest; none: it was not
	held  map[Number]*Snapshot
	kept  bool // it is of [Kept]
}

// Len returns how many items there are.
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

// All yields all items, in an order that their keys alone decide, which is not that of the keys.
func (s *Snapshot) All(yield func(*Item) bool) {
	s.tree().walk(func(e *entry) bool { return yield(e.item) })
}

// Since calls f with what is not as it was in another snapshot, until it returns false; was
// or is is nil where there is none. It costs what differs. An item that stood elsewhere, and says the same, does not differ.
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

// An Edit is what is to change in a snapshot.
type Edit struct {
	Set    []*Item
	Remove []Key
}

// To returns the edit that makes of the snapshot what items say, and nothing else. Of what stays,
// it writes nothing.
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

// Of returns a snapshot of items that is in no repository, such as of what was served before the program
// began. Its revision has the number 0.
func Of(items []*Item) (*Snapshot, error) {
	base, p := &Snapshot{}, packer{}
	writes, err := p.writes(base, Edit{Set: items}, &Revision{})
	if err != nil {
		return nil, err
	}
	return &Snapshot{root: base.tree().apply(0, writes)}, nil
}
