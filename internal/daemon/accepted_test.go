package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/disk/lastgood"
	"github.com/chancery-xds/chancery/internal/faults"
	"github.com/chancery-xds/chancery/internal/quarantine/evidence"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// keepsAccepted returns a keeper of a state directory with the file accepted, and the lines that it logs.
func keepsAccepted(t *testing.T, data []byte) (a *acceptedKeeper, path string, log *strings.Builder) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	k, err := lastgood.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "accepted")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	log = &strings.Builder{}
	a = &acceptedKeeper{keeper: k, book: &evidence.Book{}, log: slog.New(slog.NewTextHandler(log, nil)), fault: &faults.Record{}}
	a.restore()
	return a, path, log
}

// The file in testdata is of the previous build: without owners of clients.
func TestAcceptedFileOfThePreviousBuild(t *testing.T) {
	data, err := os.ReadFile("testdata/previous/accepted")
	if err != nil {
		t.Fatal(err)
	}
	a, _, log := keepsAccepted(t, data)
	now := time.Date(2030, 1, 1, 1, 0, 0, 0, time.UTC)
	check := func(b *evidence.Book) {
		t.Helper()
		s := b.Scope("default", "")
		l := s.Before(now, xds.Listener, "l", xds.Sum{}, "envoy 1.36")
		if len(l) != 1 || string(l[0].Body) != "l1" || len(l[0].Refs) != 1 || l[0].Refs[0] != (xds.Ref{Type: xds.Cluster, Name: "gone"}) {
			t.Fatalf("HEAL-3 %v, %s", l, log)
		}
		gone := s.Removed(now, xds.Cluster, "gone") // the listener refers to it
		if a := s.Before(now, xds.Cluster, "a", xds.Sum{}, "envoy 1.36"); len(a) != 1 || string(a[0].Body) != "a1" || gone == nil || string(gone.Body) != "gone1" {
			t.Errorf("HEAL-3 %v, %v", a, gone)
		}
	}
	check(a.book)
	// The current versions count as soon as a client sees them.
	s := a.book.Scope("default", "")
	route := xds.NewResource(xds.Route, "r", []byte("r1"))
	routes, err := xds.NewTable(xds.Route).With([]*xds.Resource{route, xds.NewResource(xds.Route, "q", []byte("q1"))})
	if err != nil {
		t.Fatal(err)
	}
	clusters, err := xds.NewTable(xds.Cluster).With([]*xds.Resource{xds.NewResource(xds.Cluster, "a", []byte("a2")), xds.NewResource(xds.Cluster, "same", []byte("same1"))})
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range []*xds.Table{routes, clusters} {
		s.Show(now, table.Type(), table, func(*xds.Type) []*xds.Table { return nil })
	}
	for name, want := range map[string]bool{"r": true, "q": false} {
		if any, same := s.Accepted(xds.Route, name, routes.Lookup(name).Sum, "envoy 1.36"); any != want || same != want {
			t.Errorf("HEAL-3 %s is accepted: %v, %v", name, any, same)
		}
	}
	for agent, want := range map[string]bool{"envoy 1.36": false, "envoy 1.37": true} {
		if any, same := s.Accepted(xds.Cluster, "a", clusters.Lookup("a").Sum, agent); !any || same != want {
			t.Errorf("HEAL-3 a is accepted by %s: %v, %v", agent, any, same)
		}
	}
	a.save(now)
	next := &acceptedKeeper{keeper: a.keeper, book: &evidence.Book{}, log: a.log}
	next.restore()
	check(next.book)
	if log.Len() > 0 {
		t.Error(log)
	}
}

