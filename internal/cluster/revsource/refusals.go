package revsource

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

const (
	refusalsKey  = "refused"
	refusalsMost = 2000           // that are remembered together: the newest
	refusalsTime = 24 * time.Hour // for which they are
	refusalsWait = time.Second    // between two writes of a server
	refusalsPoll = 10 * time.Second
)

// Refusals are which nodes have refused something of which types, and accepted nothing of these since, on whichever server of
// a repository. A client that refuses a response states the version before when it comes back, and may have
// applied a part: so equal versions prove nothing of it, on any server. All are one small value, which is written at most
// once a second. Make it by [NewRefusals], and have it [Refusals.Run]. It may be used by several goroutines at once.
type Refusals struct {
	engine revisions.Engine
	log    *slog.Logger

	mu    sync.Mutex           // held for memory only
	all   map[string]time.Time // by digest; what is stored, with what is not yet
	moved map[string]bool      // what is not stored yet: refused, or not any more
	bell  chan struct{}        // with one slot: there is something to store

	read []byte // what was stored, of which all is; only sync uses it
}

// refusalsText is how they are stored.
type refusalsText struct {
	Format  int                  `json:"format"`
	Refused map[string]time.Time `json:"refused"` // by digest of node and type
}

// NewRefusals returns those of a repository in an engine. log is told once if they cannot be stored; slog.Default() if nil.
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

// Has reports whether a node has refused something of a type, and accepted nothing since.
func (r *Refusals) Has(node, url string) bool {
	if node == "" { // nobody knows which it is
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.all[refusalOf(node, url)]
	return ok
}

// Refused notes that a node has refused something of a type. It waits for nobody.
func (r *Refusals) Refused(node, url string) { r.move(node, url, true) }

// Accepted notes that it has accepted what it was told. It waits for nobody.
func (r *Refusals) Accepted(node, url string) { r.move(node, url, false) }

func (r *Refusals) move(node, url string, refused bool) {
	if node == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !refused && len(r.all) == 0 { // as nearly always
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
	if r.moved[k] = refused; len(r.moved) > refusalsMost { // it cannot be stored, and nobody is to pay for that
		clear(r.moved)
	}
	select {
	case r.bell <- struct{}{}:
	default:
	}
}

// Run reads what other servers store, and stores what this one is told, until ctx is done.
func (r *Refusals) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	rings := r.engine.Watch(ctx, refusalsKey)
	defer func() {
		cancel()
		for range rings { // the engine has let go of it when it is closed
		}
	}()
	said := false
	for {
		if err := r.sync(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, revisions.ErrConflict) {
			if !said {
				r.log.Warn("cannot share refusals with other servers", "error", err)
			}
			said = true
		} else if err == nil {
			said = false
		}
		if !wait(ctx, refusalsWait, nil, nil) || !wait(ctx, refusalsPoll, rings, r.bell) {
			return
		}
	}
}

// wait waits for one of two rings, for at most d, and reports whether ctx is not done.
func wait(ctx context.Context, d time.Duration, a, b <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-a:
	case <-b:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// sync reads what is stored, and stores what is not.
func (r *Refusals) sync(ctx context.Context) error {
	old, err := r.engine.Get(ctx, refusalsKey)
	if err != nil && !errors.Is(err, revisions.ErrNotFound) {
		return err
	}
	if r.same(old) {
		return nil
	}
	is := refusalsText{Format: 1}
	if err == nil {
		if err := json.Unmarshal(old, &is); err != nil || is.Format != 1 {
			is = refusalsText{Format: 1} // of a newer version, or nobody's: it is made anew
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
	for k, refused := range r.moved { // since then
		if refused {
			is.Refused[k] = r.all[k]
		} else {
			delete(is.Refused, k)
		}
	}
	r.all = is.Refused
	if r.read = old; len(moved) > 0 {
		r.read = nil // it is another now
	}
	return nil
}

// same reports whether nothing was stored since the last sync, and nothing is to be: as nearly always.
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

// bound forgets what is too old, or too much: the oldest.
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
