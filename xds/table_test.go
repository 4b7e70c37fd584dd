package xds

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// The table agrees with a plain map after random changes, and the difference of two tables agrees with the
// difference of two maps.
func TestTableAgreesWithMap(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		tab, m := &Table{}, map[string]string{}
		var tabs []*Table
		var copies []map[string]string
		for range 100 {
			name := fmt.Sprint("n", rng.IntN(60))
			if rng.IntN(3) == 0 {
				tab = with(tab, nil, name)
				delete(m, name)
			} else {
				body := fmt.Sprint(rng.IntN(4))
				tab = with(tab, []*Resource{NewResource(Cluster, name, []byte(body))})
				m[name] = body
			}
			tabs, copies = append(tabs, tab), append(copies, maps.Clone(m))
		}
		for range 200 {
			i, j := rng.IntN(len(tabs)), rng.IntN(len(tabs))
			a, b := tabs[i], tabs[j]
			var got, want []string
			for _, r := range b.Since(a.Versions()).Upserts {
				got = append(got, "+"+r.Name+string(r.Body))
			}
			for _, n := range b.Since(a.Versions()).Removed {
				got = append(got, "-"+n)
			}
			for k, v := range copies[j] {
				if old, ok := copies[i][k]; !ok || old != v {
					want = append(want, "+"+k+v)
				}
			}
			for k := range copies[i] {
				if _, ok := copies[j][k]; !ok {
					want = append(want, "-"+k)
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d: %d→%d: got %v want %v", seed, i, j, got, want)
			}
			if a.Len() != len(copies[i]) {
				t.Fatalf("len %d, want %d", a.Len(), len(copies[i]))
			}
		}
		rebuilt := &Table{}
		for k, v := range m {
			rebuilt = with(rebuilt, []*Resource{NewResource(Cluster, k, []byte(v))})
		}
		if rebuilt.Version() != tab.Version() {
			t.Fatalf("seed %d: version depends on history", seed)
		}
	}
}

// with is Table.With for resources that are valid.
func with(t *Table, set []*Resource, remove ...string) *Table {
	n, err := t.With(set, remove...)
	if err != nil {
		panic(err)
	}
	return n
}

func named(name, body string, aliases ...string) *Resource {
	r := &Resource{Stamp: &Stamp{Name: name}, Type: Cluster, Body: []byte(body), Aliases: aliases}
	r.Seal("")
	return r
}

// A name that the table does not have is not found, even if its hash is close to another.
func TestTableLookupAbsent(t *testing.T) {
	tab := with(with((&Table{}), []*Resource{named("a", "1")}), []*Resource{named("b", "1")}, "a")
	for i := range 1000 {
		name := fmt.Sprint("absent", i)
		if r := tab.Lookup(name); r != nil {
			t.Fatalf("Lookup(%s) = %s", name, r.Name)
		}
		if r := tab.Departed(name); r != nil {
			t.Fatalf("Departed(%s) = %s", name, r.Name)
		}
		if s := tab.Versions().Get(name); s != nil {
			t.Fatalf("Get(%s) = %s", name, s.Name)
		}
	}
	if tab.Lookup("b") == nil || tab.Departed("a") == nil || tab.Versions().Get("b") == nil {
		t.Error("a resource of the table is not found")
	}
}

func TestTableZero(t *testing.T) {
	var tab Table
	if tab.Len() != 0 || tab.Lookup("a") != nil || tab.Departed("a") != nil || tab.Aliased("a") != nil || tab.Versions().Get("a") != nil {
		t.Error("the zero table is not empty")
	}
	if c := tab.Since(nil); len(c.Upserts)+len(c.Removed) != 0 {
		t.Errorf("the zero table differs from nothing by %v", c)
	}
	for range tab.All() {
		t.Error("the zero table has a resource")
	}
	if got, want := tab.Version(), with(with((&Table{}), []*Resource{named("a", "1")}), nil, "a").Version(); got != want {
		t.Errorf("SOTW-13 empty tables have versions %s and %s", got, want)
	}
}

