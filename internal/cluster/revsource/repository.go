// Package revsource fills a store with the newest revision of a configuration that is kept with its
// history (package revisions), and again whenever there is a newer one. Any number of
// servers may do that with one repository: they serve equal versions.
//
//	src := repository.New(engine, st, repository.Options{})
//	if _, err := src.Load(ctx); err != nil {
//		log.Fatal(err) // there is none yet, or it cannot be read
//	}
//	src.Run(ctx)
//
// A revision is served as a whole, with the rules that say which node gets which group, or not at
// all: on an error what was served stays. Until the first was loaded, clients are told nothing.
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
	"github.com/chancery-xds/chancery/xds"
)

// Options of a source. The zero value is ready to use.
type Options struct {
	// Types are the messages in which references are looked for; Envoy's API if nil.
	Types *Types
	// CEL compiles expressions in rules of groups, as groups/cel.Compile does. Without it a
	// revision with one is not served.
	CEL func(expression string) (groups.Predicate, error)
	// Log is told of each revision that is served, and why one is not; slog.Default() if nil.
	Log *slog.Logger
	// Done, if set, is told of each revision that is served, and of what Log is told of errors. The number is
	// that of what is served now; 0: nothing yet.
	Done func(served revisions.Number, err error)
	// Review, if set, is called with what is about to be served, before the store has it. On an error it
	// is not served, and what was stays.
	Review func(next *revisions.Snapshot) error
	// Resource, if set, returns the resource of an item that was reviewed, or is restored, with what it refers to; nil if it does not
	// know it. So who has read its message for a review has read it for the store, too, and Types are for the others.
	Resource func(*revisions.Item) *xds.Resource
	// Poll is how often it looks for a newer revision if the engine says nothing; 10 s if zero.
	Poll time.Duration
}

// Types are message types that are known by their descriptors, as those of source/dir are.
type Types = envoy.Types

// A Source fills a store. It is made by [New]. Load and Run must not be called at the same time.
type Source struct {
	opts   Options
	repo   *revisions.Repository
	store  *store.Store
	served atomic.Pointer[revisions.Snapshot]
	groups []string            // of that, sorted
	newest *revisions.Snapshot // of which that was made; nil: of none, or it was restored
	asks   asks
}

// New returns a source that puts what is in an engine into the store. Nothing else may fill groups of the
// store that are in the repository, or choose its groups.
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

// resource returns that of an item for the store.
func (s *Source) resource(it *revisions.Item) *xds.Resource {
	if s.opts.Resource == nil {
		return it.Resource
	}
	if r := s.opts.Resource(it); r != nil {
		return r
	}
	r := it.Resource.Copy() // others may read the item
	s.refer(r)
	return r
}

// refer sets what a resource refers to. What cannot be read may refer to everything.
func (s *Source) refer(r *xds.Resource) {
	typ, err := s.opts.Types.FindMessageByURL(r.Type.URL)
	if err != nil {
		return
	}
	m := typ.New().Interface()
	if (proto.UnmarshalOptions{Resolver: s.opts.Types}).Unmarshal(r.Body, m) == nil {
		r.Refs = refs.With(s.opts.Types, m)
	}
}

// ErrEmpty says that there is no revision yet.
var ErrEmpty = errors.New("the store has no revision yet")

// A RejectedError says that a revision was read, and is not served.
type RejectedError struct {
	Number revisions.Number
	Err    error // why
	State  revisions.State
}

func (e *RejectedError) Error() string {
	return fmt.Sprintf("revision %s is not served: %v", e.Number, e.Err)
}

// Unwrap returns why.
func (e *RejectedError) Unwrap() error { return e.Err }

// Served returns the revision that is served, of all groups but those of [Source.Holds]. Its number is 0 if none is. It may be called by anyone at any time.
func (s *Source) Served() revisions.Revision {
	if at := s.served.Load(); at != nil {
		return at.Revision
	}
	return revisions.Revision{}
}

// Load reads the newest revision and has it served. [ErrEmpty] says that there is none, a [RejectedError] that
// what is there is not served.
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

// Restore has items served, before anything else is: those that were served when the program ended, for as
// long as the repository cannot be read. They are not reviewed. mark is that of the snapshot which they were kept of
// ([revisions.Snapshot.Mark]): an older one is not served after it, and [Source.Served] has its number. If it is "", they are of no revision.
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

// Run has each newer revision served until ctx is done. It may be called if Load has failed.
func (s *Source) Run(ctx context.Context) {
	since := s.served.Load()
	if since != nil && since.Revision.Number == 0 {
		since = nil // restored, and nobody knows of which revision
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
			s.opts.Log.Error("the newest revision is not served", "served", served.Number.String(), "error", err)
		} else {
			s.opts.Log.Info("revision is served", s.Attributes()...)
		}
		if s.opts.Done != nil {
			s.opts.Done(served.Number, err)
		}
	}
}

// A part is what changes of a type in a group.
type part struct {
	set    []*xds.Resource
	delete []string
}

// serve has a revision served, unless the review is against it.
func (s *Source) serve(ctx context.Context, next *revisions.Snapshot) error {
	for _, was := range s.missed(ctx, next) {
		if was = was.WithHoldsOf(next); s.try(held(was)) == nil {
			s.newest = was
		}
	}
	err := s.try(held(next))
	if err == nil {
		s.newest = next
		return nil
	}
	// What somebody has committed keeps no group from being frozen, and no rollout from being taken back.
	if was := s.newest; was != nil && was.State().Turns != next.State().Turns {
		if was = was.WithHoldsOf(next); s.try(held(was)) == nil {
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

// put puts what differs from what is served into the store, in one commit.
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
		if rules, names, err = s.rules(next); err != nil {
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

// rules returns what says which groups a node gets, and all groups.
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
			return nil, nil, fmt.Errorf("nothing says which nodes get group %q", name)
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

// selector returns what the store asks which groups a node sees.
func selector(r *groups.Rules) store.Selector {
	return func(_ context.Context, n *xds.Node) ([]string, error) {
		names := r.Decide(n).Groups
		if names == nil {
			return nil, fmt.Errorf("no group matches node id %q, cluster %q, and nodes that match none are refused (otherwise: refuse)", n.ID, n.Cluster)
		}
		return names, nil
	}
}
