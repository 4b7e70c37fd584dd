package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// ErrClosed ends the watches of a closed client.
var ErrClosed = errors.New("the client is closed")

// A Client watches resources of management servers. A Client is connected to a server only while
// resources of that server are watched. A Client is safe for concurrent use.
type Client struct {
	cfg    Config
	log    *slog.Logger
	random func() float64 // in [0, 1)

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	calls  chan func()    // functions for the loop to call
	wg     sync.WaitGroup // the loop and the goroutines of streams
	done   chan struct{}  // closed when all goroutines have ended
	closed sync.Once
	err    error // the result of Close

	// Owned by the loop's goroutine.
	now         time.Time
	authorities map[string]*authority
	upstreams   map[Server]*upstream
	checks      map[string]func(body []byte) error // by type URL, of typed watches
	refused     int                                // resources of the current response that failed a check
	gauges      map[gaugeKey]int                   // the values last reported to Metrics
	refusals    map[string]*refusalLog
	disk        *disk // nil: none
	budget      *protocol.Budget
}

// New returns a client of the servers in cfg, which does not connect yet. The client owns the
// transports of the servers, and [Client.Close] closes them. If New returns an error, the caller
// still owns the transports.
func New(cfg Config) (*Client, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.Node = nodeWithDefaults(cfg.Node)
	cfg.Servers, cfg.Authorities = slices.Clone(cfg.Servers), maps.Clone(cfg.Authorities)
	for name, a := range cfg.Authorities {
		cfg.Authorities[name] = Authority{Servers: slices.Clone(a.Servers)}
	}
	c := &Client{
		cfg: cfg, log: cfg.Log, random: rand.Float64,
		calls: make(chan func()), done: make(chan struct{}),
		authorities: map[string]*authority{}, upstreams: map[Server]*upstream{}, checks: map[string]func([]byte) error{},
		gauges: map[gaugeKey]int{}, refusals: map[string]*refusalLog{},
		budget: &protocol.Budget{Limit: cfg.Held},
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if cfg.Dir != "" {
		var err error
		c.disk, err = openDisk(c, cfg.Dir)
		if err != nil {
			c.cancel()
			return nil, err
		}
		c.wg.Go(c.disk.run)
	}
	c.wg.Go(c.run)
	return c, nil
}

// clientFeatures are the client features that every client of this package supports: resources in the
// protocol's Resource wrapper also in SotW, and their TTL.
var clientFeatures = []string{"xds.config.resource-in-sotw", "xds.config.supports-resource-ttl"}

// nodeWithDefaults returns a copy of n with the default user agent and the clientFeatures.
func nodeWithDefaults(n *xds.Node) *xds.Node {
	own := xds.Node{}
	if n != nil {
		own = *n
	}
	if own.UserAgentName == "" {
		own.UserAgentName = "chancery"
	}
	own.ClientFeatures = slices.Clone(own.ClientFeatures)
	for _, f := range clientFeatures {
		if !slices.Contains(own.ClientFeatures, f) {
			own.ClientFeatures = append(own.ClientFeatures, f)
		}
	}
	return &own
}

// check returns the first error of a configuration.
func (c *Config) check() error {
	servers := func(of string, list []Server) error {
		for i, s := range list {
			if s.Transport == nil {
				return fmt.Errorf("%s: server %d has no transport", of, i+1)
			}
			if !reflect.ValueOf(s.Transport).Comparable() {
				return fmt.Errorf("%s: server %d: a %T cannot be compared with others", of, i+1, s.Transport)
			}
		}
		return nil
	}
	if err := servers("servers", c.Servers); err != nil {
		return err
	}
	for name, a := range c.Authorities {
		if err := servers(fmt.Sprintf("authority %q", name), a.Servers); err != nil {
			return err
		}
	}
	return nil
}

// Close ends all watches (with [ErrClosed]) and all streams, and closes the transports. Close
// returns after all goroutines of the client have ended. It returns the errors of the transports'
// Close. The body of a watch may call Close, and Close may be called more than once.
func (c *Client) Close() error {
	c.closed.Do(func() {
		c.cancel()
		c.wg.Wait()
		var seen []Transport
		lists := [][]Server{c.cfg.Servers}
		for _, a := range c.cfg.Authorities {
			lists = append(lists, a.Servers)
		}
		for _, s := range slices.Concat(lists...) {
			if !slices.Contains(seen, s.Transport) {
				seen = append(seen, s.Transport)
				c.err = errors.Join(c.err, s.Transport.Close())
			}
		}
		close(c.done)
	})
	<-c.done
	return c.err
}

// Node returns the node that the client sends: Config.Node with the defaults filled in. The caller
// must not change it.
func (c *Client) Node() *xds.Node { return c.cfg.Node }

// do asks the loop to call f. If the client is closed, do does nothing.
func (c *Client) do(f func()) {
	select {
	case c.calls <- f:
	case <-c.ctx.Done():
	}
}

// run is the loop. It owns the client's state.
func (c *Client) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer c.disk.close()
	for {
		c.now = time.Now()
		next := c.step()
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(next.Sub(c.now))
		}
		select {
		case f := <-c.calls:
			c.now = time.Now()
			f()
		case <-timer.C:
		case <-c.ctx.Done():
			return
		}
	}
}

// step does all work that is due. It returns the time of the next call; zero means that the next
// call is after the next event.
func (c *Client) step() (next time.Time) {
	_, next = c.updateServers()
	for key, u := range c.upstreams {
		for _, l := range u.links {
			if l.names == 0 {
				l.close()
				continue
			}
			next = earlier(next, l.step())
		}
		if len(u.links) == 0 {
			c.disconnected(u)
			delete(c.upstreams, key)
		}
	}
	if moved, _ := c.updateServers(); moved { // updateServers removed names from links, so links may be unused now
		next = c.now
	}
	c.reportGauges()
	return earlier(next, c.disk.step(c.now))
}
