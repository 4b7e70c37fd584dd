package inbound

import (
	"io"

	"google.golang.org/grpc/mem"
)

// ReadOnReady reads up to size bytes into a buffer of the pool. It takes the buffer only when there are bytes
// to read, so that an idle connection has none. gRPC looks for this method.
func (c *Conn) ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error) {
	if err := c.wait(); err != nil {
		return nil, 0, err
	}
	buf, n, err := c.ready(size, pool)
	if buf == nil {
		return nil, 0, err
	}
	if err := c.received((*buf)[:n], err); err != nil {
		pool.Put(buf)
		return nil, 0, err
	}
	return buf, n, nil
}

// ready returns no buffer if nothing was read.
func (c *Conn) ready(size int, pool mem.BufferPool) (buf *[]byte, n int, err error) {
	if c.raw == nil {
		buf = pool.Get(size)
		n, err = c.Conn.Read(*buf)
		if n == 0 {
			pool.Put(buf)
			return nil, 0, err
		}
		return buf, n, err
	}
	// Fields of the reading goroutine, so that a read does not allocate them.
	c.size, c.pool = int32(size), pool
	err = c.raw.Read(c.attempt)
	buf, n, failed := c.buf, int(c.n), c.failed
	c.buf, c.pool, c.failed = nil, nil, nil
	switch {
	case err != nil:
		if buf != nil {
			pool.Put(buf)
		}
		return nil, 0, err
	case failed != nil:
		return nil, 0, failed
	case n == 0:
		pool.Put(buf)
		return nil, 0, io.EOF
	}
	return buf, n, nil
}

// try reads without blocking. It reports whether the read is done, with bytes or an error.
func (c *Conn) try(fd uintptr) bool {
	for {
		c.buf = c.pool.Get(int(c.size))
		var n int
		n, c.failed = readNow(fd, *c.buf)
		if c.failed == nil {
			c.n = int32(n)
			return true
		}
		c.pool.Put(c.buf)
		c.buf = nil
		if !again(c.failed) {
			return !blocks(c.failed)
		}
	}
}
