package inbound

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// window is the initial HTTP/2 window of a stream: the bytes that a client may send before the server reads
// them. The first window of a connection's half-received requests does not count against the budget.
const window = 64 << 10

// messages tracks the half-received requests of a connection. It is a plain value without clock and lock.
type messages struct {
	scanner
	open  []request // one for each open stream, sorted by stream
	begun int       // memory of half-received requests that wait for the client, and of small frames
	large int       // the bytes that count: begun if it exceeds the window, else 0
	total int       // request bytes received since the connection began
	parts int32     // number of half-received requests
	gone  int32     // streams that ended since the caller last reset this field
	ended bool      // the connection is closed
}

// A request is the state of an open stream.
type request struct {
	stream   uint32
	room     int32 // bytes that the client may still send, by the window of the stream
	frames   int32 // cost of the frames of complete requests, since the server last granted bytes
	*message       // nil between two requests
}

// A message is a half-received request: "a Length-Prefixed-Message: Compressed-Flag, Message-Length, Message".
// The flag and the length are a prefix of five bytes.
type message struct {
	prefix [5]byte
	have   int // bytes of the prefix so far
	left   int // missing bytes of the message
	got    int // bytes of the message so far
	cost   int // cost of its frames so far
	mark   int // have+got at the last progress
	age    int // number of checks since the last progress
}

// waits reports whether a request waits for its client, not for the server. gRPC opens the window for the
// whole request when it reads the prefix. Until then the server may be the slow side, and at most the first
// window of bytes has arrived.
func (r *request) waits() bool {
	switch msg := r.message; {
	case msg == nil:
		return false
	case msg.have < len(msg.prefix):
		return r.room > 0
	default:
		return max(msg.got, msg.cost) > window || int(r.room) >= msg.left
	}
}

// counts returns the memory of a request that waits for its client: its bytes, or the cost of its frames if they are
// tiny or padded. The cost of the frames of complete requests counts beyond the window, because requests of the usual
// size let the server grant more bytes before.
func (r *request) counts() (n int) {
	if r.frames > window {
		n = int(r.frames)
	}
	if r.waits() {
		n += max(r.got, r.cost)
	}
	return n
}

// count updates the sums after a change of a request that counted before bytes until now.
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

// of returns the index of a stream in open, or the place to insert it, and whether the stream is open.
func (m *messages) of(stream uint32) (at int, open bool) {
	return slices.BinarySearchFunc(m.open, stream, func(r request, stream uint32) int { return cmp.Compare(r.stream, stream) })
}

// receive parses bytes from the client.
func (m *messages) receive(b []byte) {
	for len(b) > 0 {
		f, body, rest, begins, ends, ok := m.next(b)
		b = rest
		if !ok {
			continue
		}
		switch {
		case f.typ == typeHeaders && begins:
			if at, again := m.of(f.stream); !again {
				m.open = slices.Insert(m.open, at, request{stream: f.stream, room: window})
			}
		case f.typ == typeData && len(body) > 0:
			m.data(f.stream, body, int(m.cost))
			m.cost = 0
		}
		if ends && f.ends() {
			m.forget(f.stream, f.typ == typeReset)
		}
	}
}

// closed records that the server has ended a stream.
func (m *messages) closed(stream uint32) {
	m.forget(stream, true)
}

// granted records that the client may send n more bytes on a stream.
func (m *messages) granted(stream uint32, n int) {
	if at, open := m.of(stream); open {
		r := &m.open[at]
		before := r.counts()
		r.room += int32(n)
		r.frames = 0
		m.count(r, before)
	}
}

// end records that the connection is closed.
func (m *messages) end() { m.open, m.parts, m.begun, m.large, m.ended = nil, 0, 0, 0, true }

// data parses a part of a stream's requests, with the cost of the frame if the part is its first. It ignores streams
// that are not open, because the server drops their data.
func (m *messages) data(stream uint32, b []byte, cost int) {
	at, open := m.of(stream)
	if !open {
		return
	}
	r := &m.open[at]
	var short message
	msg, before := &short, r.counts()
	if r.message != nil {
		msg = r.message
	}
	msg.cost += cost
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
			r.frames = int32(min(int(r.frames)+msg.cost, 1<<30))
			*msg = message{}
		}
	}
	switch {
	case msg.have == 0 && msg != &short:
		r.message = nil
		m.parts--
	case msg.have > 0 && msg == &short: // only a half-received request is kept
		kept := short // a copy, so that short itself stays on the stack
		r.message = &kept
		m.parts++
	}
	m.count(r, before)
}

// forget drops the half-received request of a stream whose client sends no more. Set gone if the stream
// itself has ended.
func (m *messages) forget(stream uint32, gone bool) {
	at, open := m.of(stream)
	if !open {
		return
	}
	r := &m.open[at]
	before := r.counts()
	if r.message != nil {
		r.message = nil
		m.parts--
	}
	if gone {
		r.frames = 0 // gRPC drops what the server has not read
	}
	m.count(r, before)
	if gone {
		m.open = slices.Delete(m.open, at, at+1)
		m.gone++
	}
}

// received returns the number of bytes so far of a stream's half-received request.
func (m *messages) received(stream uint32) int {
	if at, open := m.of(stream); open && m.open[at].message != nil {
		return m.open[at].got
	}
	return 0
}

// looks is the number of progress checks within the stall time.
const looks = 4

// stalls checks each half-received request, and reports whether one made no progress for the last checks.
// Progress is its share of minStall, or its completion. Set unread if the server did not read from the
// connection.
func (m *messages) stalls(unread bool) (slow bool) {
	share := minStall / max(int(m.parts), 1)
	for i := range m.open {
		r := &m.open[i]
		msg := r.message
		if msg == nil {
			continue
		}
		received := msg.have + msg.got
		switch {
		case unread || !r.waits():
			msg.mark, msg.age = received, 0
		case received-msg.mark >= share:
			msg.mark, msg.age = received, 1
		default:
			msg.age++
			slow = slow || msg.age > looks
		}
	}
	return slow
}
