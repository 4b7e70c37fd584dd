package endpoints

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// Options of a registry. The zero value is ready to use.
type Options struct {
	// Every is how often assignments are served at most; 5 ms if zero. What changes meanwhile is
	// served together: after many at once, what changes in up to five times that.
	Every time.Duration

	MaxEndpoints int // in all; 200,000 if zero
	MaxClusters  int // in all; 20,000 if zero
	PerCluster   int // endpoints of one; 10,000 if zero
	MaxBytes     int // of all IDs and endpoints, as they are stored; 128 MiB if zero

	// Known reports whether there is a group. Nil: each may be.
	Known func(group string) bool
	// Log is told, every ten seconds at most, of what was registered, and of what cannot be read; slog.Default() if nil.
	Log *slog.Logger
}

// A Registry has registrations kept by an engine and served by a store with [store.WithOverlays]. It is
// made by [New], and may be used by several goroutines at once.
type Registry struct {
	engine Engine
	store  *store.Store
	opts   Options
	loaded chan struct{} // closed when the engine has told what there is
	bell   chan struct{}

	flushing sync.Mutex // what is taken first is served first

	mu    sync.Mutex // guards what follows; held for memory only
	set   Set
	begun bool
	told  tally

	held    map[LeaseID]bool // by sessions
	writing map[Key]int      // how many writes of a key are under way
	left    []LeaseID        // that may have nothing any more since one of them
}

// New returns a registry. Nothing else may write to the groups that are laid over others in the store.
func New(e Engine, st *store.Store, o Options) *Registry {
	o.Every, o.Log = cmp.Or(o.Every, 5*time.Millisecond), cmp.Or(o.Log, slog.Default())
	o.MaxEndpoints, o.MaxClusters, o.PerCluster = cmp.Or(o.MaxEndpoints, 200_000), cmp.Or(o.MaxClusters, 20_000), cmp.Or(o.PerCluster, 10_000)
	o.MaxBytes = cmp.Or(o.MaxBytes, 128<<20)
	return &Registry{engine: e, store: st, opts: o, loaded: make(chan struct{}), bell: make(chan struct{}, 1), held: map[LeaseID]bool{}, writing: map[Key]int{}}
}

// Loaded is closed when what there is has been read and is served. What asks for endpoints is not to be
// answered before.
func (r *Registry) Loaded() <-chan struct{} { return r.loaded }

// Run has what is registered served until ctx is done.
func (r *Registry) Run(ctx context.Context) {
	var serving sync.WaitGroup
	defer serving.Wait()
	serving.Go(func() { r.serve(ctx) })
	r.engine.Watch(ctx, r.hear)
}

// A Listed is a cluster as it is registered.
type Listed struct {
	Cluster
	Total     int              // endpoints
	Endpoints []ListedEndpoint // in the order of their IDs; nil if only clusters were asked for
}

// A ListedEndpoint is an endpoint as it is registered.
type ListedEndpoint struct {
	Registered
	TTL time.Duration // of its lease; 0: it has none
}

// List returns what is registered, in order: of a group, and of a cluster, unless that is "". Without a
// cluster endpoints are counted only.
func (r *Registry) List(group, name string) []Listed {
	if name != "" {
		name = xds.CanonicalName(name)
	}
	r.mu.Lock()
	var all []Listed
	var entries [][]*entry // of each, in the same order
	from := r.set.clusters
	if one := (Cluster{group, name}); group != "" && name != "" { // who asks for each of many does not come by all others
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
		if name != "" {
			entries = append(entries, slices.Clone(at.entries))
		}
	}
	r.mu.Unlock()
	for i, some := range entries {
		for _, e := range some {
			all[i].Endpoints = append(all[i].Endpoints, ListedEndpoint{Registered{e.id, e.endpoint()}, e.ttl})
		}
	}
	slices.SortFunc(all, func(a, b Listed) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Group, b.Group)) })
	return all
}

// Counts returns how many endpoints of a cluster are registered, and how many of them have a lease; false: it is
// not registered.
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
