package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/xds"
)

// A fleet is many clients on some connections, half of them SotW, half delta.
type fleet struct {
	clients []*client
	conns   []*grpc.ClientConn
	stop    func() // and wait

	resources atomic.Int64 // told, but those below
	named     atomic.Int64 // resources of types that SotW clients subscribe to by name, sent once for each stream

	mu       sync.Mutex
	longest  time.Duration      // that a client was without a stream
	ended    map[codes.Code]int // streams, by what ended them
	problems []string           // the first few things that must never happen
}

// perConn is how many clients share a connection.
const perConn = 12

// newFleet starts clients; address says where the server is for the ith.
func newFleet(n int, address func(i int) string) (*fleet, error) {
	f := &fleet{ended: map[codes.Code]int{}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	f.stop = func() {
		cancel()
		running.Wait()
		for _, c := range f.conns {
			c.Close()
		}
	}
	for i := range n {
		if i%perConn == 0 {
			conn, err := dial(address(i))
			if err != nil {
				f.stop()
				return nil, err
			}
			f.conns = append(f.conns, conn)
		}
		c := &client{fleet: f, id: fmt.Sprintf("client-%04d", i), delta: i%2 == 1, conn: f.conns[len(f.conns)-1], has: map[*xds.Type]map[string]string{}, accepted: map[*xds.Type]string{}, since: time.Now()}
		for _, t := range kinds {
			c.has[t] = map[string]string{}
		}
		f.clients = append(f.clients, c)
		running.Go(func() { c.run(ctx) })
	}
	return f, nil
}

// dial makes a connection that reconnects as fast as gRPC allows, and notices within 15 s that its
// server has vanished.
func dial(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstPause, Multiplier: 1.6, Jitter: 0.5, MaxDelay: lastPause},
			MinConnectTimeout: 5 * time.Second,
		}))
}

// lost notes that a client has lost its stream.
func (f *fleet) lost(c *client, err error) {
	c.mu.Lock()
	if c.since.IsZero() {
		c.since = time.Now()
	}
	c.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended[status.Code(err)]++
}

// without notes how long a client was without a stream.
func (f *fleet) without(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.longest = max(f.longest, d)
}

func (f *fleet) wrong(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.problems) < 5 {
		f.problems = append(f.problems, what)
	}
}

// told is a condition: all clients except the excused ones have the new resources of the content.
// They may still have removed resources, because removals come last.
func (f *fleet) told(want content, excused func(*client) bool) func() error {
	return f.all(want, excused, func(missing, _ int) bool { return missing == 0 })
}

// have is a condition: all clients have the content, and nothing else.
func (f *fleet) have(want content) func() error {
	return f.all(want, nil, func(missing, stale int) bool { return missing+stale == 0 })
}

func (f *fleet) all(want content, excused func(*client) bool, right func(missing, stale int) bool) func() error {
	return func() error {
		n, last := 0, ""
		for _, c := range f.clients {
			if excused != nil && excused(c) {
				continue
			}
			if missing, stale := c.lacks(want); !right(missing, stale) {
				n, last = n+1, fmt.Sprintf("%s lacks %d resources and has %d that are gone", c.id, missing, stale)
			}
		}
		if n > 0 {
			return fmt.Errorf("%d clients have something else than generation %d: %s", n, want.generation, last)
		}
		return nil
	}
}

// A count has the events of a fleet.
type count struct {
	longest time.Duration
	ended   map[codes.Code]int
}

// counts returns the events since its last call.
func (f *fleet) counts() count {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := count{f.longest, f.ended}
	f.resources.Store(0)
	f.named.Store(0)
	f.longest, f.ended = 0, map[codes.Code]int{}
	return c
}

func (c count) String() string {
	s := ""
	for _, code := range slices.Sorted(maps.Keys(c.ended)) {
		s += fmt.Sprintf(" %v=%d", code, c.ended[code])
	}
	if s == "" {
		return "no stream lost"
	}
	return fmt.Sprintf("streams lost:%s, longest without %.1fs", s, c.longest.Seconds())
}

func (f *fleet) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []error
	for _, p := range f.problems {
		all = append(all, errors.New(p))
	}
	f.problems = nil
	return errors.Join(all...)
}
