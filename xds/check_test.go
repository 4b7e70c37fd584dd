package xds

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// A table accepts resources of its type. For any other it returns an error that names the resource.
func TestTYP7TableRefusesInvalidResources(t *testing.T) {
	cluster := NewResource(Cluster, "backend", nil)
	unsealed := &Resource{Stamp: &Stamp{Name: "x"}, Type: Endpoint}
	for name, c := range map[string]struct {
		r    *Resource
		want string
	}{
		"another type":   {cluster, `resource "backend" has type CDS, and is set as EDS`},
		"nil":            {nil, "a resource is nil"},
		"the zero value": {&Resource{}, "a resource is empty: make it by NewResource"},
		"no name":        {NewResource(Endpoint, "", nil), "a resource has no name"},
		"no type":        {NewResource(nil, "x", nil), `resource "x" has no type`},
		"no URL":         {NewResource(&Type{}, "x", nil), `resource "x" has no type`},
		"not sealed":     {unsealed, `resource "x" is not sealed`},
	} {
		t.Run("TYP-7 "+name, func(t *testing.T) {
			tab := with(NewTable(Endpoint), []*Resource{NewResource(Endpoint, "a", nil)})
			got, err := tab.With([]*Resource{NewResource(Endpoint, "b", nil), c.r})
			if got != nil || err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got %v, %v, want %s", got, err, c.want)
			}
			if tab.Len() != 1 {
				t.Error("the table has changed")
			}
		})
	}
	t.Run("TYP-7 a table without a type", func(t *testing.T) {
		tab := with(&Table{}, []*Resource{cluster})
		if tab.Type() != Cluster || (&Table{}).Type() != nil {
			t.Errorf("the table has type %v", tab.Type())
		}
		if _, err := tab.With([]*Resource{NewResource(Endpoint, "a", nil)}); err == nil {
			t.Error("the table takes resources of another type")
		}
		if _, err := (&Table{}).With([]*Resource{cluster, NewResource(Endpoint, "a", nil)}); err == nil {
			t.Error("the table takes several types")
		}
		host := with(&Table{}, []*Resource{NewResource(VirtualHost, "r/h", nil)})
		if host.Aliased("r/*").Len() != 1 {
			t.Error("the table does not find the collection")
		}
		if _, err := (&Table{}).With([]*Resource{nil}); err == nil {
			t.Error("the table takes nil")
		}
		if err := cluster.CheckType(nil); err == nil || !strings.Contains(err.Error(), `CDS resource "backend"`) {
			t.Error(err)
		}
	})
	t.Run("TYP-7 messages of one name", func(t *testing.T) {
		err := NewResource(TypeOf("a/M"), "x", nil).CheckType(TypeOf("b/M"))
		if want := `resource "x" has type a/M, and is set as b/M`; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		if err := NewResource(TypeOf("a/M"), "x", nil).CheckType(TypeOf("a/M")); err != nil {
			t.Error(err) // another row of the same type
		}
	})
}

// A table could take a resource that was changed after Seal as equal to its own resource. Changed detects
// this, and the check takes no memory.
func TestResourceChangedAfterSeal(t *testing.T) {
	if size := unsafe.Sizeof(Resource{}); size > 96 {
		t.Errorf("a resource has %d bytes: above 96 the allocator takes 112", size)
	}
	sealed := func() *Resource {
		r := NewResource(Cluster, "a", []byte("x"))
		r.Aliases, r.TTL = []string{"b", "c"}, time.Second
		r.Seal("")
		return r
	}
	for name, change := range map[string]func(r *Resource){
		"a TTL":          func(r *Resource) { r.TTL++ },
		"a long TTL":     func(r *Resource) { r.TTL += 1 << 32 },
		"no TTL":         func(r *Resource) { r.TTL = 0 },
		"an alias":       func(r *Resource) { r.Aliases = append(r.Aliases, "d") },
		"another alias":  func(r *Resource) { r.Aliases = []string{"b", "d"} },
		"aliases joined": func(r *Resource) { r.Aliases = []string{"bc"} },
		"no aliases":     func(r *Resource) { r.Aliases = nil },
		"a body":         func(r *Resource) { r.Body = []byte("xy") },
		"no body":        func(r *Resource) { r.Body = nil },
	} {
		t.Run(name, func(t *testing.T) {
			r := sealed()
			if r.Changed() {
				t.Error("changed before the change")
			}
			if change(r); !r.Changed() {
				t.Error("not changed after the change")
			}
			if r.Seal("1"); r.Changed() {
				t.Error("changed after Seal")
			}
		})
	}
	r := sealed()
	if r.Refs, r.OnDemand = []Ref{}, true; r.Changed() {
		t.Error("references are part of the sum")
	}
	if (&Resource{Stamp: r.Stamp, TTL: 1}).Changed() {
		t.Error("a resource that was not sealed has changed")
	}
}

// A nil pointer is empty or no type, and no method panics.
func TestNil(t *testing.T) {
	var typ *Type
	if typ.Known() || typ.Rank() <= VirtualHost.Rank() || typ.ReferredBy() != nil || typ.Legacy() != nil || typ.Collection("a/b") != "" || typ.Is(Cluster) {
		t.Error("a nil type has properties")
	}
	if got := fmt.Sprint(typ, (&LimitError{Limit: LimitNames}).Error()); got != "no typelimit exceeded: names" {
		t.Error(got)
	}
	var none Tables
	if none.Table(Cluster).Len() != 0 || none.Table(nil).Len() != 0 || (Tables{Cluster.URL: nil}).Table(Cluster).Lookup("a") != nil {
		t.Error("a nil Tables has a resource")
	}
	tab := with(NewTable(VirtualHost), []*Resource{NewResource(VirtualHost, "r/a", nil)})
	if m := tab.Aliased("r/*"); m.Where(nil) != m {
		t.Error("a nil function does not select all")
	}
	if tab.VersionWith(nil) != tab.Version() {
		t.Error("without extra resources the version differs")
	}
	r := &Resource{}
	r.Seal("")
	if err := r.Check(); err == nil || err.Error() != "a resource has no name" {
		t.Error(err)
	}
}
