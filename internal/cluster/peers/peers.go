package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// Options are who a server is, and how it asks others.
type Options struct {
	Engine revisions.Announcer
	Self   func() About // Format may be missing; but for Revision, Streams and Writes it stays as it is
	Ask    Asking
	Log    *slog.Logger
}

// Replicas are the servers of a store, as one of them sees them. Make it by [New], and have it [Replicas.Run]. It may be
// used by several goroutines at once.
type Replicas struct {
	opts   Options
	client client
	bell   chan struct{} // with one slot: this server has something else to say

	mu     sync.Mutex // held for memory only
	known  map[string][]byte
	more   bool
	at     time.Time            // of known
	left   time.Time            // when somebody was there no more whom it had known, last
	seen   map[string]time.Time // when who is known has answered last
	failed error                // why the store was not read last
}

// New returns the servers of a store.
func New(o Options) *Replicas {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Replicas{opts: o, client: newClient(o.Ask), bell: make(chan struct{}, 1), seen: map[string]time.Time{}}
}

// Changed has what has changed of this server announced at once.
func (r *Replicas) Changed() {
	select {
	case r.bell <- struct{}{}:
	default:
	}
}

// How often things happen.
const (
	lookEvery  = 5 * time.Second  // who is there
	tellEvery  = 10 * time.Second // what has changed of this one
	retryAfter = 2 * time.Second  // what the store did not take
	storeTime  = 700 * time.Millisecond
)

// Run announces this server, and looks who else is there, until ctx is done.
func (r *Replicas) Run(ctx context.Context) {
	var announcing sync.WaitGroup
	announcing.Go(func() { r.announce(ctx) })
	defer announcing.Wait()
	defer r.client.close()
	for r.look(ctx); pause(ctx, lookEvery, nil); {
		r.look(ctx)
	}
}

func pause(ctx context.Context, d time.Duration, bell <-chan struct{}) bool {
	select {
	case <-time.After(d):
		return true
	case <-bell:
		return true
	case <-ctx.Done():
		return false
	}
}

// announce has what this server is in the store, again when the store has lost it.
func (r *Replicas) announce(ctx context.Context) {
	key, said := prefix+r.opts.Self().ID, false
	for ctx.Err() == nil {
		try, cancel := context.WithCancel(ctx)
		values := make(chan []byte)
		var telling sync.WaitGroup
		telling.Go(func() {
			var last []byte
			for {
				if v := r.self(); !bytes.Equal(v, last) {
					select {
					case values <- v:
						last = v
					case <-try.Done():
					}
				}
				if !pause(try, tellEvery, r.bell) {
					return
				}
			}
		})
		err := r.opts.Engine.Announce(try, key, values)
		cancel()
		telling.Wait()
		if err != nil && ctx.Err() == nil {
			if !said {
				r.opts.Log.Warn("cannot announce this server in the store: the status of other servers does not show its clients", "error", err)
			}
			said = true
			pause(ctx, retryAfter, nil)
		}
	}
}

func (r *Replicas) self() []byte {
	a := r.opts.Self()
	a.Format = format
	b, err := json.Marshal(a)
	if err != nil { // texts and numbers always can be
		panic(err)
	}
	return b
}

// errEmpty is of a store that was moved away, or has lost all leases: nobody has left it.
var errEmpty = errors.New("nobody is announced in it any more, not even this server")

// look reads who is there. While the store does not answer, or has forgotten everybody at once, who was there is taken to be.
func (r *Replicas) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	all, more, err := r.opts.Engine.Announced(ctx, prefix, maxReplicas)
	self := prefix + r.opts.Self().ID
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, was := r.known[self]; err == nil && was && len(all) == 0 {
		err = errEmpty
	}
	if r.failed = err; err != nil {
		return
	}
	now := time.Now()
	for key := range r.known {
		if _, still := all[key]; !still {
			r.left = now
		}
	}
	r.known, r.more, r.at = all, more, now
	maps.DeleteFunc(r.seen, func(id string, _ time.Time) bool { _, is := all[prefix+id]; return !is })
}

// Writer returns the other server that has announced that it writes to the store what a directory says, as this one knew it
// a few seconds ago; with now it reads the store. Its Admin is "" if it cannot be asked, and its ID if none is known. Of several, of
// which one does so no more, it is the one that began last.
func (r *Replicas) Writer(ctx context.Context, now bool) (is About) {
	if now {
		r.look(ctx)
	}
	members, _ := r.others()
	for _, m := range members {
		if m.Writes.After(is.Writes) {
			if is = m.About; m.err != nil {
				is.Admin = ""
			}
		}
	}
	return is
}

// A member is another server that is announced.
type member struct {
	About
	err error // why it cannot be asked; nil: it can
}

// others returns the other servers, by ID. Unsure says why there may be more.
func (r *Replicas) others() (all []member, unsure error) {
	me := r.opts.Self()
	r.mu.Lock()
	known, more, failed, at := r.known, r.more, r.failed, r.at
	r.mu.Unlock()
	for key, value := range known {
		if key == prefix+me.ID {
			continue
		}
		m := member{}
		if m.About, m.err = parse(key, value); m.err == nil {
			m.err = m.reachable(me.Host)
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b member) int { return strings.Compare(a.ID, b.ID) })
	switch {
	case failed != nil && at.IsZero():
		unsure = fmt.Errorf("the store does not say which other servers there are: %w", failed)
	case failed != nil:
		unsure = fmt.Errorf("the store does not say which other servers there are; these were there %v ago: %w", time.Since(at).Round(time.Second), failed)
	case more:
		unsure = fmt.Errorf("there are more than %d servers", maxReplicas)
	}
	return all, unsure
}
