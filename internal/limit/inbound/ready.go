package inbound

import (
	"io"

	"google.golang.org/grpc/mem"
)

// ReadOnReady reads up to size bytes into a buffer of the pool, which it takes when there
// is something to read: an idle connection has none. gRPC looks for this method.
func (c *Conn) ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error) {
	if err := c.wait(); err != nil {
		return nil, 0, err
	}
	buf, n, err := c.ready(size, pool)
	if buf == nil {
		return nil, 0, err
	}
	if err := c.took((*buf)[:n], err); err != nil {
		pool.Put(buf)
		return nil, 0, err
	}
	return buf, n, nil
}

// ready returns no buffer if nothing was read.
func (c *Conn) ready(size int, pool mem.BufferPool) (buf *[]byte, n int, err error) {
	if c.raw == nil {
		buf = pool.Get(size)
		if n, err = c.Conn.Read(*buf); n == 0 {
			pool.Put(buf)
			return nil, 0, err
		}
		return buf, n, err
	}
	// Owned by who reads; fields, so that each read need not allocate them.
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

// try reads without waiting, and reports whether that did anything.
func (c *Conn) try(fd uintptr) bool {
	for {
		c.buf = c.pool.Get(int(c.size))
		var n int
		if n, c.failed = readNow(fd, *c.buf); c.failed == nil {
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
