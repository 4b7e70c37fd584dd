// Package tabletest makes tables for tests, where nothing is wrong with what is put into them.
package tabletest

import (
	"cmp"

	"github.com/chancery-xds/chancery/xds"
)

// With is Table.With, and panics if that returns an error. Resources that have no type yet get
// the table's; where that has none, either, they are clusters.
func With(t *xds.Table, set []*xds.Resource, remove ...string) *xds.Table {
	n, err := t.With(Of(cmp.Or(t.Type(), xds.Cluster), set...), remove...)
	if err != nil {
		panic(err)
	}
	return n
}

// Of makes resources that have no type yet ones of a type. Nil is left as it is.
func Of(t *xds.Type, rs ...*xds.Resource) []*xds.Resource {
	for _, r := range rs {
		if r != nil && r.Type == nil {
			r.Type = t
		}
	}
	return rs
}
