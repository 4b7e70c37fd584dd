package backlog

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A reader reads when it is let.
type reader struct {
	let chan struct{} // nil: always

	mu  sync.Mutex
	got strings.Builder
}

func (r *reader) Write(line []byte) (int, error) {
	if r.let != nil {
		<-r.let
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.got.Write(line)
}

func (r *reader) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.got.String()
}

// Lines are written in their order, and all of them before Close returns.
func TestInOrder(t *testing.T) {
	r := &reader{}
	w := New(r, 1<<20, func(n int) { t.Errorf("%d are lost", n) })
	var want strings.Builder
	for i := range 1000 {
		line := fmt.Appendf(nil, "%d\n", i)
		want.Write(line)
		_, _ = w.Write(line)
		line[0] = 'x' // it is the caller's again
	}
	w.Close(time.Minute)
	if r.String() != want.String() {
		t.Errorf("%q", r.String())
	}
}

// Nobody waits for who does not read. What there was no room for is counted, and the
// count stands where the lines would.
func TestNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reader{let: make(chan struct{})}
		var w *Writer
		w = New(r, 4, func(n int) { fmt.Fprintf(w, "-%d", n) })
		fmt.Fprint(w, "a\n")
		synctest.Wait() // it is being written, and takes no room any more
		for _, line := range []string{"b\n", "c\n", "d\n", "e\n"} {
			if n, err := fmt.Fprint(w, line); n != 2 || err != nil {
				t.Error(n, err)
			}
		}
		start := time.Now()
		close(r.let)
		synctest.Wait()
		fmt.Fprint(w, "f\n")
		w.Close(time.Minute)
		if got := r.String(); got != "a\nb\nc\n-2f\n" || time.Since(start) != 0 {
			t.Errorf("%q after %v", got, time.Since(start))
		}
		fmt.Fprint(w, "late\n")
	})
}

// The end of a program does not wait for ever.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reader{let: make(chan struct{})}
		w := New(r, 100, nil)
		fmt.Fprint(w, "a\n")
		start := time.Now()
		w.Close(time.Second)
		if took := time.Since(start); took != time.Second {
			t.Errorf("after %v", took)
		}
		close(r.let)
	})
}
