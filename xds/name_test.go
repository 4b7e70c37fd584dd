package xds

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestCanonicalName(t *testing.T) {
	for in, want := range map[string]string{
		"":                              "",
		"plain?b=1&a=2":                 "plain?b=1&a=2", // no URN: any UTF-8 string is a name
		"xdstp://a/t/x":                 "xdstp://a/t/x",
		"xdstp://a/t/x?b=1&a=2":         "xdstp://a/t/x?a=2&b=1",
		"xdstp://a/t/x?a=2&b=1":         "xdstp://a/t/x?a=2&b=1",
		"xdstp://a/t/*?b=1&a=2#alt=b&a": "xdstp://a/t/*?a=2&b=1#alt=b&a",
		"xdstp:///t/x?":                 "xdstp:///t/x",
		// As Envoy 1.40 asks for these names.
		"xdstp://a/t/v1~x":           "xdstp://a/t/v1%7Ex",
		"xdstp://a/t/v1%7ex":         "xdstp://a/t/v1%7Ex",
		"xdstp://a/t/é":              "xdstp://a/t/%C3%A9",
		"xdstp://a/t/a[1]":           "xdstp://a/t/a%5B1%5D",
		"xdstp://a/t/q%3Ar":          "xdstp://a/t/q:r",
		"xdstp://a/t/u%2Dv%20w":      "xdstp://a/t/u-v w",
		"xdstp://a/t/a%2Fb%23%3F%25": "xdstp://a/t/a/b%23%3F%25",
		"xdstp://a/t/a%zz%4":         "xdstp://a/t/a%25zz%254",
		"xdstp://a/t/a%01%7F\x01":    "xdstp://a/t/a%01%7F%01",
		"xdstp://[::1]/t/a]":         "xdstp://[::1]/t/a%5D",
		"xdstp://a~":                 "xdstp://a~",
		"xdstp://a/t/a%26%3D":        "xdstp://a/t/a&=",
		"xdstp://a/t/x?k=a~b%20[":    "xdstp://a/t/x?k=a%7Eb %5B",
		"xdstp://a/t/x?k=%26%3D/:?":  "xdstp://a/t/x?k=%26%3D/:?",
		"xdstp://a/t/x?k%20=a&k":     "xdstp://a/t/x?k=&k =a",
		"xdstp://a/t/x?k":            "xdstp://a/t/x?k=",
		"xdstp://a/t/x?a=1&a=2":      "xdstp://a/t/x?a=1",
		"xdstp:":                     "xdstp:",
	} {
		t.Run("NAME-2 "+in, func(t *testing.T) {
			if got := CanonicalName(in); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestCollection(t *testing.T) {
	for _, c := range []struct {
		typ        *Type
		name, want string
	}{
		{Cluster, "a/b", ""},
		{VirtualHost, "route/host", "route/*"},
		{VirtualHost, "ns/route/host:80", "ns/route/*"},
		{VirtualHost, "route", ""},
		{Endpoint, "xdstp://a/t/x/y", "xdstp://a/t/x/*"},
		{Endpoint, "xdstp://a/t/x/y?a=1&b=2", "xdstp://a/t/x/*?a=1&b=2"},
		{Endpoint, "xdstp://a/t/x/*", ""}, // a collection belongs to no other collection
		{VirtualHost, "xdstp://a/t/x/y", "xdstp://a/t/x/*"},
		{Endpoint, "xdstp:", ""},
		{Endpoint, "xdstp://a", ""},
		{Endpoint, "xdstp://a?x=1", ""},
	} {
		t.Run("NAME-2 "+c.typ.Short+" "+c.name, func(t *testing.T) {
			if got := c.typ.Collection(c.name); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestIsCollection(t *testing.T) {
	for name, want := range map[string]bool{
		"xdstp://a/t/x/*": true, "xdstp://a/t/*?k=v": true, "xdstp://a/t/*#d": true, "xdstp://a/t/*?k=v#d": true, "xdstp:/*": true,
		"xdstp://a/t/x": false, "xdstp://a/t/x?k=/*": false, "xdstp://a/t/x#/*": false, "route/*": false, "*": false, "": false,
	} {
		t.Run("NAME-2 "+name, func(t *testing.T) {
			if got := IsCollection(name); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// The cost of finding a changed member depends on the change. A resource on demand belongs to no collection.
func TestMembers(t *testing.T) {
	tab := NewTable(VirtualHost)
	var set []*Resource
	for i := range 50 {
		set = append(set, NewResource(VirtualHost, fmt.Sprintf("r/%02d", i), nil))
	}
	lazy := NewResource(VirtualHost, "r/lazy", nil)
	lazy.OnDemand = true
	tab = with(tab, append(set, lazy, NewResource(VirtualHost, "other/x", nil)))
	old := tab.Aliased("r/*")
	if old.Len() != 50 || old.Get("r/lazy") != nil || old.Get("r/07") == nil {
		t.Fatalf("%d members: %v", old.Len(), finds(tab, "r/*"))
	}
	few := old.Where(func(r *Resource) bool { return r.Name < "r/03" })
	if few.Len() != 3 || few.Get("r/02") == nil || few.Get("r/03") != nil || old.Len() != 50 || old.Where(func(*Resource) bool { return true }) != old {
		t.Fatalf("%d of %d members", few.Len(), old.Len())
	}
	tab = with(tab, []*Resource{NewResource(VirtualHost, "r/99", nil), NewResource(VirtualHost, "r/01", []byte("new"))}, "r/07")
	var got []string
	for name, in := range tab.Aliased("r/*").Since(old) {
		got = append(got, fmt.Sprint(name, in))
	}
	slices.Sort(got)
	if want := []string{"r/07false", "r/99true"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestBeats(t *testing.T) {
	ttl := func(name string, seconds time.Duration) *Resource {
		r := NewResource(Cluster, name, nil)
		r.TTL = seconds * time.Second
		r.Seal("")
		return r
	}
	tell := func(t *Table) (s string) {
		for _, b := range t.Heartbeats() {
			s += fmt.Sprint(b.TTL, ":")
			for _, r := range b.Changes.Beats {
				s += " " + r.Name
			}
			s += "; "
		}
		return s
	}
	tab := with(NewTable(Cluster), []*Resource{ttl("b", 1), ttl("a", 1), ttl("c", 5), ttl("d", 0)})
	for _, step := range []struct {
		tab  *Table
		want string
	}{
		{tab, "1s: a b; 5s: c; "},
		{with(tab, nil, "b", "c"), "1s: a; "},
		{with(tab, []*Resource{ttl("a", 0), ttl("d", 5)}), "1s: b; 5s: c d; "},
		{with(tab, nil, "a", "b", "c"), ""},
	} {
		if got := tell(step.tab); got != step.want {
			t.Errorf("TTL-3 got %q, want %q", got, step.want)
		}
	}
}
