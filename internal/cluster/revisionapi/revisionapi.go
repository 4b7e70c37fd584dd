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
	"github.com/chancery-xds/chancery/xds"
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
		was, known, err := before(ctx, r, rev.Number)
		if err != nil {
			return false, err
		}
		if !known {
			was = is // the oldest kept revision: its changes are unknown
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

// before returns the revision before another, and whether the store keeps it. The revision before the first
// is empty.
func before(ctx context.Context, r *revisions.Repository, n revisions.Number) (was *revisions.Snapshot, known bool, err error) {
	if n <= 1 {
		return &revisions.Snapshot{}, true, nil
	}
	was, err = r.At(ctx, n-1)
	if errors.Is(err, revisions.ErrNotFound) {
		return nil, false, nil
	}
	return was, err == nil, err
}

// maxChanged is the maximum number of items in an answer about the changes of a revision.
const maxChanged = 1000

// Changes returns the changes of a revision by its number (0: the newest), and the same changes as a request
// for their impact. The impact leaves out changes that are not of a resource.
func Changes(ctx context.Context, r *revisions.Repository, n revisions.Number) (*api.RevisionChanges, []api.ImpactChange, error) {
	is, err := At(ctx, r, n)
	if err != nil {
		return nil, nil, err
	}
	n = is.Revision.Number
	out := &api.RevisionChanges{APIVersion: api.Version, Kind: api.KindRevisionChanges, Revision: Revision(is.Revision), Items: []api.ChangedItem{}}
	if n > 1 {
		out.Base = (n - 1).String()
	}
	was, known, err := before(ctx, r, n)
	switch {
	case err != nil:
		return nil, nil, err
	case !known:
		out.Unknown = "the store no longer has " + out.Base
		return out, nil, nil
	}
	type pair struct{ was, is *revisions.Item }
	var all []pair
	key := func(p pair) revisions.Key { return cmp.Or(p.is, p.was).Key() }
	is.Since(was, func(a, b *revisions.Item) bool { all = append(all, pair{a, b}); return true })
	slices.SortFunc(all, func(a, b pair) int { return key(a).Compare(key(b)) })
	holds, err := r.Holds(ctx)
	if err != nil {
		return nil, nil, err
	}
	maps.DeleteFunc(holds, func(_ string, h revisions.Hold) bool { return h.Number >= n })
	keys := make([]revisions.Key, 0, len(all))
	plan := make([]api.ImpactChange, 0, len(all))
	for _, p := range all {
		keys = append(keys, key(p))
		c := changedItem(p.was, p.is)
		if it := cmp.Or(p.is, p.was); it.Resource != nil {
			plan = append(plan, api.ImpactChange{Type: it.Resource.Type.URL, Name: c.Name, Group: c.Group, Bytes: c.Bytes})
		}
		if len(out.Items) < maxChanged {
			out.Items = append(out.Items, c)
		}
	}
	out.Total, out.Held = len(all), heldOf(keys, holds)
	return out, plan, nil
}

// changedItem describes a change of one item. One of the arguments may be nil.
func changedItem(was, is *revisions.Item) api.ChangedItem {
	k := cmp.Or(is, was).Key()
	c := api.ChangedItem{Change: "changed", Group: k.Group, Type: k.Type, Name: k.Name, Bytes: sizeOf(is), Before: sizeOf(was)}
	if k.Type != "" {
		c.Type = xds.TypeOf(k.Type).String()
	}
	switch {
	case was == nil:
		c.Change = "added"
	case is == nil:
		c.Change = "removed"
	}
	if is != nil {
		c.Place = PlaceOf(is)
	}
	return c
}

// sizeOf returns the encoded size of an item's resource; 0 if there is none.
func sizeOf(it *revisions.Item) int {
	if it == nil || it.Resource == nil {
		return 0
	}
	return len(it.Resource.Body)
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
		b := api.Blamed{Group: it.Group, Revision: it.Since.String(), Place: PlaceOf(it)}
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

// PlaceOf returns the place of an item in the author's files; "" if it is unknown.
func PlaceOf(it *revisions.Item) string {
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
