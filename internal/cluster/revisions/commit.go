package revisions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A ConflictError means that another commit changed the same items first.
type ConflictError struct {
	Base, Head Number // the revision on which the change was based, and the newest one
	Keys       []Key  // the items that both commits changed; nil: the commit must not follow any other
}

func (e *ConflictError) Error() string {
	text := fmt.Sprintf("revision %s is no longer the newest: %s is", e.Base, e.Head)
	if e.Base > e.Head {
		text = fmt.Sprintf("revision %s does not exist yet: the newest is %s", e.Base, e.Head)
	}
	if len(e.Keys) == 0 {
		return text
	}
	var what []string
	for _, k := range e.Keys[:min(3, len(e.Keys))] {
		what = append(what, k.String())
	}
	if more := len(e.Keys) - len(what); more > 0 {
		what = append(what, fmt.Sprintf("%d more", more))
	}
	return text + "; both changed " + strings.Join(what, ", ")
}

// Is makes a ConflictError an [ErrConflict].
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// Commit applies an edit to a snapshot, stores the result as a new revision, and returns it. When
// Commit returns, the revision is the newest, and survives a loss of power. If other commits came
// first and changed other items, Commit applies the edit to their result. If they changed the same
// items, the error is a [ConflictError]. An edit without effect makes no revision: Commit returns the
// newest.
//
// After any other error nothing has changed, unless the error wraps [ErrUnknown].
func (r *Repository) Commit(ctx context.Context, base *Snapshot, edit Edit, note Note) (*Snapshot, error) {
	return r.commit(ctx, base, edit, note, true)
}

// CommitIf is like Commit, but any other commit after the snapshot is a conflict.
func (r *Repository) CommitIf(ctx context.Context, base *Snapshot, edit Edit, note Note) (*Snapshot, error) {
	return r.commit(ctx, base, edit, note, false)
}

// ErrUnknown means that the engine did not report whether a change was made.
var ErrUnknown = errors.New("unknown whether the commit succeeded")

func (r *Repository) commit(ctx context.Context, base *Snapshot, edit Edit, note Note, rebase bool) (*Snapshot, error) {
	if base.head.raw == nil { // base was not the newest revision, or the repository was empty
		newest, err := r.Head(ctx)
		if err != nil {
			return nil, err
		}
		base, err = base.onto(newest, edit, rebase)
		if err != nil {
			return nil, err
		}
	}
	for {
		next, data, err := r.draft(base, edit, note)
		if err != nil {
			return nil, err
		}
		if next != base {
			err = r.publish(ctx, base.head, next, data)
			if err == nil {
				return next, nil
			}
			if !errors.Is(err, ErrConflict) {
				return nil, err
			}
		}
		newest, err := r.Head(ctx)
		if err != nil || next == base && newest.Revision.id == base.Revision.id {
			return newest, err
		}
		base, err = base.onto(newest, edit, rebase)
		if err != nil {
			return nil, err
		}
	}
}

// onto returns the snapshot to apply an edit of s to: the newest, unless a commit after s conflicts
// with the edit.
func (s *Snapshot) onto(newest *Snapshot, edit Edit, rebase bool) (*Snapshot, error) {
	if s.Revision.id == newest.Revision.id {
		return newest, nil
	}
	conflict := &ConflictError{Base: s.Revision.Number, Head: newest.Revision.Number}
	if !rebase {
		return nil, conflict
	}
	ours := make(map[Key]bool, len(edit.Set)+len(edit.Remove))
	for _, it := range edit.Set {
		ours[it.Key()] = true
	}
	for _, k := range edit.Remove {
		ours[k] = true
	}
	newest.Since(s, func(was, is *Item) bool {
		if was == nil {
			was = is
		}
		if k := was.Key(); ours[k] {
			conflict.Keys = append(conflict.Keys, k)
		}
		return true
	})
	if conflict.Keys != nil {
		slices.SortFunc(conflict.Keys, Key.Compare)
		return nil, conflict
	}
	return newest, nil
}

