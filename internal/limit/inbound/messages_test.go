package inbound

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"golang.org/x/net/http2"
)

// A talk is the conversation of a client and a server, as frames.
type talk struct {
	bytes.Buffer
	*http2.Framer
}

func newTalk() *talk {
	t := &talk{}
	t.WriteString(http2.ClientPreface)
	t.Framer = http2.NewFramer(&t.Buffer, nil)
	t.AllowIllegalWrites = true
	return t
}

func (t *talk) open(stream uint32, end bool) *talk {
	_ = t.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: []byte("any"), EndHeaders: true, EndStream: end})
	return t
}

func (t *talk) data(stream uint32, end bool, b []byte) *talk {
	_ = t.WriteData(stream, end, b)
	return t
}

// beginning returns the first n bytes of a request of size bytes.
func beginning(size, n int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(size)), make([]byte, n)...)
}

func fed(t *talk) messages {
	m := newMessages()
	m.receive(t.Bytes())
	return m
}

func TestMessages(t *testing.T) {
	const k = 1 << 10
	begun := func() *talk {
		talk := newTalk().open(1, false).data(1, false, beginning(100*k, 60*k))
		return talk.data(1, false, make([]byte, 10*k))
	}
	for _, c := range []struct {
		what string
		talk *talk
		want int
	}{
		{"nothing", newTalk(), 0},
		{"less than the window", newTalk().open(1, false).data(1, false, beginning(1<<20, 64*k)), 0},
		{"less than the window, which has room for the rest", newTalk().open(1, false).data(1, false, beginning(60*k, 59*k)), 0},
		{"SAFE-9 many of these", newTalk().open(1, false).data(1, false, beginning(60*k, 40*k)).open(3, false).data(3, false, beginning(60*k, 50*k)), 90 * k},
		{"the client is not responsible for requests without a window", newTalk().open(1, false).data(1, false, beginning(70*k, 60*k)).open(3, false).data(3, false, beginning(60*k, 50*k)), 0},
		{"padding makes no room scarce", func() *talk {
			t := newTalk().open(1, false).data(1, false, beginning(60*k, 50*k)).open(3, false)
			_ = t.WriteDataPadded(3, false, beginning(60*k, 59*k), make([]byte, 255))
			for range 40 {
				_ = t.WriteDataPadded(3, false, nil, make([]byte, 255))
			}
			return t
		}(), 109 * k},
		{"SAFE-9 more than the window", begun(), 70 * k},
		{"it is whole", begun().data(1, false, make([]byte, 30*k)), 0},
		{"another request follows in the same frame", begun().data(1, false, append(make([]byte, 30*k), beginning(1<<20, 65*k)...)), 65 * k},
		{"the client ends the stream", func() *talk { t := begun(); _ = t.WriteRSTStream(1, http2.ErrCodeCancel); return t }(), 0},
		{"the client marks the end of its requests", begun().data(1, true, nil), 0},
		{"bytes on a stream that is not open are dropped", newTalk().data(1, false, beginning(1<<20, 500*k)), 0},
		{"another stream", begun().open(3, false).data(3, false, beginning(80*k, 80*k)), 70 * k},
		{"another stream has few bytes", begun().open(3, false).data(3, false, beginning(80, 8)), 70*k + frameCost},
		{"two", begun().open(3, false).data(3, false, beginning(90*k, 80*k)), 150 * k},
		{"padding does not count", func() *talk {
			t := newTalk().open(1, false)
			_ = t.WriteDataPadded(1, false, beginning(1<<20, 64*k-100), make([]byte, 200))
			return t
		}(), 0},
		{"a bit that \"MUST be ignored when receiving\" is", begun().data(1|1<<31, false, make([]byte, 10*k)), 80 * k},
		{"padding ends", func() *talk {
			t := newTalk().open(1, false)
			_ = t.WriteDataPadded(1, false, beginning(1<<20, 64*k), make([]byte, 200))
			return t.data(1, false, []byte{1})
		}(), 64*k + 1},
	} {
		if m := fed(c.talk); m.large != c.want {
			t.Errorf("%s: %d bytes, want %d", c.what, m.large, c.want)
		}
	}
	tiny := func(n, size int, padding []byte) *talk { // n frames of one byte, of requests of a size
		t, b := newTalk().open(1, false), beginning(size, size)
		for i := range n {
			_ = t.WriteDataPadded(1, false, b[i%len(b):][:1], padding)
		}
		return t
	}
	for what, c := range map[string]struct {
		talk *talk
		want int
	}{
		"of one request":              {tiny(1200, 1<<20, nil), 1200 * frameCost},
		"of one request, padded":      {tiny(400, 1<<20, make([]byte, 255)), 400 * (frameCost + 256)},
		"of few bytes":                {tiny(1000, 1<<20, nil), 0},
		"of whole requests, padded":   {tiny(450, 40, make([]byte, 255)), 450 * (frameCost + 256)},
		"of whole requests, but less": {tiny(180, 40, make([]byte, 255)), 0},
	} {
		t.Run("SAFE-14 tiny frames "+what, func(t *testing.T) {
			m := fed(c.talk)
			if m.large != c.want {
				t.Errorf("%d bytes, want %d", m.large, c.want)
			}
			m.granted(1, 1)
			if m.open[0].frames != 0 {
				t.Error("frames that the server has read count")
			}
		})
	}
	m := fed(newTalk().open(1, false).data(1, false, beginning(90*k, 60*k)).open(3, false).data(3, false, beginning(60*k, 50*k)))
	m.granted(5, 100*k)
	if m.granted(1, 26*k+4); m.large != 0 {
		t.Errorf("%d bytes count before the window has room", m.large)
	}
	if m.granted(1, 1); m.large != 110*k || m.parts != 2 {
		t.Errorf("%d bytes of %d requests count when the window has room", m.large, m.parts)
	}
	m = fed(begun())
	m.closed(1)
	if m.large != 0 || len(m.open) != 0 {
		t.Errorf("the server has ended the stream: %+v", m)
	}
	m.receive(newTalk().data(1, false, make([]byte, 100*k)).Bytes()[preface:])
	if m.large != 0 || len(m.open) != 0 {
		t.Errorf("after more bytes: %+v", m)
	}
	if m = fed(newTalk().open(1, false).data(1, true, beginning(10, 10))); len(m.open) != 1 || m.open[0].message != nil {
		t.Errorf("between requests something is kept: %+v", m.open)
	}
}

