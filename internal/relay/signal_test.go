package relay_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/relay"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// Changes during a call of Next: the call returns the change, or its signal stays.
func TestChangeDuringNext(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before func(w *testRelay, of *relay.Watch)
		change func(w *testRelay)
		check  func(t *testing.T, v xds.View, err error)
	}{
		{
			"SUB-1 a type becomes known",
			func(_ *testRelay, of *relay.Watch) { of.Interested(xds.Cluster, true, nil, nil) },
			func(w *testRelay) { w.up.set(xds.Cluster, "a") },
			func(t *testing.T, v xds.View, _ error) {
				if undecided(v) || v.Table(xds.Cluster).Len() != 1 {
					t.Errorf("undecided: %v, %d resources", undecided(v), v.Table(xds.Cluster).Len())
				}
			},
		},
		{
			"SAFE-10 a type is no longer requested",
			func(w *testRelay, of *relay.Watch) {
				w.up.set(xds.Cluster, "a")
				of.Interested(xds.Cluster, true, nil, nil)
				synctest.Wait()
				of.Interested(xds.Cluster, false, nil, nil)
			},
			func(*testRelay) { time.Sleep(2 * time.Minute) },
			func(t *testing.T, v xds.View, _ error) {
				if n := v.Table(xds.Cluster).Len(); n != 0 || !undecided(v) {
					t.Errorf("undecided: %v, %d resources", undecided(v), n)
				}
			},
		},
		{
			"SAFE-1 the stream must end",
			func(_ *testRelay, of *relay.Watch) { of.Interested(xds.Endpoint, false, []string{"a", "b"}, nil) },
			func(w *testRelay) { watchOf(w.t, w).Interested(xds.Endpoint, false, []string{"c"}, nil) },
			func(t *testing.T, _ xds.View, err error) {
				if err == nil {
					t.Error("the stream stays")
				}
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			both(t, func(t *testing.T, delta bool) {
				w := relayWith(t, newUpstream(t), "", delta, nil, func(o *relay.Options) { o.Limits = relay.Limits{Names: 2} })
				of := watchOf(t, w)
				tt.before(w, of)
				latest(of)
				during(t, w, of, func() { tt.change(w) })
				v, err := latest(of)
				tt.check(t, v, err)
			})
		})
	}
}

// during calls f in the next call of Next, and drains the signals of f: as if Next cleared its signal after f.
func during(t *testing.T, w *testRelay, of *relay.Watch, f func()) {
	t.Helper()
	called := false
	_, err := w.store.Update(func(tx *store.Tx) error {
		tx.Select(func(context.Context, *xds.Node) ([]string, error) {
			if called {
				return nil, nil
			}
			called = true
			f()
			synctest.Wait()
			select {
			case <-of.C():
			default:
			}
			return nil, nil
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// latest calls Next until no signal is left.
func latest(of *relay.Watch) (v xds.View, err error) {
	for more := true; more && err == nil; {
		v, _, err = of.Next()
		synctest.Wait()
		select {
		case <-of.C():
		default:
			more = false
		}
	}
	return v, err
}

// undecided reports whether the list of all clusters is not known.
func undecided(v xds.View) bool { return v.(xds.Undecided).Undecided(xds.Cluster, xds.Wildcard) }
