package rollout

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/testkit/logtest"
	"github.com/chancery-xds/chancery/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A testCluster is a store with group edge frozen at r1, and servers of it.
type testCluster struct {
	*testing.T
	engine *memory
	repo   *revisions.Repository
	log    logtest.Log
}

func newWorld(t *testing.T) *testCluster {
	w := &testCluster{T: t, engine: newMemory()}
	w.repo = revisions.Open(w.engine, revisions.Options{})
	w.commit("1")
	w.hold("edge", 1)
	w.commit("2")
	return w
}

func (w *testCluster) commit(body string) {
	w.Helper()
	item := func(group string) *revisions.Item {
		return &revisions.Item{Group: group, Resource: xds.NewResource(xds.Cluster, "a", []byte(body))}
	}
	w.items(item("edge"), item("web"), &revisions.Item{Group: "rule", Definition: []byte("match: {}")}, &revisions.Item{Group: "still", Definition: []byte("match: {}")})
}

func (w *testCluster) items(items ...*revisions.Item) {
	w.Helper()
	base, err := w.repo.Head(w.Context())
	if err == nil {
		_, err = w.repo.Commit(w.Context(), base, revisions.Edit{Set: items}, revisions.Note{})
	}
	if err != nil {
		w.Fatal(err)
	}
}

func (w *testCluster) hold(group string, n revisions.Number) {
	w.Helper()
	if err := w.repo.SetHolds(w.Context(), func(_ revisions.Number, holds map[string]revisions.Hold) error {
		holds[group] = revisions.Hold{Number: n}
		return nil
	}); err != nil {
		w.Fatal(err)
	}
}

func (w *testCluster) start(steps ...revisions.Pick) string {
	w.Helper()
	s := &State{Number: 2, Steps: steps, Bake: 10 * time.Second, MinAcked: 90, Began: time.Now(), Author: "ana", Message: "why"}
	if err := Start(w.Context(), w.engine, w.repo, s, nil); err != nil {
		w.Fatal(err)
	}
	return s.ID
}

// A server serves the state of the head, a moment later.
type server struct {
	stop   func()
	runner *Runner
	look   Look // of the picked clients
	mu     sync.Mutex
}

func (s *server) set(l Look) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look = l
}

