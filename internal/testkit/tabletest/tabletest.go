// Package tabletest makes tables for tests. It panics if the contents are invalid.
package tabletest

import (
	"cmp"

	"github.com/chancery-xds/chancery/xds"
)

// With is Table.With, and panics if that returns an error. It sets the type of resources without one to
// the table's type, or to Cluster if the table has none.
func With(t *xds.Table, set []*xds.Resource, remove ...string) *xds.Table {
	n, err := t.With(Of(cmp.Or(t.Type(), xds.Cluster), set...), remove...)
	if err != nil {
		panic(err)
	}
	return n
}

// Of sets the type of resources without one, and returns the resources. It ignores nil.
func Of(t *xds.Type, rs ...*xds.Resource) []*xds.Resource {
	for _, r := range rs {
		if r != nil && r.Type == nil {
			r.Type = t
		}
	}
	return rs
}
