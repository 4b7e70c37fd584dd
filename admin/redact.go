package admin

import (
	"bytes"
	"fmt"
	"sync"
	"time"
	"weak"

	"github.com/chancery-xds/chancery/internal/envoy/secrets"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A redactor removes the secrets of resources from error texts of clients. The watches of streams show it each view
// before the view is sent, so it knows all resources that a client may refuse.
type redactor struct {
	store *store.Store
	known *secrets.Known
	seen  sync.Map // of weak.Pointer[xds.Table]: tables whose resources were added

	mu      sync.Mutex // held for memory access only
	added   map[weak.Pointer[xds.Resource]]bool
	pending []*xds.Resource // added resources whose secrets were not searched yet
	most    int             // size of added from which collected resources are left out

	turn    chan struct{} // has one slot, which a search takes; guards the fields below
	at      *store.Snapshot
	current map[string][]*xds.Table // tables of all groups by type URL, at that snapshot
}

// searchTime is how long a text waits for the search of another goroutine. The quarantine needs the text.
const searchTime = 100 * time.Millisecond

// minAdded is the minimum of redactor.most.
const minAdded = 4096

func newRedactor(st *store.Store, types secrets.Types) *redactor {
	r := &redactor{store: st, added: map[weak.Pointer[xds.Resource]]bool{}, most: minAdded, turn: make(chan struct{}, 1)}
	r.known = secrets.NewKnown(types, r.serves)
	return r
}

// show adds the resources of a table that will be sent. The table before is an earlier state; nil: unknown.
func (r *redactor) show(t, before *xds.Table) {
	key := weak.Make(t)
	if _, seen := r.seen.Load(key); seen {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for is := range t.Changed(before) {
		if of := weak.Make(is); !r.added[of] {
			r.added[of] = true
			r.pending = append(r.pending, is)
		}
	}
	r.seen.Store(key, nil)
	if len(r.added) > r.most {
		r.prune()
	}
}

// prune leaves out resources and tables that are no longer in memory. The caller holds the lock.
func (r *redactor) prune() {
	for of := range r.added {
		if of.Value() == nil {
			delete(r.added, of)
		}
	}
	r.seen.Range(func(key, _ any) bool {
		if key.(weak.Pointer[xds.Table]).Value() == nil {
			r.seen.Delete(key)
		}
		return true
	})
	r.most = max(minAdded, 2*len(r.added))
}

// search searches the secrets of the resources that were added since the last search.
func (r *redactor) search(now time.Time) {
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	r.searchNow(now)
}

func (r *redactor) searchNow(now time.Time) {
	r.mu.Lock()
	pending := r.pending
	r.pending = nil
	r.mu.Unlock()
	if at := r.store.Snapshot(); at != r.at {
		r.at, r.current = at, map[string][]*xds.Table{}
		for _, group := range at.Groups() {
			for url, t := range at.Effective(group).All() {
				r.current[url] = append(r.current[url], t)
			}
		}
	}
	for _, is := range pending {
		r.known.Note(is, now)
	}
}

// serves reports whether a group had a resource with this body at the last search.
func (r *redactor) serves(t *xds.Type, name string, body []byte) bool {
	for _, table := range r.current[t.URL] {
		if is := table.Lookup(name); is != nil && bytes.Equal(is.Body, body) {
			return true
		}
	}
	return false
}

// redact returns a client's error text about a type without the secrets of its resources. It returns false if it does
// not know all of them, or during a long search.
func (r *redactor) redact(_ *xds.Node, t *xds.Type, text string) (string, bool) {
	longest := time.NewTimer(searchTime)
	defer longest.Stop()
	select {
	case r.turn <- struct{}{}:
	case <-longest.C:
		return "", false
	}
	defer func() { <-r.turn }()
	now := time.Now()
	r.searchNow(now)
	return r.known.Redacted(t, text, now)
}

// A shownWatch shows a redactor the views of a watch. It has the optional methods of watches, too.
type shownWatch struct {
	server.Watch
	r      *redactor
	before map[string]weak.Pointer[xds.Table] // the last tables by type URL; they are not kept in memory
}

// Next implements [server.Watch].
func (w *shownWatch) Next() (xds.View, []xds.Names, error) {
	view, names, err := w.Watch.Next()
	if err != nil || view == nil {
		return view, names, err
	}
	if all, ok := view.(xds.Tables); ok {
		for url, t := range all.All() {
			w.show(url, t)
		}
		return view, names, err
	}
	for _, t := range xds.Types() {
		w.show(t.URL, view.Table(t))
	}
	return view, names, err
}

func (w *shownWatch) show(url string, t *xds.Table) {
	w.r.show(t, w.before[url].Value())
	w.before[url] = weak.Make(t)
}

// Recent implements [server.HistoryWatch].
func (w *shownWatch) Recent(t *xds.Type) []*xds.Table {
	if of, ok := w.Watch.(server.HistoryWatch); ok {
		return of.Recent(t)
	}
	return nil
}

// Identity implements [server.IdentityWatch].
func (w *shownWatch) Identity() fmt.Stringer {
	if of, ok := w.Watch.(server.IdentityWatch); ok {
		return of.Identity()
	}
	return nil
}

// Ring wakes the stream of the watch.
func (w *shownWatch) Ring() {
	if of, ok := w.Watch.(interface{ Ring() }); ok {
		of.Ring()
	}
}

// Groups returns the groups that the watch follows; nil: unknown.
func (w *shownWatch) Groups() []string {
	if of, ok := w.Watch.(interface{ Groups() []string }); ok {
		return of.Groups()
	}
	return nil
}
