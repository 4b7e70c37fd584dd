package wiring

import (
	"testing"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A client is expected to subscribe to endpoints if a cluster in one of its groups refers to them.
func TestEndpointsExpectedOfClientsWithEDSClusters(t *testing.T) {
	st := store.New()
	put := func(group, name string, refs ...xds.Ref) {
		r := xds.NewResource(xds.Cluster, name, []byte(name))
		r.Refs = append([]xds.Ref{}, refs...)
		if _, err := st.Update(func(tx *store.Tx) error { tx.Group(group).Set(r); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	put("static", "a")
	put("eds", "b", xds.Ref{Type: xds.Endpoint, Name: "b"})
	for _, group := range []string{"static", "eds"} { // equal versions, as files can set them
		if _, err := st.Update(func(tx *store.Tx) error { tx.Group(group).Version(xds.Cluster, "1"); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	var e endpointExpectation
	for range 2 {
		for want, groups := range map[bool][]string{false: {"static", "nowhere"}, true: {"static", "eds"}} {
			if got := e.endpoints(st.Snapshot(), groups); got != want {
				t.Errorf("%q: %v", groups, got)
			}
		}
	}
	for range 2 * maxRemembered {
		put("static", "a", xds.Ref{Type: xds.Secret, Name: "s"})
		put("static", "a")
		e.endpoints(st.Snapshot(), []string{"static"})
	}
	if len(e.seen) > maxRemembered {
		t.Errorf("%d tables are remembered, at most 1000 may be", len(e.seen))
	}
}
