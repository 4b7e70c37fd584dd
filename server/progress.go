package server

import (
	"sync/atomic"

	"google.golang.org/grpc/mem"
)

// A progress measures how much of the sent data has left the server. Marks are empty buffers inside a message. When gRPC has
// written the data before a mark, it frees the mark, which calls Put.
type progress struct{ put, left atomic.Uint64 }

// done reports whether all marks have left. SendMsg returns when gRPC has taken a message, possibly before the client
// has read any of it.
func (p *progress) done() bool { return p.left.Load() == p.put.Load() }

// Put implements [mem.BufferPool].
func (p *progress) Put(*[]byte) { p.left.Add(1) }

// Get implements [mem.BufferPool]. Get is not used for marks.
func (p *progress) Get(n int) *[]byte {
	b := make([]byte, n)
	return &b
}

// step is how many bytes are between two marks.
const step = 16 << 10

// mark is the buffer of all marks. It has a capacity, because gRPC does not pool smaller buffers.
var mark = make([]byte, 0, 4<<10)

// marked returns the message with marks in it. The caller must free the marks after the message was
// sent.
func (p *progress) marked(m *message) *message {
	n := m.data.Len()
	if n <= step {
		return m
	}
	data := make(mem.BufferSlice, 0, len(m.data)+2*(n/step))
	room := step // until the next mark
	for _, piece := range m.data {
		for b := piece.ReadOnlyData(); len(b) > 0; {
			part := b[:min(len(b), room)]
			data = append(data, mem.SliceBuffer(part))
			b = b[len(part):]
			room -= len(part)
			if room == 0 {
				data = append(data, mem.NewBuffer(&mark, p))
				p.put.Add(1)
				room = step
			}
		}
	}
	return &message{data: data}
}
