package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/testkit/watchtest"
	"github.com/chancery-xds/chancery/xds"
)

// what prints the resources of a type in a group.
func what(st *Store, group string, t *xds.Type) string {
	var out []string
	for r := range st.Snapshot().View(group).Table(t).All() {
		out = append(out, r.Name+"="+string(r.Body))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func TestUpdate(t *testing.T) {
	for _, tt := range []struct {
		name string
		f    func(tx *Tx)
		want string // clusters of the default group, at first "a=1 b=1"
		set  int
		gone int
	}{
		{"nothing", func(*Tx) {}, "a=1 b=1", 0, 0},
		{"set", func(tx *Tx) { tx.Set(of(xds.Cluster, res("c", "1"), res("a", "2"))...) }, "a=2 b=1 c=1", 2, 0},
		{"set equal content", func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", "1"), res("b", "1"))...) }, "a=1 b=1", 0, 0},
		{"set none", func(tx *Tx) { tx.Set() }, "a=1 b=1", 0, 0},
		{"set twice", func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", "2"), res("a", "3"))...) }, "a=3 b=1", 1, 0},
		{"set away and back", func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", "2"))...); tx.Set(of(xds.Cluster, res("a", "1"))...) }, "a=1 b=1", 0, 0},
		{"delete", func(tx *Tx) { tx.Delete(xds.Cluster, "a") }, "b=1", 0, 1},
		{"delete an absent name", func(tx *Tx) { tx.Delete(xds.Cluster, "x", "y") }, "a=1 b=1", 0, 0},
		{"delete, then set", func(tx *Tx) { tx.Delete(xds.Cluster, "a"); tx.Set(of(xds.Cluster, res("a", "1"))...) }, "a=1 b=1", 0, 0},
		{"set, then delete", func(tx *Tx) { tx.Set(of(xds.Cluster, res("c", "1"))...); tx.Delete(xds.Cluster, "c") }, "a=1 b=1", 0, 0},
		{"replace", func(tx *Tx) { tx.Replace(xds.Cluster, of(xds.Cluster, res("b", "1"), res("c", "1"))...) }, "b=1 c=1", 1, 1},
		{"replace by the same", func(tx *Tx) { tx.Replace(xds.Cluster, of(xds.Cluster, res("b", "1"), res("a", "1"))...) }, "a=1 b=1", 0, 0},
		{"replace by none", func(tx *Tx) { tx.Replace(xds.Cluster) }, "", 0, 2},
		{"set, then replace", func(tx *Tx) {
			tx.Set(of(xds.Cluster, res("c", "1"))...)
			tx.Replace(xds.Cluster, of(xds.Cluster, res("a", "1"))...)
		}, "a=1", 0, 1},
		{"replace, then set and delete", func(tx *Tx) {
			tx.Replace(xds.Cluster, of(xds.Cluster, res("a", "2"))...)
			tx.Set(of(xds.Cluster, res("b", "2"))...)
			tx.Delete(xds.Cluster, "a")
		}, "b=2", 1, 1},
		{"clear", func(tx *Tx) { tx.Clear() }, "", 0, 2},
		{"clear, then set", func(tx *Tx) { tx.Clear(); tx.Set(of(xds.Cluster, res("b", "1"))...) }, "b=1", 0, 1},
		{"set, then clear", func(tx *Tx) { tx.Set(of(xds.Route, res("r", "1"))...); tx.Clear() }, "", 0, 2},
		{"another group", func(tx *Tx) { tx.Group("edge").Delete(xds.Cluster, "a"); tx.Group("edge").Lookup(xds.Cluster, "a") }, "a=1 b=1", 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st := New()
			update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", "1"), res("b", "1"))...) })
			before := st.Snapshot()
			b := before.View(DefaultGroup).Table(xds.Cluster).Lookup("b")
			c := update(t, st, tt.f)
			if got := what(st, DefaultGroup, xds.Cluster); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if tt.set+tt.gone == 0 {
				if c.Seq != 1 || len(c.Changes) != 0 || st.Snapshot() != before {
					t.Errorf("nothing changed, but there is a commit %+v", c)
				}
				return
			}
			if len(c.Changes) != 1 || c.Seq != 2 {
				t.Fatalf("commit %+v", c)
			}
			ch := c.Changes[0]
			if ch.Group != DefaultGroup || !ch.Type.Is(xds.Cluster) || ch.Set != tt.set || ch.Removed != tt.gone {
				t.Errorf("change %+v, want %d set and %d removed", ch, tt.set, tt.gone)
			}
			table := st.Snapshot().View(DefaultGroup).Table(xds.Cluster)
			if ch.Version != table.Version() {
				t.Errorf("version %s, want %s", ch.Version, table.Version())
			}
			if now := table.Lookup("b"); now != nil && now.Sum == b.Sum && now != b {
				t.Error("a resource set at the content it has is another object")
			}
			if got := before.View(DefaultGroup).Table(xds.Cluster).Len(); got != 2 {
				t.Errorf("the snapshot before has %d resources now", got)
			}
		})
	}
}

// One commit changes several types and groups, and lists them in push order.
func TestUpdateIsOneCommit(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	st := New(WithClock(func() time.Time { return at }))
	update(t, st, func(tx *Tx) {
		tx.Set(of(xds.Route, res("r", "1"))...)
		tx.Set(of(unlisted(), res("u", "1"))...)
		edge := tx.Group("edge")
		edge.Set(of(xds.Listener, res("l", "1"))...)
		edge.Group(DefaultGroup).Set(of(xds.Cluster, res("c", "1"))...)
		edge.Set(of(unlisted(), res("u", "1"))...)
		tx.Set(of(unlisted(), res("v", "1"))...)
	})
	if got := st.Snapshot().Groups(); !slices.Equal(got, []string{"default", "edge"}) {
		t.Errorf("groups %v", got)
	}
	if got := what(st, "edge", unlisted()); got != "u=1" {
		t.Errorf("edge has %q", got)
	}
	log := st.Log()
	if len(log) != 1 || log[0].Seq != 1 || !log[0].Time.Equal(at) || st.Snapshot().Seq() != 1 {
		t.Fatalf("log %+v", log)
	}
	var got []string
	for _, c := range log[0].Changes {
		got = append(got, fmt.Sprintf("%s %s +%d -%d", c.Group, c.Type, c.Set, c.Removed))
	}
	want := []string{"default CDS +1 -0", "default RDS +1 -0", "default Unlisted +2 -0", "edge LDS +1 -0", "edge Unlisted +1 -0"}
	if !slices.Equal(got, want) {
		t.Errorf("changes %q", got)
	}
	if v := st.Snapshot().View("nowhere").Table(xds.Cluster); v.Len() != 0 {
		t.Error("a group that does not exist has content")
	}
}

func TestLog(t *testing.T) {
	st := New(WithLog(3))
	for i := range 10 {
		update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("c", fmt.Sprint(i)))...) })
	}
	var got []uint64
	for _, c := range st.Log() {
		got = append(got, c.Seq)
	}
	if !slices.Equal(got, []uint64{8, 9, 10}) {
		t.Errorf("the log has %v", got)
	}
}

