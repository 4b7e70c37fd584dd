package storeclient

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cluster/dircommit"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
)

// OfRevision is how an argument begins that names a revision of a store, in the place of a directory.
const OfRevision = "rev:"

// Timeout is how long commands wait for a store that have no flag for it.
const Timeout = 30 * time.Second

// ParseRevision reads what comes after rev:. 0 is the newest.
func ParseRevision(arg string) (revisions.Number, error) {
	text := strings.TrimPrefix(arg, OfRevision)
	if text == "head" {
		return 0, nil
	}
	n, err := revisions.ParseNumber(text)
	if err == nil && n == 0 {
		err = fmt.Errorf("%q is no revision: the first is r1, and rev:head is the newest", text)
	}
	return n, err
}

// RevisionSource returns a revision as the directory would be that has it, and how many of its resources are
// there without what may not be shown.
func RevisionSource(cmd *cobra.Command, from *Access, n revisions.Number, opts dir.Options) (src *dir.Source, st *store.Store, grouped bool, hidden int, err error) {
	s, hidden, err := from.revision(cmd, n)
	if err != nil {
		return nil, nil, false, 0, err
	}
	for it := range s.All {
		grouped = grouped || it.Group != groups.Default
	}
	st = store.New()
	src = dir.New("", st, opts)
	if err = src.Restore(dircommit.Config(s, s.Revision.Time)); err != nil {
		err = cli.Fail(err, "")
	}
	return src, st, grouped, hidden, err
}
