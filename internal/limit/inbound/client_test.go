package inbound

import (
	"bytes"
	"io"
	"net"
	"testing"

	"golang.org/x/net/http2"
)

// source is a connection from which only bytes are read.
type source struct {
	net.Conn
	io.Reader
}

func (s source) Read(b []byte) (int, error) { return s.Reader.Read(b) }

func TestClientConn(t *testing.T) {
	for name, c := range map[string]struct {
		frames, size, padding int
		want                  error
	}{
		"frames of one byte":         {20_000, 1, -1, errSmallFrames},
		"padded frames":              {8000, 1, 255, errSmallFrames},
		"padded frames of 100 bytes": {100_000, 100, 255, nil},
		"small responses":            {100_000, 60, -1, nil},
		"few frames of one byte":     {10_000, 1, -1, nil},
		"empty frames":               {100_000, 0, -1, nil},
	} {
		t.Run("SAFE-14 "+name, func(t *testing.T) {
			var all bytes.Buffer
			f := http2.NewFramer(&all, nil)
			body := make([]byte, c.size)
			for range c.frames {
				if c.padding < 0 {
					_ = f.WriteData(1, false, body)
				} else {
					_ = f.WriteDataPadded(1, false, body, make([]byte, c.padding))
				}
			}
			want := all.Len()
			n, err := io.Copy(io.Discard, ClientConn(source{Reader: &all}))
			if err != c.want { //nolint:errorlint // it is not wrapped
				t.Errorf("%v, want %v", err, c.want)
			}
			if err == nil && int(n) != want {
				t.Errorf("%d bytes of %d", n, want)
			}
		})
	}
}
