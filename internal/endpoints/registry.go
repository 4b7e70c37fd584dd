package endpoints

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/faults"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// Options of a registry. The zero value is ready to use.
type Options struct {
	// Every is the minimum time between two updates of the served assignments; 5 ms if zero. Changes
	// meanwhile are served together. After an update of many assignments the time is up to five times as
	// long.
	Every time.Duration

	MaxEndpoints int // in total; 200,000 if zero
	MaxClusters  int // in total; 20,000 if zero
	PerCluster   int // endpoints of one cluster; 10,000 if zero
	MaxBytes     int // of all IDs and endpoints, as they are stored; 128 MiB if zero

	// Known reports whether a group exists. Nil: any group may be used.
	Known func(group string) bool
	// Log gets changes and invalid registrations, every ten seconds at most; slog.Default() if nil.
	Log *slog.Logger
}

// A Registry stores registrations in an engine and serves them from a store with [store.WithOverlays]. It
// is made by [New]. Several goroutines may use it at once.
type Registry struct {
	engine Engine
	store  *store.Store
	opts   Options
	loaded chan struct{} // closed when the engine has reported all registrations
	bell   chan struct{}

	flushing sync.Mutex // the order in which changes are taken is the order in which they are served

	mu       sync.Mutex // guards the fields below; held for memory only
	set      Set
	begun    bool
	unlogged tally

	held    map[LeaseID]bool // the leases of sessions
	writing map[Key]int      // the number of writes of a key in progress
	left    []LeaseID        // leases that a write may have left empty
}

// New returns a registry. No other code may write to the overlay groups of the store.
func New(e Engine, st *store.Store, o Options) *Registry {
	o.Every, o.Log = cmp.Or(o.Every, 5*time.Millisecond), cmp.Or(o.Log, slog.Default())
	o.MaxEndpoints, o.MaxClusters, o.PerCluster = cmp.Or(o.MaxEndpoints, 200_000), cmp.Or(o.MaxClusters, 20_000), cmp.Or(o.PerCluster, 10_000)
	o.MaxBytes = cmp.Or(o.MaxBytes, 128<<20)
	r := &Registry{engine: e, store: st, opts: o, loaded: make(chan struct{}), bell: make(chan struct{}, 1), held: map[LeaseID]bool{}, writing: map[Key]int{}}
	if e, ok := e.(Restorer); ok {
		e.Restore(r.present)
	}
	return r
}

// present returns all registrations, as an engine stores them.
func (r *Registry) present() (all []Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c, at := range r.set.clusters {
		if at.claimed {
			all = append(all, Change{Key: Key{Cluster: c}, Value: []byte("{}")})
		}
		for _, e := range at.entries {
			all = append(all, Change{Key: Key{c, e.id}, Value: e.value, Lease: e.lease})
		}
	}
	return all
}

// Loaded is closed when all registrations have been read and are served. Before that, requests for
// endpoints must not be answered.
func (r *Registry) Loaded() <-chan struct{} { return r.loaded }

// Faults returns the present faults of the engine.
func (r *Registry) Faults() []faults.Fault {
	if e, ok := r.engine.(Faulty); ok {
		return e.Faults()
	}
	return nil
}

// Run serves the registrations until ctx is done.
func (r *Registry) Run(ctx context.Context) {
	var serving sync.WaitGroup
	defer serving.Wait()
	serving.Go(func() { r.serve(ctx) })
	r.engine.Watch(ctx, r.hear)
}

// A Listed is a registered cluster.
type Listed struct {
	Cluster
	Total     int              // the number of endpoints
	EndSoon   int              // the number of endpoints whose leases end soon
	Endpoints []ListedEndpoint // in the order of their IDs; nil if List was called without a cluster
}

// A ListedEndpoint is a registered endpoint.
type ListedEndpoint struct {
	Registered
	TTL      time.Duration // of its lease; 0: it has none
	Until    time.Time     // when the lease ends unless it is renewed; zero: there is none, or the engine does not know
	EndsSoon bool          // less than a third of the lease is left. A [Session] renews it after a quarter, so its owner has missed renewals
}

// List returns the registrations in order: those of a group and of a cluster; "" means all. Without a
// cluster it only counts the endpoints.
func (r *Registry) List(group, name string) []Listed {
	if name != "" {
		name = xds.CanonicalName(name)
	}
	timed, _ := r.engine.(Timed)
	r.mu.Lock()
	var all []Listed
	var entries [][]*entry // of each element of all
	from := r.set.clusters
	if one := (Cluster{group, name}); group != "" && name != "" { // a caller that asks for many single clusters must not cost a full scan each
		from = map[Cluster]*cluster{}
		if at := r.set.clusters[one]; at != nil {
			from[one] = at
		}
	}
	for c, at := range from {
		if group != "" && c.Group != group || name != "" && c.Name != name {
			continue
		}
		all = append(all, Listed{Cluster: c, Total: len(at.entries)})
		if name != "" || timed != nil {
			entries = append(entries, slices.Clone(at.entries))
		}
	}
	r.mu.Unlock()
	now := time.Now()
	for i, some := range entries {
		for _, e := range some {
			one := ListedEndpoint{TTL: e.ttl}
			if e.lease != 0 && timed != nil {
				one.Until = timed.Until(e.lease)
				one.EndsSoon = !one.Until.IsZero() && one.Until.Sub(now) < e.ttl/3
			}
			if one.EndsSoon {
				all[i].EndSoon++
			}
			if name != "" {
				one.Registered = Registered{ID: e.id, Endpoint: e.endpoint()}
				all[i].Endpoints = append(all[i].Endpoints, one)
			}
		}
	}
	slices.SortFunc(all, func(a, b Listed) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Group, b.Group)) })
	return all
}

// Counts returns the number of registered endpoints of a cluster, and how many of them have a lease;
// false: the cluster is not registered.
func (r *Registry) Counts(c Cluster) (all, leased int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.set.clusters[c]
	if at == nil {
		return 0, 0, false
	}
	for _, e := range at.entries {
		if e.lease != 0 {
			leased++
		}
	}
	return len(at.entries), leased, true
}
