// Package async writes log lines in the background, so that a slow reader never blocks the program.
// Lines wait in memory up to a limit. Lines above the limit are dropped and counted.
package async

import (
	"io"
	"sync"
	"time"
)

// A Writer accepts lines without blocking. It is made by [New] and safe for concurrent use.
type Writer struct {
	out  io.Writer // used by run only
	max  int
	tell func(out io.Writer, lost int)

	mu     sync.Mutex // never held during I/O
	queue  []entry
	bytes  int    // size of the queued lines
	lost   uint64 // dropped lines since the start
	closed bool   // later lines are dropped

	bell chan struct{} // one slot
	done chan struct{} // closed when run has ended
}

// An entry is a line, or the number of lines dropped at this place.
type entry struct {
	line []byte
	lost int
}

// New returns a writer that writes to out in its own goroutine until it is closed, and queues at most
// max bytes. In place of dropped lines it calls tell with their number; tell may write a line to out,
// and may be nil.
func New(out io.Writer, max int, tell func(out io.Writer, lost int)) *Writer {
	w := &Writer{out: out, max: max, tell: tell, bell: make(chan struct{}, 1), done: make(chan struct{})}
	go w.run()
	return w
}

// Write implements [io.Writer]. It queues or drops a line, and never returns an error.
func (w *Writer) Write(line []byte) (int, error) { return w.take(line, w.max) }

// Urgent returns a writer for important lines: their limit is a quarter higher.
func (w *Writer) Urgent() io.Writer { return urgent{w} }

type urgent struct{ *Writer }

func (u urgent) Write(line []byte) (int, error) { return u.take(line, u.max+u.max/4) }

// Lost returns the number of dropped lines since the start.
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
		w.lost++
		if last < 0 || w.queue[last].lost == 0 {
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
	default: // run has a signal pending
	}
}

// Close waits until all lines are written, at most for the given time, because the reader may have
// stopped for good. Later lines are dropped.
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

// run writes the queue line by line.
func (w *Writer) run() {
	defer close(w.done)
	for {
		e, more := w.next()
		switch {
		case e.line != nil:
			_, _ = w.out.Write(e.line) // an error cannot be logged
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

// next returns the next entry, or an empty one, and whether more may follow.
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
