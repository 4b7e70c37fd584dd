// Package backlog keeps a program from waiting for who reads its log. Lines wait for
// their reader in memory, up to a limit; what is more is lost, and counted. It knows
// nothing of what is in a line.
package backlog

import (
	"io"
	"sync"
	"time"
)

// A Writer takes lines without waiting. It is made by [New], and safe for concurrent use.
type Writer struct {
	out io.Writer // of run alone
	max int

	mu     sync.Mutex // held for memory only
	lines  [][]byte
	bytes  int  // of lines
	lost   int  // lines for which there was no room, since the last that was written
	closed bool // no more comes

	bell chan struct{} // one slot
	done chan struct{} // closed when run has ended
	tell func(lost int)
}

// New returns a writer that writes to out in a goroutine of its own, until it is closed,
// and holds max bytes at most. When lines were lost and there is room again, tell is
// called once with their number: it may write.
func New(out io.Writer, max int, tell func(lost int)) *Writer {
	w := &Writer{out: out, max: max, tell: tell, bell: make(chan struct{}, 1), done: make(chan struct{})}
	go w.run()
	return w
}

// Write implements [io.Writer]. It takes a line, or loses it, and never fails.
func (w *Writer) Write(line []byte) (int, error) {
	w.mu.Lock()
	switch {
	case w.closed || w.bytes+len(line) > w.max:
		w.lost++
	default:
		w.lines = append(w.lines, append([]byte(nil), line...))
		w.bytes += len(line)
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
		line, lost, more := w.next()
		switch {
		case line != nil:
			_, _ = w.out.Write(line) // there is nobody to tell
		case lost > 0:
			w.tell(lost)
		case !more:
			return
		default:
			<-w.bell
		}
	}
}

// next returns the next line; or how many were lost, when those before are written; or
// whether there may be more.
func (w *Writer) next() (line []byte, lost int, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.lines) > 0 {
		line, w.lines = w.lines[0], w.lines[1:]
		w.bytes -= len(line)
		return line, 0, true
	}
	w.lines = nil
	if !w.closed {
		lost, w.lost = w.lost, 0
	}
	return nil, lost, !w.closed
}
