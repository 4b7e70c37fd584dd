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

// Options configure a server's announcement and its requests to others.
type Options struct {
	Engine revisions.Announcer
	Self   func() About // returns this server's announcement; Format may be missing, and only Revision, Streams and Writes may change
	Ask    Asking
	Log    *slog.Logger
}

// Replicas are the servers of a store, as far as this server knows them. [New] makes a value, and
// [Replicas.Run] must run. Several goroutines may use it at once.
type Replicas struct {
	opts   Options
	client client
	bell   chan struct{} // has one slot; a value: the announcement of this server has changed

	mu     sync.Mutex // never held during I/O
	known  map[string][]byte
	more   bool
	at     time.Time            // time when known was read
	left   time.Time            // last time when a known server had vanished
	seen   map[string]time.Time // time of the last answer of each known server
	failed error                // why the last read of the store failed
}

// New returns the servers of a store.
func New(o Options) *Replicas {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Replicas{opts: o, client: newClient(o.Ask), bell: make(chan struct{}, 1), seen: map[string]time.Time{}}
}

// Changed makes Run announce changes of this server at once.
func (r *Replicas) Changed() {
	select {
	case r.bell <- struct{}{}:
	default:
	}
}

// Intervals of Run.
const (
	lookEvery     = 5 * time.Second  // between reads of the announcements
	announceEvery = 10 * time.Second // between checks of this server's announcement
	retryAfter    = 2 * time.Second  // after a failure of the store
	storeTime     = 700 * time.Millisecond
)

// Run announces this server, and reads the other announcements, until ctx is done.
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

// announce keeps this server announced. It announces the server again if the store has lost the
// announcement.
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
				if !pause(try, announceEvery, r.bell) {
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
	if err != nil { // texts and numbers can always be encoded
		panic(err)
	}
	return b
}

// errEmpty means that the store was replaced or has lost all leases. It does not mean that servers
// have left.
var errEmpty = errors.New("all announcements are missing, even that of this server")

// look reads the announcements. If the store does not answer, or has lost all announcements at once,
// the known servers stay.
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
	r.failed = err
	if err != nil {
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

// Writer returns the other server that has announced that it writes a directory to the store. The
// answer may be a few seconds old; if now is true, Writer reads the store first. The ID is "" if
// there is no such server, and Admin is "" if it cannot be asked. If several have announced it,
// Writer returns the one that began last, because the others may have stopped.
func (r *Replicas) Writer(ctx context.Context, now bool) (is About) {
	if now {
		r.look(ctx)
	}
	members, _ := r.others()
	for _, m := range members {
		if m.Writes.After(is.Writes) {
			is = m.About
			if m.err != nil {
				is.Admin = ""
			}
		}
	}
	return is
}

// A member is another announced server.
type member struct {
	About
	err error // why it cannot be asked; nil: it can
}

// others returns the other servers, by ID. The error unsure is the reason why there may be more.
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
		m.About, m.err = parse(key, value)
		if m.err == nil {
			m.err = m.reachable(me.Host)
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b member) int { return strings.Compare(a.ID, b.ID) })
	switch {
	case failed != nil && at.IsZero():
		unsure = fmt.Errorf("cannot read the other servers from the store: %w", failed)
	case failed != nil:
		unsure = fmt.Errorf("cannot read the other servers from the store; these were known %v ago: %w", time.Since(at).Round(time.Second), failed)
	case more:
		unsure = fmt.Errorf("more than %d servers", maxReplicas)
	}
	return all, unsure
}