// oracle returns the size of the unfinished requests, with the framer of another library. The
// argument grants has the growth of each stream's window.
func oracle(b []byte, grants map[uint32]int) (large int) {
	if len(b) < preface {
		return 0
	}
	f := http2.NewFramer(nil, bytes.NewReader(b[preface:]))
	f.SetMaxReadFrameSize(1<<24 - 1)
	said := map[uint32][]byte{}
	room, cost := map[uint32]int{}, map[uint32]int{}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			break
		}
		id := frame.Header().StreamID
		ends := false
		switch frame := frame.(type) {
		case *http2.HeadersFrame:
			if _, ok := said[id]; !ok {
				said[id], room[id], cost[id] = []byte{}, window+grants[id], 0
			}
			ends = frame.StreamEnded()
		case *http2.DataFrame:
			if b, ok := said[id]; ok && len(frame.Data()) > 0 {
				b = append(b, frame.Data()...)
				room[id] -= len(frame.Data())
				cost[id] += frameCost + int(frame.Length) - len(frame.Data())
				for len(b) >= 5 && len(b)-5 >= int(binary.BigEndian.Uint32(b[1:])) {
					b, cost[id] = b[5+binary.BigEndian.Uint32(b[1:]):], 0
				}
				said[id] = b
			}
			ends = frame.StreamEnded()
		case *http2.RSTStreamFrame:
			delete(said, id)
		}
		if ends {
			if _, ok := said[id]; ok {
				said[id], cost[id] = []byte{}, 0
			}
		}
	}
	for id, b := range said {
		switch n := len(b) - 5; {
		case n < 0 && (n == -5 || room[id] <= 0):
		case n < 0, n > window, room[id] >= int(binary.BigEndian.Uint32(b[1:]))-n:
			large += max(n, cost[id])
		}
	}
	if large <= window {
		return 0
	}
	return large
}

