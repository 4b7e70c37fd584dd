package etcd

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/e2e/harness"
)

// A balancer sends each connection to the accepting server that got the fewest connections.
type balancer struct {
	net.Listener
	to []string

	mu    sync.Mutex
	given []int
	first bool // all go to the first
}

func newBalancer(t *testing.T, to ...string) *balancer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{Listener: l, to: to, given: make([]int, len(to)), first: true}
	var passing sync.WaitGroup
	passing.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			passing.Go(func() { b.pass(c) })
		}
	})
	t.Cleanup(func() { l.Close(); passing.Wait() })
	return b
}

func (b *balancer) pass(c net.Conn) {
	defer c.Close()
	b.mu.Lock()
	least := 0
	for i, n := range b.given {
		if !b.first && n < b.given[least] {
			least = i
		}
	}
	b.given[least]++
	b.mu.Unlock()
	s, err := net.Dial("tcp", b.to[least])
	if err != nil {
		return
	}
	defer s.Close()
	var half sync.WaitGroup
	half.Go(func() { _, _ = io.Copy(s, c); s.Close() })
	_, _ = io.Copy(c, s)
	c.Close()
	half.Wait()
}

// All clients are at one of three servers. It ends some streams and connections, which move to the other servers, until
// it has its share.
func TestShedSurplus(t *testing.T) {
	if !*floors {
		t.Skip("make floors-store shows it")
	}
	t.Parallel()
	ctx, cancel := context.WithCancel(background(t))
	defer cancel()
	s := startShow(t, 3, "--shed-surplus")
	s.commit(ctx, 1)
	for i := range s.servers {
		harness.Eventually(t, 20*time.Second, "a server with three", func() error {
			if st, _, err := s.status(i); err != nil || len(st.Replicas) != 3 || st.Config.Store.Revision != "r1" {
				return fmt.Errorf("%w: %+v", err, st.Replicas)
			}
			return nil
		})
	}
	b := newBalancer(t, s.servers[0].xds, s.servers[1].xds, s.servers[2].xds)
	const clients = 36
	f := newFleet(t, 0, nil, 0)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for i := range clients {
		conn := newFleet(t, 0, nil, 0, b.Addr().String()).servers[0]
		c := &fleetClient{fleet: f, i: i, has: map[string]string{}, version: map[string]string{}}
		all.Go(func() {
			for ctx.Err() == nil {
				_ = c.byDelta(ctx, conn, "a server")
				pause(ctx, 50*time.Millisecond)
			}
		})
	}
	shares := func() (n []int) {
		st, _, _ := s.status(0)
		for _, r := range st.Replicas {
			if r.Clients != nil {
				n = append(n, r.Clients.Connected)
			}
		}
		return n
	}
	harness.Eventually(t, 10*time.Second, "all clients at one server", func() error {
		if n := shares(); len(n) != 3 || n[0] != clients {
			return fmt.Errorf("%v", n)
		}
		return nil
	})
	b.mu.Lock()
	b.first = false
	b.mu.Unlock()
	harness.Eventually(t, 50*time.Second, "a share for each", func() error {
		n := shares()
		if len(n) != 3 || n[0]+n[1]+n[2] != clients || n[0] > clients/3*13/10 {
			return fmt.Errorf("%v", n)
		}
		return nil
	})
	t.Log(shares())
}
