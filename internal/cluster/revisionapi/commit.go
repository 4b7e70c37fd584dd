package revisionapi

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// A Committer commits items to a repository. It needs a Repo.
type Committer struct {
	Repo *revisions.Repository

	// May is called with the keys of the items that the commit sets or removes. If it returns an error, nothing is
	// committed. Nil: the author may change all items.
	May func(changed []revisions.Key) error

	// Review is called with the configuration to commit. If it returns an error, nothing is
	// committed. The commit's answer contains the doubts. Nil: no review.
	Review func(next *revisions.Snapshot) (doubts []string, err error)
}

// Commit commits items as a request asks, with the given author. Errors are those of the repository; a
// [revisions.ConflictError] is a conflict.
func (c *Committer) Commit(ctx context.Context, items []*revisions.Item, req api.CommitRequest, author string) (*api.Commit, error) {
	if err := Forged(req.Source); err != nil {
		return nil, err
	}
	base, err := c.Repo.Head(ctx)
	if err != nil {
		return nil, err
	}
	commit := c.Repo.Commit
	if req.IfHead != "" {
		want, err := revisions.ParseNumber(req.IfHead)
		if err != nil {
			return nil, err
		}
		if head := base.Revision.Number; head != want {
			return nil, &revisions.ConflictError{Base: want, Head: head}
		}
		commit = c.Repo.CommitIf
	}
	edit, kept := base.To(items), 0
	if !req.Prune {
		kept, edit.Remove = len(edit.Remove), nil
	}
	if err := c.may(editedKeys(edit)); err != nil {
		return nil, err
	}
	var doubts []string
	if c.Review != nil && len(edit.Set)+len(edit.Remove) > 0 {
		next, err := made(base, edit)
		if err == nil {
			doubts, err = c.Review(next)
		}
		if err != nil {
			return nil, err
		}
	}
	if req.DryRun {
		done := wouldBe(base, edit, doubts)
		done.Kept = kept
		return done, nil
	}
	next, err := commit(ctx, base, edit, revisions.Note{Author: author, Message: req.Message, Source: req.Source})
	done, err := committed(base, next, doubts, err)
	if err == nil {
		done.Kept = kept
	}
	return done, err
}

// Restore commits the content of an earlier revision.
func (c *Committer) Restore(ctx context.Context, n revisions.Number, note revisions.Note) (*api.Commit, error) {
	base, err := c.Repo.Head(ctx)
	if err != nil {
		return nil, err
	}
	var doubts []string
	if c.Review != nil || c.May != nil {
		old, err := c.Repo.At(ctx, n)
		if err == nil {
			err = c.may(changedKeys(old, base))
		}
		if err == nil && c.Review != nil {
			doubts, err = c.Review(old)
		}
		if err != nil {
			return nil, err
		}
	}
	next, err := c.Repo.Restore(ctx, base, n, note)
	done, err := committed(base, next, doubts, err)
	if err == nil && done.Revision == done.Base { // an earlier rollback may be in the store, but not be served
		for _, h := range Holds(next.Holds()) {
			if h.Revision != n.String() && h.Revision != done.Revision {
				done.Held = append(done.Held, api.HeldChanges{Hold: h})
			}
		}
	}
	return done, err
}

func (c *Committer) may(changed []revisions.Key) error {
	if c.May == nil {
		return nil
	}
	return c.May(changed)
}

// editedKeys returns the keys that an edit sets or removes.
func editedKeys(edit revisions.Edit) []revisions.Key {
	keys := slices.Clone(edit.Remove)
	for _, it := range edit.Set {
		keys = append(keys, it.Key())
	}
	return keys
}

// changedKeys returns the keys of the items that differ between two snapshots.
func changedKeys(next, base *revisions.Snapshot) (keys []revisions.Key) {
	next.Since(base, func(was, is *revisions.Item) bool {
		if is == nil {
			is = was
		}
		keys = append(keys, is.Key())
		return true
	})
	return keys
}

// made returns a snapshot with an edit, as a commit without concurrent commits would make it.
func made(base *revisions.Snapshot, edit revisions.Edit) (*revisions.Snapshot, error) {
	all := make(map[revisions.Key]*revisions.Item, base.Len())
	for it := range base.All {
		all[it.Key()] = it
	}
	for _, k := range edit.Remove {
		delete(all, k)
	}
	for _, it := range edit.Set {
		all[it.Key()] = it
	}
	return revisions.Of(slices.Collect(maps.Values(all)))
}

func committed(base, next *revisions.Snapshot, doubts []string, err error) (*api.Commit, error) {
	if err != nil {
		return nil, err
	}
	c := &api.Commit{APIVersion: api.Version, Kind: api.KindCommit, Revision: next.Revision.Number.String(), Base: base.Revision.Number.String(), Warnings: doubts}
	if c.Revision != c.Base {
		c.Set, c.Removed = next.Revision.Set, next.Revision.Removed
		c.Held = heldOf(changedKeys(next, base), next.Holds())
	}
	return c, nil
}

// heldOf returns the changes of held groups, which are not served, by group.
func heldOf(keys []revisions.Key, holds map[string]revisions.Hold) (all []api.HeldChanges) {
	changed := map[string]int{}
	for _, k := range keys {
		changed[k.Group]++
	}
	for _, h := range Holds(holds) {
		if n := changed[h.Group]; n > 0 {
			all = append(all, api.HeldChanges{Hold: h, Changes: n})
		}
	}
	return all
}

// wouldBe returns the changes of an edit.
func wouldBe(base *revisions.Snapshot, edit revisions.Edit, doubts []string) *api.Commit {
	c := &api.Commit{
		APIVersion: api.Version, Kind: api.KindCommit, DryRun: true, Revision: base.Revision.Number.String(), Base: base.Revision.Number.String(),
		Set: len(edit.Set), Removed: len(edit.Remove), Warnings: doubts,
	}
	add := func(change string, k revisions.Key, place string) {
		c.Changes = append(c.Changes, api.RevisionChange{Change: change, Group: k.Group, Type: k.Type, Name: k.Name, Place: place})
	}
	for _, it := range edit.Set {
		change := "added"
		if base.Get(it.Key()) != nil {
			change = "changed"
		}
		add(change, it.Key(), PlaceOf(it))
	}
	for _, k := range edit.Remove {
		add("removed", k, "")
	}
	c.Held = heldOf(editedKeys(edit), base.Holds())
	return c
}

// Claimed is the author of a commit that a program makes on behalf of another author. It contains the
// authenticated program, and the author that the program names.
func Claimed(known, says string) string {
	if says == "" {
		return known
	}
	if strings.ContainsAny(says, `()"`) { // the name must not look like the end of the known part
		says = strconv.Quote(says)
	}
	return fmt.Sprintf("%s (says %s)", known, says)
}
