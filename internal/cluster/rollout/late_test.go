package rollout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisionapi"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// The next leader puts an unfinished decision into force; a slow leader does not restore an older step.
func TestUnfinishedDecision(t *testing.T) {
	for _, back := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			id := w.start(revisions.Pick{Percent: 10}, revisions.Pick{Percent: 50})
			s, err := Read(t.Context(), w.engine, id)
			if err != nil {
				t.Fatal(err)
			}
			late := *s
			phase := Running
			if s.Go(time.Now(), ""); back {
				phase = RolledBack
				s.Turn(time.Now(), phase, 1, "bad")
			}
			if err := s.write(t.Context(), w.engine); err != nil {
				t.Fatal(err)
			}
			a := w.server("a")
			defer func() { a.stop() }()
			a.set(Look{Picked: 1, Waiting: 1})
			w.is(5*time.Second, id, phase, 1)
			if err := late.Settle(t.Context(), w.repo); back != errors.Is(err, ErrGone) {
				t.Error(err)
			}
			w.is(0, id, phase, 1)
		})
	}
}

// A server that lost the lease decides nothing, whatever the evidence. When it has the lease again, the
// time begins again.
func TestLeaseLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.server("a")
		defer func() { a.stop() }()
		a.set(Look{Picked: 1, Acked: 1})
		id := w.start(revisions.Pick{Percent: 10})
		w.is(8*time.Second, id, Running, 0)
		free := w.engine.take(lease)
		w.is(15*time.Second, id, Running, 0)
		free()
		w.is(9*time.Second, id, Running, 0)
		w.is(5*time.Second, id, Running, 1)
	})
}

// A change applies to the result of concurrent changes.
func TestConcurrentChange(t *testing.T) {
	w := newWorld(t)
	id := w.start(revisions.Pick{Percent: 10})
	old, err := Read(t.Context(), w.engine, id)
	if err != nil {
		t.Fatal(err)
	}
	pause := func(s *State) error { s.Turn(time.Now(), Paused, s.Step, ""); return nil }
	tries := 0
	s, err := Change(t.Context(), w.engine, w.repo, id, func(s *State) error {
		if tries++; tries == 1 {
			if _, err := Change(t.Context(), w.engine, w.repo, id, pause); err != nil {
				return err
			}
		}
		s.Why = "ana wants it"
		return nil
	})
	if err != nil || tries != 2 || s.Phase != Paused || s.Why != "ana wants it" {
		t.Errorf("%+v after %d tries, %v", s, tries, err)
	}
	old.Go(time.Now(), "")
	if err := old.write(t.Context(), w.engine); !errors.Is(err, revisions.ErrConflict) {
		t.Error(err)
	}
}

// A sudden engine calls a function as soon as a rollout is stored.
type sudden struct {
	*memory
	then func()
}

func (s *sudden) CompareAndSwap(ctx context.Context, key string, old, value []byte) error {
	err := s.memory.CompareAndSwap(ctx, key, old, value)
	if then := s.then; then != nil && strings.HasPrefix(key, prefix) {
		s.then = nil
		then()
	}
	return err
}

// Of two rollouts of a group that begin at the same time one runs, and nothing is left of the other.
func TestConcurrentRolloutsOfAGroup(t *testing.T) {
	w := newWorld(t)
	first := ""
	e := &sudden{w.engine, func() { first = w.start(revisions.Pick{Percent: 10}) }}
	s := &State{Number: 2, Steps: []revisions.Pick{{Percent: 50}}, Bake: time.Second, Began: time.Now()}
	err := Start(t.Context(), e, w.repo, s, nil)
	if busy, ok := errors.AsType[*BusyError](err); !ok || busy.Rollout != first {
		t.Error(err)
	}
	if all, err := All(t.Context(), w.engine); err != nil || len(all) != 1 || all[0].ID != first {
		t.Error(all, err)
	}
	if holds, err := w.repo.Holds(t.Context()); err != nil || holds["edge"].Next == nil || holds["edge"].Next.Rollout != first {
		t.Errorf("%+v, %v", holds["edge"], err)
	}
}

