package chaos

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A proxy stands between clients and the server and does to connections what networks
// do to them.
type proxy struct {
	net.Listener
	server string

	mu     sync.Mutex
	links  map[*link]bool
	closed bool
	slow   int // bytes a second to clients of new connections; 0: as they come
}

// A link is a connection of a client and the one to the server that belongs to it.
type link struct {
	client, server net.Conn
	frozen         atomic.Bool
	slow           int
	done           chan struct{} // closed when the proxy is done with it
	once           sync.Once
}

func newProxy(server string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{Listener: l, server: server, links: map[*link]bool{}}
	go p.accept()
	return p, nil
}

func (p *proxy) accept() {
	for {
		c, err := p.Accept()
		if err != nil {
			return
		}
		s, err := net.Dial("tcp", p.server)
		if err != nil {
			c.Close()
			continue
		}
		l := &link{client: c, server: s, done: make(chan struct{})}
		p.mu.Lock()
		closed := p.closed
		l.slow = p.slow
		p.links[l] = true
		p.mu.Unlock()
		if closed {
			p.end(l)
			continue
		}
		if l.slow > 0 {
			s.(*net.TCPConn).SetReadBuffer(8 << 10)
		}
		go p.pass(l, s, c, 0)
		go p.pass(l, c, s, l.slow)
	}
}

// pass copies bytes from one side to the other. A frozen link copies nothing, and does not pass on
// a close.
func (p *proxy) pass(l *link, to, from net.Conn, slow int) {
	defer p.end(l)
	buf := make([]byte, 32<<10)
	if slow > 0 {
		buf = buf[:slow/10]
	}
	for {
		n, err := from.Read(buf)
		if l.frozen.Load() {
			<-l.done
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
		if slow > 0 {
			select {
			case <-time.After(time.Second / 10):
			case <-l.done:
				return
			}
		}
	}
}

func (p *proxy) end(l *link) {
	l.once.Do(func() {
		close(l.done)
		// An RST, as from a machine that lost its process.
		l.client.(*net.TCPConn).SetLinger(0)
		l.server.(*net.TCPConn).SetLinger(0)
		l.client.Close()
		l.server.Close()
		p.mu.Lock()
		delete(p.links, l)
		p.mu.Unlock()
	})
}

func (p *proxy) all() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*link
	for l := range p.links {
		all = append(all, l)
	}
	return all
}

// cut ends all connections at once. Clients may come back.
func (p *proxy) cut() {
	for _, l := range p.all() {
		p.end(l)
	}
}

// freeze makes all connections half open: neither side gets bytes or the close of the other side.
// New connections work.
func (p *proxy) freeze() {
	for _, l := range p.all() {
		l.frozen.Store(true)
	}
}

func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Close()
	p.cut()
}
