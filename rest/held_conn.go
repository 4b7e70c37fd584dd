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

// A heldConn is the hijacked connection of a held poll. Its http.Server's goroutine, buffers and
// request, which need 25 KB, are free meanwhile. A heldConn is the ResponseWriter of one response.
type heldConn struct {
	conn   net.Conn
	server *http.Server
	header http.Header
	out    *bufio.Writer
	err    error // the first write error
	reuse  bool  // give the connection back to the server

	watchEnded chan struct{} // closed when watch has ended
}

// holdConn hijacks the connection of a request whose body was read. It returns nil, and changes
// nothing, if the connection cannot be hijacked.
func holdConn(w http.ResponseWriter, r *http.Request) *heldConn {
	s, ok := r.Context().Value(http.ServerContextKey).(*http.Server)
	if !ok || r.ProtoMajor != 1 || r.ProtoMinor != 1 {
		return nil
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil
	}
	// A client that sends its next request before this response would lose it, so its connection is not
	// reused.
	return &heldConn{conn: conn, server: s, header: http.Header{}, reuse: !r.Close && rw.Reader.Buffered() == 0, watchEnded: make(chan struct{})}
}

// watch calls gone when the client closes the connection.
func (c *heldConn) watch(gone context.CancelFunc) {
	n, err := c.conn.Read(make([]byte, 1))
	switch {
	case n > 0:
		c.reuse = false
	case !errors.Is(err, os.ErrDeadlineExceeded):
		gone()
	}
}

// unwatch ends watch.
func (c *heldConn) unwatch() {
	_ = c.conn.SetReadDeadline(time.Unix(1, 0)) // if it fails, reading has ended, too
	<-c.watchEnded
	_ = c.conn.SetReadDeadline(time.Time{})
}

// writeTimeout is how long a client may take to read a response.
const writeTimeout = 20 * time.Second

// Header implements [http.ResponseWriter].
func (c *heldConn) Header() http.Header { return c.header }

// WriteHeader implements [http.ResponseWriter].
func (c *heldConn) WriteHeader(code int) {
	c.unwatch()
	_ = c.conn.SetWriteDeadline(time.Now().Add(writeTimeout)) // if it fails, writing fails, too
	c.out = bufio.NewWriter(c.conn)
	c.header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	c.reuse = c.reuse && c.header.Get("Connection") != "close"
	if !c.reuse {
		c.header.Set("Connection", "close")
	}
	fmt.Fprintf(c.out, "HTTP/1.1 %d %s\r\n", code, http.StatusText(code))
	c.err = c.header.Write(c.out)
	if c.err == nil {
		_, c.err = c.out.WriteString("\r\n")
	}
}

// Write implements [http.ResponseWriter].
func (c *heldConn) Write(b []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.out.Write(b)
	c.err = err
	return n, err
}

// FlushError sends the buffered bytes; see [http.ResponseController].
func (c *heldConn) FlushError() error {
	if c.err == nil {
		c.err = c.out.Flush()
	}
	return c.err
}

// giveBack gives the connection back to its server, after the response was flushed.
func (c *heldConn) giveBack() {
	if c.out == nil { // no response: the client has closed the connection
		c.conn.Close()
		<-c.watchEnded
		return
	}
	_ = c.conn.SetWriteDeadline(time.Time{})
	if c.err != nil || !c.reuse {
		c.conn.Close()
		return
	}
	// Serve accepts this one connection and returns. The server then treats it as a new one.
	if err := c.server.Serve(&oneConnListener{c.conn, c.conn.LocalAddr()}); !errors.Is(err, io.EOF) {
		c.conn.Close() // the server is closed
	}
}

// A oneConnListener is a listener with one connection.
type oneConnListener struct {
	conn net.Conn
	addr net.Addr
}

// Accept implements [net.Listener].
func (l *oneConnListener) Accept() (net.Conn, error) {
	c := l.conn
	l.conn = nil
	if c == nil {
		return nil, io.EOF
	}
	return c, nil
}

// Close implements [net.Listener].
func (l *oneConnListener) Close() error { return nil }

// Addr implements [net.Listener].
func (l *oneConnListener) Addr() net.Addr { return l.addr }
