package rest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// A parked is the connection of a poll that is held, taken from its http.Server,
// whose goroutine, buffers and request cost 25 KB and are freed meanwhile. It is
// the ResponseWriter of the one response.
type parked struct {
	conn   net.Conn
	server *http.Server
	header http.Header
	out    *bufio.Writer
	err    error // of writing
	keep   bool  // the connection is returned

	ended chan struct{} // closed when nobody watches any more
}

// park takes the connection of a request that was read whole. It returns nil if
// it cannot be had: then nothing has happened.
func park(w http.ResponseWriter, r *http.Request) *parked {
	s, ok := r.Context().Value(http.ServerContextKey).(*http.Server)
	if !ok || r.ProtoMajor != 1 || r.ProtoMinor != 1 {
		return nil
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil
	}
	// Who sends the next request before this one is answered loses it.
	return &parked{conn: conn, server: s, header: http.Header{}, keep: !r.Close && rw.Reader.Buffered() == 0, ended: make(chan struct{})}
}

// watch calls gone when the client closes the connection.
func (c *parked) watch(gone context.CancelFunc) {
	n, err := c.conn.Read(make([]byte, 1))
	switch {
	case n > 0:
		c.keep = false
	case !errors.Is(err, os.ErrDeadlineExceeded):
		gone()
	}
}

// unwatch ends watch.
func (c *parked) unwatch() {
	_ = c.conn.SetReadDeadline(time.Unix(1, 0)) // if it fails, reading has ended too
	<-c.ended
	_ = c.conn.SetReadDeadline(time.Time{})
}

// writeTimeout is how long a client may take to read an answer.
const writeTimeout = 20 * time.Second

// Header implements [http.ResponseWriter].
func (c *parked) Header() http.Header { return c.header }

// WriteHeader implements [http.ResponseWriter].
func (c *parked) WriteHeader(code int) {
	c.unwatch()
	_ = c.conn.SetWriteDeadline(time.Now().Add(writeTimeout)) // if it fails, so does writing
	c.out = bufio.NewWriter(c.conn)
	c.header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	if c.keep = c.keep && c.header.Get("Connection") != "close"; !c.keep {
		c.header.Set("Connection", "close")
	}
	fmt.Fprintf(c.out, "HTTP/1.1 %d %s\r\n", code, http.StatusText(code))
	if c.err = c.header.Write(c.out); c.err == nil {
		_, c.err = c.out.WriteString("\r\n")
	}
}

// Write implements [http.ResponseWriter].
func (c *parked) Write(b []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.out.Write(b)
	c.err = err
	return n, err
}

// FlushError sends what was written; see [http.ResponseController].
func (c *parked) FlushError() error {
	if c.err == nil {
		c.err = c.out.Flush()
	}
	return c.err
}

// unpark returns the connection to its server, after the response was flushed.
func (c *parked) unpark() {
	if c.out == nil { // the client is gone
		c.conn.Close()
		<-c.ended
		return
	}
	_ = c.conn.SetWriteDeadline(time.Time{})
	if c.err != nil || !c.keep {
		c.conn.Close()
		return
	}
	// Serve accepts the one connection and returns: it is served like a new one.
	if err := c.server.Serve(&once{c.conn, c.conn.LocalAddr()}); !errors.Is(err, io.EOF) {
		c.conn.Close() // the server is closed
	}
}

// once is a listener with one connection.
type once struct {
	conn net.Conn
	addr net.Addr
}

// Accept implements [net.Listener].
func (l *once) Accept() (net.Conn, error) {
	c := l.conn
	if l.conn = nil; c == nil {
		return nil, io.EOF
	}
	return c, nil
}

// Close implements [net.Listener].
func (l *once) Close() error { return nil }

// Addr implements [net.Listener].
func (l *once) Addr() net.Addr { return l.addr }
