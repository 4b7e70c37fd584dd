// Package async keeps a program from waiting for who reads its log. Lines wait for
// their reader in memory, up to a limit; what is more is lost, and counted. It knows
// nothing of what is in a line.
package async

import (
	"io"
	"sync"
	"time"
)

// A Writer takes lines without waiting. It is made by [New], and safe for concurrent use.
type Writer struct {
	out  io.Writer // of run alone
	max  int
	tell func(out io.Writer, lost int)

	mu     sync.Mutex // held for memory only
	queue  []entry
	bytes  int    // of the lines in it
	lost   uint64 // lines, ever
	closed bool   // no more comes

	bell chan struct{} // one slot
	done chan struct{} // closed when run has ended
}

// An entry is a line, or says how many were lost in its place.
type entry struct {
	line []byte
	lost int
}

// New returns a writer that writes to out in a goroutine of its own, until it is closed,
// and holds max bytes at most. In the place of lines that were lost tell is called with
// their number, and writes a line to out; nil: nobody is told.
func New(out io.Writer, max int, tell func(out io.Writer, lost int)) *Writer {
	w := &Writer{out: out, max: max, tell: tell, bell: make(chan struct{}, 1), done: make(chan struct{})}
	go w.run()
	return w
}

// Write implements [io.Writer]. It takes a line, or loses it, and never fails.
func (w *Writer) Write(line []byte) (int, error) { return w.take(line, w.max) }

// Urgent returns a writer of lines for which a quarter more is kept free than for others.
func (w *Writer) Urgent() io.Writer { return urgent{w} }

type urgent struct{ *Writer }

func (u urgent) Write(line []byte) (int, error) { return u.take(line, u.max+u.max/4) }

// Lost returns how many lines were lost, ever.
func (w *Writer) Lost() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

func (w *Writer) take(line []byte, max int) (int, error) {
	w.mu.Lock()
	last := len(w.queue) - 1
	switch {
	case w.closed:
		w.lost++
	case w.bytes+len(line) <= max:
		w.queue = append(w.queue, entry{line: append([]byte(nil), line...)})
		w.bytes += len(line)
	default:
		if w.lost++; last < 0 || w.queue[last].lost == 0 {
			w.queue, last = append(w.queue, entry{}), last+1
		}
		w.queue[last].lost++
	}
	w.mu.Unlock()
	w.ring()
	return len(line), nil
}

func (w *Writer) ring() {
	select {
	case w.bell <- struct{}{}:
	default: // it is going to look
	}
}

// Close returns when all is written, or after a time: whoever reads may never do so
// again. What comes later is lost.
func (w *Writer) Close(within time.Duration) {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.ring()
	select {
	case <-w.done:
	case <-time.After(within):
	}
}

// run writes line by line.
func (w *Writer) run() {
	defer close(w.done)
	for {
		e, more := w.next()
		switch {
		case e.line != nil:
			_, _ = w.out.Write(e.line) // there is nobody to tell
		case e.lost > 0 && w.tell != nil:
			w.tell(w.out, e.lost)
		case e.lost > 0:
		case !more:
			return
		default:
			<-w.bell
		}
	}
}

// next returns what is to be written next, or nothing, and whether there may be more.
func (w *Writer) next() (e entry, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		w.queue = nil
		return e, !w.closed
	}
	e, w.queue = w.queue[0], w.queue[1:]
	w.bytes -= len(e.line)
	return e, true
}
