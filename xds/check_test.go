package xds

import (
	"fmt"
	"strings"
	"testing"
)

// A table takes resources of its type, and says what is wrong with others and which it is.
func TestTYP7Tables(t *testing.T) {
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
			t.Errorf("it has become one of %v", tab.Type())
		}
		if _, err := tab.With([]*Resource{NewResource(Endpoint, "a", nil)}); err == nil {
			t.Error("and takes others")
		}
		if _, err := (&Table{}).With([]*Resource{cluster, NewResource(Endpoint, "a", nil)}); err == nil {
			t.Error("it takes several types")
		}
		host := with(&Table{}, []*Resource{NewResource(VirtualHost, "r/h", nil)})
		if host.Aliased("r/*").Len() != 1 {
			t.Error("it does not know the collections of its type")
		}
		if _, err := (&Table{}).With([]*Resource{nil}); err == nil {
			t.Error("it takes nil")
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

// What is nil is empty, or no type, and panics nowhere.
func TestNil(t *testing.T) {
	var typ *Type
	if typ.Known() || typ.Rank() <= VirtualHost.Rank() || typ.ReferredBy() != nil || typ.Legacy() != nil || typ.Collection("a/b") != "" || typ.Is(Cluster) {
		t.Error("a nil type is one")
	}
	if got := fmt.Sprint(typ, (&LimitError{Limit: LimitNames}).Error()); got != "no typelimit exceeded: names" {
		t.Error(got)
	}
	var none Tables
	if none.Table(Cluster).Len() != 0 || none.Table(nil).Len() != 0 || (Tables{Cluster.URL: nil}).Table(Cluster).Lookup("a") != nil {
		t.Error("there is something in no tables")
	}
	tab := with(NewTable(VirtualHost), []*Resource{NewResource(VirtualHost, "r/a", nil)})
	if m := tab.Aliased("r/*"); m.Where(nil) != m {
		t.Error("a nil function selects less than all")
	}
	if tab.VersionWith(nil) != tab.Version() {
		t.Error("nothing more has another version")
	}
	r := &Resource{}
	r.Seal("")
	if err := r.Check(); err == nil || err.Error() != "a resource has no name" {
		t.Error(err)
	}
}