// The record of a rollout is limited, for each step including those before, and in the head. A rollout
// that does not fit into the head is not stored.
func TestRolloutRecordIsLimited(t *testing.T) {
	for want, name := range map[string]string{"11 groups in all steps together": "g", "bytes, including the steps before": strings.Repeat("<", 250)} {
		s := &State{Bake: time.Second}
		for i := range 11 {
			s.Steps = append(s.Steps, revisions.Pick{Groups: []string{name + string(rune('a'+i))}})
		}
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	w := newWorld(t)
	id := w.start(revisions.Pick{Percent: 1}, revisions.Pick{Percent: 10, Labels: map[string]string{"a": strings.Repeat("b", 250)}})
	if err := w.repo.SetHolds(t.Context(), func(_ revisions.Number, holds map[string]revisions.Hold) error {
		for i := 0; size(holds) < maxHolds-2000; i++ {
			holds["x"+strconv.Itoa(i)] = revisions.Hold{Number: 1, Message: strings.Repeat("<", 500)}
		}
		holds["y"] = revisions.Hold{Number: 1, Author: strings.Repeat("<", (maxHolds-size(holds)-450)/6)}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	_, err := Change(t.Context(), w.engine, w.repo, id, func(s *State) error { s.Go(time.Now(), ""); return nil })
	if s, e := Read(t.Context(), w.engine, id); !errors.Is(err, revisionapi.ErrCannot) || e != nil || s.Step != 0 {
		t.Error(err, s, e)
	}
	if _, err := Change(t.Context(), w.engine, w.repo, id, func(s *State) error { s.Turn(time.Now(), Aborted, 0, ""); return nil }); err != nil {
		t.Error(err)
	}
}

// The head refuses the next step while a running server has read later holds, as after the return to a backup. Then the
// record of the rollout does not have that step, either.
func TestRecordStaysAtStepOfHead(t *testing.T) {
	t.Run("SAFE-17", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			id := w.start(revisions.Pick{Percent: 10}, revisions.Pick{Percent: 50})
			if err := w.engine.PutIfAbsent(t.Context(), revisions.ServerPrefix+"old", []byte(`{"revision":"r2","turns":99}`)); err != nil {
				t.Fatal(err)
			}
			_, err := Change(t.Context(), w.engine, w.repo, id, func(s *State) error { s.Go(time.Now(), ""); return nil })
			if !errors.Is(err, revisions.ErrBackwards) {
				t.Error(err)
			}
			w.is(0, id, Running, 0)
			a := w.server("a")
			defer func() { a.stop() }()
			a.set(Look{Picked: 1, Acked: 1})
			w.is(time.Minute, id, Running, 0)
			if !strings.Contains(w.log.String(), "rollout waits") {
				t.Error(w.log.String())
			}
		})
	})
}

// A step needs evidence from servers that all serve it; each step has the groups of those before.
func TestStepNeedsEvidence(t *testing.T) {
	for _, c := range []struct {
		servers []Evidence
		want    bool
		waits   string
	}{
		{nil, false, NoServer},
		{[]Evidence{{Turns: 3}}, true, Nobody}, // no client was ever picked
		{[]Evidence{{Turns: 3, Picked: 2, Acked: 2, Seen: 2}, {Turns: 4}}, true, ""},
		{[]Evidence{{Turns: 4}, {Turns: 2, Picked: 2, Acked: 2, Seen: 2}}, false, NotYet},
		{[]Evidence{{Turns: 2}, {Turns: 4}}, false, NotYet},
	} {
		var sum Sum
		for _, e := range c.servers {
			sum.Add(e)
		}
		if got := (&State{MinAcked: 95}).open(sum, 3); got != c.want {
			t.Errorf("%+v: %t", c.servers, got)
		}
		if got := (&State{Phase: Running}).Waits(sum, 3); got != c.waits {
			t.Errorf("%+v: %q", c.servers, got)
		}
	}
	s := &State{Steps: []revisions.Pick{{Groups: []string{"b"}}, {Groups: []string{"a"}}, {Percent: 10}}, Bake: time.Second}
	if err := s.Check(); err != nil || Say(s.Steps[2]) != "group a, group b, 10 %" {
		t.Error(s.Steps, err)
	}
}

