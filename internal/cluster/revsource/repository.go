// Package revsource fills a store with the newest revision of a repository (package revisions), and
// then with each newer one. Any number of servers may use one repository: they serve equal versions.
//
//	src := revsource.New(engine, st, revsource.Options{})
//	if _, err := src.Load(ctx); err != nil {
//		log.Fatal(err) // the repository is empty, or cannot be read
//	}
//	src.Run(ctx)
//
// A revision is served as a whole, including the rules that select the groups of a node. After an
// error, the earlier revision stays. Until the first revision is loaded, clients get no answer.
package revsource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/refs"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// Options of a source. The zero value is ready to use.
type Options struct {
	// Types are the message types in which references are found; nil: those of Envoy's API.
	Types *Types
	// CEL compiles expressions in the rules of groups, as groups/cel.Compile does. Without it, a revision
	// with an expression is not served.
	CEL func(expression string) (groups.Predicate, error)
	// Log gets a line for each served revision, and for each that is not served, with the reason;
	// nil: slog.Default().
	Log *slog.Logger
	// Done, if set, is called with each served revision, and with each error that is logged. The number
	// is that of the served revision; 0: none yet.
	Done func(served revisions.Number, err error)
	// Hint, if set, returns the remedy of an error for the log; "": none known.
	Hint func(err error) string
	// Review, if set, is called with the next configuration before the store gets it. On an error the
	// earlier configuration stays.
	Review func(next *revisions.Snapshot) error
	// Resource, if set, returns the resource of an item with its references, if a review or a restore
	// has already decoded it; otherwise nil. So the message is not decoded again. Types are used for
	// the other items.
	Resource func(*revisions.Item) *xds.Resource
	// Poll is the interval at which the source looks for a newer revision without a hint of the
	// engine; 0: 10 s.
	Poll time.Duration
}

// Types are message types that are known by their descriptors, as in source/dir.
type Types = envoy.Types

// A Source fills a store from a repository. [New] makes one. Load and Run must not be called at the
// same time.
type Source struct {
	opts   Options
	repo   *revisions.Repository
	store  *store.Store
	served atomic.Pointer[revisions.Snapshot]
	groups []string            // the sorted groups of the served snapshot
	newest *revisions.Snapshot // the newest revision from which the served snapshot was made; nil: none, or the snapshot was restored
	asks   asks

	replaced replaced
}

// New returns a source that puts the configuration in an engine into the store. No other code may
// fill the groups of this source, or set the store's selector.
func New(e revisions.Engine, st *store.Store, opts Options) *Source {
	opts.Log = cmp.Or(opts.Log, slog.Default())
	opts.Types = cmp.Or(opts.Types, envoy.Envoy())
	s := &Source{opts: opts, store: st}
	prepare := s.refer
	if opts.Resource != nil {
		prepare = nil
	}
	s.repo = revisions.Open(e, revisions.Options{Prepare: prepare, Poll: opts.Poll})
	return s
}

// resource returns the resource of an item for the store.
func (s *Source) resource(it *revisions.Item) *xds.Resource {
	if s.opts.Resource == nil {
		return it.Resource
	}
	if r := s.opts.Resource(it); r != nil {
		return r
	}
	r := it.Resource.Copy() // a copy, because other goroutines may read the item
	s.refer(r)
	return r
}

// refer sets the references and addresses of a resource. If the resource cannot be decoded, its references are
// unknown.
func (s *Source) refer(r *xds.Resource) {
	r.Addresses = wire.Addresses(r.Type, r.Body)
	typ, err := s.opts.Types.FindMessageByURL(r.Type.URL)
	if err != nil {
		return
	}
	m := typ.New().Interface()
	if (proto.UnmarshalOptions{Resolver: s.opts.Types}).Unmarshal(r.Body, m) == nil {
		r.Refs = refs.With(s.opts.Types, m)
	}
}

// ErrEmpty means that the repository has no revision yet.
var ErrEmpty = errors.New("the store has no revision yet")

// A RejectedError means that a revision was read, but is not served.
type RejectedError struct {
	Number revisions.Number
	Err    error // the reason
	State  revisions.State
}

func (e *RejectedError) Error() string {
	return fmt.Sprintf("revision %s is not served: %v", e.Number, e.Err)
}

// Unwrap returns the reason.
func (e *RejectedError) Unwrap() error { return e.Err }

// Served returns the revision from which all groups are served, except those of [Source.Holds]. The
// number is 0 if none is served. Any goroutine may call it.
func (s *Source) Served() revisions.Revision {
	if at := s.served.Load(); at != nil {
		return at.Revision
	}
	return revisions.Revision{}
}

// Load reads the newest revision and serves it. The error is [ErrEmpty] if there is none, and a
// [RejectedError] if it is not served.
func (s *Source) Load(ctx context.Context) (revisions.Revision, error) {
	next, err := s.repo.Serving(ctx)
	if err == nil && next.Revision.Number == 0 {
		err = ErrEmpty
	}
	if err == nil {
		err = s.serve(ctx, next)
	}
	return s.Served(), err
}

// Restore serves the items of an earlier process until the repository can be read. It is called
// before Load and Run. The items are not reviewed. The argument mark is the mark of their snapshot
// ([revisions.Snapshot.Mark]). The source then serves no older revision, and [Source.Served] has the
// number in the mark. If mark is "", the items belong to no revision.
func (s *Source) Restore(items []*revisions.Item, mark string) error {
	old, err := revisions.FromSaved(items, mark)
	if err != nil {
		return err
	}
	if s.opts.Resource == nil {
		for it := range old.All {
			if it.Resource != nil {
				s.refer(it.Resource)
			}
		}
	}
	s.repo.Observe(old)
	return s.put(old)
}

