package inbound

import (
	"errors"
	"io"
	"net"
	"sync"
)

// A Body is the body of an HTTP request that counts against a budget like requests on a [Conn]: a body of more
// than 64 KiB counts until it is closed. A read waits for room in the budget. It has one reader.
type Body struct {
	conn *Conn // only for the account with the budget: no byte is read from it or written to it
	from io.Reader
	got  int
	all  bool // the body was read to its end, and counts as complete until Close
}

// Body returns a body of a client at an address. The function stop must make reads from the body fail. Any
// goroutine may call it until the body is closed.
func (b *Budget) Body(from io.Reader, peer net.Addr, stop func()) *Body {
	return &Body{conn: &Conn{Conn: &reader{peer: peer, stop: stop}, budget: b, in: newMessages()}, from: from}
}

// ErrRefused is the error of a body that arrived too slowly, or that the budget had no room for.
var ErrRefused = errRefused

// Read implements [io.Reader].
func (b *Body) Read(p []byte) (int, error) {
	if b.all {
		return 0, io.EOF // the body counts once, even if it is read again
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
	refused = c.in.ended
	switch {
	case refused:
	case ends: // a complete body has no rate to judge
		c.in.large = 0
	case b.got > window:
		c.in.total += b.got - c.in.large
		c.in.large = b.got
	}
	return refused, c.note()
}

// Close releases the body. A second call does nothing.
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

// A reader takes the place of the connection of a body, which net/http owns.
type reader struct {
	net.Conn // nil
	peer     net.Addr

	mu   sync.Mutex
	stop func() // nil after the body is closed
}

func (r *reader) RemoteAddr() net.Addr { return r.peer }

// Close is called when the budget refuses the body, and after the body is closed.
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
