package revisions

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ErrLostHead means that the newest revision of a repository is unknown: the key head is missing or
// unreadable although there are revisions or packs, or some revisions belong to another history than
// the head. Then nothing is read or written (SAFE-15). [Repository.RestoreHead] writes the head again.
var ErrLostHead = fmt.Errorf("%w: the newest revision is unknown", ErrDamaged)

// ErrHead means that the head of a repository is not lost.
var ErrHead = errors.New("the head is not lost")

// checkEmpty returns [ErrLostHead] if a repository without a head has revisions or packs. Each writer stores
// a head before its first pack, so they prove that there was a head.
func (r *Repository) checkEmpty(ctx context.Context) error {
	for _, prefix := range []string{revisionPrefix, packPrefix} {
		for key, err := range r.engine.List(ctx, prefix) {
			if err != nil {
				return err
			}
			if ours(key) {
				return fmt.Errorf("%s: %w: the key is missing, but %s exists", headKey, ErrLostHead, key)
			}
		}
	}
	return nil
}

// ours reports whether a key is that of a revision or a pack.
func ours(key string) bool {
	_, revision := parseRevisionKey(key)
	_, pack := parseHash(strings.TrimPrefix(key, packPrefix))
	return revision || pack
}

// readHead reads the head, without a comparison with the heads before. In an empty repository, raw is nil.
func (r *Repository) readHead(ctx context.Context) (head, error) {
	for i := 1; ; i++ {
		b, err := r.engine.Get(ctx, headKey)
		if err == nil {
			h, err := decodeHead(b)
			if errors.Is(err, ErrDamaged) {
				err = fmt.Errorf("%w: %w", ErrLostHead, err)
			}
			if err != nil {
				return head{}, fmt.Errorf("%s: %w", headKey, err)
			}
			return h, nil
		}
		if !errors.Is(err, ErrNotFound) {
			return head{}, err
		}
		// The first commit may have begun after Get. Then the head exists now.
		err = r.checkEmpty(ctx)
		if err == nil || !errors.Is(err, ErrLostHead) || i == 2 {
			return head{}, err
		}
	}
}

// checkHistory returns [ErrLostHead] if a revision belongs to another history than the head. Then two stores were
// mixed, or an older head was put back. It may miss a foreign revision that no later one follows.
func (r *Repository) checkHistory(ctx context.Context, h head) error {
	for i := 1; ; i++ {
		err := r.findForeign(ctx, h)
		if !errors.Is(err, ErrLostHead) || i == tries {
			return err
		}
		now, e := r.readHead(ctx) // the list may have a revision that was committed after the head was read
		if e != nil || bytes.Equal(now.raw, h.raw) {
			return cmp.Or(e, err)
		}
		h = now
	}
}