// An invalid transaction changes nothing, and its error names the reason.
func TestUpdateRefuses(t *testing.T) {
	unsealed := &xds.Resource{Stamp: &xds.Stamp{Name: "x"}, Body: []byte("1")}
	ttl := &xds.Resource{Stamp: &xds.Stamp{Name: "x"}, TTL: -1}
	ttl.Seal("")
	binary := &xds.Resource{Stamp: &xds.Stamp{Name: "x"}}
	binary.Seal("\xff")
	typeless := res("x", "")
	typeless.Refs = []xds.Ref{{Name: "y"}}
	cluster := xds.NewResource(xds.Cluster, "backend", []byte("1"))
	mine := errors.New("mine")
	for _, tt := range []struct {
		name string
		f    func(tx *Tx) error
		want string
	}{
		{"error", func(*Tx) error { return mine }, "mine"},
		{"nil resource", func(tx *Tx) error { tx.Set(of(xds.Cluster, res("b", ""), nil)...); return nil },
			`group "default": a resource is nil (number 2 of 2)`},
		{"no stamp", func(tx *Tx) error { tx.Set(&xds.Resource{}); return nil }, "a resource is empty: make it by NewResource"},
		{"no name", func(tx *Tx) error { tx.Replace(xds.Cluster, of(xds.Cluster, res("", ""))...); return nil }, "a resource has no name"},
		{"reserved name", func(tx *Tx) error { tx.Set(of(xds.Cluster, res("*", ""))...); return nil }, `the name "*" is reserved`},
		{"name not UTF-8", func(tx *Tx) error { tx.Set(of(xds.Cluster, res("\xff", ""))...); return nil }, `name "\xff" is not UTF-8`},
		{"not sealed", func(tx *Tx) error { tx.Group("edge").Set(of(xds.Route, unsealed)...); return nil },
			`group "edge": RDS: resource "x" is not sealed`},
		{"version not UTF-8", func(tx *Tx) error { tx.Set(of(xds.Route, binary)...); return nil }, `version "\xff" is not UTF-8`},
		{"negative TTL", func(tx *Tx) error { tx.Set(of(xds.Route, ttl)...); return nil }, "TTL -1ns is negative"},
		{"ADS-8 a reference to nothing of any type", func(tx *Tx) error { tx.Set(of(xds.Route, typeless)...); return nil },
			`resource "x": the reference to "y" has no type`},
		{"empty alias", func(tx *Tx) error { tx.Set(of(xds.Route, res("x", "", ""))...); return nil }, `resource "x": "" cannot be an alias`},
		{"reserved alias", func(tx *Tx) error { tx.Set(of(xds.Route, res("x", "", "*"))...); return nil }, `resource "x": "*" cannot be an alias`},
		{"delete all by *", func(tx *Tx) error { tx.Delete(xds.Route, "*"); return nil }, `"*" is not a resource name`},
		{"delete nothing", func(tx *Tx) error { tx.Delete(xds.Route, ""); return nil }, `"" is not a resource name`},
		{"NAME-2 not canonical", func(tx *Tx) error { tx.Set(of(xds.Endpoint, res("xdstp://a/t/x?b=1&a=2", ""))...); return nil },
			`group "default": EDS: name "xdstp://a/t/x?b=1&a=2" is not canonical: want "xdstp://a/t/x?a=2&b=1"`},
		{"NAME-2 an alias that is not canonical", func(tx *Tx) error { tx.Set(of(xds.Endpoint, res("x", "", "xdstp://a/t/x?b=1&a=2"))...); return nil },
			`resource "x": alias "xdstp://a/t/x?b=1&a=2" is not canonical`},
		{"NAME-2 delete a name that is not canonical", func(tx *Tx) error { tx.Delete(xds.Endpoint, "xdstp://a/t/x?b=1&a=2"); return nil }, "is not canonical"},
		{"DELTA-11 an alias of two", func(tx *Tx) error { tx.Set(of(xds.Route, res("z", "", "x"), res("y", "", "x"))...); return nil },
			`group "default": RDS: "x" is an alias of both "y" and "z"`},
		{"DELTA-11 an alias that is a name", func(tx *Tx) error { tx.Set(of(xds.Cluster, res("z", "", "a"))...); return nil },
			`group "default": CDS: "a" is an alias of "z" and the name of another resource`},
		{"DELTA-11 a name that is an alias", func(tx *Tx) error {
			tx.Set(of(xds.Route, res("z", "", "x"))...)
			tx.Set(of(xds.Route, res("x", ""))...)
			return nil
		},
			`group "default": RDS: "x" is an alias of "z" and the name of another resource`},
		{"TYP-7 of another type, as all there is", func(tx *Tx) error { tx.Group("edge").Replace(xds.Endpoint, of(xds.Endpoint, cluster)...); return nil },
			`group "edge": EDS: resource "backend" has type CDS, and is set as EDS (number 1 of 1)`},
		{"TYP-7 of another type of that name", func(tx *Tx) error { tx.Replace(xds.TypeOf("x/Y"), of(xds.TypeOf("z/Y"), res("a", ""))...); return nil },
			`resource "a" has type z/Y, and is set as x/Y`},
		{"nil, as all there is", func(tx *Tx) error { tx.Replace(xds.Endpoint, of(xds.Endpoint, nil)...); return nil }, `group "default": EDS: a resource is nil`},
		{"no type", func(tx *Tx) error { tx.Set(res("x", "")); return nil }, `group "default": resource "x" has no type (number 1 of 1)`},
		{"a type without URL", func(tx *Tx) error { tx.Set(of(&xds.Type{}, res("x", ""))...); return nil }, `resource "x" has no type`},
		{"of a nil type, as all there is", func(tx *Tx) error { tx.Replace(nil, cluster); return nil }, `group "default": a type is nil`},
		{"type without URL", func(tx *Tx) error { tx.Version(&xds.Type{}, "x"); return nil }, "a type has no URL"},
		{"changed after it was sealed", func(tx *Tx) error { tx.Set(longer(of(xds.Cluster, res("x", "")))...); return nil },
			`group "default": CDS: resource "x" was changed after it was sealed: call Seal after its fields are set (number 1 of 1)`},
		{"changed, as all there is", func(tx *Tx) error { tx.Replace(xds.Cluster, longer(of(xds.Cluster, res("x", "")))...); return nil },
			`resource "x" was changed after it was sealed`},
		{"type version not UTF-8", func(tx *Tx) error { tx.Version(xds.Cluster, "\xff"); return nil }, `version "\xff" is not UTF-8`},
		{"no group", func(tx *Tx) error { tx.Group("").Set(of(xds.Cluster, res("x", ""))...); return nil }, `empty group name: the group of nodes without one is "default"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st := New()
			update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", "1"))...) })
			before := st.Snapshot()
			c, err := st.Update(func(tx *Tx) error {
				tx.Set(of(xds.Cluster, res("a", "2"))...)
				err := tt.f(tx)
				tx.Set(of(xds.Listener, res("a", "2"))...)
				return err
			})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %s", err, tt.want)
			}
			if tt.name == "error" && !errors.Is(err, mine) {
				t.Error("it is another error")
			}
			if st.Snapshot() != before || c.Seq != 0 {
				t.Errorf("something changed: %+v", c)
			}
			update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", "3"))...) }) // others have their turn
		})
	}
}

// A name finds at most one resource. A resource may have many aliases.
func TestAliases(t *testing.T) {
	t.Run("DELTA-11 names that move", func(t *testing.T) {
		st := New()
		update(t, st, func(tx *Tx) {
			tx.Set(of(xds.VirtualHost, res("r/a", "", "r/x", "r/y", "r/a"), res("r/b", ""))...)
			tx.Set(of(xds.Cluster, res("r/x", ""))...)                   // another type
			tx.Group("edge").Set(of(xds.VirtualHost, res("r/x", ""))...) // another group
		})
		update(t, st, func(tx *Tx) { tx.Set(of(xds.VirtualHost, res("r/b", "", "r/y"), res("r/a", "", "r/x"))...) })      // from one to the other
		update(t, st, func(tx *Tx) { tx.Set(of(xds.VirtualHost, res("r/x", ""))...); tx.Delete(xds.VirtualHost, "r/a") }) // becomes a name
	})
	t.Run("NAME-2 a collection has many members", func(t *testing.T) {
		st := New()
		update(t, st, func(tx *Tx) {
			tx.Set(of(xds.Endpoint, res("xdstp://a/t/x/1", ""), res("xdstp://a/t/x/2", ""))...)
			tx.Set(of(xds.VirtualHost, res("r/a", ""), res("r/b", "", "r/*"))...)
		})
		view := st.Snapshot().View(DefaultGroup)
		if n := view.Table(xds.Endpoint).Aliased("xdstp://a/t/x/*").Len(); n != 2 {
			t.Errorf("%d members", n)
		}
	})
}

// A wildcard does not include a resource on demand, but the content of the group does.
func TestOnDemand(t *testing.T) {
	lazy := res("lazy", "1")
	lazy.OnDemand = true
	for name, f := range map[string]func(tx *Tx){
		"replace": func(tx *Tx) { tx.Replace(xds.Cluster) },
		"clear":   func(tx *Tx) { tx.Clear() },
	} {
		t.Run("SUB-6 "+name, func(t *testing.T) {
			st := New()
			update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, lazy)...) })
			if got := what(st, DefaultGroup, xds.Cluster); got != "lazy=1" { // without a watch
				t.Fatalf("got %q", got)
			}
			if got := st.Snapshot().Groups(); len(got) != 1 {
				t.Errorf("groups %v", got)
			}
			if c := update(t, st, f); len(c.Changes) != 1 || c.Changes[0].Removed != 1 {
				t.Errorf("commit %+v", c)
			}
			if got := what(st, DefaultGroup, xds.Cluster); got != "" {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestUpdatePanics(t *testing.T) {
	st := New()
	var kept *Tx
	panics := func(what string, f func()) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Errorf("%s: no panic", what)
			}
		}()
		f()
	}
	panics("in Update", func() {
		st.Update(func(tx *Tx) error { kept = tx; tx.Set(of(xds.Cluster, res("a", "1"))...); panic("mine") })
	})
	panics("after Update", func() { kept.Set(of(xds.Cluster, res("a", "1"))...) })
	update(t, st, func(tx *Tx) {
		if tx.Lookup(xds.Cluster, "a") != nil {
			t.Error("what panicked was committed")
		}
	})
}

func TestLookup(t *testing.T) {
	st := New()
	a := res("a", "1")
	update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, a, res("b", "1"))...) })
	update(t, st, func(tx *Tx) {
		see := func(name, want string) {
			t.Helper()
			got := ""
			if r := tx.Lookup(xds.Cluster, name); r != nil {
				got = string(r.Body)
			}
			if got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		if tx.Lookup(xds.Cluster, "a") != a || tx.Group("edge").Lookup(xds.Cluster, "a") != nil || tx.Lookup(xds.Route, "a") != nil {
			t.Error("Lookup finds something else")
		}
		see("x", "")
		tx.Set(of(xds.Cluster, res("a", "2"))...)
		see("a", "2")
		see("b", "1")
		tx.Delete(xds.Cluster, "a")
		see("a", "")
		tx.Replace(xds.Cluster, of(xds.Cluster, res("c", "1"))...)
		see("b", "")
		see("c", "1")
		tx.Clear()
		see("c", "")
	})
}

// SOTW-13 "(+) A source may supply the string itself".
func TestVersion(t *testing.T) {
	st := New()
	version := func() string { return st.Snapshot().View(DefaultGroup).Table(xds.Cluster).Version() }
	update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", "1"))...) })
	hash := version()
	for i, step := range []struct {
		f       func(tx *Tx)
		want    string
		changes bool
	}{
		{func(tx *Tx) { tx.Version(xds.Cluster, "v1") }, "v1", true},
		{func(tx *Tx) { tx.Version(xds.Cluster, "v1") }, "v1", false},
		{func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", "1"))...) }, "v1", false},
		{func(tx *Tx) { tx.Version(xds.Cluster, "v2"); tx.Set(of(xds.Cluster, res("a", "2"))...) }, "v2", true},
		{func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", "3"))...); tx.Version(xds.Cluster, "v2") }, "v2", true},
		{func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", "1"))...) }, hash, true},
		{func(tx *Tx) { tx.Version(xds.Cluster, "v3"); tx.Version(xds.Cluster, "v4") }, "v4", true},
		{func(tx *Tx) { tx.Version(xds.Cluster, "") }, hash, true},
	} {
		c := update(t, st, step.f)
		if version() != step.want || (len(c.Changes) > 0) != step.changes {
			t.Errorf("step %d: version %s, want %s; changes %v", i, version(), step.want, c.Changes)
		}
	}
}

// Groups without content and watches take no memory.
func TestUnusedGroupsAreDropped(t *testing.T) {
	st := New(WithGroups(func(_ context.Context, n *xds.Node) ([]string, error) { return []string{n.ID}, nil }))
	for i := range 100 {
		w := watchtest.Open(t, st, &xds.Node{ID: fmt.Sprint("node", i)})
		w.Interested(xds.Cluster, true, nil, nil)
		w.Close()
	}
	if n := len(st.groups); n != 0 {
		t.Errorf("%d groups after their watches closed", n)
	}
	for i := range 100 {
		name := fmt.Sprint("group", i)
		update(t, st, func(tx *Tx) { tx.Group(name).Set(of(xds.Cluster, res("a", "1"))...) })
		update(t, st, func(tx *Tx) { tx.Group(name).Delete(xds.Cluster, "a") })
	}
	if n := len(st.groups); n != 0 {
		t.Errorf("%d groups after their resources were deleted", n)
	}
	w := watchtest.Open(t, st, &xds.Node{ID: "g"})
	update(t, st, func(tx *Tx) { tx.Group("g").Set(of(xds.Cluster, res("a", "1"))...) })
	if w.Close(); st.groups["g"] == nil {
		t.Error("a group with content is gone with its watch")
	}
	w = watchtest.Open(t, st, &xds.Node{ID: "g"})
	update(t, st, func(tx *Tx) { tx.Group("g").Clear() })
	if got := st.Snapshot().Groups(); len(got) != 0 {
		t.Errorf("groups %v", got)
	}
	update(t, st, func(tx *Tx) { tx.Group("g").Set(of(xds.Cluster, res("a", "2"))...) })
	if view, _ := watchtest.Next(t, w); view.Table(xds.Cluster).Len() != 1 {
		t.Error("a watch of a group that was empty for a while does not see it")
	}
	w.Close()
}

// "By group, and by type in push order", which differs from the order of the URLs.
func TestChangesInPushOrder(t *testing.T) {
	st := New()
	c := update(t, st, func(tx *Tx) {
		for _, g := range []string{"b", "a"} {
			for _, typ := range xds.Types() {
				tx.Group(g).Set(of(typ, res("x", "1"))...)
			}
		}
	})
	var last Change
	for i, ch := range c.Changes {
		if i > 0 && (ch.Group < last.Group || ch.Group == last.Group && ch.Type.Rank() < last.Type.Rank()) {
			t.Errorf("%s %s behind %s %s", ch.Group, ch.Type, last.Group, last.Type)
		}
		last = ch
	}
}

// The zero value is a store. Nil arguments are errors or change nothing.
func TestZeroStore(t *testing.T) {
	var st Store
	w := watchtest.Open(t, &st, nil)
	defer w.Close()
	w.Interested(xds.Cluster, true, nil, nil)
	if c, err := st.Update(func(tx *Tx) error { tx.Set(xds.NewResource(xds.Cluster, "a", nil)); return nil }); err != nil || c.Seq != 1 || c.Time.IsZero() {
		t.Fatal(c, err)
	}
	<-w.C()
	if view, _ := watchtest.Next(t, w); view.Table(xds.Cluster).Lookup("a") == nil || len(st.Log()) != 1 || st.Snapshot().Seq() != 1 {
		t.Error("it does not have what it was given")
	}
	w.Interested(nil, true, []string{"a"}, nil)
	if w.Wants(nil, "a") || w.Recent(nil) != nil {
		t.Error("a nil type is something")
	}
	if _, err := st.Update(nil); err == nil {
		t.Error("no error of a nil function")
	}
	if _, err := (*Store)(nil).Update(func(*Tx) error { return nil }); err == nil {
		t.Error("no error of a nil store")
	}
	if _, err := st.Update(func(tx *Tx) error { tx.Set(nil); return nil }); err == nil {
		t.Error("no error of a nil resource")
	}
	if c, err := st.Update(func(tx *Tx) error { return nil }); err != nil || c.Seq != 1 {
		t.Error(c, err)
	}
	watchtest.Open(t, New(nil, WithClock(nil), WithGroups(nil)), &xds.Node{}).Close()
	for _, f := range []func(tx *Tx){
		func(tx *Tx) { tx.Delete(nil, "a") }, func(tx *Tx) { tx.Replace(nil) }, func(tx *Tx) { tx.MarkUnknown(nil) },
		func(tx *Tx) { tx.Version(nil, "1") }, func(tx *Tx) { tx.Notify(nil, "a") }, func(tx *Tx) { tx.Lookup(nil, "a") },
	} {
		if _, err := st.Update(func(tx *Tx) error { f(tx); return nil }); err == nil || !strings.Contains(err.Error(), "a type is nil") {
			t.Errorf("of a nil type: %v", err)
		}
	}
}

// longer raises the TTL of sealed resources.
func longer(rs []*xds.Resource) []*xds.Resource {
	for _, r := range rs {
		r.TTL += time.Second
	}
	return rs
}

// A Tx that is used after its transaction panics in every method, because its writes would be lost.
func TestTxAfterEndPanics(t *testing.T) {
	cluster := of(xds.Cluster, res("a", ""))
	for name, f := range map[string]func(tx *Tx){
		"Group": func(tx *Tx) { tx.Group("edge") }, "Set": func(tx *Tx) { tx.Set(cluster...) }, "Set of nothing": func(tx *Tx) { tx.Set() },
		"Set of nil": func(tx *Tx) { tx.Set(nil) }, "Delete": func(tx *Tx) { tx.Delete(xds.Cluster, "a") },
		"Replace": func(tx *Tx) { tx.Replace(xds.Cluster) }, "Clear": func(tx *Tx) { tx.Clear() }, "MarkKnown": func(tx *Tx) { tx.MarkKnown() },
		"MarkUnknown": func(tx *Tx) { tx.MarkUnknown(xds.Cluster) }, "Version": func(tx *Tx) { tx.Version(xds.Cluster, "1") },
		"Notify": func(tx *Tx) { tx.Notify(xds.Cluster, "a") }, "Lookup": func(tx *Tx) { tx.Lookup(xds.Cluster, "a") },
	} {
		t.Run(name, func(t *testing.T) {
			var kept, edge *Tx
			st := New()
			update(t, st, func(tx *Tx) { kept, edge = tx, tx.Group("edge") })
			for _, tx := range []*Tx{kept, edge} {
				func() {
					defer func() {
						if p := recover(); p != "store: Tx is used after its transaction has ended" {
							t.Errorf("it panics with %v", p)
						}
					}()
					f(tx)
				}()
			}
		})
	}
}

// Newest returns the last commit of the log, or false if there is none.
func TestNewest(t *testing.T) {
	st := New(WithLog(1))
	if c, ok := st.Newest(); ok {
		t.Errorf("before the first: %+v", c)
	}
	for range 2 {
		want := update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", string(rune('0'+st.Snapshot().Seq()))))...) })
		if c, ok := st.Newest(); !ok || c.Seq != want.Seq || c.Seq == 0 {
			t.Errorf("%+v, want %+v", c, want)
		}
	}
}
