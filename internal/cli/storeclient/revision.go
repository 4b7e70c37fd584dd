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

// RevisionPrefix begins an argument that names a revision of a store instead of a directory.
const RevisionPrefix = "rev:"

// Timeout is the timeout for a store in commands without a flag for the timeout.
const Timeout = 30 * time.Second

// ParseRevision parses the revision after rev:. It returns 0 for the newest.
func ParseRevision(arg string) (revisions.Number, error) {
	text := strings.TrimPrefix(arg, RevisionPrefix)
	if text == "head" {
		return 0, nil
	}
	n, err := revisions.ParseNumber(text)
	if err == nil && n == 0 {
		err = fmt.Errorf("%q is not a revision: the first is r1, and rev:head is the newest", text)
	}
	return n, err
}

// RevisionSource loads a revision like a directory. The result hidden counts the resources that the
// server sent without their secrets.
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
	err = src.Restore(dircommit.Config(s, s.Revision.Time))
	if err != nil {
		err = cli.Fail(err, "")
	}
	return src, st, grouped, hidden, err
}