// Run serves each newer revision until ctx is done. It may be called after Load has failed.
func (s *Source) Run(ctx context.Context) {
	since := s.served.Load()
	if since != nil && since.Revision.Number == 0 {
		since = nil // the items were restored, and their revision is unknown
	}
	for next, err := range s.repo.Watch(ctx, since) {
		if err == nil && next.Revision.Number == 0 {
			err = ErrEmpty
		}
		if err == nil {
			err = s.serve(ctx, next)
		}
		s.asks.turn(err)
		served := s.Served()
		if err != nil {
			attrs := []any{"served", served.Number.String(), "error", err}
			if s.opts.Hint != nil {
				if hint := s.opts.Hint(err); hint != "" {
					attrs = append(attrs, "hint", hint)
				}
			}
			s.opts.Log.Error("the newest revision is not served", attrs...)
		} else {
			s.opts.Log.Info("revision is served", s.Attributes()...)
		}
		if s.opts.Done != nil {
			s.opts.Done(served.Number, err)
		}
	}
}

// A part holds the changes of one type in one group.
type part struct {
	set    []*xds.Resource
	delete []string
}

// serve serves a revision, unless the review rejects it.
func (s *Source) serve(ctx context.Context, next *revisions.Snapshot) error {
	for _, was := range s.missed(ctx, next) {
		was = was.WithHoldsOf(next)
		if s.try(held(was)) == nil {
			s.newest = was
		}
	}
	err := s.try(held(next))
	if err == nil {
		s.newest = next
		return nil
	}
	// Serve the new holds, because a rejected commit must not prevent a freeze, or the end of a
	// rollout.
	if was := s.newest; was != nil && was.State().Turns != next.State().Turns {
		was = was.WithHoldsOf(next)
		if s.try(held(was)) == nil {
			s.newest = was
		}
	}
	return &RejectedError{next.Revision.Number, err, next.State()}
}

func (s *Source) try(next *revisions.Snapshot) error {
	if s.opts.Review != nil {
		if err := s.opts.Review(next); err != nil {
			return err
		}
	}
	return s.put(next)
}

// put puts the differences from the served configuration into the store, in one commit.
func (s *Source) put(next *revisions.Snapshot) error {
	was := s.served.Load()
	if was == nil {
		was = &revisions.Snapshot{}
	}
	parts := map[revisions.Key]*part{} // by group and type
	defined := s.served.Load() == nil
	next.Since(was, func(was, is *revisions.Item) bool {
		it := is
		if it == nil {
			it = was
		}
		s.replaced.add(was)
		k := it.Key()
		if _, known := slices.BinarySearch(s.groups, k.Group); k.Type == "" || !known {
			defined = true
		}
		if k.Type == "" {
			return true
		}
		p := parts[revisions.Key{Group: k.Group, Type: k.Type}]
		if p == nil {
			p = &part{}
			parts[revisions.Key{Group: k.Group, Type: k.Type}] = p
		}
		switch {
		case k.Name == "":
		case is == nil:
			p.delete = append(p.delete, k.Name)
		default:
			p.set = append(p.set, s.resource(is))
		}
		return true
	})
	var rules *groups.Rules
	var names []string
	if defined {
		var err error
		rules, names, err = s.rules(next)
		if err != nil {
			return err
		}
	}
	_, err := s.store.Update(func(tx *store.Tx) error {
		for k, p := range parts {
			tx, t := tx.Group(k.Group), xds.TypeOf(k.Type)
			tx.Set(p.set...)
			tx.Delete(t, p.delete...)
			version := ""
			if it := next.Get(k); it != nil {
				version = it.Version
			}
			tx.Version(t, version)
		}
		for _, name := range names {
			tx.Group(name).MarkKnown()
		}
		if rules != nil {
			tx.Select(selector(rules))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if defined {
		s.groups = names
	}
	s.served.Store(next)
	return nil
}

// rules returns the rules that select the groups of a node, and all groups.
func (s *Source) rules(next *revisions.Snapshot) (*groups.Rules, []string, error) {
	defs := map[string]groups.Definition{groups.Default: {Name: groups.Default}}
	used := map[string]bool{}
	for it := range next.All {
		used[it.Group] = true
		if k := it.Key(); k.Type != "" {
			continue
		}
		d, problems := groups.Parse(it.Place.File, it.Definition)
		if err := wrong(problems); err != nil {
			return nil, nil, err
		}
		d.Name = it.Group
		defs[it.Group] = d
	}
	for name := range used {
		if _, ok := defs[name]; !ok {
			return nil, nil, fmt.Errorf("group %q has no definition", name)
		}
	}
	names := slices.Sorted(maps.Keys(defs))
	all := make([]groups.Definition, 0, len(names))
	for _, name := range names {
		all = append(all, defs[name])
	}
	rules, problems := groups.New(all, groups.Options{CEL: s.opts.CEL})
	return rules, names, wrong(problems)
}

func wrong(problems []findings.Problem) error {
	for _, p := range problems {
		if !p.Warning {
			return p
		}
	}
	return nil
}

// selector returns the selector of groups for the store.
func selector(r *groups.Rules) store.Selector {
	return func(_ context.Context, n *xds.Node) ([]string, error) {
		names := r.Decide(n).Groups
		if names == nil {
			return nil, fmt.Errorf("no group matches node id %q, cluster %q, and nodes that match none are refused (otherwise: refuse)", n.ID, n.Cluster)
		}
		return names, nil
	}
}
