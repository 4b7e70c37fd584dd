package inbound

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/mem"

	"github.com/chancery-xds/chancery/internal/limit/rate"
)

// "Nothing is done for a connection that is gone" (SAFE-14), although its bytes are not read yet.
func TestGoneClient(t *testing.T) {
	t.Parallel() // the tests wait for real connections
	if !hasRaw {
		t.Skip("needs Linux")
	}
	pair := func(t *testing.T, perSecond int, plain bool) (near net.Conn, b *Budget, server *Conn) {
		t.Helper()
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a listener in a test
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if near, err = net.Dial("tcp", l.Addr().String()); err != nil { //nolint:noctx // a client in a test
			t.Fatal(err)
		}
		far, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		rates := rate.NewOwners(10, -1)
		b = NewBudget(Bounds{
			Bytes: 1 << 20, Stall: time.Hour, Streams: perSecond, Pace: func(a net.Addr) *rate.Shared { return rates.Of("a", a) },
			Hasty: func(net.Addr) {}, Refused: func(net.Addr, Reason) {},
		})
		server = b.Conn(far, plain)
		t.Cleanup(func() { near.Close(); server.Close() })
		return near, b, server
	}
	for name, plain := range map[string]bool{"": true, ", with TLS": false} {
		t.Run("SAFE-14 a delayed connection ends when its client has gone"+name, func(t *testing.T) {
			t.Parallel()
			near, _, server := pair(t, 1, plain)
			talk := newTalk()
			for id := uint32(1); id < 400; id += 2 {
				_ = talk.open(id, false).WriteRSTStream(id, http2.ErrCodeCancel)
			}
			if _, err := near.Write(talk.Bytes()); err != nil {
				t.Fatal(err)
			}
			near.Close()
			var err error
			start := time.Now()
			for buf := make([]byte, 256); err == nil; { // at a stream a second, the whole takes minutes
				_, err = server.Read(buf)
			}
			if took := time.Since(start); errors.Is(err, io.EOF) || took > 10*time.Second {
				t.Errorf("the connection ended with %v after %v", err, took)
			}
		})
	}
	t.Run("SAFE-14 a connection that waits for room ends when its client has gone", func(t *testing.T) {
		t.Parallel()
		near, b, server := pair(t, -1, true)
		b.Whole(1 << 20) // no room is left
		talk := newTalk().open(1, false).data(1, false, beginning(300<<10, 70<<10)).data(1, false, make([]byte, 10<<10))
		go func() {
			_, _ = near.Write(talk.Bytes())
			near.Close()
		}()
		var err error
		for buf := make([]byte, 32<<10); err == nil; {
			_, err = server.Read(buf)
		}
		if !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	t.Run("SAFE-14 a stream that is read after its client has gone is known", func(t *testing.T) {
		t.Parallel()
		near, b, server := pair(t, -1, true)
		talk := newTalk().open(1, false)
		if _, err := near.Write(talk.Bytes()); err != nil {
			t.Fatal(err)
		}
		buf, n, err := server.ReadOnReady(1<<10, mem.DefaultBufferPool())
		if err != nil || n == 0 || b.Gone(server.RemoteAddr()) {
			t.Fatal(buf, n, err, "gone:", b.Gone(server.RemoteAddr()))
		}
		talk = newTalk().open(3, false)
		if _, err := near.Write(talk.Bytes()[preface:]); err != nil {
			t.Fatal(err)
		}
		near.Close()
		for !server.hungUp() {
			time.Sleep(time.Millisecond) // until the kernel has handed the end over
		}
		if _, n, err = server.ReadOnReady(1<<10, mem.DefaultBufferPool()); err != nil || n == 0 || !b.Gone(server.RemoteAddr()) {
			t.Error(n, err, "gone:", b.Gone(server.RemoteAddr()))
		}
		server.Close()
		if b.Gone(server.RemoteAddr()) {
			t.Error("a closed connection is still known")
		}
	})
}
