package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/applied"
	"github.com/chancery-xds/chancery/revisions"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
)

// ofRevision is how an argument begins that names a revision of a store, in the place of a directory.
const ofRevision = "rev:"

// storeTime is how long commands wait for a store that have no flag for it.
const storeTime = 30 * time.Second

// parseRevision reads what comes after rev:. 0 is the newest.
func parseRevision(arg string) (revisions.Number, error) {
	text := strings.TrimPrefix(arg, ofRevision)
	if text == "head" {
		return 0, nil
	}
	n, err := revisions.ParseNumber(text)
	if err == nil && n == 0 {
		err = fmt.Errorf("%q is no revision: the first is r1, and rev:head is the newest", text)
	}
	return n, err
}

// snapshot returns a revision of a store; 0: the newest.
func snapshot(ctx context.Context, r *revisions.Repository, n revisions.Number) (*revisions.Snapshot, error) {
	if n > 0 {
		return r.At(ctx, n)
	}
	s, err := r.Head(ctx)
	if err == nil && s.Revision.Number == 0 {
		err = fmt.Errorf("a revision: %w", revisions.ErrNotFound)
	}
	return s, err
}

// revisionSource returns a revision as the directory would be that has it.
func revisionSource(cmd *cobra.Command, at *storeFlags, n revisions.Number, opts dir.Options) (src *dir.Source, st *store.Store, grouped bool, err error) {
	err = withStore(cmd, at, storeTime, func(ctx context.Context, r *revisions.Repository) error {
		s, err := snapshot(ctx, r, n)
		if err != nil {
			return err
		}
		for it := range s.All {
			grouped = grouped || it.Group != groups.Default
		}
		st = store.New()
		src = dir.New("", st, opts)
		return src.Restore(applied.Config(s, s.Revision.Time))
	})
	return src, st, grouped, err
}
