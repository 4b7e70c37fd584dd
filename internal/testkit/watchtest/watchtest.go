// Package watchtest opens watches and follows them in tests, where nothing is refused.
package watchtest

import (
	"context"
	"testing"

	"github.com/chancery-xds/chancery/xds"
)

// Open returns a watch of what the node may see.
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

// Next returns what the watch sees now, and which names were touched.
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
