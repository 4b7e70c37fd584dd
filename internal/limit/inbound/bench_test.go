package inbound

import (
	"net"
	"testing"
	"time"
)

// endless is a connection that repeats the same bytes for ever and accepts all writes.
type endless struct {
	net.Conn
	b []byte
}

func (e endless) Read(b []byte) (int, error)  { return copy(b, e.b), nil }
func (e endless) Write(b []byte) (int, error) { return len(b), nil }

// BenchmarkConn measures the cost of parsing the frames of a small request and of a response. gRPC
// and the system need some ten microseconds for each.
func BenchmarkConn(b *testing.B) {
	frame := newTalk().data(1, false, beginning(200, 200)).Bytes()[preface:]
	c := NewBudget(Bounds{Bytes: 1 << 20, Stall: time.Hour, Streams: -1}).Conn(endless{b: frame}, false)
	if err := c.received(newTalk().open(1, false).Bytes(), nil); err != nil {
		b.Fatal(err)
	}
	for what, pass := range map[string]func([]byte) (int, error){"read": c.Read, "write": c.Write} {
		b.Run(what, func(b *testing.B) {
			b.ReportAllocs()
			buf := append([]byte(nil), frame...)
			for b.Loop() {
				if n, err := pass(buf); n != len(buf) || err != nil {
					b.Fatal(n, err)
				}
			}
		})
	}
}
