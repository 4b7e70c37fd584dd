package apitest

import (
	"context"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// A Piped is a server whose connections are pipes, so that a whole test runs in one bubble of
// testing/synctest.
type Piped struct {
	*Server
	Client kubernetes.Interface
	pipes  *pipes
	config *rest.Config
}

// StartPiped starts a server in a bubble. It ends with the test.
func StartPiped(t testing.TB) *Piped {
	t.Helper()
	l := &pipes{arrived: make(chan net.Conn), closed: make(chan struct{})}
	transport := &http.Transport{DialContext: l.dial}
	s := &Piped{start(t, l), nil, l, &rest.Config{Host: "http://api.test", Transport: transport, QPS: 1000, Burst: 1000}}
	s.Client = s.client(t, s.config)
	t.Cleanup(transport.CloseIdleConnections)
	return s
}

func (p *Piped) client(t testing.TB, config *rest.Config) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// WithToken returns a client with the token in a file, as the service account of a pod has it.
func (p *Piped) WithToken(t testing.TB, file string) kubernetes.Interface {
	t.Helper()
	token, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(p.config)
	config.BearerToken, config.BearerTokenFile = string(token), file // as [rest.InClusterConfig]
	return p.client(t, config)
}

// Kill closes all connections and refuses new ones until Revive, as the machine of a killed process
// does.
func (p *Piped) Kill() {
	p.pipes.mu.Lock()
	defer p.pipes.mu.Unlock()
	p.pipes.dead = true
	for _, c := range p.pipes.all {
		_ = c.Close()
	}
	p.pipes.all = nil
}

// Revive ends the effect of Kill.
func (p *Piped) Revive() {
	p.pipes.mu.Lock()
	defer p.pipes.mu.Unlock()
	p.pipes.dead = false
}

// pipes is a listener.
type pipes struct {
	arrived chan net.Conn
	closed  chan struct{}
	close   sync.Once

	mu   sync.Mutex
	dead bool
	all  []net.Conn
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: p.Addr(), Err: syscall.ECONNREFUSED}
	here, there := net.Pipe()
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		return nil, refused
	}
	p.all = append(p.all, there)
	p.mu.Unlock()
	select {
	case p.arrived <- there:
		return here, nil
	case <-p.closed:
		return nil, refused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.arrived:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.close.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6443} }
