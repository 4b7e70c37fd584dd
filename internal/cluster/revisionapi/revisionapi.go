// Package revisionapi answers requests about a revision repository, and commits to it, with the types
// of the admin API. A command uses it with a store, and a server uses it for its callers. So both
// give the same answers. The package opens no store, and reads no files.
package revisionapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// History returns the kept revisions, the newest first, at most limit (0: all). With a type URL, it
// returns only the revisions that changed the resource with that type and name.
func History(ctx context.Context, r *revisions.Repository, typ, name string, limit int) (*api.History, error) {
	of := func(context.Context, revisions.Revision) (bool, error) { return true, nil }
	if typ != "" {
		of = changes(r, typ, name)
	}
	h := &api.History{APIVersion: api.Version, Kind: api.KindHistory, Items: []api.Revision{}}
	holds, err := r.Holds(ctx)
	if err != nil {
		return nil, err
	}
	var wrong error
	err = r.History(ctx, func(rev revisions.Revision) bool {
		var is bool
		is, wrong = of(ctx, rev)
		if wrong != nil {
			return false
		}
		if is {
			one := Revision(rev)
			for _, hold := range Holds(holds) {
				if hold.Revision == one.Revision {
					one.Holds = append(one.Holds, hold)
				}
			}
			h.Items = append(h.Items, one)
		}
		return limit == 0 || len(h.Items) < limit
	})
	return h, errors.Join(err, wrong)
}

// changes returns a function that reports whether a revision changed a resource. Call it for the
// revisions from the newest on: then it reads each revision only once.
func changes(r *revisions.Repository, url, name string) func(context.Context, revisions.Revision) (bool, error) {
	var is *revisions.Snapshot
	return func(ctx context.Context, rev revisions.Revision) (changed bool, err error) {
		if is == nil || is.Revision.Number != rev.Number {
			is, err = r.At(ctx, rev.Number)
			if err != nil {
				return false, err
			}
		}
		was := &revisions.Snapshot{}
		if rev.Number > 1 {
			was, err = r.At(ctx, rev.Number-1)
			if errors.Is(err, revisions.ErrNotFound) {
				was, err = is, nil // the oldest kept revision: its changes are unknown
			}
			if err != nil {
				return false, err
			}
		}
		is.Since(was, func(a, b *revisions.Item) bool {
			if a == nil {
				a = b
			}
			k := a.Key()
			changed = k.Type == url && k.Name == name
			return !changed
		})
		is = was
		return changed, nil
	}
}

// Revision returns a revision as a type of the API.
func Revision(r revisions.Revision) api.Revision {
	h := api.Revision{Revision: r.Number.String(), Time: r.Time.UTC(), Author: r.Author, Message: r.Message, Source: r.Source, Items: r.Items, Set: r.Set, Removed: r.Removed}
	if r.Restores > 0 {
		h.Restores = r.Restores.String()
	}
	return h
}

// Holds returns the held groups, by name.
func Holds(holds map[string]revisions.Hold) (all []api.Hold) {
	for _, group := range slices.Sorted(maps.Keys(holds)) {
		all = append(all, Hold(group, holds[group]))
	}
	return all
}

// Hold returns the hold of a group.
func Hold(group string, h revisions.Hold) api.Hold {
	is := api.Hold{Group: group, Revision: h.Number.String(), Author: h.Author, Message: h.Message, At: h.Time}
	if n := h.Next; n != nil {
		is.Next, is.Rollout, is.Step = n.Number.String(), n.Rollout, n.Step+1
	}
	return is
}

// Held describes a hold: the revision, the time, the author and the reason.
func Held(h api.Hold) string { return "at " + h.Revision + HeldBy(h) }

// HeldBy describes the time, the author and the reason of a hold. The text begins with a space.
func HeldBy(h api.Hold) (text string) {
	if !h.At.IsZero() {
		text = " since " + h.At.UTC().Format(time.RFC3339)
	}
	if h.Author != "" {
		text += " by " + h.Author
	}
	if h.Message != "" {
		text += ": " + h.Message
	}
	return text
}

// ServeAdvice returns the command that serves a revision to a frozen group step by step. Somebody has frozen the
// group on purpose, so no advice ends the freeze.
func ServeAdvice(group, revision string) string {
	return fmt.Sprintf("chancery rollout start %s --of %s serves it step by step", revision, group)
}

// Blame returns which revision set a resource, by type URL and name, in each group that has it in the
// newest revision.
func Blame(ctx context.Context, r *revisions.Repository, typ, name string) (*api.Blame, error) {
	s, err := r.Head(ctx)
	if err != nil {
		return nil, err
	}
	all := &api.Blame{APIVersion: api.Version, Kind: api.KindBlame, Items: []api.Blamed{}}
	for it := range s.All {
		if k := it.Key(); k.Type != typ || k.Name != name {
			continue
		}
		b := api.Blamed{Group: it.Group, Revision: it.Since.String(), Place: stood(it)}
		set, err := r.Revision(ctx, it.Since)
		switch {
		case err == nil:
			b.Time, b.Author, b.Message, b.Source = new(set.Time.UTC()), set.Author, set.Message, set.Source
		case !errors.Is(err, revisions.ErrNotFound):
			return nil, err
		}
		all.Items = append(all.Items, b)
	}
	slices.SortFunc(all.Items, func(a, b api.Blamed) int { return cmp.Compare(a.Group, b.Group) })
	return all, nil
}

// stood returns the place of an item in the author's files; "" if it is unknown.
func stood(it *revisions.Item) string {
	switch p := it.Place; {
	case p.File == "":
		return ""
	case p.Line > 0:
		return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col)
	case p.Path != "":
		return fmt.Sprintf("%s (%s)", p.File, p.Path)
	}
	return it.Place.File
}

// At returns a revision by its number; 0 is the newest.
func At(ctx context.Context, r *revisions.Repository, n revisions.Number) (*revisions.Snapshot, error) {
	if n > 0 {
		return r.At(ctx, n)
	}
	s, err := r.Head(ctx)
	if err == nil && s.Revision.Number == 0 {
		err = noRevision{}
	}
	return s, err
}

// noRevision is the error of an empty store.
type noRevision struct{}

func (noRevision) Error() string { return "the store has no revision yet" }

func (noRevision) Unwrap() error { return revisions.ErrNotFound }