// draft applies an edit to the newest snapshot, and returns the result and the packs to store for it. If
// nothing changes, it returns base.
func (r *Repository) draft(base *Snapshot, edit Edit, note Note) (*Snapshot, []packed, error) {
	rev := Revision{Note: note, Number: base.Revision.Number + 1, Time: r.opts.Now(), parent: base.Revision.id.hash}
	var p packer
	writes, err := p.writes(base, edit, &rev)
	if err != nil || len(writes) == 0 {
		return base, nil, err
	}
	r.prepare(writes)
	next := &Snapshot{root: base.tree().private().apply(0, writes)}
	top, below := p.tree(next.root, base.below)
	p.settle()
	rev.root, rev.Items, next.below = *top, next.root.items, below
	next.Revision = rev
	return next, p.done, nil
}

// prepare calls Options.Prepare for copies of the written resources, as a read would. Later snapshots
// share pages with the draft, so its resources must be prepared. The caller's resources stay
// unchanged.
func (r *Repository) prepare(writes []write) {
	if r.opts.Prepare == nil {
		return
	}
	for _, w := range writes {
		if w.set != nil && w.set.item.Resource != nil {
			w.set.item.Resource = w.set.item.Resource.Copy()
			r.opts.Prepare(w.set.item.Resource)
		}
	}
}

// writes returns the effective changes of an edit, sorted, and counts them in rev.
func (p *packer) writes(base *Snapshot, edit Edit, rev *Revision) ([]write, error) {
	all := make(map[Key]write, len(edit.Set)+len(edit.Remove))
	for _, k := range edit.Remove {
		if base.Get(k) != nil {
			all[k] = write{at: k.position(), key: k}
		}
	}
	for _, it := range edit.Set {
		if err := it.check(); err != nil {
			return nil, err
		}
		k := it.Key()
		if old := base.Get(k); old != nil && old.same(it) {
			delete(all, k)
			continue
		}
		ours := *it
		ours.Since = rev.Number
		e := &entry{at: k.position(), item: &ours}
		all[k] = write{e.at, k, e}
	}
	writes := make([]write, 0, len(all))
	for _, w := range all {
		writes = append(writes, w)
	}
	slices.SortFunc(writes, write.compare)
	bodies := make([][]*place, len(writes))
	for i, w := range writes {
		if w.set != nil {
			bodies[i] = p.body(w.set.item)
		}
	}
	p.settle() // the places must be final, because the encoded items contain them
	for i, w := range writes {
		if w.set == nil {
			rev.Removed++
			continue
		}
		rev.Set++
		for _, at := range bodies[i] {
			w.set.pieces = append(w.set.pieces, *at)
		}
		w.set.raw = w.set.item.encode(w.set.pieces)
		if len(w.set.raw) > packMost/2 {
			return nil, fmt.Errorf("%s: its names and places: %w", w.key, ErrTooLarge)
		}
	}
	return writes, nil
}

// body stores the body of an item separately if it is too large for the page.
func (p *packer) body(it *Item) (pieces []*place) {
	b := it.Definition
	if it.Resource != nil {
		b = it.Resource.Body
	}
	if len(b) <= inline {
		return nil
	}
	for piece := range slices.Chunk(b, packMost-packHead) {
		at := &place{}
		p.put(at, func() []byte { return piece })
		pieces = append(pieces, at)
	}
	return pieces
}

