package enginetest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// lostHead (SAFE-15): without a head, or with a head of another history, nothing is read, committed or swept.
// RestoreHead makes an intact revision the newest again.
func lostHead(t *testing.T, open func(*testing.T) revisions.Engine) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e := open(t)
	writer := revisions.Open(e, revisions.Options{})
	at := grow(ctx, t, writer, 5)
	results, end := watching(ctx, revisions.Open(open(t), revisions.Options{Poll: 20 * time.Millisecond, Retry: time.Millisecond}))
	defer end()
	mustYield(t, results, 5)
	head, err := e.Get(ctx, "head")
	must(t, err)
	_, err = writer.RestoreHead(ctx, "r5", nil)
	mustBe(t, err, revisions.ErrHead, "r5")

	tamper(ctx, t, e, "head", nil)
	mustLose(ctx, t, e, at, "head: damaged")
	mustBe(t, (<-results).error, revisions.ErrLostHead, "head")
	all, err := writer.Restorable(ctx, 0)
	must(t, err)
	if len(all) != 5 || all[0].Name != "r5" || all[0].Message != "commit 5" || all[4].Err != nil {
		t.Errorf("%+v", all)
	}
	_, err = writer.RestoreHead(ctx, "r6", nil)
	mustBe(t, err, revisions.ErrNotFound, "r6")
	rev, err := writer.RestoreHead(ctx, "r5", nil)
	must(t, err)
	mustYield(t, results, 5)
	if again, err := e.Get(ctx, "head"); err != nil || string(again) == string(head) || rev.Message != "commit 5" {
		t.Errorf("%s, %v: want a head that differs from each earlier one", again, err)
	}
	grow(ctx, t, writer, 6)
	mustYield(t, results, 6)

	// The newest revision is not intact, either.
	packs := keysOf(t, e, "pack/")
	at = grow(ctx, t, writer, 7)
	mustYield(t, results, 7)
	lost := slices.DeleteFunc(keysOf(t, e, "pack/"), func(k string) bool { return slices.Contains(packs, k) })
	must(t, e.Delete(ctx, append(lost, "head")...))
	mustLose(ctx, t, e, at, "head: damaged")
	all, err = writer.Restorable(ctx, 2)
	must(t, err)
	if len(all) != 2 || all[0].Err == nil || !strings.Contains(all[0].Err.Error(), lost[0]) || all[1].Err != nil {
		t.Errorf("%+v", all)
	}
	_, err = writer.RestoreHead(ctx, "r7", nil)
	mustBe(t, err, revisions.ErrDamaged, lost[0])
	_, err = writer.RestoreHead(ctx, "r6", map[string]revisions.Hold{"g": {Number: 4, Author: "ana"}})
	must(t, err)
	fresh := revisions.Open(e, revisions.Options{})
	s, err := fresh.Serving(ctx)
	must(t, err)
	if s.Revision.Number != 6 || s.Holds()["g"].Number != 4 || s.Held(4) == nil {
		t.Errorf("%s, %v", s.Revision.Number, s.Holds())
	}
	if _, err := fresh.Commit(ctx, s, revisions.Edit{Set: []*revisions.Item{counter("b", 9)}}, revisions.Note{}); err != nil {
		t.Error(err)
	}
	if swept, err := fresh.Sweep(ctx, 1); err != nil || swept.Oldest != 4 {
		t.Errorf("%+v, %v", swept, err)
	}
	if _, err := revisions.Open(e, revisions.Options{}).At(ctx, 4); err != nil {
		t.Error(err)
	}
}

