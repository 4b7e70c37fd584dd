package daemon

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"github.com/chancery-xds/chancery/internal/admin/explain"
	"github.com/chancery-xds/chancery/internal/cluster/revisionapi"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// diffSides returns the sets of resources that the admin API can compare, in addition to those of every server: the
// files of the directory as they are now, and the revisions of the store.
func diffSides(src source) map[string]explain.SideSource {
	all := map[string]explain.SideSource{}
	switch d := src.(type) {
	case *directorySource:
		all["files"] = filesSide(d.dir, d.flags.options(&d.services), d.store)
	case *storeSource:
		if d.root != "" {
			all["files"] = filesSide(d.root, d.loading.options(&d.services), d.store)
		}
		all["rev"] = func(ctx context.Context, of string, add func(group string, r *xds.Resource, place string)) (note string, err error) {
			n, err := revisions.ParseNumber(of)
			if of == "head" {
				n, err = 0, nil
			}
			if err != nil {
				return "", &explain.NotFound{Field: "rev", Message: err.Error()}
			}
			at, err := revisionapi.At(ctx, d.repo.Repository(), n)
			if err != nil {
				return "", err
			}
			for it := range at.All {
				if it.Resource != nil {
					add(it.Group, it.Resource, revisionapi.PlaceOf(it))
				}
			}
			return at.Revision.Message, nil
		}
	}
	return all
}

// filesSide returns the resources of a directory, read at the time of the call. It reads one directory at a time,
// because each needs memory. As in a load, a group whose files are rejected alone keeps its served resources.
func filesSide(root string, opts dir.Options, served *store.Store) explain.SideSource {
	opts.Log = slog.New(slog.DiscardHandler)
	opts.AllowEmpty, opts.AllowMassDelete, opts.LoadAtOnce = true, true, true
	var reading sync.Mutex
	return func(_ context.Context, _ string, add func(group string, r *xds.Resource, place string)) (note string, err error) {
		reading.Lock()
		defer reading.Unlock()
		st := store.New()
		src := dir.New(root, st, opts)
		report, err := src.Load()
		if err != nil {
			return "", err
		}
		addGroup := func(from *store.Snapshot, group string) {
			for _, table := range from.View(group).All() {
				for r := range table.All() {
					add(group, r, src.PlaceIn(group, r.Type, r.Name))
				}
			}
		}
		loaded, now := st.Snapshot(), served.Snapshot()
		for _, group := range loaded.Groups() {
			addGroup(loaded, group)
		}
		var kept []string
		for _, g := range report.Rejected {
			addGroup(now, g.Group)
			kept = append(kept, g.Group)
		}
		if len(kept) > 0 {
			note = "the files have errors in " + strings.Join(kept, ", ") + ": compared as served"
		}
		return note, nil
	}
}