// A server that cannot serve the held revisions ends a rollout; one that cannot serve the newest revision
// does not.
func TestRejectedRevisionEndsRollout(t *testing.T) {
	r := New(newMemory(), nil, "a", slog.New(slog.DiscardHandler), func([]string, time.Time) Look { return Look{} })
	holds := map[string]revisions.Hold{"edge": {Number: 1, Next: &revisions.Next{Number: 2, Rollout: "x"}}}
	r.Served(revisions.State{Number: 2, Turns: 1}, holds, time.Now())
	r.Rejected(revisions.State{Number: 3, Turns: 1}, "a commit")
	if e := r.evidence("x"); e.Rejected != "" {
		t.Error(e.Rejected)
	}
	r.Rejected(revisions.State{Number: 3, Turns: 2}, "bad")
	var sum Sum
	sum.Add(r.evidence("x"))
	s := &State{Phase: Paused, Steps: make([]revisions.Pick, 2)}
	if !s.decide(time.Now(), sum, 2, 0) || s.Phase != RolledBack || s.Why != "server a cannot serve it: bad" {
		t.Errorf("%+v", s)
	}
	r.Served(revisions.State{Number: 3, Turns: 2}, holds, time.Now())
	if e := r.evidence("x"); e.Rejected != "" {
		t.Error(e.Rejected)
	}
}

// A refusal just before the next step counts: each look covers the time since the rollout was first
// served.
func TestRefusedBeforeTheNextStep(t *testing.T) {
	began := time.Unix(1000, 0)
	r := New(newMemory(), nil, "a", slog.New(slog.DiscardHandler), func(_ []string, since time.Time) Look {
		if !since.Equal(began) {
			t.Error(since)
		}
		return Look{Picked: 2, Acked: 1, Refused: 1, Refusals: []Refusal{{Node: "n"}}}
	})
	for step := range 2 {
		holds := map[string]revisions.Hold{"edge": {Number: 1, Next: &revisions.Next{Number: 2, Rollout: "x", Step: step}}}
		r.Served(revisions.State{Number: 2, Turns: step + 1}, holds, began.Add(time.Duration(step)*time.Second))
	}
	if e := r.evidence("x"); e.Refusal == nil || e.Refusal.Node != "n" {
		t.Errorf("%+v", e)
	}
}

// The first refusal counts as long as the rollout exists, whatever clients do after it.
func TestRefusalStays(t *testing.T) {
	look := Look{Refusals: []Refusal{{Node: "n"}, {Node: "m"}}}
	r := New(newMemory(), nil, "a", slog.New(slog.DiscardHandler), func([]string, time.Time) Look { return look })
	serve := func(step int) {
		r.Served(revisions.State{Number: 2, Turns: step + 1}, map[string]revisions.Hold{"edge": {Number: 1, Next: &revisions.Next{Number: 2, Rollout: "x", Step: step}}}, time.Now())
	}
	is := func() {
		t.Helper()
		if e := r.evidence("x"); e.Refusal == nil || e.Refusal.Node != "n" {
			t.Errorf("%+v", e.Refusal)
		}
	}
	serve(0)
	is()
	look = Look{Refusals: []Refusal{{Node: "m"}}}
	is()
	look = Look{}
	is()
	serve(1)
	is()
}