// mixed (SAFE-15): the head of another store, or one of a backup, with the revisions of this one. A draft of a
// writer that has died is not such a fault.
func mixed(t *testing.T, open func(*testing.T) revisions.Engine) {
	ctx := t.Context()
	e := open(t)
	writer := revisions.Open(e, revisions.Options{})
	grow(ctx, t, writer, 2)
	older, err := e.Get(ctx, "head")
	must(t, err)
	draft := keysOf(t, e, "revision/")
	at := grow(ctx, t, writer, 5)
	newest, err := e.Get(ctx, "head")
	must(t, err)

	// The head of a backup alone.
	tamper(ctx, t, e, "head", older)
	mustLose(ctx, t, e, at, "another history")
	_, err = revisions.Open(e, revisions.Options{}).RestoreHead(ctx, "r5", nil)
	must(t, err)
	tamper(ctx, t, e, "head", newest)
	if _, err := revisions.Open(e, revisions.Options{}).Head(ctx); err != nil {
		t.Error(err)
	}

	// The revisions of another store, which has fewer or more of them. Its head replaces the head, or does not.
	for _, n := range []revisions.Number{3, 9} {
		aside := map[string][]byte{}
		for _, key := range keysOf(t, e, "") {
			aside[key], err = e.Get(ctx, key)
			must(t, err)
			tamper(ctx, t, e, key, nil)
		}
		grow(ctx, t, revisions.Open(e, revisions.Options{}), n)
		for key, value := range aside {
			if key != "head" {
				tamper(ctx, t, e, key, value)
			}
		}
		mustLose(ctx, t, e, at, "another history")
		tamper(ctx, t, e, "head", newest)
		mustLose(ctx, t, e, at, "another history")
		names := 0
		all, err := writer.Restorable(ctx, 0)
		must(t, err)
		for _, one := range all {
			if one.Number == 3 && strings.HasPrefix(one.Name, "r3-") && one.Err == nil {
				names++
			}
		}
		if names != 2 {
			t.Errorf("%+v", all)
		}
		for _, key := range keysOf(t, e, "") {
			if aside[key] == nil {
				tamper(ctx, t, e, key, nil)
			}
		}
	}

	// A draft of a writer that has died: a revision with the same parent as the committed one.
	tamper(ctx, t, e, "head", older)
	for _, key := range keysOf(t, e, "revision/") {
		if !slices.Contains(draft, key) && !strings.Contains(key, "0000000003-") {
			tamper(ctx, t, e, key, nil)
		}
	}
	grow(ctx, t, revisions.Open(e, revisions.Options{}), 6)
	fresh := revisions.Open(e, revisions.Options{})
	if _, err := fresh.Head(ctx); err != nil {
		t.Error(err)
	}
	if swept, err := fresh.Sweep(ctx, 1); err != nil || swept.Revisions != 6 {
		t.Errorf("%+v, %v", swept, err)
	}
}

// grow commits until the newest revision is n.
func grow(ctx context.Context, t *testing.T, repo *revisions.Repository, n revisions.Number) *revisions.Snapshot {
	t.Helper()
	for {
		s, err := repo.Head(ctx)
		must(t, err)
		if s.Revision.Number >= n {
			return s
		}
		next := s.Revision.Number + 1
		_, err = repo.Commit(ctx, s, revisions.Edit{Set: []*revisions.Item{counter("a", int(next))}}, revisions.Note{Message: "commit " + next.String()[1:]})
		must(t, err)
	}
}

// mustLose fails unless each method of a repository, opened before or after the loss, refuses a store with a
// lost head, and changes nothing.
func mustLose(ctx context.Context, t *testing.T, e revisions.Engine, at *revisions.Snapshot, say string) {
	t.Helper()
	before := keysOf(t, e, "")
	repo := revisions.Open(e, revisions.Options{})
	for name, f := range map[string]func() error{
		"Head":    func() error { _, err := repo.Head(ctx); return err },
		"Newest":  func() error { _, err := repo.Newest(ctx); return err },
		"At":      func() error { _, err := repo.At(ctx, 1); return err },
		"History": func() error { return repo.History(ctx, func(revisions.Revision) bool { return true }) },
		"Holds":   func() error { _, err := repo.Holds(ctx); return err },
		"Due":     func() error { _, err := repo.Due(ctx, 1); return err },
		"Plan":    func() error { _, err := repo.Plan(ctx, 1); return err },
		"Sweep":   func() error { _, err := repo.Sweep(ctx, 1); return err },
		"Restore": func() error { _, err := repo.Restore(ctx, at, 1, revisions.Note{}); return err },
		"SetHolds": func() error {
			return repo.SetHolds(ctx, func(revisions.Number, map[string]revisions.Hold) error { return nil })
		},
		"Commit": func() error {
			_, err := repo.Commit(ctx, &revisions.Snapshot{}, revisions.Edit{Set: []*revisions.Item{counter("z", 1)}}, revisions.Note{})
			return err
		},
	} {
		mustBe(t, f(), revisions.ErrLostHead, say)
		if after := keysOf(t, e, ""); len(after) != len(before) {
			t.Errorf("%s changed the keys: %d, before %d", name, len(after), len(before))
		}
	}
}

