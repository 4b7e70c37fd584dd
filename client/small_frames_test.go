package client_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/xds"
)

// gRPC keeps each DATA frame as a buffer of its own, so a server could make a client use a hundred times the limit of a
// response.
func TestSmallFrames(t *testing.T) {
	t.Run("SAFE-14 a stream of one-byte frames ends", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				sendSmallFrames(c)
			}
		}()
		tr, err := client.GRPC("passthrough:///"+l.Addr().String(), client.GRPCOptions{Credentials: insecure.NewCredentials()})
		if err != nil {
			t.Fatal(err)
		}
		s := open(t, tr, nil)
		s.say(&xds.Request{Type: xds.Cluster})
		if _, err := s.Recv(); err == nil || !strings.Contains(err.Error(), "too small or padded frames") {
			t.Error(err)
		}
		tr.Close()
		l.Close()
		<-ended
	})
}

// sendSmallFrames sends the beginning of a response in frames of one byte, until the client closes the connection.
func sendSmallFrames(c net.Conn) {
	defer c.Close()
	in := http2.NewFramer(nil, c)
	_, _ = io.CopyN(io.Discard, c, int64(len(http2.ClientPreface)))
	out := bufio.NewWriter(c)
	f := http2.NewFramer(out, nil)
	_ = f.WriteSettings()
	_ = out.Flush()
	for {
		frame, err := in.ReadFrame()
		if err != nil {
			return
		}
		if frame.Header().Type != http2.FrameHeaders {
			continue
		}
		var block bytes.Buffer
		e := hpack.NewEncoder(&block)
		_ = e.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
		_ = e.WriteField(hpack.HeaderField{Name: "content-type", Value: "application/grpc"})
		id := frame.Header().StreamID
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true})
		_ = f.WriteData(id, false, []byte{0, 0, 0, 0x80, 0})
		for range 30_000 {
			_ = f.WriteData(id, false, []byte{0})
		}
		_ = out.Flush()
	}
}
