package dirload

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/xds"
)

// Warnings returns the warnings about the configuration that a source has loaded.
func Warnings(src *dir.Source) (all []string) {
	for _, p := range src.Summary().Warnings {
		all = append(all, p.Error())
	}
	return all
}

// Refusable returns warnings of the resources that a source has loaded and that Envoy refuses.
func Refusable(src *dir.Source) (all []string) {
	found, more := src.Refusable()
	for _, p := range found {
		p.Warning = true
		all = append(all, p.Error())
	}
	if more > 0 {
		all = append(all, fmt.Sprintf("warning: Envoy refuses the revision for %s more", text.Amount(more, "reason")))
	}
	return all
}

// SortedTables returns the non-empty tables of a view in push order.
func SortedTables(v xds.Tables) (all []*xds.Table) {
	for _, t := range v {
		if t.Type() != nil {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b *xds.Table) int {
		return cmp.Or(cmp.Compare(a.Type().Rank(), b.Type().Rank()), cmp.Compare(a.Type().URL, b.Type().URL))
	})
	return all
}

// LoadError prints the errors of a directory that cannot be loaded. It returns an error with the number
// of errors.
func LoadError(stderr io.Writer, root, done string, err error) error {
	errs, ok := errors.AsType[dir.Errors](err)
	if !ok || len(errs) == 1 {
		return cli.Fail(err, "")
	}
	for _, e := range errs {
		fmt.Fprintln(stderr, e)
	}
	return cli.Fail(fmt.Errorf("%d errors in %s: nothing is %s", errs.Count(), root, done), "")
}
