package etcd

import (
	"net"
	"sync"
	"testing"
)

// A proxy is in front of an etcd. It can cut all connections and refuse new ones. It can also
// hang: then connections stay open, but no bytes pass.
type proxy struct {
	net.Listener
	to    string
	mu    sync.Mutex
	moved *sync.Cond // signals each change of cut or hung
	cut   bool
	hung  bool
	conns map[net.Conn]bool
	wait  sync.WaitGroup
}

func newProxy(t testing.TB, to string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l, to: to, conns: map[net.Conn]bool{}}
	p.moved = sync.NewCond(&p.mu)
	p.wait.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.wait.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() { l.Close(); p.set(true); p.wait.Wait() })
	return p
}

func (p *proxy) set(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut = cut; cut {
		p.hung = false
		for c := range p.conns {
			c.Close()
		}
	}
	p.moved.Broadcast()
}

// hang stops or resumes the passing of bytes.
func (p *proxy) hang(hung bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hung = hung
	p.moved.Broadcast()
}

// open waits while the proxy hangs, and reports whether bytes may pass.
func (p *proxy) open() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.hung && !p.cut {
		p.moved.Wait()
	}
	return !p.cut
}

func (p *proxy) serve(c net.Conn) {
	defer c.Close()
	if !p.open() {
		return
	}
	d, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer d.Close()
	p.mu.Lock()
	if p.cut {
		p.mu.Unlock()
		return
	}
	p.conns[c], p.conns[d] = true, true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, c)
		delete(p.conns, d)
	}()
	p.wait.Go(func() { p.pump(d, c); d.Close() })
	p.pump(c, d)
}

func (p *proxy) pump(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && p.open() {
			_, werr := to.Write(buf[:n])
			if werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
