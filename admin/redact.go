package admin

import (
	"bytes"
	"time"

	"github.com/chancery-xds/chancery/internal/envoy/secrets"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A redactor removes the secrets of a store from error texts of clients. It looks at the store in Run, and before a
// text is shown. Of commits between two looks it sees only the last.
type redactor struct {
	store *store.Store
	known *secrets.Known

	turn chan struct{} // has one slot, which a look takes, because it decodes new resources; guards the fields below

	commit  uint64                           // the last one that was looked at
	seen    map[string]map[string]*xds.Table // by type URL, then by group
	skipped map[string]time.Time             // by type URL: the last commit that no look has seen
}

// lookTime is how long a text waits for the look of another goroutine. The quarantine needs the text.
const lookTime = 100 * time.Millisecond

// lateAfter is the time after which a client no longer refuses a version that was replaced at once.
const lateAfter = time.Minute

func newRedactor(st *store.Store, types secrets.Types) *redactor {
	r := &redactor{store: st, turn: make(chan struct{}, 1), skipped: map[string]time.Time{}}
	r.known = secrets.NewKnown(types, r.serves)
	return r
}

// serves reports whether a group had a resource with this body at the last look.
func (r *redactor) serves(t *xds.Type, name string, body []byte) bool {
	for _, table := range r.seen[t.URL] {
		if is := table.Lookup(name); is != nil && bytes.Equal(is.Body, body) {
			return true
		}
	}
	return false
}

// look remembers the secrets of resources that are new in the store.
func (r *redactor) look(at time.Time) {
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	r.lookNow(at)
}

func (r *redactor) lookNow(at time.Time) {
	now := r.store.Snapshot()
	if now.Seq() == r.commit {
		return
	}
	r.noteSkipped(now.Seq(), at)
	r.commit = now.Seq()
	before := r.seen
	r.seen = map[string]map[string]*xds.Table{}
	for _, group := range now.Groups() {
		for url, t := range now.Effective(group).All() {
			if r.seen[url] == nil {
				r.seen[url] = map[string]*xds.Table{}
			}
			r.seen[url][group] = t
			for is := range t.Changed(before[url][group]) {
				r.known.Note(is, at)
			}
		}
	}
}

// noteSkipped notes the types of commits between the last look and this one.
func (r *redactor) noteSkipped(now uint64, at time.Time) {
	if r.commit == 0 || now == r.commit+1 {
		return
	}
	left := now - r.commit - 1
	for _, c := range r.store.Log() {
		if c.Seq <= r.commit || c.Seq >= now {
			continue
		}
		left--
		for _, ch := range c.Changes {
			r.skipped[ch.Type.URL] = c.Time
		}
	}
	if left > 0 { // the store no longer remembers all commits
		r.skipped[""] = at
	}
}

// redact returns a client's error text about a type without the secrets of the store. It returns false if it does not
// know all of them: during a long look at many new resources, and for a short time after a version of a resource that no
// look has seen, if resources of the type have secrets.
func (r *redactor) redact(_ *xds.Node, t *xds.Type, text string) (string, bool) {
	longest := time.NewTimer(lookTime)
	defer longest.Stop()
	select {
	case r.turn <- struct{}{}:
	case <-longest.C:
		return "", false
	}
	defer func() { <-r.turn }()
	now := time.Now()
	r.lookNow(now)
	shown, ok := r.known.Redacted(t, text, now)
	if late := now.Add(-lateAfter); ok && r.known.Has(t) && (r.skipped[t.URL].After(late) || r.skipped[""].After(late)) {
		return "", false
	}
	return shown, ok
}
