package store_test

import (
	"context"
	"slices"
	"testing"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// The overlay of a group hides the group's resources, which are visible again when the overlay is empty. The
// order of two groups is: overlay of the first group, first group, overlay of the second group, second group.
func TestOverlay(t *testing.T) {
	st := store.New(store.WithOverlays(), store.WithGroups(func(context.Context, *xds.Node) ([]string, error) { return []string{"a", "b"}, nil }))
	w, err := st.Watch(t.Context(), &xds.Node{ID: "n"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	w.Interested(xds.Endpoint, false, []string{"x"}, nil)
	if v, _, _ := w.Next(); v != nil {
		t.Fatal("something is known before the groups are")
	}
	update := func(f func(tx *store.Tx)) {
		t.Helper()
		if _, err := st.Update(func(tx *store.Tx) error { f(tx); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	body := func(text string) *xds.Resource { return xds.NewResource(xds.Endpoint, "x", []byte(text)) }
	sees := func(want string) {
		t.Helper()
		v, _, err := w.Next()
		if err != nil || v == nil {
			t.Fatal(v, err)
		}
		for _, got := range []*xds.Resource{v.Table(xds.Endpoint).Lookup("x"), st.Snapshot().Effective("a", "b").Table(xds.Endpoint).Lookup("x")} {
			if (got == nil) != (want == "") || got != nil && string(got.Body) != want {
				t.Errorf("sees %v, want %q", got, want)
			}
		}
	}
	update(func(tx *store.Tx) { tx.Group(store.OverlayOf("b")).Set(body("over b")) })
	if v, _, _ := w.Next(); v != nil {
		t.Fatal("something is known before the groups are")
	}
	update(func(tx *store.Tx) { tx.Group("a").MarkKnown(); tx.Group("b").Set(body("b")) })
	sees("over b")
	update(func(tx *store.Tx) { tx.Group("a").Set(body("a")) })
	sees("a")
	update(func(tx *store.Tx) { tx.Group(store.OverlayOf("a")).Set(body("over a")) })
	sees("over a")
	if !slices.Equal(w.Groups(), []string{"a", "b"}) || !slices.Equal(st.Snapshot().Groups(), []string{"a", "b"}) {
		t.Error(w.Groups(), st.Snapshot().Groups())
	}
	if got := st.Snapshot().View("a").Table(xds.Endpoint).Lookup("x"); string(got.Body) != "a" {
		t.Errorf("%s", got.Body)
	}
	update(func(tx *store.Tx) { tx.Group(store.OverlayOf("a")).Delete(xds.Endpoint, "x") })
	sees("a")
	update(func(tx *store.Tx) { tx.Group("a").Delete(xds.Endpoint, "x") })
	sees("over b")
	update(func(tx *store.Tx) { tx.Group(store.OverlayOf("b")).Delete(xds.Endpoint, "x") })
	sees("b")
}

// Two groups share one overlay if WithOverlayOf returns the same group for both.
func TestSharedOverlay(t *testing.T) {
	group := "a"
	st := store.New(store.WithOverlays(), store.WithOverlayOf(func(g string) string { return g[:1] }), store.WithGroups(func(context.Context, *xds.Node) ([]string, error) { return []string{group}, nil }))
	if _, err := st.Update(func(tx *store.Tx) error {
		for name, text := range map[string]string{"a": "one", "a2": "two", store.OverlayOf("a"): "over"} {
			tx.Group(name).Set(xds.NewResource(xds.Endpoint, "x", []byte(text)))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, group = range []string{"a", "a2"} {
		w, err := st.Watch(t.Context(), &xds.Node{ID: "n"})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		for _, got := range []*xds.Resource{w.View().Table(xds.Endpoint).Lookup("x"), st.Snapshot().Effective(group).Table(xds.Endpoint).Lookup("x")} {
			if string(got.Body) != "over" {
				t.Errorf("%s sees %s", group, got.Body)
			}
		}
	}
}