func (w *testCluster) server(name string) *server {
	s := &server{}
	r := New(w.engine, revisions.Open(w.engine, revisions.Options{}), name, slog.New(slog.NewTextHandler(&w.log, nil)), func(lanes []string, _ time.Time) Look {
		if !slices.Equal(lanes, []string{"edge@next"}) {
			w.Error(lanes)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.look
	})
	s.runner = r
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	running.Go(func() {
		repo := revisions.Open(w.engine, revisions.Options{})
		for ctx.Err() == nil {
			if state, holds, err := repo.HoldsWithState(ctx); err == nil {
				r.Served(state, holds, time.Now())
			}
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	s.stop = func() { cancel(); running.Wait() }
	return s
}

// is checks the state of a rollout, some time later.
func (w *testCluster) is(after time.Duration, id string, p Phase, step int) *State {
	w.Helper()
	time.Sleep(after)
	synctest.Wait()
	s, err := Read(w.Context(), w.engine, id)
	if err != nil {
		w.Fatal(err)
	}
	if s.Phase != p || s.Step != step {
		w.Fatalf("%s at step %d (%s), want %s at %d\n%s", s.Phase, s.Step, s.Why, p, step, w.log.String())
	}
	holds, err := w.repo.Holds(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	h := holds["edge"]
	switch {
	case p.Ended() != (h.Next == nil), h.Next != nil && (h.Next.Step != step || h.Next.Rollout != id):
		w.Fatalf("%+v", h.Next)
	case (p == Done) != (h.Number == 2):
		w.Fatalf("%+v", h)
	}
	return s
}

// Each step comes when the clients of the one before have accepted it, on all servers, for the bake time;
// then all are at the new revision.
func TestSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.server("a"), w.server("b")
		defer func() { a.stop(); b.stop() }()
		a.set(Look{Picked: 1, Waiting: 1})
		b.set(Look{Picked: 3, Acked: 3})
		id := w.start(revisions.Pick{Labels: map[string]string{"canary": "true"}}, revisions.Pick{Percent: 10})
		w.is(15*time.Second, id, Running, 0)
		a.set(Look{}) // it has crashed
		s := w.is(15*time.Second, id, Running, 0)
		if sum, err := Gather(t.Context(), w.engine, id); err != nil || s.Waits(sum, 0) != "3 of 4 clients have accepted it: it needs 90 % (1 picked clients have left)" {
			t.Error(s.Waits(sum, 0), err)
		}
		a.set(Look{Picked: 1, Acked: 1})
		w.is(9*time.Second, id, Running, 0)
		a.set(Look{Picked: 1, Waiting: 1}) // the time begins again
		w.is(9*time.Second, id, Running, 0)
		a.set(Look{Picked: 1, Acked: 1})
		s = w.is(11*time.Second, id, Running, 1)
		if got := Say(s.Steps[1]); got != "canary=true, 10 %" || len(s.Steps) != 3 || Say(s.Steps[2]) != "canary=true, 100 %" {
			t.Error(got, s.Steps)
		}
		if _, err := Change(t.Context(), w.engine, w.repo, id, func(s *State) error { s.Turn(time.Now(), Paused, s.Step, ""); return nil }); err != nil {
			t.Fatal(err)
		}
		w.is(15*time.Second, id, Paused, 1)
		if _, err := Change(t.Context(), w.engine, w.repo, id, func(s *State) error { s.Turn(time.Now(), Running, s.Step, ""); return nil }); err != nil {
			t.Fatal(err)
		}
		w.is(2*time.Second, id, Running, 2) // it was good all the time
		// A refusal by a client that refuses everything does not end the rollout, but it delays the
		// step.
		a.set(Look{Picked: 1, Refused: 1})
		w.is(15*time.Second, id, Running, 2)
		if _, err := Change(t.Context(), w.engine, w.repo, id, func(s *State) error { s.Go(time.Now(), "ana wants it"); return nil }); err != nil {
			t.Fatal(err)
		}
		w.is(2*time.Second, id, Done, 2)
		if n, _ := w.engine.Get(t.Context(), "evidence"); n != nil || len(w.engine.leases) != 0 {
			t.Error("evidence or a lease is left")
		}
		for k := range w.engine.List(t.Context(), evidencePrefix) {
			t.Error(k)
		}
	})
}

// The first refusal of a healthy client ends a rollout, on any server, also while it is paused, even if
// the leader dies.
func TestRolledBack(t *testing.T) {
	for _, paused := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			a := w.server("a")
			a.set(Look{Picked: 1, Acked: 1})
			id := w.start(revisions.Pick{Percent: 10})
			w.is(2*time.Second, id, Running, 0)
			b := w.server("b")
			w.is(2*time.Second, id, Running, 0)
			a.stop() // the leader
			b.set(Look{Picked: 1, Acked: 1})
			w.is(12*time.Second, id, Running, 1)
			c := w.server("c")
			defer func() { b.stop(); c.stop() }()
			c.set(Look{Picked: 1, Acked: 1})
			if paused {
				if _, err := Change(t.Context(), w.engine, w.repo, id, func(s *State) error { s.Turn(time.Now(), Paused, s.Step, ""); return nil }); err != nil {
					t.Fatal(err)
				}
			}
			w.is(2*time.Second, id, map[bool]Phase{false: Running, true: Paused}[paused], 1)
			c.set(Look{Picked: 1, Refused: 1, Refusals: []Refusal{{Node: "n", Type: "CDS", Name: "bad", Cause: strings.Repeat("x", 1000)}}})
			time.Sleep(time.Second)
			c.set(Look{Picked: 1, Acked: 1}) // the refusal stays
			s := w.is(time.Second, id, RolledBack, 1)
			if s.Refusal == nil || s.Refusal.Node != "n" || len(s.Refusal.Cause) > 510 || !strings.Contains(s.Why, "node n refuses CDS bad: xxx") {
				t.Errorf("%+v", s)
			}
			// A slow earlier decision changes nothing.
			late := *s
			late.Phase, late.Step = Running, 1
			if err := late.Settle(t.Context(), w.repo); !errors.Is(err, ErrGone) {
				t.Error(err)
			}
			w.is(15*time.Second, id, RolledBack, 1)
			if strings.Count(w.log.String(), "rollout was rolled back") != 1 {
				t.Error(w.log.String())
			}
		})
	}
}

