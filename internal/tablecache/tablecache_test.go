package tablecache

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"weak"

	"github.com/chancery-xds/chancery/xds"
)

// tableOf returns a table of secrets with some names, each with content of its own.
func tableOf(t *testing.T, content string, names ...string) *xds.Table {
	t.Helper()
	var all []*xds.Resource
	for _, name := range names {
		all = append(all, xds.NewResource(xds.Secret, name, []byte(content)))
	}
	table, err := xds.NewTable(xds.Secret).With(all)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func namesOf(t *xds.Table) (names []string) {
	for r := range t.All() {
		names = append(names, r.Name)
	}
	slices.Sort(names)
	return names
}

// Few tables are cached. Only the newest result is kept alive without a stream, so that the next
// result can share its parts.
func TestKeepsLittle(t *testing.T) {
	ours := func(of, near *xds.Table) *xds.Table {
		return of.Part(func(name string) bool { return strings.HasPrefix(name, "a/") }, near)
	}
	l := new(Tables)
	var tables []weak.Pointer[xds.Table]
	for i := range 3 * maxCached {
		table := tableOf(t, fmt.Sprint(i), "a/x", "b/x")
		if got := namesOf(l.Of(table, ours)); !slices.Equal(got, []string{"a/x"}) {
			t.Fatal(got)
		}
		tables = append(tables, weak.Make(table))
	}
	if len(l.cached) != maxCached {
		t.Errorf("%d tables are remembered", len(l.cached))
	}
	runtime.GC()
	runtime.GC()
	if l.last() == nil {
		t.Error("the newest part is gone")
	}
	for i, table := range tables {
		if table.Value() != nil {
			t.Errorf("table %d is alive", i)
		}
	}
	func() {
		table := tableOf(t, "1", "a/x")
		if l.Of(table, ours) != table {
			t.Error("of what hides nothing a part is made")
		}
		tables[0] = weak.Make(table)
	}()
	runtime.GC()
	runtime.GC()
	if tables[0].Value() != nil {
		t.Error("a table that is its own part is kept alive")
	}
	runtime.KeepAlive(l)
}

// Different lists of groups have different keys.
func TestKey(t *testing.T) {
	seen := map[string][]string{}
	for _, list := range [][]string{nil, {""}, {"", ""}, {"a"}, {"a", "b"}, {"ab"}, {"a", "", "b"}, {"1:a"}, {"a1:b"}, {"a:b"}, {"b", "a"}} {
		key := Key(list)
		if was, ok := seen[key]; ok {
			t.Errorf("%q and %q have one key", was, list)
		}
		seen[key] = list
	}
}