// publish stores the packs and the revision, and then swaps the head. Before the swap nothing refers
// to them. If the writer dies before the swap, a sweep removes them.
func (r *Repository) publish(ctx context.Context, h head, next *Snapshot, data []packed) error {
	if err := r.checkServers(ctx, h); err != nil {
		return err
	}
	if h.raw == nil { // from now on, a store without a head has lost it
		empty, err := emptyHead()
		if err == nil {
			err = r.engine.CompareAndSwap(ctx, headKey, nil, empty.raw)
		}
		if err != nil {
			return err
		}
		h = empty
	}
	rev, err := next.Revision.encode()
	if err != nil {
		return err
	}
	id := next.Revision.id
	if err := each(ctx, len(data)+1, func(ctx context.Context, i int) error {
		if i < len(data) {
			return r.engine.PutIfAbsent(ctx, packKey(data[i].hash), data[i].data)
		}
		return r.engine.PutIfAbsent(ctx, id.key(), rev)
	}); err != nil {
		r.discard(ctx, id, data)
		return err
	}
	from := h.from
	if from == 0 {
		from = id.number
	}
	nextHead, err := h.next(id, from, h.swept)
	if err != nil {
		return err
	}
	err = r.engine.CompareAndSwap(ctx, headKey, h.raw, nextHead.raw)
	switch {
	case err == nil:
		next.head = nextHead
		r.last.Store(next)
		return nil
	case errors.Is(err, ErrConflict):
		r.discard(ctx, id, data)
		return err
	}
	return r.checkSwapped(ctx, err, h, next, nextHead)
}

// writeCheckTimeout limits the time in which a writer checks the result of its writes, or removes
// them.
const writeCheckTimeout = 5 * time.Second

// checkSwapped finds out whether the head was swapped although the engine returned an error.
func (r *Repository) checkSwapped(ctx context.Context, why error, was head, next *Snapshot, nextHead head) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeCheckTimeout)
	defer cancel()
	now, err := r.head(ctx)
	if err == nil && now.at.number > next.Revision.Number {
		var id revisionID
		id, err = r.find(ctx, now, next.Revision.Number)
		if err == nil && id == next.Revision.id {
			now.at = id
		}
	}
	if err == nil && now.at == next.Revision.id {
		next.head = nextHead
		r.last.Store(next)
		return nil
	}
	switch {
	case err == nil && !bytes.Equal(now.raw, was.raw):
		return fmt.Errorf("%w: %w", ErrConflict, why)
	case err == nil && refused(why):
		return why
	}
	// An unchanged head proves nothing: the request may still be on its way.
	return fmt.Errorf("%w: %w", ErrUnknown, why)
}

// refused reports whether the error guarantees that the engine has changed nothing.
func refused(err error) bool {
	return errors.Is(err, ErrDenied) || errors.Is(err, ErrFull) || errors.Is(err, ErrTooLarge)
}

// discard removes the values stored for a revision that was not committed. A sweep removes the rest.
func (r *Repository) discard(ctx context.Context, id revisionID, data []packed) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeCheckTimeout)
	defer cancel()
	keys := []string{id.key()}
	for _, p := range data {
		keys = append(keys, packKey(p.hash))
	}
	_ = r.engine.Delete(ctx, keys...)
}

// Restore commits the content of an earlier kept revision, and returns the new revision as Commit
// does. It stores only the revision, because its content is already stored. If base is not the newest
// revision, the error is a conflict.
func (r *Repository) Restore(ctx context.Context, base *Snapshot, n Number, note Note) (*Snapshot, error) {
	for {
		newest, err := r.Head(ctx)
		if err != nil {
			return nil, err
		}
		if newest.Revision.id != base.Revision.id {
			return nil, &ConflictError{Base: base.Revision.Number, Head: newest.Revision.Number}
		}
		id, err := r.find(ctx, newest.head, n)
		if err != nil {
			return nil, err
		}
		old, err := r.read(ctx, id, r.loader(newest))
		if err != nil {
			return nil, r.kept(ctx, n, err)
		}
		rev := Revision{Note: note, Number: newest.Revision.Number + 1, Time: r.opts.Now(), parent: newest.Revision.id.hash, root: old.Revision.root, Items: old.Revision.Items, Restores: n}
		old.Since(newest, func(_, is *Item) bool {
			if is != nil {
				rev.Set++
			} else {
				rev.Removed++
			}
			return true
		})
		if rev.Set+rev.Removed == 0 {
			return newest, nil
		}
		next := &Snapshot{Revision: rev, root: old.root, below: old.below}
		// The head names the oldest revision to which a commit may refer. If a sweep has removed
		// revision n since, the head has changed, and the swap fails.
		err = r.publish(ctx, newest.head, next, nil)
		if err == nil || !errors.Is(err, ErrConflict) {
			return next, err
		}
	}
}
