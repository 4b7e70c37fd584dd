package inbound

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// window is how much of a stream's requests a client may send before the server reads
// them. So much of a connection's requests counts nowhere.
const window = 64 << 10

// messages are the requests that streams of a connection have begun. It is a value that
// is fed: it has no clock and no lock.
type messages struct {
	scanner
	open  []request // of the streams that are open, by stream
	begun int       // bytes of those that are not whole and wait for their client
	large int       // what of these counts: all, if they are more than the window
	total int       // bytes of requests that have come, ever
	parts int32     // of the streams that are open, those on which a request has begun
	over  int32     // streams that were open, and are no more: since somebody asked
	ended bool      // nothing more is to come
}

// A request is what has come of a stream's next one.
type request struct {
	stream   uint32
	room     int32 // bytes that the client may send, by the window of the stream
	*message       // nil: nothing
}

// A message is a request that has begun: "a Length-Prefixed-Message: Compressed-Flag,
// Message-Length, Message", of which the first two have five bytes.
type message struct {
	prefix [5]byte
	have   int // bytes of the prefix
	left   int // bytes that have not come
	got    int // bytes that have
	mark   int // have and got when it was found last to come on
	age    int // how often it was looked at since; once more if it was marked
}

// waits reports whether a request waits for its client, and not for the server. gRPC
// gives a client the window for all of a request when it reads that. Before that it may
// have reasons not to read on; what has come by then is no more than the first window.
func (r *request) waits() bool {
	switch msg := r.message; {
	case msg == nil:
		return false
	case msg.have < len(msg.prefix):
		return r.room > 0
	default:
		return msg.got > window || int(r.room) >= msg.left
	}
}

// counts is how many bytes are held of what waits for its client.
func (r *request) counts() int {
	if !r.waits() {
		return 0
	}
	return r.got
}

// count notes that a request counted so much before.
func (m *messages) count(r *request, before int) {
	m.begun += r.counts() - before
	m.large = 0
	if m.begun > window {
		m.large = m.begun
	}
}

func newMessages() messages {
	return messages{scanner: scanner{skip: int32(preface)}}
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
				m.open = slices.Insert(m.open, at, request{stream: f.stream, room: window})
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

// granted is told that the client of a stream may send n bytes more.
func (m *messages) granted(stream uint32, n int) {
	if at, open := m.of(stream); open {
		r := &m.open[at]
		before := r.counts()
		r.room += int32(n)
		m.count(r, before)
	}
}

// end is told that the connection is closed.
func (m *messages) end() { m.open, m.parts, m.begun, m.large, m.ended = nil, 0, 0, 0, true }

// data takes a part of a stream's requests. Streams that are not open hold nothing: the
// server drops what comes on them.
func (m *messages) data(stream uint32, b []byte) {
	at, open := m.of(stream)
	if !open {
		return
	}
	r := &m.open[at]
	var short message
	msg, before := &short, 0
	if r.message != nil {
		msg, before = r.message, r.counts()
	}
	r.room -= int32(len(b))
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
		msg.got += n
		msg.left -= n
		m.total += n
		if msg.left == 0 {
			*msg = message{}
		}
	}
	switch {
	case msg.have == 0 && msg != &short:
		r.message = nil
		m.parts--
	case msg.have > 0 && msg == &short: // of a request that is whole at once nothing is kept
		kept := short // so that others need not live on the heap
		r.message = &kept
		m.parts++
	case msg == &short:
		return
	}
	m.count(r, before)
}

// forget drops what has come of a stream's request: no more will. gone says that the
// stream is open no more.
func (m *messages) forget(stream uint32, gone bool) {
	at, open := m.of(stream)
	if !open {
		return
	}
	if r := &m.open[at]; r.message != nil {
		before := r.counts()
		r.message = nil
		m.parts--
		m.count(r, before)
	}
	if gone {
		m.open = slices.Delete(m.open, at, at+1)
		m.over++
	}
}

// came is how much has come of a stream's request.
func (m *messages) came(stream uint32) int {
	if at, open := m.of(stream); open && m.open[at].message != nil {
		return m.open[at].got
	}
	return 0
}

// looks is how often within the stall time it is looked whether requests come on.
const looks = 4

// stalls looks at each request that has begun, and reports whether one has not come on
// since it was looked at so often: its share of what must come of all of them, or the
// rest of it. unread says that nothing was read of the connection.
func (m *messages) stalls(unread bool) (slow bool) {
	share := atLeast / max(int(m.parts), 1)
	for i := range m.open {
		r := &m.open[i]
		msg := r.message
		if msg == nil {
			continue
		}
		come := msg.have + msg.got
		switch {
		case unread || !r.waits():
			msg.mark, msg.age = come, 0
		case come-msg.mark >= share:
			msg.mark, msg.age = come, 1
		default:
			msg.age++
			slow = slow || msg.age > looks
		}
	}
	return slow
}