func TestTableWithNothing(t *testing.T) {
	refs := func(r *Resource, refs ...Ref) *Resource {
		r.Refs = append([]Ref{}, refs...)
		return r
	}
	unlisted := func() *Type { return TypeOf("type.googleapis.com/example.Unlisted") }
	a := refs(named("a", "1", "alias"), Ref{unlisted(), "x"})
	tab, none := with((&Table{}), []*Resource{a}), with((&Table{}), []*Resource{named("b", "1")})
	same := refs(named("a", "1", "alias"), Ref{unlisted(), "x"})
	for name, got := range map[string]*Table{
		"nothing":                         with(tab, nil),
		"the same":                        with(tab, []*Resource{a}),
		"equal content":                   with(tab, []*Resource{same}),
		"equal content after another":     with(tab, []*Resource{named("a", "2"), same}),
		"equal content of a removed name": with(tab, []*Resource{same}, "a"),
		"a removal of an absent name":     with(tab, nil, "b", "b"),
		"the version that it has":         tab.WithVersion(""),
	} {
		if got != tab {
			t.Errorf("%s makes a new table", name)
		}
	}
	for name, got := range map[string]*Table{
		"another body":                   with(tab, []*Resource{refs(named("a", "2", "alias"), a.Refs...)}),
		"another alias":                  with(tab, []*Resource{refs(named("a", "1"), a.Refs...)}),
		"other references":               with(tab, []*Resource{refs(named("a", "1", "alias"))}),
		"references to another type":     with(tab, []*Resource{refs(named("a", "1", "alias"), Ref{Endpoint, "x"})}),
		"references no longer known":     with(tab, []*Resource{named("a", "1", "alias")}),
		"a version that a source says":   tab.WithVersion("v1"),
		"no references, and it is known": with(none, []*Resource{refs(named("b", "1"))}),
	} {
		if got == tab || got == none {
			t.Errorf("%s does not make a new table", name)
		}
	}
	if r := with(tab, []*Resource{same}).Lookup("a"); r != a {
		t.Error("an equal resource replaces the one in the table")
	}
}

// finds returns the names of the members of an alias or collection, sorted.
func finds(t *Table, name string) (names []string) {
	for r := range t.Aliased(name).All() {
		names = append(names, r.Name)
	}
	slices.Sort(names)
	return names
}

func TestTableKeepsLastOfSameName(t *testing.T) {
	tab := with((&Table{}), []*Resource{named("a", "1", "x"), named("b", "1"), named("a", "2", "y")}, "a")
	if got := string(tab.Lookup("a").Body); got != "2" || tab.Len() != 2 {
		t.Errorf("body %q of %d resources", got, tab.Len())
	}
	if tab.Aliased("x") != nil || !slices.Equal(finds(tab, "y"), []string{"a"}) {
		t.Errorf("aliases: x %v, y %v", tab.Aliased("x"), tab.Aliased("y"))
	}
	want := with(with((&Table{}), []*Resource{named("b", "1")}), []*Resource{named("a", "2", "y")})
	if tab.Version() != want.Version() {
		t.Errorf("SOTW-13 version %s, want %s", tab.Version(), want.Version())
	}
}

// DELTA-11 "aliases": an alias finds all resources that have it, and no others.
func TestTableAliases(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		tab, m := &Table{}, map[string]*Resource{}
		for range 30 {
			var set []*Resource
			var remove []string
			for range 1 + rng.IntN(5) {
				name := fmt.Sprint("n", rng.IntN(10))
				if rng.IntN(3) == 0 {
					remove = append(remove, name)
					continue
				}
				var aliases []string
				for range rng.IntN(4) { // the list may have the same alias twice
					aliases = append(aliases, fmt.Sprint("a", rng.IntN(6)))
				}
				set = append(set, named(name, "", aliases...))
			}
			tab = with(tab, set, remove...)
			for _, name := range remove {
				delete(m, name)
			}
			for _, r := range set {
				m[r.Name] = r
			}
			for i := range 6 {
				alias := fmt.Sprint("a", i)
				var want []string
				for name, r := range m {
					if slices.Contains(r.Aliases, alias) {
						want = append(want, name)
					}
				}
				slices.Sort(want)
				if got := finds(tab, alias); !slices.Equal(got, want) || tab.Aliased(alias).Len() != len(want) {
					t.Fatalf("seed %d: %s finds %v, want %v", seed, alias, got, want)
				}
			}
		}
	}
}

