package server

import (
	"container/list"
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// toldTime is how long after a stream what its client was told is remembered. A
// client that is cut off goes on with what it has, and comes back when the
// network does, not when it has given up.
const toldTime = time.Hour

// toldPerStream times as many answers as there may be streams are remembered of
// those that have ended: one of each type that an Envoy usually opens.
const toldPerStream = 4

// toldRoom is about how many bytes these may take besides a KiB for each: clients
// determine how many names they have. Beyond it some are forgotten, too: the oldest of the
// address that left most.
const toldRoom = 64 << 20

// told remembers what SotW clients were told under the versions by which they may
// tell so when they come back: "what a client was told and has not been told
// otherwise counts as held on its next stream", whatever happened meanwhile. What
// a stream's client may state, the last answer that it accepted and those since,
// is remembered while it lives, and for a while after that, the newest of all.
//
// It keeps stamps alive, never bodies.
type told struct {
	mu    sync.Mutex
	max   int                    // of ended
	bytes int                    // of ended, about
	index map[statement]*holding // the first of a list
	ended *list.List             // of *ending, the newest first
	left  leavers                // the same by who left it
}

func newTold(n int) *told {
	return &told{max: n, index: map[statement]*holding{}, ended: list.New()}
}

// A statement is what a client states of a type, with its node's id: a digest,
// for clients determine the sizes of both.
type statement [16]byte

func stating(node, url, version string) (k statement) {
	h := sha256.New()
	hashNames(h, []string{node, url, version})
	copy(k[:], h.Sum(nil))
	return k
}

// A content is a [protocol.World] in the size of what the client asked for:
// stamps by name, and, if it asked for everything, what the wildcard covers. A
// table of which it has but some names is not kept alive.
type content struct {
	all   *xds.Versions
	lacks []string // of these, sorted: it was not told of them, for they waited
	each  stampList
	since bool // of these some it was told after what it states
}

func (c content) equal(o content) bool {
	return c.all == o.all && c.since == o.since && slices.Equal(c.lacks, o.lacks) && c.each.equal(o.each)
}

// has returns what the client has of a name by way of the wildcard.
func (c content) has(name string) *xds.Stamp {
	if _, lacks := slices.BinarySearch(c.lacks, name); lacks {
		return nil
	}
	return c.all.Get(name)
}

// A holding is what one stream's client has if it states a version.
//
// Invariant: it is in the list of its statement unless it was forgotten.
type holding struct {
	content
	of         statement
	nonce      string // of the response; empty: the client came with it
	prev, next *holding
	ended      *list.Element // nil while its stream lives

	// What the stream's client was told next: it states what it accepted before, and may
	// have applied a part of this.
	later *holding
}

// all yields what the client may have that states this.
func (h *holding) all(yield func(content) bool) {
	for ; h != nil; h = h.later {
		if !yield(h.content) {
			return
		}
	}
}

func (h *holding) equal(o *holding) bool {
	for ; h != nil && o != nil; h, o = h.later, o.later {
		if !h.content.equal(o.content) {
			return false
		}
	}
	return h == o
}

// An ending is when a holding is forgotten, whose stream has ended.
type ending struct {
	*holding
	until time.Time
	bytes int

	from *leaver
	at   *list.Element // of from.endings
}

// hold remembers what the client of a stream may state, and that it was told so after
// another.
func (t *told) hold(now time.Time, h, after *holding) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(now)
	t.link(h)
	if after != nil {
		after.later = h
	}
}

// narrow notes that of what the client may have by name it has given up the rest.
func (t *told) narrow(h *holding, each stampList) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h.each = each
}

// link keeps the first one where it is, which may be of a stream that has ended.
func (t *told) link(h *holding) {
	first := t.index[h.of]
	if first == nil {
		t.index[h.of] = h
		return
	}
	if h.prev, h.next = first, first.next; h.next != nil {
		h.next.prev = h
	}
	first.next = h
}

func (t *told) unlink(h *holding) {
	switch {
	case h.prev != nil:
		h.prev.next = h.next
	case h.next != nil:
		t.index[h.of] = h.next
	default:
		delete(t.index, h.of)
	}
	if h.next != nil {
		h.next.prev = h.prev
	}
	h.prev, h.next = nil, nil
}

// release forgets what the client was told otherwise since, and has accepted; or, of too
// many, the one after another.
func (t *told) release(hs []*holding, before *holding) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range hs {
		if t.unlink(h); before != nil && before.later == h {
			before.later = h.later
		}
	}
}

// nearby is how many of the same statement are compared with one whose stream
// ends.
const nearby = 64

