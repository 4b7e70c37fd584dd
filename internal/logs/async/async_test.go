package async

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A reader reads when the test allows it.
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
	w := New(r, 1<<20, func(_ io.Writer, n int) { t.Errorf("%d are lost", n) })
	var want strings.Builder
	for i := range 1000 {
		line := fmt.Appendf(nil, "%d\n", i)
		want.Write(line)
		_, _ = w.Write(line)
		line[0] = 'x' // the buffer belongs to the caller again
	}
	w.Close(time.Minute)
	if r.String() != want.String() {
		t.Errorf("%q", r.String())
	}
}

// Writers do not wait for a reader that does not read. Dropped lines are counted, and the count is
// in their place, whatever follows. Some room is left for urgent lines.
func TestNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reader{let: make(chan struct{})}
		w := New(r, 4, func(out io.Writer, n int) { fmt.Fprintf(out, "-%d\n", n) })
		put := func(to io.Writer, lines ...string) {
			for _, line := range lines {
				if n, err := fmt.Fprint(to, line); n != len(line) || err != nil {
					t.Error(n, err)
				}
			}
		}
		put(w, "a\n")
		synctest.Wait() // the line is being written and takes no room any more
		put(w, "b\n", "c\n", "d\n", "e\n")
		put(w.Urgent(), "!", "!")
		start := time.Now()
		r.let <- struct{}{} // b is being written
		synctest.Wait()
		put(w, "f", "g", "h")
		close(r.let)
		w.Close(time.Minute)
		if got := r.String(); got != "a\nb\nc\n-2\n!-1\nf-2\n" || time.Since(start) != 0 {
			t.Errorf("%q after %v", got, time.Since(start))
		}
		put(w, "late\n")
		if n := w.Lost(); n != 6 {
			t.Error(n)
		}
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

// Each line is written at once, not with the next line. Close waits only until all lines are
// written.
func TestAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reader{}
		w := New(r, 100, nil)
		synctest.Wait() // the writer waits for a line
		for _, line := range []string{"a", "b"} {
			fmt.Fprint(w, line)
			synctest.Wait()
		}
		if r.String() != "ab" {
			t.Errorf("%q", r.String())
		}
		start := time.Now()
		if w.Close(time.Minute); time.Since(start) != 0 {
			t.Errorf("after %v", time.Since(start))
		}
	})
}