// A step is good from the time when all servers serve it: neither the time nor the evidence of the step
// before counts.
func TestBakeTimeOfAStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		id := w.start(revisions.Pick{Percent: 10}, revisions.Pick{Percent: 50})
		d := driver{Runner: New(w.engine, w.repo, "a", slog.New(slog.DiscardHandler), nil), steps: map[string]step{}}
		turns := 0
		say := func() { // the served state
			t.Helper()
			s, err := w.repo.Newest(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			turns = s.Turns
		}
		is := func(after time.Duration, step int) {
			t.Helper()
			time.Sleep(after)
			w.engine.values[evidencePrefix+id+"/a"] = fmt.Appendf(nil, `{"server":"a","turns":%d,"picked":1,"acked":1}`, turns)
			head, holds, err := w.repo.HoldsWithState(t.Context())
			if err == nil {
				err = d.decide(t.Context(), id, holds["edge"].Next, head)
			}
			if err != nil {
				t.Fatal(err)
			}
			w.is(0, id, Running, step)
		}
		say()
		is(0, 0)
		is(9*time.Second, 0)
		is(time.Second, 1)
		say()
		is(0, 1)
		is(0, 1) // it is good from here on
		is(9*time.Second, 1)
		is(time.Second, 2)
		is(time.Hour, 2) // no server serves it yet
		say()
		is(0, 2)
		is(9*time.Second, 2)
	})
}

// Evidence is announced again when the store has lost it; foreign values are ignored.
func TestLostEvidenceIsAnnouncedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.server("a")
		defer func() { a.stop() }()
		a.set(Look{Picked: 3, Waiting: 3})
		id := w.start(revisions.Pick{Percent: 10})
		for key, b := range map[string]string{"foreign": "{", "other": "[1]"} {
			if err := w.engine.CompareAndSwap(t.Context(), evidencePrefix+id+"/"+key, nil, []byte(b)); err != nil {
				t.Fatal(err)
			}
		}
		reports := func(want int) {
			t.Helper()
			time.Sleep(idle + time.Second)
			synctest.Wait()
			if sum, err := Gather(t.Context(), w.engine, id); err != nil || sum.Servers != want || sum.Picked != 3*want || want > 0 && sum.Turns == 0 {
				t.Errorf("%+v, %v, want %d servers", sum, err, want)
			}
		}
		reports(1)
		w.engine.lose(true)
		reports(0)
		w.engine.lose(false)
		reports(1)
	})
}

// A corrupt record of a rollout is an error.
func TestCorruptRecord(t *testing.T) {
	e := newMemory()
	for text, want := range map[string]error{
		`{"format":1,"id":"x","steps":[{}]}`:            nil,
		`{"format":2,"id":"x","steps":[{}]}`:            revisions.ErrNewer,
		`{"format":0,"id":"x","steps":[{}]}`:            revisions.ErrDamaged,
		`{"format":1,"id":"y","steps":[{}]}`:            revisions.ErrDamaged,
		`{"format":1,"id":"x","steps":[]}`:              revisions.ErrDamaged,
		`{"format":1,"id":"x","steps":[{}],"step":1}`:   revisions.ErrDamaged,
		`{"format":1,"id":"x","steps":[{}],"step":-1}`:  revisions.ErrDamaged,
		`{"format":1,"id":"x","steps":[{}],"step":"0"}`: revisions.ErrDamaged,
		`{`: revisions.ErrDamaged,
	} {
		e.values[prefix+"x"] = []byte(text)
		if _, err := Read(t.Context(), e, "x"); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
	if _, err := Read(t.Context(), e, "z"); !errors.Is(err, revisions.ErrNotFound) {
		t.Error(err)
	}
}

// HEAL-5: the reason of a rollback names the refused resource with its place, or the resources of which one is
// refused.
func TestRefusalText(t *testing.T) {
	for want, r := range map[string]Refusal{
		"node n refuses CDS: no":                      {},
		"node n refuses CDS bad: no":                  {Name: "bad"},
		"node n refuses CDS bad at c.yaml:5:3: no":    {Name: "bad", Place: "c.yaml:5:3"},
		"node n refuses one of 3 CDS (a, bad, c): no": {Among: []string{"a", "bad", "c"}, Of: 3},
		"node n refuses one of 40 CDS: no":            {Of: 40},
		"node n refuses CDS of one: no":               {Name: "of one", Of: 40},
	} {
		r.Node, r.Type, r.Cause = "n", "CDS", "no"
		if got := r.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
