package rollout

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/xds"
)

// All servers know a rollout that was rolled back, also those that start later, until its group gets a
// commit, another hold, or another rollout. An aborted rollout is not in the list.
func TestRolledBackRolloutsAreListed(t *testing.T) {
	in := func(group, body string) *revisions.Item {
		return &revisions.Item{Group: group, Resource: xds.NewResource(xds.Cluster, "a", []byte(body))}
	}
	for what, notice := range map[string]func(*testCluster){
		"a commit to the group":   func(w *testCluster) { w.items(in("edge", "mended")) },
		"a removal from it":       func(w *testCluster) { w.remove(in("edge", "").Key()) },
		"frozen at another":       func(w *testCluster) { w.hold("edge", 2) },
		"not frozen any more":     func(w *testCluster) { w.thaw("edge") },
		"another rollout":         func(w *testCluster) { w.start(revisions.Pick{Percent: 10}) },
		"another one, taken back": func(w *testCluster) { w.abort(w.start(revisions.Pick{Percent: 10})) },
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			a := w.server("a")
			defer func() { a.stop() }()
			shows := func(s *server, want string) {
				t.Helper()
				time.Sleep(2 * time.Second)
				synctest.Wait()
				got := ""
				for _, b := range s.runner.RolledBack() {
					got += b.ID
				}
				if got != want {
					t.Errorf("%s: %q, want %q", what, got, want)
				}
			}
			a.set(Look{Picked: 1, Acked: 1})
			w.abort(w.start(revisions.Pick{Percent: 10}))
			shows(a, "")
			w.items(in("edge", "3")) // a commit before the roll back does not count
			id := w.start(revisions.Pick{Percent: 10})
			shows(a, "")
			a.set(Look{Picked: 1, Refused: 1, Refusals: []Refusal{{Node: "n", Type: "CDS", Cause: "no"}}})
			shows(a, id)
			for group, want := range map[string]string{"edge": id, "web": ""} {
				got := ""
				if s, err := a.runner.Newest(t.Context(), group); err != nil || s != nil {
					got = s.ID
				}
				if got != want {
					t.Errorf("%s: the newest rollout of group %s is %q, want %q", what, group, got, want)
				}
			}
			a.set(Look{Picked: 1, Acked: 1})
			for _, body := range []string{"x", "y"} {
				w.items(in("web", body))
				shows(a, id)
			}
			b := w.server("b")
			defer func() { b.stop() }()
			shows(b, id)
			notice(w)
			shows(a, "")
			shows(b, "")
			c := w.server("c")
			defer func() { c.stop() }()
			shows(c, "")
		})
	}
}

func (w *testCluster) remove(k revisions.Key) {
	w.Helper()
	base, err := w.repo.Head(w.Context())
	if err == nil {
		_, err = w.repo.Commit(w.Context(), base, revisions.Edit{Remove: []revisions.Key{k}}, revisions.Note{})
	}
	if err != nil {
		w.Fatal(err)
	}
}

func (w *testCluster) thaw(group string) {
	w.Helper()
	if err := w.repo.SetHolds(w.Context(), func(_ revisions.Number, holds map[string]revisions.Hold) error {
		delete(holds, group)
		return nil
	}); err != nil {
		w.Fatal(err)
	}
}

func (w *testCluster) abort(id string) {
	w.Helper()
	if _, err := Change(w.Context(), w.engine, w.repo, id, func(s *State) error { s.Turn(time.Now(), Aborted, s.Step, ""); return nil }); err != nil {
		w.Fatal(err)
	}
}
