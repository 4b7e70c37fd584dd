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

// historyTime is how long the sent resources of an ended stream are remembered. A client that is cut off keeps running, and
// reconnects when the network is back.
const historyTime = time.Hour

// historyPerStream, times the maximum number of streams, is how many responses of ended streams are remembered: one for each
// type that an Envoy usually opens.
const historyPerStream = 4

// Bounds of the part of [historyLimit] that all responses share, in bytes.
const (
	leastHistory = 4 << 20
	historyBytes = 64 << 20
)

// historyLimit returns how many bytes n remembered responses may take: 1 KiB for each, and a shared part of the same
// size within its bounds. Clients decide how many names they have. Above the limit, the oldest responses of the
// address that uses most are forgotten.
func historyLimit(n int) int { return min(max(n<<10, leastHistory), historyBytes) + n<<10 }

// sentHistory remembers which resources SotW clients got, by the version that they state when they
// reconnect (ADS-9). For an open stream it remembers the last accepted response and all later
// responses. It keeps them for some time after the stream has ended.
//
// sentHistory keeps stamps in memory, and no bodies.
type sentHistory struct {
	mu    sync.Mutex
	max   int                         // number of ended
	bytes int                         // estimated memory of ended
	index map[stateKey]*statedContent // the first of a list
	ended *list.List                  // of *endedContent, newest first
	left  addressUsage                // the same contents by address
}

func newSentHistory(n int) *sentHistory {
	return &sentHistory{max: n, index: map[stateKey]*statedContent{}, ended: list.New()}
}

// stateKey is a hash of a node id, a type and the version that a client states. Clients choose the lengths of id and
// version, so these are not stored.
type stateKey [16]byte

func stateKeyOf(node, url, version string) (k stateKey) {
	h := sha256.New()
	hashNames(h, []string{node, url, version})
	copy(k[:], h.Sum(nil))
	return k
}

// A content is a [protocol.World] in a small form: the stamps of a client by name, and the stamps
// of the whole table if the client subscribed to the wildcard. If the client has only some names of
// a table, the table is not kept in memory.
type content struct {
	all   *xds.Versions
	lacks []string // names in the table all that the client did not get yet, sorted
	each  stampList
	since bool // true: some stamps were sent after the stated version
}

func (c content) equal(o content) bool {
	return c.all == o.all && c.since == o.since && slices.Equal(c.lacks, o.lacks) && c.each.equal(o.each)
}

// has returns the stamp of a name that the client has through the wildcard, or nil.
func (c content) has(name string) *xds.Stamp {
	if _, lacks := slices.BinarySearch(c.lacks, name); lacks {
		return nil
	}
	return c.all.Get(name)
}

// A statedContent is the content of one stream's client, if it states a certain version.
//
// Invariant: a remembered statedContent is in the list of its key.
type statedContent struct {
	content
	of         stateKey
	nonce      string // nonce of the response; empty: the client stated the version at the start of its stream
	prev, next *statedContent
	ended      *list.Element // nil while its stream is open

	// The next response of the stream. A client that states this version may also have applied a part of later
	// responses.
	later *statedContent
}

// all yields the contents that a client may have if it states the version.
func (h *statedContent) all(yield func(content) bool) {
	for ; h != nil; h = h.later {
		if !yield(h.content) {
			return
		}
	}
}

func (h *statedContent) equal(o *statedContent) bool {
	for ; h != nil && o != nil; h, o = h.later, o.later {
		if !h.content.equal(o.content) {
			return false
		}
	}
	return h == o
}

// Estimates of memory: of a content, a stamp in a list, and a name.
const (
	contentBytes = 320
	stampBytes   = 8
	nameBytes    = 16
)

// bytes estimates the memory of a content that has ended.
func (c content) bytes() int { return contentBytes + stampBytes*c.each.len() + nameBytes*len(c.lacks) }

// An endedContent is the statedContent of an ended stream.
type endedContent struct {
	*statedContent
	until time.Time
	bytes int

	from *addressContent
	at   *list.Element // of from.endings
}

// hold remembers the content h that the client of an open stream has after its next response. The
// argument after is the content after the previous response, or nil.
func (t *sentHistory) hold(h, after *statedContent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.link(h)
	if after != nil {
		after.later = h
	}
}

// narrow removes stamps from a statedContent after the client unsubscribed from their names.
func (t *sentHistory) narrow(h *statedContent, each stampList) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h.each = each
}

// link adds a statedContent after the first one of its list, which may belong to an ended stream.
func (t *sentHistory) link(h *statedContent) {
	first := t.index[h.of]
	if first == nil {
		t.index[h.of] = h
		return
	}
	h.prev, h.next = first, first.next
	if h.next != nil {
		h.next.prev = h
	}
	first.next = h
}

