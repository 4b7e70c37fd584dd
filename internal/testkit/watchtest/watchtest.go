// Package watchtest opens watches and reads them in tests. It fails the test on an error.
package watchtest

import (
	"context"
	"testing"

	"github.com/chancery-xds/chancery/xds"
)

// Open returns a watch of the resources that the node may see.
func Open[W any](t testing.TB, from interface {
	Watch(context.Context, *xds.Node) (W, error)
}, node *xds.Node,
) W {
	t.Helper()
	w, err := from.Watch(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// Next returns the current view of a watch and the changed names.
func Next(t testing.TB, w interface {
	Next() (xds.View, []xds.Names, error)
},
) (xds.View, []xds.Names) {
	t.Helper()
	view, touched, err := w.Next()
	if err != nil {
		t.Fatal(err)
	}
	return view, touched
}
