package revsource

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/quarantine/evidence"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A fact is the evidence of a server in a test: one text.
type fact struct {
	mu      sync.Mutex
	text    string
	learned string
	size    int
	empty   bool
	changed chan struct{}
}

func newFact(text string) *fact {
	f := &fact{text: text, changed: make(chan struct{}, 1)}
	return f
}

func (f *fact) set(text string) {
	f.mu.Lock()
	f.text = text
	f.mu.Unlock()
	f.changed <- struct{}{}
}

func (f *fact) Changed() <-chan struct{} { return f.changed }

func (f *fact) Share(_ time.Time, limit int) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.empty {
		return nil, nil
	}
	return fmt.Appendf(nil, "%q", f.text+string(bytes.Repeat([]byte{'x'}, min(f.size, limit-100)))), nil
}

func (f *fact) Learn(others iter.Seq2[time.Time, []byte], _ func(string, *xds.Type, string, string) *xds.Resource) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all [][]byte
	for _, data := range others {
		all = append(all, data)
	}
	f.learned = string(bytes.Join(all, []byte(" ")))
}

func (f *fact) knows() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.learned
}

func TestAcceptedVersionsAreShared(t *testing.T) {
	const limit = 64 << 10 // less than that of a program, for speed
	var logged strings.Builder
	run := func(name string, f func(t *testing.T, v *value, start func(v *value, server string, is *fact) (stop func()))) {
		t.Run("HEAL-3 "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f(t, &value{}, func(v *value, server string, is *fact) func() {
					ctx, cancel := context.WithCancel(t.Context())
					done := make(chan struct{})
					go func() {
						defer close(done)
						a := NewAccepted(v, New(v, store.New(), Options{}), is, server, slog.New(slog.NewTextHandler(&logged, nil)))
						a.limit = limit
						a.Run(ctx)
					}()
					return func() { cancel(); <-done }
				})
			})
		})
	}
	run("each server learns from the others within seconds", func(t *testing.T, v *value, start func(*value, string, *fact) func()) {
		a, b := newFact("a1"), newFact("b1")
		defer start(v, "a", a)()
		defer start(v, "b", b)()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if a.knows() != `"b1"` || b.knows() != `"a1"` {
			t.Errorf("%s, %s", a.knows(), b.knows())
		}
		a.set("a2")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if b.knows() != `"a2"` {
			t.Error(b.knows())
		}
		writes := v.writes
		time.Sleep(50 * time.Minute)
		synctest.Wait()
		if v.writes != writes {
			t.Errorf("%d writes without a change", v.writes-writes)
		}
	})
	run("a server that has ended is known for a day", func(t *testing.T, v *value, start func(*value, string, *fact) func()) {
		a, b := newFact("a1"), newFact("b1")
		stop := start(v, "a", a)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		stop()
		defer start(v, "b", b)()
		time.Sleep(20 * time.Hour)
		synctest.Wait()
		if b.knows() != `"a1"` {
			t.Error(b.knows())
		}
		time.Sleep(6 * time.Hour)
		synctest.Wait()
		if b.knows() != `` {
			t.Error(b.knows())
		}
	})
	run("a server that may only read learns", func(t *testing.T, v *value, start func(*value, string, *fact) func()) {
		a, b := newFact("a1"), newFact("b1")
		start(v, "a", a)()
		v.is = []byte(`{"format":1,"servers":{"a":{"at":"2000-01-01T00:00:00Z","evidence":"a1"}}}`)
		v.denied = true
		defer start(v, "b", b)()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if b.knows() != `"a1"` || v.writes > 1 {
			t.Errorf("%s, %d writes", b.knows(), v.writes)
		}
	})
	run("many servers share one value and come to rest", func(t *testing.T, v *value, start func(*value, string, *fact) func()) {
		for i := range 20 {
			f := newFact("f")
			f.size = 2 * limit
			defer start(v, fmt.Sprint(i), f)()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		writes := v.writes
		time.Sleep(time.Minute)
		synctest.Wait()
		if v.writes != writes || len(v.is) > limit || len(v.is) < limit*9/10 || bytes.Count(v.is, []byte(`"at"`)) != 20 {
			t.Errorf("%d writes at rest, %d bytes, %d servers", v.writes-writes, len(v.is), bytes.Count(v.is, []byte(`"at"`)))
		}
	})
	run("a server that starts again keeps its part, and that of the others is not cut", func(t *testing.T, v *value, start func(*value, string, *fact) func()) {
		other := newFact("other")
		other.size = limit / 2
		defer start(v, "other", other)()
		for range 14 {
			f := newFact("")
			stop := start(v, "restarted", f)
			time.Sleep(3 * time.Second)
			stop()
			idle := newFact("")
			idle.empty = true
			stop = start(v, rand.Text(), idle)
			time.Sleep(3 * time.Second)
			stop()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := bytes.Count(v.is, []byte(`"at"`)); n != 2 || len(v.is) < limit/2 {
			t.Errorf("%d parts, %d bytes", n, len(v.is))
		}
	})
	run("without evidence, the part of the earlier run stays", func(t *testing.T, v *value, start func(*value, string, *fact) func()) {
		stop := start(v, "a", newFact("a1"))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		stop()
		a := newFact("a2")
		a.empty = true
		defer start(v, "a", a)()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if a.knows() != `"a1"` || !bytes.Contains(v.is, []byte(`"a1"`)) {
			t.Errorf("%s, %s", a.knows(), v.is)
		}
		a.mu.Lock()
		a.empty = false
		a.mu.Unlock()
		a.set("a3")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if a.knows() != `"a1"` || bytes.Contains(v.is, []byte(`"a1"`)) || !bytes.Contains(v.is, []byte(`"a3"`)) {
			t.Errorf("%s, %s", a.knows(), v.is)
		}
	})
	run("a large part gets the space that the others leave", func(t *testing.T, v *value, start func(*value, string, *fact) func()) {
		for i := range 14 {
			defer start(v, fmt.Sprint(i), newFact("f"))()
		}
		f := newFact("f")
		f.size = 2 * limit
		defer start(v, "large", f)()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := bytes.Count(v.is, []byte(`"at"`)); n != 15 || len(v.is) < limit*9/10 || len(v.is) > limit {
			t.Errorf("%d parts, %d bytes", n, len(v.is))
		}
	})
	run("a date in the future counts as now", func(t *testing.T, v *value, start func(*value, string, *fact) func()) {
		v.is = []byte(`{"format":1,"servers":{"far":{"at":"9999-01-01T00:00:00Z","evidence":"far"}}}`)
		a := newFact("a1")
		defer start(v, "a", a)()
		time.Sleep(20 * time.Hour)
		synctest.Wait()
		if a.knows() != `"far"` {
			t.Error(a.knows())
		}
		time.Sleep(6 * time.Hour)
		synctest.Wait()
		if a.knows() != `` {
			t.Error(a.knows())
		}
	})
	run("a value of a newer format stays, and the log has it once", func(t *testing.T, v *value, start func(*value, string, *fact) func()) {
		for _, newer := range []string{`{"format":2}`, `{"format":2,"servers":["a"]}`} {
			v.is = []byte(newer)
			a := newFact("a1")
			stop := start(v, "a", a)
			time.Sleep(time.Minute)
			synctest.Wait()
			if string(v.is) != newer || v.writes > 0 || strings.Count(logged.String(), "written by a newer version") != 1 {
				t.Errorf("%s\n%s", v.is, logged.String())
			}
			stop()
			logged.Reset()
		}
	})
	run("an invalid value is replaced", func(t *testing.T, v *value, start func(*value, string, *fact) func()) {
		v.is = []byte(`{"format":`)
		a := newFact("a1")
		defer start(v, "a", a)()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if !bytes.Contains(v.is, []byte(`"a1"`)) {
			t.Errorf("%s", v.is)
		}
	})
	run("the evidence of another server stays as it is, whatever its format", func(t *testing.T, v *value, start func(*value, string, *fact) func()) {
		const newer = `"newer":{"at":"2000-01-01T00:00:00Z","evidence":{"format":2,"unknown":[1]}}`
		v.is = []byte(`{"format":1,"servers":{` + newer + `}}`)
		a := newFact("a1")
		defer start(v, "a", a)()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if !bytes.Contains(v.is, []byte(newer)) || !bytes.Contains(v.is, []byte(`"a1"`)) {
			t.Errorf("%s", v.is)
		}
	})
}

// The file in testdata is the value that the previous build stored: without owners of clients.
func TestAcceptedVersionsOfThePreviousBuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stored, err := os.ReadFile("testdata/accepted.json")
		if err != nil {
			t.Fatal(err)
		}
		v, book := &value{is: stored}, &evidence.Book{}
		now := time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC) // after the time in the value
		time.Sleep(time.Until(now.Add(-time.Hour)))
		// The server serves the content: it uses no body of another server.
		s := book.Scope("default", "")
		for typ, is := range map[*xds.Type][]string{xds.Cluster: {"a", "a1"}, xds.Listener: {"l", "l1"}} {
			table := xds.NewTable(typ)
			for _, body := range []string{is[1], "refused"} {
				table, err = table.With([]*xds.Resource{xds.NewResource(typ, is[0], []byte(body))})
				if err != nil {
					t.Fatal(err)
				}
				s.Show(time.Now(), typ, table, func(*xds.Type) []*xds.Table { return nil })
			}
			s.Accept(typ, "other", "owner", "2", acceptAll(table))
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			NewAccepted(v, New(v, store.New(), Options{}), book, "this", slog.New(slog.DiscardHandler)).Run(ctx)
		}()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		cancel()
		<-done
		for _, c := range []struct {
			t     *xds.Type
			name  string
			agent string
			want  string
		}{
			{xds.Cluster, "a", "envoy 1.36", "a1"},
			{xds.Cluster, "a", "grpc", "a1"},
			{xds.Cluster, "gone", "envoy 1.36", ""},
			{xds.Listener, "l", "envoy 1.36", "l1"},
			{xds.Route, "r", "envoy 1.36", ""}, // it was not replaced
		} {
			got := ""
			for _, r := range s.Before(now, c.t, c.name, xds.NewResource(c.t, c.name, []byte("refused")).Sum, c.agent) {
				got += string(r.Body)
			}
			if got != c.want {
				t.Errorf("HEAL-3 %s %s for %s: %q, want %q", c.t, c.name, c.agent, got, c.want)
			}
		}
		_, part, _ := bytes.Cut(bytes.TrimSuffix(stored, []byte("}}")), []byte(`"servers":{`))
		if !bytes.Contains(v.is, part) || !bytes.Contains(v.is, []byte(`"this":`)) {
			t.Errorf("HEAL-3 the previous build has lost its part: %s", v.is)
		}
	})
}