func (t *sentHistory) unlink(h *statedContent) {
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

// release forgets contents. The argument before is the content that precedes them, or nil if they
// are the first contents of their stream.
func (t *sentHistory) release(hs []*statedContent, before *statedContent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range hs {
		t.unlink(h)
		if before != nil {
			before.later = h.later
		}
	}
}

// maxCompared is how many contents with the same key are compared with the content of an ended
// stream.
const maxCompared = 64

// end remembers the contents of an ended stream from an address ([fair.Owner]). An equal content of another stream is
// reused.
func (t *sentHistory) end(now time.Time, owner string, hs []*statedContent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range hs {
		t.unlink(h)
		o := t.index[h.of]
		for n := 0; o != nil && (o.ended == nil || !o.equal(h)); o = o.next {
			n++
			if n == maxCompared {
				o = nil
				break
			}
		}
		if o != nil {
			o.ended.Value.(*endedContent).until = now.Add(historyTime)
			t.ended.MoveToFront(o.ended)
			t.left.renew(o.ended.Value.(*endedContent))
			continue
		}
		e := &endedContent{statedContent: h, until: now.Add(historyTime), bytes: h.bytes()}
		h.ended, t.bytes = t.ended.PushFront(e), t.bytes+e.bytes
		t.left.add(owner, e)
		h.next = t.index[h.of]
		if h.next != nil {
			h.next.prev = h
		}
		t.index[h.of] = h
	}
	t.expire(now)
}

// expire forgets contents that are too old or exceed the limits.
func (t *sentHistory) expire(now time.Time) {
	for e := t.ended.Back(); e != nil; e = t.ended.Back() {
		last := e.Value.(*endedContent)
		if t.ended.Len() <= t.max && t.bytes <= historyLimit(t.max) && now.Before(last.until) {
			return
		}
		if now.Before(last.until) {
			last = t.left.next()
		}
		t.ended.Remove(last.ended)
		t.left.remove(last)
		t.bytes -= last.bytes
		t.unlink(last.statedContent)
	}
}

// recall returns the content of a client that states a version: the union of the contents of all
// streams of its node with this version.
func (t *sentHistory) recall(now time.Time, of stateKey) (c content, ok bool) {
	some := t.find(now, of)
	return union(some), len(some) > 0
}

// maxRecalled limits the work of a recall: each response counts one, and each name that it adds counts one. So the cost of a
// stream does not depend on how many streams its node had. Above the limit the content is unknown. The first
// response is always used, whatever its size.
const maxRecalled = 16384

// anyContent is the content of a client that may have any resource: [protocol.World.Others].
var anyContent = content{each: stampList{{{}}}}

func (c content) isAnything() bool { return len(c.each) > 0 && c.each[0][0].Name == "" }

// find returns the different contents with a key. Each has only the pieces that the earlier
// contents do not have.
func (t *sentHistory) find(now time.Time, of stateKey) (some []content) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(now)
	var last content
	var cost int
	seen := map[**xds.Stamp]bool{}
	for h := t.index[of]; h != nil; h = h.next {
		for c := range h.all {
			c.since = c.since || !c.equal(h.content)
			cost++
			if len(some) == 0 || !last.equal(c) {
				last, cost = c, cost+len(c.lacks)
				var fresh stampList
				for _, p := range c.each {
					if !seen[&p[0]] {
						seen[&p[0]], cost = true, cost+len(p)
						fresh = append(fresh, p)
					}
				}
				c.each = fresh
				some = append(some, c)
				if len(some) == 1 {
					cost = 0
				}
			}
			if last.isAnything() || cost > maxRecalled {
				return []content{anyContent}
			}
		}
	}
	return some
}

// maxMerged limits how many different stamps of two tables are combined. Tables with the same version differ if the source
// supplies versions, or if one of them includes resources with a delayed removal.
const maxMerged = 4096

func union(some []content) (c content) {
	if len(some) == 1 {
		return some[0]
	}
	var each []*xds.Stamp
	var doubts []string // names in c.all that the client may lack
	var merged int
	for _, o := range some {
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
			for was, is := range c.all.Since(o.all) {
				merged++
				if merged > maxMerged {
					return anyContent
				}
				if is != nil && !o.since && c.has(is.Name) != nil { // the client may have accepted o instead of c
					each, doubts = append(each, is), append(doubts, is.Name)
				}
				if was != nil && o.has(was.Name) != nil {
					each = append(each, was)
				}
			}
		}
	}
	if len(doubts) > 0 {
		c.lacks = append(slices.Clone(c.lacks), doubts...)
		slices.Sort(c.lacks)
		c.lacks, c.since = slices.Compact(c.lacks), true
	}
	c.each = piecesOf(distinct(each))
	return c
}

// world returns the content in the form of a session.
func (c content) world() *protocol.World {
	return &protocol.World{Versions: c.all, Lacks: c.lacks, Others: c.each.flat(), Since: c.since}
}

// contentOfVersion returns the content of any client that states a version of a type with full state, if the version is the hash of
// the content. Responses of other types have only a part of the content, so their version proves nothing about the
// rest. For clients without a node id nothing else is remembered, because different clients may state the same
// version.
func contentOfVersion(w *protocol.World, version string) (c content, ok bool) {
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
	return content{all: w.Versions, each: piecesOf(w.Others)}, sum == version
}