func TestTableDeparted(t *testing.T) {
	many := func(from, to int) (out []*Resource) {
		for i := from; i < to; i++ {
			out = append(out, named(fmt.Sprint("n", i), ""))
		}
		return out
	}
	names := func(rs []*Resource) (out []string) {
		for _, r := range rs {
			out = append(out, r.Name)
		}
		return out
	}
	remembered := func(tab *Table, rs []*Resource) (n int) {
		for _, r := range rs {
			if d := tab.Departed(r.Name); d != nil {
				if d != r {
					t.Fatalf("%s departed as another object", r.Name)
				}
				n++
			}
		}
		return n
	}
	t.Run("the last content", func(t *testing.T) {
		a, b := named("a", "1"), named("a", "2")
		tab := with(with(with((&Table{}), []*Resource{a}), []*Resource{b}), nil, "a")
		if tab.Departed("a") != b || tab.Lookup("a") != nil {
			t.Errorf("departed: %v", tab.Departed("a"))
		}
		if with(tab, []*Resource{b}).Departed("a") != nil {
			t.Error("a resource that was set again is still departed")
		}
	})
	t.Run("all removals of one commit", func(t *testing.T) {
		rs := many(0, 3*keepDeparted)
		tab := with(with((&Table{}), rs), nil, names(rs)...)
		if n := remembered(tab, rs); n != len(rs) {
			t.Errorf("%d of %d", n, len(rs))
		}
	})
	t.Run("bounded", func(t *testing.T) {
		rs := many(0, 5*keepDeparted)
		tab := with((&Table{}), rs)
		for part := range slices.Chunk(rs, 100) {
			tab = with(tab, nil, names(part)...)
		}
		if n := remembered(tab, rs); n < keepDeparted || n > 2*keepDeparted+100 {
			t.Errorf("%d are remembered, want %d to %d", n, keepDeparted, 2*keepDeparted)
		}
		if n := remembered(tab, rs[len(rs)-keepDeparted:]); n != keepDeparted {
			t.Errorf("%d of the last %d are remembered", n, keepDeparted)
		}
	})
	t.Run("a resource that was set again later is not departed", func(t *testing.T) {
		a, rs := named("a", ""), many(0, keepDeparted+1)
		tab := with(with(with((&Table{}), rs), []*Resource{a}), nil, "a")
		tab = with(with(tab, nil, names(rs[1:])...), nil, "n0") // now a is in the older generation
		if tab.Departed("a") != a {
			t.Fatal("forgotten")
		}
		if with(tab, []*Resource{a}).Departed("a") != nil {
			t.Error("a resource that was set again is still departed")
		}
	})
	t.Run("a resource that is removed again and again displaces no other", func(t *testing.T) {
		a, b := named("a", ""), named("b", "")
		tab := with(with((&Table{}), []*Resource{a, b}), nil, "a")
		for range 3 * keepDeparted {
			tab = with(with(tab, nil, "b"), []*Resource{b})
		}
		if tab.Departed("a") != a {
			t.Error("forgotten")
		}
	})
}

func TestTableVersion(t *testing.T) {
	a, b := named("a", "1"), named("b", "1")
	tab := with((&Table{}), []*Resource{a})
	v := tab.WithVersion("v1")
	if v.Version() != "v1" || v.Hashed() || v.Lookup("a") != a {
		t.Errorf("version %s", v.Version())
	}
	if !tab.Hashed() || v.WithVersion("").Version() != tab.Version() {
		t.Error("the hash is not restored")
	}
	if n := with(v, []*Resource{b}); !n.Hashed() {
		t.Errorf("other content keeps the version %s", n.Version())
	}
	both := with(tab, []*Resource{b})
	if got := tab.VersionWith(slices.Values([]*Stamp{b.Stamp})); got != both.Version() {
		t.Errorf("version with b is %s, want %s", got, both.Version())
	}
	if got := v.VersionWith(slices.Values([]*Stamp{})); got != "v1" {
		t.Errorf("version without extra resources is %s", got)
	}
}

func BenchmarkSet(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tab := &Table{}
			var set []*Resource
			for i := range n {
				set = append(set, NewResource(Cluster, fmt.Sprint("cluster-", i), []byte("x")))
			}
			tab = with(tab, set)
			i := 0
			for b.Loop() {
				i++
				next := with(tab, []*Resource{NewResource(Cluster, fmt.Sprint("cluster-", i%n), fmt.Append(nil, i))})
				next.Since(tab.Versions())
				tab = next
			}
		})
	}
}

func BenchmarkBuild(b *testing.B) {
	set := make([]*Resource, 100_000)
	names := make([]string, len(set))
	for i := range set {
		set[i] = NewResource(Cluster, fmt.Sprint("cluster-", i), []byte("x"))
		names[i] = set[i].Name
	}
	full := with((&Table{}), set)
	b.Run("100000 set", func(b *testing.B) {
		for b.Loop() {
			with((&Table{}), set)
		}
	})
	b.Run("100000 set again", func(b *testing.B) {
		for b.Loop() {
			with(full, set)
		}
	})
	b.Run("100000 removed", func(b *testing.B) {
		for b.Loop() {
			with(full, nil, names...)
		}
	})
}

// SUB-6: setting or clearing OnDemand is a change, even if the content is equal. It decides whether a
// wildcard includes the resource.
func TestTableOnDemand(t *testing.T) {
	a, lazy := NewResource(Cluster, "a", []byte("1")), NewResource(Cluster, "a", []byte("1"))
	lazy.OnDemand = true
	tab := with(new(Table), []*Resource{a, NewResource(Cluster, "b", []byte("1"))})
	less := with(tab, []*Resource{lazy})
	if c := less.Since(tab.Versions()); less.Len() != 1 || less.Lookup("a") != lazy || !slices.Equal(c.Removed, []string{"a"}) {
		t.Error(less.Len(), c.Removed)
	}
	if more := with(less, []*Resource{a}); more.Len() != 2 || more.Version() != tab.Version() || more.Version() == less.Version() {
		t.Error(more.Len(), more.Version(), less.Version(), tab.Version())
	}
}
