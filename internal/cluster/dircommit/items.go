package dircommit

import (
	"cmp"
	"errors"
	"path/filepath"
	"strings"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/disk/lastgood"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
)

// Read reads a directory as a server does, and returns all items that the server would serve. A
// server of these items serves the same versions as a server of the directory. An error in one group
// is an error of the whole directory ([dir.Errors]): a revision must not mix groups of different
// times. The options are those of the source, without Keep.
func Read(root string, opts dir.Options) ([]*revisions.Item, dir.Report, error) {
	var kept *dir.LastGood
	opts.Keep = func(c dir.LastGood) { kept = &c }
	report, err := dir.New(root, store.New(), opts).Load()
	switch {
	case err != nil:
		return nil, report, err
	case report.Rejected != nil:
		return nil, report, report.Rejected
	case kept == nil: // nothing was loaded
		return nil, report, nil
	}
	items, err := Items(root, *kept)
	return items, report, err
}

// Items returns the content of a directory as items of a repository.
func Items(root string, c dir.LastGood) (all []*revisions.Item, err error) {
	for _, d := range c.Definitions {
		def, problems := groups.Parse(d.Path, d.Data)
		if err := wrong(problems); err != nil {
			return nil, err
		}
		all = append(all, &revisions.Item{Group: cmp.Or(def.Name, groupOf(d.Path)), Definition: d.Data, Place: revisions.Place{File: d.Path}})
	}
	part := func(group string, types []lastgood.Type) {
		for _, t := range types {
			if t.Version != "" {
				all = append(all, &revisions.Item{Group: group, Type: t.URL, Version: t.Version})
			}
			for _, r := range t.Resources {
				file := r.File
				if rel, err := filepath.Rel(root, file); err == nil && filepath.IsLocal(rel) {
					file = filepath.ToSlash(rel) // a path that does not depend on the location of the directory
				}
				// A file name may have any bytes, but a protobuf string must be UTF-8.
				at := revisions.Place{File: strings.ToValidUTF8(file, "\uFFFD"), Line: r.Line, Col: r.Col, Path: r.Path}
				all = append(all, &revisions.Item{Group: group, Resource: r.Resource, Secret: r.Secret, Place: at})
			}
		}
	}
	part(groups.Default, c.Types)
	for _, g := range c.Groups {
		part(g.Name, g.Types)
	}
	return all, nil
}

func wrong(problems []findings.Problem) error {
	var errs []error
	for _, p := range problems {
		if !p.Warning {
			errs = append(errs, p)
		}
	}
	return errors.Join(errs...)
}