func TestStart(t *testing.T) {
	w := newWorld(t)
	start := func(s State, groups ...string) error {
		s.MinAcked, s.Began = cmp.Or(s.MinAcked, 95), time.Now()
		if s.Bake == 0 {
			s.Bake = time.Minute
		}
		return Start(t.Context(), w.engine, w.repo, &s, groups)
	}
	w.hold("rule", 2)
	w.hold("still", 2)
	w.items(&revisions.Item{Group: "rule", Definition: []byte("match: {id: a}")}) // r3
	for say, c := range map[string]struct {
		State
		groups []string
	}{
		"a step of 101 %":                  {State: State{Number: 2, Steps: []revisions.Pick{{Percent: 101}}}},
		"a step of 5 % after one of 10 %":  {State: State{Number: 2, Steps: []revisions.Pick{{Percent: 10}, {Percent: 5}}}},
		"a step of NaN %":                  {State: State{Number: 2, Steps: []revisions.Pick{{Percent: math.NaN()}}}},
		"must have accepted is 101 %":      {State: State{Number: 2, MinAcked: 101}},
		"must have accepted is NaN %":      {State: State{Number: 2, MinAcked: math.NaN()}},
		"21 steps":                         {State: State{Number: 2, Steps: make([]revisions.Pick, 21)}},
		"the bake time must be 1 s":        {State: State{Number: 2, Bake: time.Millisecond}},
		"a label has 1 to":                 {State: State{Number: 2, Steps: []revisions.Pick{{Labels: map[string]string{"": "x"}}}}},
		"the newest is r3":                 {State: State{Number: 9}},
		"group web is not frozen":          {State: State{Number: 2}, groups: []string{"web"}},
		"changes group.yaml of group rule": {State: State{Number: 3}},
		"no frozen group differs in r2":    {State: State{Number: 2}, groups: []string{"still"}},
		`group "wbe" is neither in r2`:     {State: State{Number: 2, Steps: []revisions.Pick{{Groups: []string{"web", "wbe"}}, {Percent: 10}}}},
		`group "egde" is neither in r2`:    {State: State{Number: 2}, groups: []string{"egde"}},
	} {
		if err := start(c.State, c.groups...); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%v, want %s", err, say)
		}
	}
	if err := start(State{Number: 2}, "edge"); err != nil {
		t.Fatal(err)
	}
	err := start(State{Number: 3}, "edge")
	if busy, ok := errors.AsType[*BusyError](err); !ok || busy.Group != "edge" || !errors.Is(err, revisions.ErrConflict) {
		t.Error(err)
	}
	all, err := All(t.Context(), w.engine)
	if err != nil || len(all) != 1 || !slices.Equal(all[0].Groups(), []string{"edge"}) {
		t.Errorf("%v, %v", all, err)
	}
	if was, err := Abandon(t.Context(), w.repo, "another"); err != nil || was {
		t.Error(was, err)
	}
	// A rollout with a missing record can be ended.
	if err := w.engine.Delete(t.Context(), prefix+all[0].ID); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		if was, err := Abandon(t.Context(), w.repo, all[0].ID); err != nil || was != want {
			t.Error(was, err)
		}
	}
	if err := start(State{Number: 2}); err != nil {
		t.Fatal(err)
	}
	if all, err = All(t.Context(), w.engine); err != nil || len(all) != 1 {
		t.Fatal(err)
	}
	for range 25 {
		if _, err := Change(t.Context(), w.engine, w.repo, all[0].ID, func(s *State) error { s.Turn(time.Now(), Aborted, 0, ""); return nil }); err != nil {
			t.Fatal(err)
		}
		if err := start(State{Number: 2}); err != nil {
			t.Fatal(err)
		}
		if all, err = All(t.Context(), w.engine); err != nil || len(all) > maxEnded+2 {
			t.Fatal(len(all), err)
		}
	}
	if err := w.engine.CompareAndSwap(t.Context(), "rollout/x", nil, []byte(`{"format":2,"id":"x"}`)); err != nil {
		t.Fatal(err)
	}
	if all, err = All(t.Context(), w.engine); !errors.Is(err, revisions.ErrNewer) || len(all) == 0 {
		t.Error(err)
	}
}
