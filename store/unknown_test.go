package store

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/chancery-xds/chancery/internal/testkit/watchtest"
	"github.com/chancery-xds/chancery/xds"
)

// "A start on nothing, on mistakes or on half a configuration tells no client that
// anything is gone: the last good is served, or nothing is answered." (SAFE-10)
func TestUnknownUntilWritten(t *testing.T) {
	view := func(t *testing.T, st *Store, want string) {
		t.Helper()
		w := watchtest.Open(t, st, nil)
		defer w.Close()
		got := "unknown"
		if v, _ := watchtest.Next(t, w); v != nil {
			got = "empty"
			if v.Table(xds.Cluster).Len() > 0 {
				got = "full"
			}
		}
		if got != want {
			t.Errorf("the group is %s, want %s", got, want)
		}
	}
	for _, tt := range []struct {
		name string
		do   func(*Tx)
		want string
	}{
		{"nothing is done", func(*Tx) {}, "unknown"},
		{"it is looked at", func(tx *Tx) { tx.Lookup(xds.Cluster, "a"); tx.Notify(xds.Cluster, "a") }, "unknown"},
		{"another group is written", func(tx *Tx) { tx.Group("b").Set(of(xds.Cluster, res("a", "1"))...) }, "unknown"},
		{"it is written", func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", "1"))...) }, "full"},
		{"it is cleared", func(tx *Tx) { tx.Clear() }, "empty"},
		{"a type is replaced by nothing", func(tx *Tx) { tx.Replace(xds.Cluster) }, "empty"},
		{"an absent name is deleted", func(tx *Tx) { tx.Delete(xds.Cluster, "a") }, "unknown"},
		{"it is said to be empty", func(tx *Tx) { tx.MarkKnown() }, "empty"},
		{"it is written and emptied", func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", "1"))...); tx.Clear() }, "empty"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st := New()
			update(t, st, tt.do)
			view(t, st, tt.want)
		})
	}
	t.Run("unless WithEmptyGroups is set", func(t *testing.T) { view(t, New(WithEmptyGroups()), "empty") })
	t.Run("all that wait for it hear of it, whatever they ask for", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			st := New()
			w := watchtest.Open(t, st, nil)
			defer w.Close()
			w.Next()
			update(t, st, func(tx *Tx) { tx.Clear() })
			if !rang(w) {
				t.Error("it does not ring")
			}
			if v, touched := watchtest.Next(t, w); v == nil || touched != nil {
				t.Errorf("view %v, touched %v", v, touched)
			}
		})
	})
}

// Clients are not told that a name of an unknown type does not exist, until the type is known.
func TestUnknownType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := New()
		update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", "1"))...); tx.MarkUnknown(xds.Secret) })
		w := watchtest.Open(t, st, nil)
		defer w.Close()
		undecided := func(want bool) {
			t.Helper()
			v, _ := watchtest.Next(t, w)
			u, is := v.(xds.Undecided)
			if got := is && u.Undecided(xds.Secret, "s"); got != want {
				t.Errorf("undecided: %v, want %v", got, want)
			}
			if is && u.Undecided(xds.Cluster, "b") {
				t.Error("another type is undecided")
			}
			if is && u.Undecided(xds.Secret, xds.Wildcard) {
				t.Error("the wildcard is undecided")
			}
		}
		undecided(true)
		update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", "2"))...) })
		undecided(true)
		synctest.Wait()
		update(t, st, func(tx *Tx) { tx.Replace(xds.Secret) })
		if !rang(w) {
			t.Error("it does not ring when the type is known")
		}
		undecided(false)
	})
}

// Two unknown types become known separately (SAFE-10).
func TestUnknownTypesBecomeKnownSeparately(t *testing.T) {
	st := New()
	update(t, st, func(tx *Tx) {
		tx.Set(of(xds.Cluster, res("c", "1"))...)
		tx.MarkUnknown(xds.Secret)
		tx.MarkUnknown(xds.Endpoint)
	})
	update(t, st, func(tx *Tx) { tx.Replace(xds.Secret) })
	w := watchtest.Open(t, st, nil)
	defer w.Close()
	v, _ := watchtest.Next(t, w)
	u, is := v.(xds.Undecided)
	if !is || !u.Undecided(xds.Endpoint, "e") || u.Undecided(xds.Secret, "s") {
		t.Errorf("undecided: %v", v)
	}
}

// A second type that becomes unknown in a later transaction does not make the first type known (SAFE-10). A
// resource that the type already has makes it known.
func TestUnknownTypesOfSeveralTransactions(t *testing.T) {
	st := New()
	secret := res("s", "1")
	update(t, st, func(tx *Tx) { tx.Set(of(xds.Secret, secret)...); tx.MarkUnknown(xds.Secret) })
	update(t, st, func(tx *Tx) { tx.MarkUnknown(xds.Endpoint) })
	w := watchtest.Open(t, st, nil)
	defer w.Close()
	undecided := func(want ...*xds.Type) {
		t.Helper()
		u, is := w.View().(xds.Undecided)
		for _, typ := range []*xds.Type{xds.Secret, xds.Endpoint} {
			if got := is && u.Undecided(typ, "x"); got != slices.Contains(want, typ) {
				t.Errorf("%s is undecided: %v", typ, got)
			}
		}
	}
	undecided(xds.Secret, xds.Endpoint)
	update(t, st, func(tx *Tx) { tx.Set(of(xds.Secret, res("s", "1"))...) })
	undecided(xds.Endpoint)
	update(t, st, func(tx *Tx) { tx.Delete(xds.Endpoint, "e") })
	undecided(xds.Endpoint)
}

// A type that is marked as unknown stays unknown, with or without watches and content (SAFE-10: "... no client is
// told that anything is gone").
func TestUnknownTypeOutlivesEmptyGroup(t *testing.T) {
	for _, full := range []bool{true, false} {
		st := New()
		update(t, st, func(tx *Tx) {
			if tx.MarkUnknown(xds.Endpoint); full {
				tx.Set(of(xds.Listener, res("l", "1"))...)
			}
		})
		update(t, st, func(tx *Tx) { tx.Replace(xds.Cluster) })
		w := watchtest.Open(t, st, nil)
		v, _ := watchtest.Next(t, w)
		w.Close()
		if u, is := v.(xds.Undecided); !is || !u.Undecided(xds.Endpoint, "e") {
			t.Errorf("full %v: the endpoints are known: %v", full, v)
		}
	}
}
