package client

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/xds"
)

func shelfNames(s *unwatched) (names []string) {
	for _, of := range s.types {
		for name := range of.names {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Resources without a watch, by name and by alias (CLI-11).
func TestUnwatchedResources(t *testing.T) {
	res := func(name string, bytes int, aliases ...string) *xds.Resource {
		r := xds.NewResource(xds.Cluster, name, []byte(strings.Repeat("x", bytes)))
		r.Aliases = aliases
		return r
	}
	want := func(t *testing.T, s *unwatched, names ...string) {
		t.Helper()
		if got := shelfNames(s); !slices.Equal(got, names) {
			t.Errorf("shelf has %q, want %q", got, names)
		}
		bytes := 0
		for _, of := range s.types {
			for _, p := range of.names {
				if p.element != nil {
					bytes += size(p.Resource)
				}
			}
		}
		if s.bytes != bytes {
			t.Errorf("%d bytes are counted, want %d", s.bytes, bytes)
		}
	}
	const part = maxUnwatched/4 - 300

	t.Run("an alias does not hide a resource with that name, in either order", func(t *testing.T) {
		for range 2 {
			a, b := res("a", 1, "b"), res("b", 1)
			for _, list := range [][]*xds.Resource{{a, b}, {b, a}} {
				var s unwatched
				for _, r := range list {
					s.put(r)
				}
				want(t, &s, "a", "b")
				if got := s.take(xds.Cluster, "b"); len(got) != 1 || got[0] != b {
					t.Errorf("b is %v", got)
				}
				want(t, &s, "a")
				if got := s.take(xds.Cluster, "b"); len(got) != 1 || got[0] != a {
					t.Errorf("alias b is %v", got)
				}
				want(t, &s)
			}
		}
	})

	t.Run("a dropped resource loses its own aliases only", func(t *testing.T) {
		var s unwatched
		a, b := res("a", 1, "x", "y"), res("b", 1, "x")
		s.put(a)
		s.put(b)
		s.drop(a)
		if of := s.ofType(xds.Cluster); of.aliases["x"] != b || len(of.aliases) != 1 {
			t.Errorf("%v", of.aliases)
		}
		s.put(res("b", 1))
		if of := s.ofType(xds.Cluster); len(of.aliases) != 0 {
			t.Errorf("%v", of.aliases)
		}
	})

	t.Run("a full cache drops the oldest resources, and does not add a resource above the limit", func(t *testing.T) {
		var s unwatched
		for i := range 4 {
			if gone := s.put(res(fmt.Sprint(i), part)); gone != 0 {
				t.Errorf("%d: %d were dropped", i, gone)
			}
		}
		if gone := s.put(res("1", part)); gone != 0 {
			t.Errorf("%d were dropped for the same name", gone)
		}
		if gone := s.put(res("4", part+part)); gone != 2 {
			t.Errorf("%d were dropped", gone)
		}
		want(t, &s, "1", "3", "4")
		if gone := s.put(res("5", maxUnwatched)); gone != 1 {
			t.Errorf("%d were dropped", gone)
		}
		want(t, &s, "1", "3", "4")
	})

	t.Run("resources of the last run do not count until limitLastRun", func(t *testing.T) {
		var s unwatched
		for i := range 9 {
			s.addFromLastRun(res(fmt.Sprint("left", i), part))
		}
		if gone := s.put(res("new", part)); gone != 0 || len(shelfNames(&s)) != 10 {
			t.Errorf("%d were dropped", gone)
		}
		if got := s.take(xds.Cluster, "*"); len(got) != 10 {
			t.Errorf("%d resources were found", len(got))
		}
		want(t, &s)
		for i := range 9 {
			s.addFromLastRun(res(fmt.Sprint("left", i), part))
		}
		s.put(res("new", part))
		if gone := s.limitLastRun(); gone != 6 || len(shelfNames(&s)) != 4 {
			t.Errorf("%d were dropped, %q stay", gone, shelfNames(&s))
		}
		if len(s.take(xds.Cluster, "new")) != 1 {
			t.Error("the newest resource was dropped")
		}
	})
}

func TestUnwatchedResourcesCountInHeld(t *testing.T) {
	c, err := New(Config{Node: &xds.Node{ID: "n"}, Servers: []Server{{Transport: &inert{}}}, Dir: t.TempDir(), Held: xds.MemoryLimit{Bytes: 4000}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := xds.NewResource(xds.Cluster, "a", make([]byte, 1500))
	if gone := c.disk.unwatched.put(r); gone != 1 {
		t.Error("SAFE-14 a resource above a quarter of the limit is kept without a watch")
	}
}
