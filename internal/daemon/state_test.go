package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/disk/lastgood"
	"github.com/chancery-xds/chancery/internal/listen/reloadsocket"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
)

// An empty --state-dir is logged as information. If there is no place to store, for example without a
// home directory, the log has a warning.
func TestNothingStoredIsLogged(t *testing.T) {
	for _, tt := range []struct {
		chosen bool
		want   string
	}{{true, "level=INFO"}, {false, "level=WARN"}} {
		var out bytes.Buffer
		if err := (&state{stateFlags: stateFlags{chosen: tt.chosen}}).open(slog.New(slog.NewTextHandler(&out, nil)), "dir"); err != nil {
			t.Error(err)
		}
		if got := out.String(); !strings.Contains(got, tt.want) || strings.Contains(got, "hint=--state-dir") == tt.chosen {
			t.Errorf("chosen %v: %s", tt.chosen, got)
		}
	}
}

// If a default --state-dir cannot be used, for example on a read-only file system, the log has a
// warning. If a given one cannot be used, the start fails.
func TestUnusableStateDir(t *testing.T) {
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, chosen := range []bool{true, false} {
		var out bytes.Buffer
		s := &state{stateFlags: stateFlags{root: file + "/state", chosen: chosen}}
		err := s.open(slog.New(slog.NewTextHandler(&out, nil)), "dir")
		if (err != nil) != chosen || s.keeper != nil {
			t.Errorf("chosen %v: %v, kept: %v", chosen, err, s.keeper != nil)
		}
		if kept := s.kept(); kept == nil || kept() {
			t.Errorf("chosen %v: reported as stored", chosen)
		}
		if (&state{stateFlags: stateFlags{chosen: true}}).kept() != nil {
			t.Error("nothing is stored, but a metric reports it")
		}
		if strings.Contains(out.String(), "is not stored") == chosen {
			t.Errorf("chosen %v: %s", chosen, out.String())
		}
	}
}

// SAFE-6: --state-without-secrets reaches the part that stores the configuration.
func TestStateWithoutSecretsFlag(t *testing.T) {
	for _, without := range []bool{false, true} {
		s := &state{stateFlags: stateFlags{root: t.TempDir(), withoutSecrets: without}}
		if err := s.open(slog.New(slog.DiscardHandler), "dir"); err != nil {
			t.Fatal(err)
		}
		if s.keeper.WithoutSecrets != without {
			t.Errorf("--state-without-secrets %v: WithoutSecrets is %v", without, s.keeper.WithoutSecrets)
		}
	}
}

// The note has the time of the first failed load, until a load succeeds.
func TestStateFailingSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s state
		wants := func(want string) {
			t.Helper()
			if got := s.note(); !strings.Contains(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		}
		wants("the files")
		since := time.Now().UTC().Format(time.RFC3339)
		for range 3 {
			s.loaded(errors.New("a mistake"))
			time.Sleep(time.Hour)
			wants("have been rejected since " + since)
		}
		s.loaded(nil)
		if got := s.note(); got != "the files" {
			t.Error(got)
		}
	})
}

// The command that approves a removal works in any directory. If chancery reload cannot reach the server, a
// restart approves it.
func TestHowToAllowRemoval(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		chosen, kept, door bool
		want               string
	}{
		{false, false, false, "restart, with --allow-empty if nothing is left"},
		{true, false, false, "restart, with --allow-empty if nothing is left"},
		{false, true, false, "chancery reload --allow-mass-delete " + here + "/dir"},
		{true, true, false, "chancery reload --allow-mass-delete " + here + "/dir --state-dir " + here + "/state"},
		{true, false, true, "chancery reload --allow-mass-delete " + here + "/dir --state-dir ''"},
		{false, false, true, "chancery reload --allow-mass-delete " + here + "/dir --state-dir ''"},
	} {
		s := state{stateFlags: stateFlags{root: "state", chosen: tt.chosen}}
		if tt.kept {
			s.keeper = &lastgood.Keeper{}
		}
		if tt.door {
			s.reloadFolder = &lastgood.Keeper{}
		}
		if got := s.howToAllow("dir"); got != tt.want {
			t.Errorf("chosen %v, kept %v: %q, want %q", tt.chosen, tt.kept, got, tt.want)
		}
	}
	spaced := state{stateFlags: stateFlags{root: "/my state", chosen: true}, keeper: &lastgood.Keeper{}}
	if got, want := spaced.howToAllow("/etc/it's $mine"), `chancery reload --allow-mass-delete '/etc/it'\''s $mine' --state-dir '/my state'`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// The result of a reload has the errors, and the number of delayed removals.
func TestReloadReportsResult(t *testing.T) {
	folder := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(folder+"/"+name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a.yaml", many(0, 40))
	src := dir.New(folder, store.New(), dir.Options{Log: slog.New(slog.DiscardHandler), Confirm: time.Hour, Poll: time.Hour})
	if _, err := src.Load(); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer func() { cancel(); running.Wait() }()
	running.Go(func() { src.Run(ctx) })
	reload := func(approve bool, want string) {
		t.Helper()
		r := operator{src}.Reload(t.Context(), approve)
		if got := fmt.Sprint(r.Files, " ", r.Resources, " +", r.Set, " -", r.Removed, " held ", r.Held, " mistakes ", len(r.Errors)); got != want {
			t.Errorf("%s, want %s: %s", got, want, r.Errors)
		}
	}
	reload(false, "1 40 +0 -0 held 0 mistakes 0")
	write("a.yaml", many(6, 36))
	reload(false, "1 42 +2 -0 held 6 mistakes 0")
	write("b.yaml", "{")
	write("c.yaml", "- 1")
	reload(true, "0 0 +0 -0 held 0 mistakes 2")
	if err := errors.Join(os.Remove(folder+"/b.yaml"), os.Remove(folder+"/c.yaml")); err != nil {
		t.Fatal(err)
	}
	reload(true, "1 36 +0 -6 held 0 mistakes 0")
	write("a.yaml", many(6, 1))
	reload(false, "0 0 +0 -0 held 0 mistakes 1")
}

// chancery reload reaches the first of two servers of a directory until that server ends.
func TestReloadReachesFirstOfTwoServers(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	begin := func(files int) (end func()) {
		served := t.TempDir()
		for i := range files {
			if err := os.WriteFile(fmt.Sprintf("%s/%d.yaml", served, i), []byte(cluster(fmt.Sprint("c", i))), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		log := slog.New(slog.DiscardHandler)
		s := &state{stateFlags: stateFlags{root: root}}
		if err := s.open(log, "the same"); err != nil {
			t.Fatal(err)
		}
		src := dir.New(served, store.New(), dir.Options{Log: log})
		if _, err := src.Load(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { src.Run(ctx) })
		s.run(ctx, &running, log, src)
		return func() { cancel(); running.Wait() }
	}
	folder, err := lastgood.Folder(root, "the same")
	if err != nil {
		t.Fatal(err)
	}
	reaches := func(files int) {
		t.Helper()
		for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			r, err := reloadsocket.Ask(t.Context(), folder, false)
			switch {
			case err == nil && r.Files == files:
				return
			case err == nil:
				t.Fatalf("reload reaches the server with %d files, want the one with %d", r.Files, files)
			case time.Since(start) > 30*time.Second:
				t.Fatal(err)
			}
		}
	}
	first := begin(1)
	reaches(1)
	second := begin(2)
	defer second()
	for range 20 {
		reaches(1)
		time.Sleep(10 * time.Millisecond)
	}
	first()
	reaches(2)
}
