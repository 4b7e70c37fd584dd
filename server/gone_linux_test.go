package server

import (
	"io"
	"net"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// A stream whose client has closed the connection is refused before gRPC starts a goroutine for it, although the
// request that opens it was read.
func TestTapRefusesStreamsOfGoneClient(t *testing.T) {
	t.Run("SAFE-14", func(t *testing.T) {
		s := New(newSource())
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		gone := func(closes bool) (refused error) {
			near, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer near.Close()
			far, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer far.Close()
			conn, _, err := s.Credentials(nil).ServerHandshake(far)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, _ = io.WriteString(near, http2.ClientPreface)
			f := http2.NewFramer(near, nil)
			_ = f.WriteSettings()
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headers(), EndHeaders: true})
			if closes {
				near.Close()
			}
			if _, err := conn.Read(make([]byte, 1<<10)); err != nil {
				t.Fatal(err)
			}
			_, refused = s.Tap(peer.NewContext(t.Context(), &peer.Peer{Addr: conn.RemoteAddr()}), &tap.Info{FullMethodName: adsStream})
			return refused
		}
		if err := gone(false); err != nil {
			t.Error(err)
		}
		for tries := 0; status.Code(gone(true)) != codes.Canceled; tries++ { // the kernel may hand the end over later
			if tries == 100 {
				t.Fatal("a stream of a gone client is not refused")
			}
		}
	})
}
