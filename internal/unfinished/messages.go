package unfinished

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// window is how much of a request a client may send before the server reads it: the
// window of a stream. Of less than that there is nothing to be known here, for the
// server may have reasons not to read on.
const window = 64 << 10

// messages are the requests that streams of a connection have begun. It is a value that
// is fed: it has no clock and no lock.
type messages struct {
	scanner
	open  []request // of the streams that are open, by stream
	large int       // bytes of requests that are not whole, and of which more than the window has come
	total int       // how much large has grown, ever
	over  int       // streams that were open, and are no more: since somebody asked
	ended bool      // nothing more is to come
}

// A request is what has come of a stream's next one.
type request struct {
	stream   uint32
	*message // nil: nothing
}

// A message is a request that has begun: "a Length-Prefixed-Message: Compressed-Flag,
// Message-Length, Message", of which the first two have five bytes.
type message struct {
	prefix [5]byte
	have   int // bytes of the prefix
	left   int // bytes that have not come
	got    int // bytes that have
}

func newMessages() messages {
	return messages{scanner: scanner{skip: preface}}
}

// of returns where a stream's request is, or would be, and whether the stream is open.
func (m *messages) of(stream uint32) (at int, open bool) {
	return slices.BinarySearchFunc(m.open, stream, func(r request, stream uint32) int { return cmp.Compare(r.stream, stream) })
}

// received takes what a client sent.
func (m *messages) received(b []byte) {
	for len(b) > 0 {
		f, body, rest, begins, ends, ok := m.next(b)
		if b = rest; !ok {
			continue
		}
		switch {
		case f.typ == typeHeaders && begins:
			if at, again := m.of(f.stream); !again {
				m.open = slices.Insert(m.open, at, request{stream: f.stream})
			}
		case f.typ == typeData && len(body) > 0:
			m.data(f.stream, body)
		}
		if ends && f.ends() {
			m.forget(f.stream, f.typ == typeReset)
		}
	}
}

// closed is told that the server has ended a stream, which reads no more of it.
func (m *messages) closed(stream uint32) {
	m.forget(stream, true)
}

// end is told that the connection is closed.
func (m *messages) end() { m.open, m.large, m.ended = nil, 0, true }

// data takes a part of a stream's requests. Streams that are not open hold nothing: the
// server drops what comes on them.
func (m *messages) data(stream uint32, b []byte) {
	at, open := m.of(stream)
	if !open {
		return
	}
	var short message
	msg := m.open[at].message
	if msg == nil {
		msg = &short
	}
	for len(b) > 0 {
		if msg.have < len(msg.prefix) {
			n := copy(msg.prefix[msg.have:], b)
			msg.have += n
			b = b[n:]
			if msg.have < len(msg.prefix) {
				break
			}
			msg.left = int(binary.BigEndian.Uint32(msg.prefix[1:]))
		}
		n := min(msg.left, len(b))
		b = b[n:]
		m.grow(msg, n)
		if msg.left == 0 {
			m.drop(msg)
			*msg = message{}
		}
	}
	switch {
	case msg.have == 0:
		m.open[at].message = nil
	case msg == &short: // of a request that is whole at once nothing is kept
		kept := short // so that others need not live on the heap
		m.open[at].message = &kept
	}
}

func (m *messages) grow(msg *message, n int) {
	before := msg.got
	msg.got += n
	msg.left -= n
	switch {
	case before > window:
		m.large += n
		m.total += n
	case msg.got > window:
		m.large += msg.got
		m.total += msg.got
	}
}

func (m *messages) drop(msg *message) {
	if msg.got > window {
		m.large -= msg.got
	}
}

// forget drops what has come of a stream's request: no more will. gone says that the
// stream is open no more.
func (m *messages) forget(stream uint32, gone bool) {
	at, open := m.of(stream)
	if !open {
		return
	}
	if msg := m.open[at].message; msg != nil {
		m.drop(msg)
		m.open[at].message = nil
	}
	if gone {
		m.open = slices.Delete(m.open, at, at+1)
		m.over++
	}
}
