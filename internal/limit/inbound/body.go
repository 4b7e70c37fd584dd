package inbound

import (
	"errors"
	"io"
	"net"
	"sync"
)

// A Body is the body of an HTTP request that counts against a budget, as requests on a
// [Conn] do: what is beyond 64 KiB from its first byte until it is closed. Who reads it
// waits for room. It has one reader.
type Body struct {
	conn *Conn // of which only the account is used: nothing is read from it or written
	from io.Reader
	got  int
	all  bool // it was read to its end, and counts as whole until it is closed
}

// Body returns a body whose client is at an address. stop must make reads from it fail; it
// is called by any goroutine, and not any more when the body is closed.
func (b *Budget) Body(from io.Reader, peer net.Addr, stop func()) *Body {
	return &Body{conn: b.Conn(&reader{peer: peer, stop: stop}, false), from: from}
}

// ErrRefused is the error of a body that came too slowly, or for which there was no room.
var ErrRefused = errRefused

// Read implements [io.Reader].
func (b *Body) Read(p []byte) (int, error) {
	if b.all {
		return 0, io.EOF // it counts once, however often it is read
	}
	c := b.conn
	if err := c.wait(); err != nil {
		return 0, errRefused
	}
	n, err := b.from.Read(p)
	b.got += n
	ends := errors.Is(err, io.EOF)
	refused, over := b.account(ends)
	switch {
	case refused:
		return n, errRefused
	case over:
		c.refuse(TooMuch)
		return n, errRefused
	case ends:
		b.all = true
		b.whole(b.got)
	}
	return n, err
}

func (b *Body) account(ends bool) (refused, over bool) {
	c := b.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	switch refused = c.in.ended; {
	case refused:
	case ends: // it comes no more, and is not to be judged by how
		c.in.large = 0
	case b.got > window:
		c.in.total += b.got - c.in.large
		c.in.large = b.got
	}
	return refused, c.note()
}

// Close says that the body is not needed any more. A second time does nothing.
func (b *Body) Close() error {
	b.conn.Conn.(*reader).end()
	_ = b.conn.Close()
	if b.all {
		b.whole(-b.got)
	}
	b.all = false
	return nil
}

func (b *Body) whole(n int) {
	if n > window || -n > window {
		b.conn.budget.Whole(n)
	}
}

// A reader stands for the connection of a body, which is HTTP's.
type reader struct {
	net.Conn // nil
	peer     net.Addr

	mu   sync.Mutex
	stop func() // nil: the body was closed
}

func (r *reader) RemoteAddr() net.Addr { return r.peer }

// Close is called when the body is refused, and when it was closed.
func (r *reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stop != nil {
		r.stop()
	}
	return nil
}

func (r *reader) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stop = nil
}
