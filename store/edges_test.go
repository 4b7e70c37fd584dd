package store

import (
	"testing"

	"github.com/chancery-xds/chancery/xds"
)

func TestNilClockIsTheRealOne(t *testing.T) {
	st := New(WithClock(nil))
	update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("n", "1"))...) })
	if got := st.Snapshot().View(DefaultGroup).Table(xds.Cluster).Lookup("n"); got == nil {
		t.Error("the resource is missing")
	}
}

func TestSetOfSeveralTypes(t *testing.T) {
	st := New()
	update(t, st, func(tx *Tx) {
		tx.Set(of(xds.Cluster, res("c", "1"))[0], of(xds.Route, res("r", "2"))[0], of(xds.Cluster, res("d", "3"))[0])
	})
	view := st.Snapshot().View(DefaultGroup)
	for name, typ := range map[string]*xds.Type{"c": xds.Cluster, "r": xds.Route, "d": xds.Cluster} {
		if got := view.Table(typ).Lookup(name); got == nil || got.Type != typ {
			t.Errorf("%s %s: %v", typ, name, got)
		}
	}
}

func TestEffectiveWithoutOverlay(t *testing.T) {
	st := New(WithOverlays())
	update(t, st, func(tx *Tx) { tx.Group("a").Set(of(xds.Cluster, res("n", "1"))...) })
	if got := st.Snapshot().Effective("a").Table(xds.Cluster).Lookup("n"); got == nil || string(got.Body) != "1" {
		t.Errorf("the effective view has %v", got)
	}
}
