package client

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/chancery-xds/chancery/xds"
)

// ErrClosed ends the watches of a client that was closed.
var ErrClosed = errors.New("the client is closed")

// A Client watches resources. It connects to a server while something of that server is
// watched, and not before. It is safe for concurrent use.
type Client struct {
	cfg Config
}

// New returns a client, which takes over the transports of its servers: [Client.Close] closes
// them. It connects to nothing yet.
func New(cfg Config) (*Client, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &Client{cfg: cfg}, nil
}

// check says what is wrong with a configuration.
func (c *Config) check() error {
	servers := func(of string, list []Server) error {
		for i, s := range list {
			if s.Transport == nil {
				return fmt.Errorf("%s: server %d has no transport", of, i+1)
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
// returns when all goroutines of the client have ended; it may be called from the body of a
// watch, and again.
func (c *Client) Close() error { return nil }

// Node is who the client is; nil if it was not told.
func (c *Client) Node() *xds.Node { return c.cfg.Node }

// Watch watches names of a type; [xds.Wildcard] is a name, and so is a collection as
// "xdstp://authority/type/*". It begins when the iterator is ranged over, and ends when the
// body does, with an error if ctx is done ([context.Cause]), the client is closed
// ([ErrClosed]), or a name can not be watched: no other name is then, either.
//
// A watch that takes its events slowly, or not at all, holds up nobody: see [Event]. Other
// watches may begin and end in its body.
func (c *Client) Watch(ctx context.Context, t *xds.Type, names ...string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) { yield(Event{}, errors.ErrUnsupported) }
}