// findForeign returns [ErrLostHead] if a kept revision cannot be a draft of a writer. Each draft has the parent
// of the committed revision with its number, or the head as its parent.
func (r *Repository) findForeign(ctx context.Context, h head) error {
	all, err := r.listed(ctx)
	if err != nil {
		return err
	}
	at := h.at // the last committed revision
	for i := 0; i < len(all); {
		n := all[i].number
		same := i
		for same < len(all) && all[same].number == n {
			same++
		}
		one := all[i:same]
		i = same
		var parent hash // of the committed revision n, or of the next one
		switch {
		case n <= h.through || n < h.from:
			return nil
		case n > h.at.number+1:
			return foreign(one[0], h)
		case n > h.at.number:
			parent = h.at.hash
		case len(one) == 1:
			at = one[0]
			continue
		default:
			at, parent, err = r.committed(ctx, at, n)
		}
		for _, id := range one {
			if err != nil {
				break
			}
			var rev *Revision
			rev, err = r.revision(ctx, id)
			if err == nil && rev.parent != parent {
				return foreign(id, h)
			}
		}
		if errors.Is(err, ErrNotFound) || errors.Is(err, ErrDamaged) {
			return nil // undecidable. A sweep that cannot read a kept revision removes nothing
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// committed returns the committed revision n, and its parent. It follows the parents of a later one.
func (r *Repository) committed(ctx context.Context, later revisionID, n Number) (revisionID, hash, error) {
	for {
		rev, err := r.revision(ctx, later)
		if err != nil || later.number <= n {
			return later, parentOf(rev), err
		}
		later = revisionID{later.number - 1, rev.parent}
	}
}

func parentOf(r *Revision) hash {
	if r == nil {
		return hash{}
	}
	return r.parent
}

func foreign(id revisionID, h head) error {
	return fmt.Errorf("%s: %w: it belongs to another history than %s, which is %s", id.key(), ErrLostHead, headKey, h.at.number)
}

// listed returns the IDs of all stored revisions, the highest number first.
func (r *Repository) listed(ctx context.Context) (all []revisionID, err error) {
	for key, err := range r.engine.List(ctx, revisionPrefix) {
		if err != nil {
			return nil, err
		}
		if id, ok := parseRevisionKey(key); ok {
			all = append(all, id)
		}
	}
	slices.SortFunc(all, func(a, b revisionID) int {
		return cmp.Or(cmp.Compare(b.number, a.number), bytes.Compare(a.hash[:], b.hash[:]))
	})
	return all, nil
}

// A Restorable is a stored revision that may become the newest one.
type Restorable struct {
	Revision

	Name string // its number, such as r412; with a part of its hash if several stored revisions have this number
	Err  error  // the damage; nil: the revision is intact
}

// Restorable returns the stored revisions, the highest number first, at most `most`; 0: all. It reads
// all content of each. It needs no head. A revision may be one whose commit has never ended.
func (r *Repository) Restorable(ctx context.Context, most int) (all []Restorable, err error) {
	ids, err := r.listed(ctx)
	if err != nil {
		return nil, err
	}
	var last *Snapshot
	for _, id := range ids {
		if most > 0 && len(all) == most {
			break
		}
		s, err := r.read(ctx, id, r.loader(last))
		one := Restorable{Revision: Revision{Number: id.number, id: id}, Name: nameIn(ids, id), Err: missing(err)}
		switch {
		case err == nil:
			one.Revision, last = s.Revision, s
		case !errors.Is(one.Err, ErrDamaged) && !errors.Is(err, ErrNewer):
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// nameIn returns the shortest name of a revision among others.
func nameIn(ids []revisionID, id revisionID) string {
	for _, other := range ids {
		if other.number == id.number && other != id {
			return id.number.String() + "-" + id.hash.String()[:12]
		}
	}
	return id.number.String()
}

// restoredKey is the key of the record of a restored head. A release of Chancery that does not know this
// key keeps it.
const restoredKey = "restored"

// A restoredText records that the head was restored.
type restoredText struct {
	Through Number    `json:"through"` // revisions up to this number may belong to another history
	Time    time.Time `json:"time"`
	Random  string    `json:"random"` // makes the head differ from each earlier one, so that no swap of a writer succeeds that began before
}

// RestoreHead makes a revision the newest, by the name in [Restorable]. The holds of the lost head are
// unknown. So holds are the numbers of the revisions at which groups are held from now on. If they are nil,
// a server that knows a hold does not accept the new head ([ErrBackwards]).
//
// The error is [ErrHead] if the head is not lost, and [ErrNotFound] if the revision does not exist. A head that is
// older than the revision of a running server can be replaced by a later revision only; for others the error is
// [ErrBackwards]. A head that was restored without the holds that servers know can be restored again with them.
func (r *Repository) RestoreHead(ctx context.Context, name string, holds map[string]Hold) (*Revision, error) {
	was, now, kept := r.lost(ctx)
	again := holds != nil && now.at.number < now.through
	if kept != nil && !errors.Is(kept, ErrBackwards) && (!again || !errors.Is(kept, ErrHead)) {
		return nil, kept
	}
	ids, err := r.listed(ctx)
	if err != nil {
		return nil, err
	}
	var found []revisionID
	for _, id := range ids {
		if full := id.number.String() + "-" + id.hash.String(); id.number.String() == name || strings.Contains(name, "-") && strings.HasPrefix(full, name) {
			found = append(found, id)
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("revision %s: %w", name, ErrNotFound)
	case 1:
	default:
		return nil, fmt.Errorf("revision %s: %w: %d stored revisions have this number", name, ErrNotFound, len(found))
	}
	switch n := found[0].number; {
	case kept == nil, again && n == now.at.number, errors.Is(kept, ErrBackwards) && n > now.at.number:
	default:
		return nil, kept
	}
	s, err := r.read(ctx, found[0], r.loader())
	if err != nil {
		return nil, missing(err)
	}
	from, err := r.readableFrom(ctx, s)
	if err != nil {
		return nil, err
	}
	h, err := restoredHead(r.opts.Now(), s.Revision.id, from, ids[0].number+1)
	if err != nil {
		return nil, err
	}
	if holds != nil {
		h.turns = max(now.turns+1, int(r.opts.Now().Unix())) // more than any server has seen
		if err := r.identify(ctx, h, holds); err != nil {
			return nil, err
		}
		h, err = h.hold(holds, nil)
		if err == nil {
			h, err = h.next(h.at, h.from, h.swept)
		}
		if err != nil {
			return nil, err
		}
	}
	return &s.Revision, r.engine.CompareAndSwap(ctx, headKey, was, h.raw)
}

// lost returns the head and its stored value; nil: there is none. The error is [ErrHead] if the head is not lost, and
// [ErrBackwards] if it is older than the revision of a running server.
func (r *Repository) lost(ctx context.Context) (raw []byte, h head, err error) {
	raw, err = r.engine.Get(ctx, headKey)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, h, err
	}
	h, err = r.readHead(ctx)
	if err == nil && h.at.number > 0 {
		_, err = r.read(ctx, h.at, r.loader())
		err = missing(err)
	}
	if err == nil {
		err = r.checkHistory(ctx, h)
	}
	if err == nil && h.at.number > 0 {
		err = r.checkServers(ctx, h)
	}
	switch {
	case err == nil && h.at.number == 0:
		return nil, h, fmt.Errorf("revision: %w: the store has no revision yet", ErrNotFound)
	case err == nil:
		return raw, h, fmt.Errorf("%w: the newest revision is %s", ErrHead, h.at.number)
	case errors.Is(err, ErrDamaged):
		return raw, h, nil
	}
	return raw, h, err
}

// readableFrom returns the oldest ancestor of a snapshot from which on all revisions are intact. A sweep
// needs all kept revisions.
func (r *Repository) readableFrom(ctx context.Context, s *Snapshot) (Number, error) {
	for s.Revision.Number > 1 {
		older, err := r.read(ctx, revisionID{s.Revision.Number - 1, s.Revision.parent}, r.loader(s))
		switch {
		case errors.Is(err, ErrNotFound), errors.Is(err, ErrDamaged), errors.Is(err, ErrNewer):
			return s.Revision.Number, nil
		case err != nil:
			return 0, err
		}
		s = older
	}
	return s.Revision.Number, nil
}

func restoredHead(now time.Time, at revisionID, from, through Number) (head, error) {
	b, err := json.Marshal(restoredText{Through: through, Time: now.UTC(), Random: rand.Text()})
	if err != nil {
		return head{}, err
	}
	return head{all: map[string]json.RawMessage{restoredKey: b}, through: through}.next(at, from, 0)
}