// end remembers what the client of a stream that has ended may state, which came from an
// address ([shares.Owner]). What another one left in the same state counts once.
func (t *told) end(now time.Time, owner string, hs []*holding) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range hs {
		t.unlink(h)
		o := t.index[h.of]
		for n := 0; o != nil && (o.ended == nil || !o.equal(h)); o = o.next {
			if n++; n == nearby {
				o = nil
				break
			}
		}
		if o != nil {
			o.ended.Value.(*ending).until = now.Add(toldTime)
			t.ended.MoveToFront(o.ended)
			t.left.renew(o.ended.Value.(*ending))
			continue
		}
		e := &ending{holding: h, until: now.Add(toldTime), bytes: 320 + 8*h.each.len() + 16*len(h.lacks)}
		h.ended, t.bytes = t.ended.PushFront(e), t.bytes+e.bytes
		t.left.add(owner, e)
		if h.next = t.index[h.of]; h.next != nil {
			h.next.prev = h
		}
		t.index[h.of] = h
	}
	t.expire(now)
}

// expire forgets what is too old, or too much.
func (t *told) expire(now time.Time) {
	for e := t.ended.Back(); e != nil; e = t.ended.Back() {
		last := e.Value.(*ending)
		if t.ended.Len() <= t.max && t.bytes <= toldRoom+t.max<<10 && now.Before(last.until) {
			return
		}
		if now.Before(last.until) {
			last = t.left.next()
		}
		t.ended.Remove(last.ended)
		t.left.remove(last)
		t.bytes -= last.bytes
		t.unlink(last.holding)
	}
}

// recall returns what a client may have that makes a statement: of several
// streams of its node, what any may have.
func (t *told) recall(now time.Time, of statement) (c content, ok bool) {
	some := t.find(now, of)
	if len(some) == 0 {
		return c, false
	}
	return union(some), true
}

// maxRecalled is how much is looked at to find what a client may have that makes a
// statement: each answer counts one, and each name that it adds. So one more stream costs
// the same, however many its node had. A client that may have more may have anything. The
// first answer is found whatever its size.
const maxRecalled = 16384

// anything is the content of which nobody knows what it is: [protocol.World.Others].
var anything = content{each: stampList{{{}}}}

func (c content) isAnything() bool { return len(c.each) > 0 && c.each[0][0].Name == "" }

// find returns the different contents of a statement, of each what those before have not.
func (t *told) find(now time.Time, of statement) (some []content) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(now)
	var last content
	seen, cost := map[**xds.Stamp]bool{}, 0
	for h := t.index[of]; h != nil; h = h.next {
		for c := range h.all {
			c.since = c.since || !c.equal(h.content)
			if cost++; len(some) == 0 || !last.equal(c) {
				last, cost = c, cost+len(c.lacks)
				var fresh stampList
				for _, p := range c.each {
					if !seen[&p[0]] {
						seen[&p[0]], cost = true, cost+len(p)
						fresh = append(fresh, p)
					}
				}
				c.each = fresh
				if some = append(some, c); len(some) == 1 {
					cost = 0
				}
			}
			if last.isAnything() || cost > maxRecalled {
				return []content{anything}
			}
		}
	}
	return some
}

// maxDiffering is how many stamps in which tables differ are taken over from
// them. Tables of one version differ if their source supplies that, or one has what
// lingers beside the other.
const maxDiffering = 4096

func union(some []content) content {
	c := some[0]
	if len(some) == 1 {
		return c
	}
	each, n := slices.Collect(c.each.all), 0
	for _, o := range some[1:] {
		c.since = c.since || o.since
		each = slices.AppendSeq(each, o.each.all)
		switch {
		case o.all == nil:
		case c.all == nil:
			c.all, c.lacks = o.all, o.lacks
		default:
			c.lacks = slices.DeleteFunc(slices.Clone(c.lacks), func(n string) bool {
				is := o.has(n)
				return is != nil && is.Sum == c.all.Get(n).Sum
			})
			for was := range c.all.Since(o.all) {
				if was == nil || o.has(was.Name) == nil {
					continue
				}
				if n++; n > maxDiffering {
					return anything
				}
				each = append(each, was)
			}
		}
	}
	c.each = inPieces(distinct(each))
	return c
}

// world returns the content as a session wants it.
func (c content) world() *protocol.World {
	return &protocol.World{Versions: c.all, Lacks: c.lacks, Others: c.each.flat(), Since: c.since}
}

// proven returns what any client has that states a version of a type with full state,
// if the version proves it: if it is the hash of the content. Of other types a response
// has a part, and the rest need not be of that version. Of clients without a node's id,
// which state the same and are strangers, nothing else is remembered; a name that
// one of them asked for, or kept since it refused another, is no other's.
func proven(w *protocol.World, version string) (c content, ok bool) {
	if w.Versions.Sum().String() == version {
		return content{all: w.Versions}, true
	}
	sum := new(xds.Table).VersionWith(func(yield func(*xds.Stamp) bool) {
		for st := range w.Versions.All() {
			if !yield(st) {
				return
			}
		}
		for _, st := range w.Others {
			if !yield(st) {
				return
			}
		}
	})
	return content{all: w.Versions, each: inPieces(w.Others)}, sum == version
}