// backupOfHolds (SAFE-17): a store was put back to a backup with earlier holds, such as an earlier step of a rollout. While
// a server serves the later ones, a program that has read nothing changes none. Later the server does not take other
// holds for its own.
func backupOfHolds(t *testing.T, open func(*testing.T) revisions.Engine) {
	e := open(t)
	a, ok := e.(revisions.Announcer)
	if !ok {
		t.Skip("the engine is not an Announcer")
	}
	ctx := t.Context()
	announcing, cancel := context.WithCancel(ctx)
	values, ended := make(chan []byte), make(chan error, 1)
	go func() { ended <- a.Announce(announcing, revisions.ServerPrefix+"a", values) }()
	server := revisions.Open(e, revisions.Options{})
	grow(ctx, t, server, 2)
	hold := func(repo *revisions.Repository, group string, n revisions.Number) error {
		return repo.SetHolds(ctx, func(_ revisions.Number, holds map[string]revisions.Hold) error {
			holds[group] = revisions.Hold{Number: n}
			return nil
		})
	}
	must(t, hold(server, "edge", 1))
	head, err := e.Get(ctx, "head")
	must(t, err)
	must(t, hold(server, "edge", 2))
	_, err = server.Serving(ctx)
	must(t, err)
	values <- []byte(`{"revision":"r2","turns":2}`)
	values <- []byte(`{"revision":"r2","turns":2}`) // the first one is stored
	must(t, hold(revisions.Open(e, revisions.Options{}), "edge", 2))
	tamper(ctx, t, e, "head", head)
	mustBe(t, hold(revisions.Open(e, revisions.Options{}), "web", 1), revisions.ErrBackwards, "serves freezes that have changed 2 times, and those of the repository 1 times")
	cancel()
	must(t, <-ended)
	must(t, hold(revisions.Open(e, revisions.Options{}), "web", 1))
	_, err = server.Serving(ctx)
	mustBe(t, err, revisions.ErrBackwards, "other freezes after as many changes, 2")
}

// restoredAgain (SAFE-15): a head was restored without the holds that a server knows. It can be restored again with them,
// while that server runs and also later.
func restoredAgain(t *testing.T, open func(*testing.T) revisions.Engine) {
	ctx := t.Context()
	e := open(t)
	server := revisions.Open(e, revisions.Options{})
	grow(ctx, t, server, 2)
	for i := range 2 {
		must(t, server.SetHolds(ctx, func(_ revisions.Number, holds map[string]revisions.Hold) error {
			holds["edge"] = revisions.Hold{Number: revisions.Number(i + 1)}
			return nil
		}))
	}
	_, err := server.Serving(ctx)
	must(t, err)
	must(t, e.Delete(ctx, "head"))
	program := revisions.Open(e, revisions.Options{})
	_, err = program.RestoreHead(ctx, "r2", nil)
	must(t, err)
	_, err = server.Serving(ctx)
	mustBe(t, err, revisions.ErrBackwards, "its freezes have changed 0 times, before that 2 times")
	_, err = program.RestoreHead(ctx, "r2", nil)
	mustBe(t, err, revisions.ErrHead, "r2")
	for _, n := range []revisions.Number{1, 2} {
		_, err = program.RestoreHead(ctx, "r2", map[string]revisions.Hold{"edge": {Number: n}})
		must(t, err)
		_, err = server.Serving(ctx)
		must(t, err)
		if holds, err := server.Holds(ctx); err != nil || holds["edge"].Number != n {
			t.Errorf("%v, %v", holds, err)
		}
	}
	_, err = program.RestoreHead(ctx, "r1", map[string]revisions.Hold{})
	mustBe(t, err, revisions.ErrHead, "r2")
	grow(ctx, t, server, 4)
	_, err = program.RestoreHead(ctx, "r4", map[string]revisions.Hold{})
	mustBe(t, err, revisions.ErrHead, "r4")
}