// For any division of the bytes, a connection counts the same bytes as another framer.
func TestMessagesQuick(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		talk := newTalk()
		left := map[uint32][]byte{} // to be sent
		for range 40 {
			id := uint32(1 + 2*r.IntN(4))
			switch r.IntN(12) {
			case 0:
				talk.open(id, false)
				left[id] = nil
			case 1:
				_ = talk.WriteRSTStream(id, http2.ErrCodeCancel)
			case 2:
				_ = talk.WriteSettings()
				_ = talk.WritePing(false, [8]byte{})
			default:
				if len(left[id]) == 0 {
					size := r.IntN(200 << 10)
					left[id] = beginning(size, size)
				}
				b := left[id]
				n := min(len(b), 1+r.IntN(40<<10))
				if r.IntN(4) == 0 {
					_ = talk.WriteDataPadded(id, false, b[:n], make([]byte, r.IntN(256)))
				} else {
					talk.data(id, r.IntN(30) == 0, b[:n])
				}
				left[id] = b[n:]
			}
		}
		m := newMessages()
		most := 20_000
		if seed%10 == 0 { // so that pieces end where frames' headers do
			most = 10
		}
		for rest := talk.Bytes(); len(rest) > 0; {
			n := min(len(rest), 1+r.IntN(1+r.IntN(most)))
			m.receive(rest[:n])
			rest = rest[n:]
		}
		grants := map[uint32]int{}
		for range 5 {
			if want := oracle(talk.Bytes(), grants); m.large != want {
				t.Fatalf("seed %d: %d bytes, want %d", seed, m.large, want)
			}
			id, n := uint32(1+2*r.IntN(4)), r.IntN(200<<10)
			grants[id] += n
			m.granted(id, n)
		}
	}
}

// BenchmarkMessages reads complete requests, which leave no state and allocate no memory.
func BenchmarkMessages(b *testing.B) {
	for _, c := range []struct {
		what   string
		pieces [][]byte
	}{
		{"whole", [][]byte{newTalk().data(1, false, beginning(40, 40)).Bytes()[preface:]}},
		{"in two pieces", [][]byte{
			newTalk().data(1, false, beginning(40, 20)).Bytes()[preface:], newTalk().data(1, false, make([]byte, 20)).Bytes()[preface:],
		}},
	} {
		b.Run(c.what, func(b *testing.B) {
			m := fed(newTalk().open(1, false))
			b.ReportAllocs()
			for b.Loop() {
				for _, p := range c.pieces {
					m.receive(p)
				}
			}
		})
	}
}

// For any bytes of a client, nothing panics, at most the sent bytes count, and the division into
// pieces does not matter.
func FuzzMessages(f *testing.F) {
	f.Add(newTalk().open(1, false).data(1, false, beginning(1<<20, 70<<10)).Bytes(), uint16(7), uint32(1))
	padded := newTalk().open(3, false)
	_ = padded.WriteDataPadded(3, false, beginning(9, 9), make([]byte, 9))
	f.Add(padded.Bytes(), uint16(1), uint32(3))
	f.Fuzz(func(t *testing.T, b []byte, cut uint16, closed uint32) {
		whole, pieces := newMessages(), newMessages()
		whole.receive(b)
		for rest := b; len(rest) > 0; {
			n := min(len(rest), 1+int(cut))
			pieces.receive(rest[:n])
			rest = rest[n:]
		}
		if whole.large != pieces.large || whole.total != pieces.total || whole.parts != pieces.parts || len(whole.open) != len(pieces.open) {
			t.Fatalf("%+v in one piece, %+v in many", whole, pieces)
		}
		if whole.large < 0 || whole.large > len(b) || whole.large > whole.total {
			t.Fatalf("%d bytes of %d", whole.large, len(b))
		}
		for len(whole.open) > 0 {
			whole.closed(whole.open[0].stream)
		}
		if whole.large != 0 || whole.begun != 0 || whole.parts != 0 {
			t.Fatalf("all streams are closed: %+v", whole)
		}
		pieces.closed(closed)
	})
}
