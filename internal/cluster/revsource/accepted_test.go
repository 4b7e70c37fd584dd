package revsource

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A fact is the evidence of a server in a test: one text.
type fact struct {
	mu      sync.Mutex
	text    string
	learned string
	size    int
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

func (f *fact) Save(_ time.Time, limit int) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Appendf(nil, "%q", f.text+string(bytes.Repeat([]byte{'x'}, min(f.size, limit-100)))), nil
}

func (f *fact) Learn(others [][]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.learned = string(bytes.Join(others, []byte(" ")))
}

func (f *fact) knows() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.learned
}

func TestAcceptedVersionsAreShared(t *testing.T) {
	run := func(name string, f func(t *testing.T, v *value, start func(v *value, server string, is *fact) (stop func()))) {
		t.Run("HEAL-3 "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f(t, &value{}, func(v *value, server string, is *fact) func() {
					ctx, cancel := context.WithCancel(t.Context())
					done := make(chan struct{})
					go func() { defer close(done); NewAccepted(v, is, server, slog.New(slog.DiscardHandler)).Run(ctx) }()
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
			f.size = 1 << 20
			defer start(v, fmt.Sprint(i), f)()
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		writes := v.writes
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if v.writes != writes || len(v.is) > acceptedInAll+4000 || bytes.Count(v.is, []byte(`"at"`)) != 20 {
			t.Errorf("%d writes at rest, %d bytes, %d servers", v.writes-writes, len(v.is), bytes.Count(v.is, []byte(`"at"`)))
		}
	})
	run("a value of a newer format is replaced", func(t *testing.T, v *value, start func(*value, string, *fact) func()) {
		v.is = []byte(`{"format":2}`)
		a := newFact("a1")
		defer start(v, "a", a)()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if !bytes.Contains(v.is, []byte(`"a1"`)) {
			t.Errorf("%s", v.is)
		}
	})
}
