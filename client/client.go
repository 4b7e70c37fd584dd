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

	"github.com/chancery-xds/chancery/xds"
)

// ErrClosed ends the watches of a client that was closed.
var ErrClosed = errors.New("the client is closed")

// A Client watches resources. It connects to a server while something of that server is
// watched, and not before. It is safe for concurrent use.
type Client struct {
	cfg    Config
	log    *slog.Logger
	random func() float64 // of [0, 1)

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	calls  chan func()    // what the loop is to do
	wg     sync.WaitGroup // the loop, and the goroutines of streams
	done   chan struct{}  // closed when all these have ended
	closed sync.Once
	err    error // of Close

	// Owned by the loop's goroutine.
	now         time.Time
	authorities map[string]*authority
	upstreams   map[Server]*upstream
	checks      map[string]func(body []byte) error // by type URL, of typed watches
	refused     int                                // resources of the response at hand
	gauges      map[gaugeKey]int                   // as they were told
	refusals    map[string]*refusalLog
	disk        *disk // nil: none
}

// New returns a client, which takes over the transports of its servers: [Client.Close] closes
// them. After an error they are still the caller's. It connects to nothing yet.
func New(cfg Config) (*Client, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.Node = introduce(cfg.Node)
	cfg.Servers, cfg.Authorities = slices.Clone(cfg.Servers), maps.Clone(cfg.Authorities)
	for name, a := range cfg.Authorities {
		cfg.Authorities[name] = Authority{Servers: slices.Clone(a.Servers)}
	}
	c := &Client{
		cfg: cfg, log: cfg.Log, random: rand.Float64,
		calls: make(chan func()), done: make(chan struct{}),
		authorities: map[string]*authority{}, upstreams: map[Server]*upstream{}, checks: map[string]func([]byte) error{},
		gauges: map[gaugeKey]int{}, refusals: map[string]*refusalLog{},
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if cfg.Dir != "" {
		var err error
		if c.disk, err = openDisk(c, cfg.Dir); err != nil {
			c.cancel()
			return nil, err
		}
		c.wg.Go(c.disk.run)
	}
	c.wg.Go(c.run)
	return c, nil
}

// features are what the client can do with any resource: take it wrapped in the protocol's
// Resource also in SotW, and obey its TTL.
var features = []string{"xds.config.resource-in-sotw", "xds.config.supports-resource-ttl"}

// introduce returns what a client says of itself.
func introduce(n *xds.Node) *xds.Node {
	own := xds.Node{}
	if n != nil {
		own = *n
	}
	if own.UserAgentName == "" {
		own.UserAgentName = "chancery"
	}
	own.ClientFeatures = slices.Clone(own.ClientFeatures)
	for _, f := range features {
		if !slices.Contains(own.ClientFeatures, f) {
			own.ClientFeatures = append(own.ClientFeatures, f)
		}
	}
	return &own
}

// check says what is wrong with a configuration.
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

// Close ends all watches, with [ErrClosed], and all streams, and closes the transports. It
// returns when all goroutines of the client have ended, and the error of closing a transport. It
// may be called from the body of a watch, and again.
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

// Node is who the client is: Config.Node, and what any client can do. It must not be changed.
func (c *Client) Node() *xds.Node { return c.cfg.Node }

// do has the loop call f, unless the client is closed.
func (c *Client) do(f func()) {
	select {
	case c.calls <- f:
	case <-c.ctx.Done():
	}
}

// run is the loop. It owns all that the client knows.
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

// step does what is due, and returns when it must be called next; zero: when something happens.
func (c *Client) step() (next time.Time) {
	_, next = c.decide()
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
	if moved, _ := c.decide(); moved { // streams have ended
		next = c.now
	}
	c.tellGauges()
	return earlier(next, c.disk.step(c.now))
}
