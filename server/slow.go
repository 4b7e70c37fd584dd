package server

import (
	"sync/atomic"

	"google.golang.org/grpc/mem"
)

// A progress is how much of what a stream sent has left. It counts marks, which are
// empty buffers in a message: gRPC frees them when it has written what is before them,
// which puts them into the pool that they are said to be from.
type progress struct{ put, left atomic.Uint64 }

// done reports whether all marks have left: gRPC says that a message is sent when it has
// taken it, though nothing of it may have been read.
func (p *progress) done() bool { return p.left.Load() == p.put.Load() }

// Put implements [mem.BufferPool].
func (p *progress) Put(*[]byte) { p.left.Add(1) }

// Get implements [mem.BufferPool]. Nobody takes a mark from here.
func (p *progress) Get(n int) *[]byte {
	b := make([]byte, n)
	return &b
}

// step is how many bytes are between two marks.
const step = 16 << 10

// mark is what all marks hold. It has a capacity, for gRPC pools no smaller buffer.
var mark = make([]byte, 0, 4<<10)

// marked returns a message with marks in it. They must be freed when it was sent.
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
			if room -= len(part); room == 0 {
				data = append(data, mem.NewBuffer(&mark, p))
				p.put.Add(1)
				room = step
			}
		}
	}
	return &message{data: data}
}
