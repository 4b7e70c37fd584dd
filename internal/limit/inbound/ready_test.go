package inbound

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/mem"
)

// A pool counts the buffers that were taken and not put back.
type pool struct {
	mem.BufferPool
	out atomic.Int64
}

func (p *pool) Get(n int) *[]byte { p.out.Add(1); return p.BufferPool.Get(n) }
func (p *pool) Put(b *[]byte)     { p.out.Add(-1); p.BufferPool.Put(b) }

// A reader of the system's connection has a buffer only while it has bytes, and gets the end of the
// connection.
func TestReadOnReady(t *testing.T) {
	t.Parallel() // the test waits for a real connection
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for what, c := range map[string]struct {
		end  func(client *net.TCPConn, server *Conn)
		want error // nil: any
	}{
		"the client ends":   {func(c *net.TCPConn, _ *Conn) { c.Close() }, io.EOF},
		"the client breaks": {func(c *net.TCPConn, _ *Conn) { _ = c.SetLinger(0); c.Close() }, nil},
		"the server closes": {func(_ *net.TCPConn, s *Conn) { s.Close() }, net.ErrClosed},
		"it was refused": {func(c *net.TCPConn, s *Conn) {
			s.mu.Lock()
			s.in.end()
			s.mu.Unlock()
			_, _ = c.Write([]byte("more"))
		}, net.ErrClosed},
	} {
		near, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		far, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		server := NewBudget(Bounds{Bytes: 1 << 20, Stall: time.Hour, Streams: -1}).Conn(far, true)
		p := &pool{BufferPool: mem.DefaultBufferPool()}
		got, ended := make(chan string, 1), make(chan error, 1)
		go func() {
			for {
				b, n, err := server.ReadOnReady(1<<10, p)
				if err != nil || b == nil {
					ended <- err
					return
				}
				got <- string((*b)[:n])
				p.Put(b)
			}
		}()
		_, _ = near.Write([]byte("hello"))
		if s := <-got; s != "hello" {
			t.Errorf("%s: %q", what, s)
		}
		c.end(near.(*net.TCPConn), server)
		if err := <-ended; err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
		if n := p.out.Load(); n != 0 {
			t.Errorf("%s: %d buffers were not put back", what, n)
		}
		near.Close()
		server.Close()
	}
}