// backup (SAFE-15): a whole store was put back to a backup, while a server serves a later revision. A program
// that has read nothing before commits and sweeps nothing.
func backup(t *testing.T, open func(*testing.T) revisions.Engine) {
	e := open(t)
	a, ok := e.(revisions.Announcer)
	if !ok {
		t.Skip("the engine is not an Announcer")
	}
	ctx, cancel := context.WithCancel(t.Context())
	values, ended := make(chan []byte), make(chan error, 1)
	go func() { ended <- a.Announce(ctx, revisions.ServerPrefix+"a", values) }()
	defer func() {
		cancel()
		must(t, <-ended)
	}()
	writer := revisions.Open(e, revisions.Options{})
	at := grow(ctx, t, writer, 2)
	older := keysOf(t, e, "")
	head, err := e.Get(ctx, "head")
	must(t, err)
	grow(ctx, t, writer, 4)
	values <- []byte(`{"revision":"r4"}`)
	values <- []byte(`{"revision":"r4"}`) // the first one is stored
	grow(ctx, t, writer, 5)
	if _, err := writer.Sweep(ctx, 9); err != nil {
		t.Error(err)
	}
	tamper(ctx, t, e, "head", head)
	// The head alone was put back: a later revision can be the newest again.
	_, err = revisions.Open(e, revisions.Options{}).RestoreHead(ctx, "r4", nil)
	must(t, err)
	tamper(ctx, t, e, "head", head)
	for _, key := range keysOf(t, e, "") {
		if !slices.Contains(older, key) && !strings.HasPrefix(key, revisions.ServerPrefix) {
			tamper(ctx, t, e, key, nil)
		}
	}
	before := keysOf(t, e, "")
	repo := revisions.Open(e, revisions.Options{})
	for name, f := range map[string]func() error{
		"Commit": func() error {
			_, err := repo.Commit(ctx, &revisions.Snapshot{}, revisions.Edit{Set: []*revisions.Item{counter("z", 1)}}, revisions.Note{})
			return err
		},
		"Restore": func() error {
			s, err := repo.Head(ctx)
			must(t, err)
			_, err = repo.Restore(ctx, s, 1, revisions.Note{})
			return err
		},
		"SetHolds": func() error {
			return repo.SetHolds(ctx, func(revisions.Number, map[string]revisions.Hold) error { return nil })
		},
		"Sweep": func() error { _, err := repo.Sweep(ctx, 1); return err },
	} {
		mustBe(t, f(), revisions.ErrBackwards, "serves r4, and the newest revision is r2")
		if after := keysOf(t, e, ""); len(after) != len(before) {
			t.Errorf("%s changed the keys: %d, before %d", name, len(after), len(before))
		}
	}
	if s, err := repo.Head(ctx); err != nil || s.Revision.Number != at.Revision.Number {
		t.Error(err)
	}
	_, err = repo.RestoreHead(ctx, "r2", nil)
	mustBe(t, err, revisions.ErrBackwards, "serves r4, and the newest revision is r2")
	// All keys are lost: no program takes the store for a new one.
	for _, key := range keysOf(t, e, "") {
		if !strings.HasPrefix(key, revisions.ServerPrefix) {
			tamper(ctx, t, e, key, nil)
		}
	}
	for _, f := range []func(*revisions.Repository) error{
		func(r *revisions.Repository) error { _, err := r.Head(ctx); return err },
		func(r *revisions.Repository) error {
			return r.History(ctx, func(revisions.Revision) bool { return true })
		},
		func(r *revisions.Repository) error { _, err := r.Plan(ctx, 1); return err },
	} {
		mustBe(t, f(revisions.Open(e, revisions.Options{})), revisions.ErrBackwards, "serves r4, and the repository has no revision")
	}
}
