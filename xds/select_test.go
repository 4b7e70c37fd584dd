package xds

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// A part has exactly the selected resources of its table, after any sequence of changes.
func TestPart(t *testing.T) {
	for seed := range 200 {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		marks := []string{"a", "b", "ab", "", "z"}
		mark := marks[r.IntN(len(marks))]
		keep := func(name string) bool { return strings.ContainsAny(name[:1], mark) }
		names := func(yield func(string) bool) { _ = yield("a1") && yield("a2") }
		table, part, few := NewTable(Cluster), (*Table)(nil), (*Table)(nil)
		var old []*Table
		for range 50 {
			var set []*Resource
			var remove []string
			for range r.IntN(4) {
				name := fmt.Sprint(string("abc"[r.IntN(3)]), r.IntN(5))
				if r.IntN(2) == 0 {
					remove = append(remove, name)
				} else {
					res := &Resource{Stamp: &Stamp{Name: name}, Type: Cluster, Body: []byte{byte(r.IntN(3))}, OnDemand: r.IntN(4) == 0}
					res.Seal("")
					set = append(set, res)
				}
			}
			table, _ = table.With(set, remove...)
			if r.IntN(5) == 0 {
				table = table.WithVersion("v1")
			}
			old = append(old, table) // keep it alive
			if r.IntN(3) == 0 {
				continue // the next part then sees several changes at once
			}
			if r.IntN(9) == 0 {
				part = nil
			}
			part, few = table.Part(keep, part), table.PartOf(names, func(n string) bool { return n == "a1" || n == "a2" }, few)
			hidden := 0
			for res := range table.All() {
				if !keep(res.Name) {
					hidden++
				}
				// A resource that was removed and set again is another object with equal content.
				same := func(r *Resource) bool { return r != nil && r.equal(res) }
				if same(part.Lookup(res.Name)) != keep(res.Name) || same(few.Lookup(res.Name)) != (res.Name == "a1" || res.Name == "a2") {
					t.Fatalf("seed %d: %s", seed, res.Name)
				}
			}
			for res := range part.All() {
				if is := table.Lookup(res.Name); is == nil || !is.equal(res) {
					t.Fatalf("seed %d: %s is still in the part", seed, res.Name)
				}
			}
			if (part == table) != (hidden == 0 && !table.remembers()) || part != table && !part.Hashed() {
				t.Fatalf("seed %d: %d are hidden, and the part is the table: %v", seed, hidden, part == table)
			}
			if table.Part(keep, part) != part {
				t.Fatal("the same part is made twice")
			}
			for _, n := range []string{"a1", "b1", "c1"} {
				if got, want := part.Departed(n), table.Departed(n); got != want && keep(n) || got != nil && !keep(n) {
					t.Fatalf("seed %d: %s departed: %v, %v", seed, n, got, want)
				}
			}
		}
		runtime.KeepAlive(old)
	}
}

// A part does not keep its table alive. If the table is gone, the part is made again from nothing.
func TestPartDoesNotKeepTableAlive(t *testing.T) {
	var rs []*Resource
	for i := range 10 {
		r := &Resource{Stamp: &Stamp{Name: fmt.Sprint("a", i)}, Type: Cluster}
		r.Seal("")
		rs = append(rs, r)
	}
	keep := func(name string) bool { return name < "a5" }
	table, _ := NewTable(Cluster).With(rs)
	part := table.Part(keep, nil)
	next, _ := table.With(nil, "a1", "a7")
	for range 3 {
		runtime.GC()
	}
	if part.part.of.Value() != nil {
		t.Fatal("the table is alive")
	}
	var got []string
	for r := range next.Part(keep, part).All() {
		got = append(got, r.Name)
	}
	slices.Sort(got)
	if want := []string{"a0", "a2", "a3", "a4"}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if part.Departed("a1") != nil || next.Part(keep, part).Departed("a1") == nil || next.Part(keep, part).Departed("a7") != nil {
		t.Error("wrong removed resources")
	}
}

// A part finds selected resources that were removed from the layers of its table, even if it hides no other
// resource.
func TestPartFindsRemovedFromLayers(t *testing.T) {
	set := func(names ...string) (rs []*Resource) {
		for _, name := range names {
			rs = append(rs, NewResource(Cluster, name, []byte(name)))
		}
		return rs
	}
	layer, _ := NewTable(Cluster).With(set("a1", "a2", "b1"))
	layer, _ = layer.With(nil, "a2", "b1")
	table, _ := NewTable(Cluster).With(set("a1"))
	table = table.WithLayers(layer)
	if table.Departed("a2") == nil || table.Departed("b1") == nil {
		t.Fatal("the table does not find what was removed from its layer")
	}
	part := table.Part(func(name string) bool { return name < "b" }, nil)
	if part.Departed("a2") == nil || part.Departed("b1") != nil {
		t.Error("departed:", part.Departed("a2"), part.Departed("b1"))
	}
	runtime.KeepAlive(table)
}

// Changed yields exactly the resources that differ from an earlier table, also those on demand.
func TestChanged(t *testing.T) {
	resource := func(name, body string) *Resource {
		r := &Resource{Stamp: &Stamp{Name: name}, Type: Cluster, Body: []byte(body), OnDemand: name == "b"}
		r.Seal("")
		return r
	}
	names := func(t, old *Table) string {
		var all []string
		for r := range t.Changed(old) {
			all = append(all, r.Name)
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	first, _ := NewTable(Cluster).With([]*Resource{resource("a", "1"), resource("b", "1"), resource("c", "1")})
	next, _ := first.With([]*Resource{resource("a", "1"), resource("b", "2"), resource("d", "1")}, "c")
	for _, tt := range []struct {
		old  *Table
		want string
	}{{nil, "a b d"}, {first, "b d"}, {next, ""}} {
		if got := names(next, tt.old); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
	for range next.Changed(nil) {
		break // an iteration may stop early
	}
}
