package revsource

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

const (
	refusalsKey    = "refused"
	refusalsFormat = 1              // of the value
	refusalsMost   = 2000           // maximum number of remembered refusals; the newest stay
	refusalsTime   = 24 * time.Hour // time for which a refusal is remembered
)

// Refusals remember which nodes have refused a resource and accepted nothing of its type since then,
// on all servers of a repository. A client that reconnects states its last accepted version, but may
// already use a part of the refused response. So an equal version proves nothing, on any server.
//
// All refusals are one small value, written at most once a second. A server leaves a value of a newer format in
// place. [NewRefusals] makes a value, and
// [Refusals.Run] must run. Several goroutines may use it at once.
type Refusals struct {
	engine revisions.Engine
	log    *slog.Logger

	mu    sync.Mutex           // never held during I/O
	all   map[string]time.Time // by digest: the stored refusals with the changes
	moved map[string]bool      // changes that are not stored yet; true: refused, false: accepted again
	bell  chan struct{}        // has one slot; a value: there are changes to store

	read  []byte // the stored value on which all is based; only sync uses it
	times int    // how many times the engine had gone back at the last sync; only sync uses it
}

// A refusalsText is the stored form of the refusals.
type refusalsText struct {
	Format  int                  `json:"format"`
	Refused map[string]time.Time `json:"refused"` // by digest of node and type
}

// NewRefusals returns the refusals of a repository in an engine. It logs a failure to store them only
// once; a nil log is slog.Default().
func NewRefusals(e revisions.Engine, log *slog.Logger) *Refusals {
	if log == nil {
		log = slog.Default()
	}
	return &Refusals{engine: e, log: log, all: map[string]time.Time{}, moved: map[string]bool{}, bell: make(chan struct{}, 1)}
}

func refusalOf(node, url string) string {
	sum := sha256.Sum256([]byte(node + "\x00" + url))
	return hex.EncodeToString(sum[:12])
}

// Has reports whether a node has refused a resource of a type, and accepted nothing since.
func (r *Refusals) Has(node, url string) bool {
	if node == "" { // the node is unknown
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.all[refusalOf(node, url)]
	return ok
}

// Refused records that a node has refused a resource of a type. It does not block.
func (r *Refusals) Refused(node, url string) { r.move(node, url, true) }

// Accepted records that a node has accepted a response. It does not block.
func (r *Refusals) Accepted(node, url string) { r.move(node, url, false) }

func (r *Refusals) move(node, url string, refused bool) {
	if node == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !refused && len(r.all) == 0 { // no node refuses anything, as usual
		return
	}
	k := refusalOf(node, url)
	if _, is := r.all[k]; is == refused {
		return
	}
	if refused {
		r.all[k] = time.Now()
	} else {
		delete(r.all, k)
	}
	r.moved[k] = refused
	if len(r.moved) > refusalsMost { // the changes cannot be stored: limit their memory
		clear(r.moved)
	}
	select {
	case r.bell <- struct{}{}:
	default:
	}
}

// Run reads the refusals of other servers and stores those of this server, until ctx is done.
func (r *Refusals) Run(ctx context.Context) {
	keepSynced(ctx, r.engine, refusalsKey, r.bell, func(bool) error { return r.sync(ctx) }, func(err error) {
		r.log.Warn("cannot share refusals with other servers", "error", err)
	})
}

// sync reads the stored refusals, and stores the changes.
func (r *Refusals) sync(ctx context.Context) error {
	old, err := r.engine.Get(ctx, refusalsKey)
	if err != nil && !errors.Is(err, revisions.ErrNotFound) {
		return err
	}
	r.keep()
	if r.same(old) {
		return nil
	}
	is := refusalsText{Format: refusalsFormat}
	if err == nil {
		err := json.Unmarshal(old, &is) // sets the format even if a newer one has other fields
		switch {
		case is.Format > refusalsFormat:
			return fmt.Errorf("%s: %w", refusalsKey, revisions.ErrNewer)
		case err != nil || is.Format != refusalsFormat:
			is = refusalsText{Format: refusalsFormat} // the value is invalid: begin with an empty one
		}
	}
	if is.Refused == nil {
		is.Refused = map[string]time.Time{}
	}
	now := time.Now()
	r.mu.Lock()
	moved := maps.Clone(r.moved)
	for k, refused := range moved {
		if refused {
			is.Refused[k] = r.all[k]
		} else {
			delete(is.Refused, k)
		}
	}
	is.bound(now)
	r.mu.Unlock()
	if len(moved) > 0 {
		value, err := json.Marshal(is)
		if err == nil {
			err = r.engine.CompareAndSwap(ctx, refusalsKey, old, value)
		}
		if err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, refused := range moved {
		if now, ok := r.moved[k]; ok && now == refused {
			delete(r.moved, k)
		}
	}
	for k, refused := range r.moved { // changes since moved was copied
		if refused {
			is.Refused[k] = r.all[k]
		} else {
			delete(is.Refused, k)
		}
	}
	r.all = is.Refused
	r.read = old
	if len(moved) > 0 {
		r.read = nil // the stored value has changed
	}
	return nil
}

// keep stores all refusals again, if the storage of the engine went back to an earlier state (SAFE-17). Each
// other server does so, too.
func (r *Refusals) keep() {
	e, ok := r.engine.(interface{ TimesBack() int })
	if !ok || e.TimesBack() == r.times {
		return
	}
	r.times = e.TimesBack()
	r.mu.Lock()
	defer r.mu.Unlock()
	for k := range r.all {
		r.moved[k] = true
	}
}

// same reports whether the stored refusals and those of this server are unchanged, as usual.
func (r *Refusals) same(stored []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.moved) > 0 || r.read == nil || !bytes.Equal(stored, r.read) {
		return false
	}
	all := refusalsText{Refused: r.all}
	all.bound(time.Now())
	return true
}

// bound removes old refusals, and the oldest ones beyond the limit.
func (t *refusalsText) bound(now time.Time) {
	maps.DeleteFunc(t.Refused, func(_ string, at time.Time) bool { return now.Sub(at) > refusalsTime })
	if len(t.Refused) <= refusalsMost {
		return
	}
	all := slices.SortedFunc(maps.Keys(t.Refused), func(a, b string) int { return t.Refused[a].Compare(t.Refused[b]) })
	for _, k := range all[:len(all)-refusalsMost] {
		delete(t.Refused, k)
	}
}
