package relay_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/relay"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// Versions are derived from the content, whatever the upstream's version.
func TestVersionsAreOfTheContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up, conn := relayed(t, relay.Options{Refs: refs})
		c := xdstest.Delta(t, conn)
		c.Subscribe(xds.Cluster, "*")
		synctest.Wait()
		r := called("a")
		want := r.Version
		r.Seal("7")
		up.send(r)
		got := c.Next(xds.Cluster)
		c.ACK(got)
		if len(got.Resources) != 1 || got.Resources[0].Version != want {
			t.Errorf("%v, want version %s", got, want)
		}
		r = called("a")
		r.Seal("8")
		up.send(r)
		c.ExpectNothing()
	})
}

// ADS-3: a referenced resource stays for 5 s, by any kind of reference.
func TestReferencedResourceStays(t *testing.T) {
	const collection = "xdstp:///envoy.config.cluster.v3.Cluster/"
	to := func(name string) func(*xds.Resource) []xds.Ref {
		return func(r *xds.Resource) []xds.Ref {
			if r.Type.Is(xds.Route) {
				return []xds.Ref{{Type: xds.Cluster, Name: name}}
			}
			return []xds.Ref{}
		}
	}
	for _, tt := range []struct {
		by, name string
		refs     func(*xds.Resource) []xds.Ref
		stays    time.Duration
	}{
		{"nothing", "a", to("b"), 0},
		{"its name", "a", to("a"), 5 * time.Second},
		{"an alias", "a", to("x"), 5 * time.Second},
		{"its collection", collection + "a", to(collection + "*"), 5 * time.Second},
		{"a reference to all resources", "a", to("*"), 5 * time.Second},
		{"a resource with unknown references", "a", nil, 5 * time.Second},
	} {
		t.Run(tt.by, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up, conn := relayed(t, relay.Options{Refs: tt.refs})
				c := xdstest.Delta(t, conn)
				c.Subscribe(xds.Cluster, "*")
				c.Subscribe(xds.Route, "r")
				synctest.Wait()
				up.send(called(tt.name, "x"), called("b"))
				c.Await(xds.Cluster, tt.name, "b")
				up.changes(xds.Route, &xds.Changes{Upserts: []*xds.Resource{resource(xds.Route, "r", "")}})
				c.Await(xds.Route, "r")
				up.changes(xds.Cluster, &xds.Changes{Removed: []string{tt.name}})
				takes(t, tt.stays, func() { c.Await(xds.Cluster, "b") })
			})
		})
	}
}

// A name that one resource releases may be used by another in the same response, even if others in it
// conflict. The conflict is logged once.
func TestReleasedNameMayBeUsedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		up, conn := relayed(t, relay.Options{Refs: refs, Log: slog.New(slog.NewTextHandler(&log, nil))})
		c := xdstest.Delta(t, conn)
		c.Subscribe(xds.Cluster, "*")
		synctest.Wait()
		up.send(called("b", "x"))
		c.Await(xds.Cluster, "b")
		up.send(called("a", "x"), called("b"), called("c", "y"), called("d", "y"))
		c.Await(xds.Cluster, "a", "b", "c")
		up.send(called("e"))
		c.Await(xds.Cluster, "a", "b", "c", "e")
		if n := strings.Count(log.String(), "cannot serve a resource of the upstream"); n != 1 {
			t.Errorf("the conflict is logged %d times: %s", n, log.String())
		}
	})
}

// A resource that two names find stays when one of them is dropped.
func TestFoundByTwoNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up, conn := relayed(t, relay.Options{Refs: refs})
		alias, name := xdstest.Delta(t, conn), xdstest.Delta(t, conn)
		alias.Subscribe(xds.Cluster, "x")
		name.Subscribe(xds.Cluster, "a")
		synctest.Wait()
		up.send(called("a", "x"))
		alias.Await(xds.Cluster, "a")
		name.Await(xds.Cluster, "a")
		time.Sleep(2 * time.Minute) // the names requested at the start are dropped
		alias.Close()
		time.Sleep(2 * time.Minute)
		name.ExpectNothing()
		late := xdstest.Delta(t, conn)
		late.Subscribe(xds.Cluster, "a")
		late.Await(xds.Cluster, "a")
	})
}

// An alias may change its resource.
func TestAliasMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up, conn := relayed(t, relay.Options{Refs: refs})
		c := xdstest.Delta(t, conn)
		c.Subscribe(xds.Cluster, "x")
		synctest.Wait()
		up.send(called("a", "x"))
		c.Await(xds.Cluster, "a")
		up.changes(xds.Cluster, &xds.Changes{Upserts: []*xds.Resource{called("b", "x")}, Removed: []string{"a"}})
		c.Await(xds.Cluster, "b")
	})
}

// A resource that was requested by name is part of the wildcard, even if the upstream's wildcard lacks
// it.
func TestNamesArePartOfWildcard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up, conn := relayed(t, relay.Options{Refs: refs})
		one := xdstest.Delta(t, conn)
		one.Subscribe(xds.Cluster, "demanded")
		synctest.Wait()
		up.send(called("demanded"))
		one.Await(xds.Cluster, "demanded")
		time.Sleep(2 * time.Minute) // the names requested at the start are dropped
		all := xdstest.Delta(t, conn)
		all.Subscribe(xds.Cluster, "*")
		synctest.Wait()
		up.send(called("a"))
		all.Await(xds.Cluster, "a", "demanded")
	})
}