func TestAcceptedFileOfANewerBuild(t *testing.T) {
	old, err := os.ReadFile("testdata/previous/accepted")
	if err != nil {
		t.Fatal(err)
	}
	newer, _, _ := keepsAccepted(t, nil)
	if err := newer.keeper.SaveAccepted([]byte(`{"format":2,"scopes":"other"}`)); err != nil {
		t.Fatal(err)
	}
	inside, err := os.ReadFile(filepath.Join(newer.keeper.Dir(), "accepted"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what string
		data []byte
		stay bool
	}{
		{"the file has a newer format", bytes.Replace(old, []byte("versions 1"), []byte("versions 12"), 1), true},
		{"the evidence has a newer format", inside, true},
		{"the file is damaged", old[:len(old)-1], false},
	} {
		t.Run("HEAL-3 "+c.what, func(t *testing.T) {
			a, path, log := keepsAccepted(t, c.data)
			a.save(time.Now())
			got, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if stays := bytes.Equal(got, c.data); stays != c.stay || strings.Contains(log.String(), "newer version") != c.stay || strings.Count(log.String(), "cannot be used") != 1 {
				t.Errorf("it stays: %v; %s", stays, log)
			}
		})
	}
}

// A folder in place of the new file is an error of the system, like a full disk.
func TestAcceptedVersionsAreStoredAgain(t *testing.T) {
	a, path, log := keepsAccepted(t, nil)
	log.Reset()
	s := a.book.Scope("default", "")
	table, err := xds.NewTable(xds.Route).With([]*xds.Resource{xds.NewResource(xds.Route, "r", []byte("r1"))})
	if err != nil {
		t.Fatal(err)
	}
	s.Show(time.Now(), xds.Route, table, func(*xds.Type) []*xds.Table { return nil })
	s.Accept(xds.Route, "envoy", "owner", "1", protocol.Acceptance{All: table.Versions()})
	full := filepath.Join(filepath.Dir(path), ".new", "full")
	if err := os.MkdirAll(full, 0o700); err != nil {
		t.Fatal(err)
	}
	a.keeper.Log = slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); a.keeper.Run(ctx) }()
	defer func() { cancel(); <-done }()
	a.keeper.Keep(lastgood.Config{At: time.Unix(1, 0), Types: []lastgood.Type{{Type: xds.Cluster}}})
	for a.keeper.Storing() {
		time.Sleep(time.Millisecond)
	}
	for range 3 {
		a.save(time.Now())
	}
	if n := len(a.fault.Present()); n != 1 {
		t.Errorf("SAFE-15 %d faults", n)
	}
	if !a.due || strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "the accepted versions are not stored") {
		t.Errorf("HEAL-3 due: %v; %s", a.due, log)
	}
	log.Reset()
	if err := os.RemoveAll(filepath.Dir(full)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		a.save(time.Now())
	}
	if all := a.fault.Present(); all != nil {
		t.Errorf("SAFE-15 %v", all)
	}
	if a.due || strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "the accepted versions are stored again") {
		t.Errorf("HEAL-3 due: %v; %s", a.due, log)
	}
	if data, err := a.keeper.LoadAccepted(); err != nil || !strings.Contains(string(data), xds.Route.URL) {
		t.Errorf("HEAL-3 %s, %v", data, err)
	}
}

func TestAcceptedVersionsAreStoredAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, path, _ := keepsAccepted(t, nil)
		full := filepath.Join(filepath.Dir(path), ".new", "full")
		if err := os.MkdirAll(full, 0o700); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); a.run(ctx) }()
		synctest.Wait()
		table, err := xds.NewTable(xds.Route).With([]*xds.Resource{xds.NewResource(xds.Route, "r", []byte("r1"))})
		if err != nil {
			t.Fatal(err)
		}
		s := a.book.Scope("default", "")
		s.Show(time.Now(), xds.Route, table, func(*xds.Type) []*xds.Table { return nil })
		s.Accept(xds.Route, "envoy", "owner", "1", protocol.Acceptance{All: table.Versions()})
		time.Sleep(time.Minute)
		if err := os.RemoveAll(filepath.Dir(full)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * acceptedRest) // without a change of the evidence
		synctest.Wait()
		if data, err := a.keeper.LoadAccepted(); err != nil || !strings.Contains(string(data), xds.Route.URL) {
			t.Errorf("HEAL-3 %s, %v", data, err)
		}
		cancel()
		<-done
	})
}
