package explain

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// maxStreams is how many streams of one node id are asked.
const maxStreams = 64

// A client is all that is known of who calls itself by a node id.
type client struct {
	id      string
	clients []api.Client // connected ones first
	streams []look
	node    *xds.Node // what it says of itself; if it is not connected, its id alone
}

// A look is what a stream said of its client. What is asked of a session besides is asked by
// the stream's goroutine, and told before the stream goes on.
type look struct {
	*server.Stream
	types []protocol.TypeState
	err   error // why it said nothing

	is      *protocol.NameState // of the resource in question; nil: its type is not open
	parents []protocol.NameState
	refused map[string][]string // names, by type URL, of the types in question
	names   []named             // the same; if refused is there, of what is in another way not in order
}

// A named is a name of a type.
type named struct {
	t *xds.Type
	protocol.NameState
}

// find returns who calls itself by a node id. Its streams were not asked yet.
func (e *Explainer) find(node string) *client {
	c := &client{id: node, clients: e.d.Tracker.Client(node), node: &xds.Node{ID: node}}
	streams := e.d.Tracker.Streams(node)
	for _, st := range streams[:min(len(streams), maxStreams)] {
		c.streams = append(c.streams, look{Stream: st})
	}
	slices.SortStableFunc(c.clients, func(a, b api.Client) int { return connectedFirst(a) - connectedFirst(b) })
	if len(c.streams) > 0 {
		c.node = c.streams[0].Node
	} else if len(c.clients) > 0 {
		c.node.Cluster = c.clients[0].Cluster
	}
	return c
}

// ask asks all streams, and has each asked besides by each, which is called by the stream's
// goroutine: it must be quick. Streams that have ended are left out. The error is that of the
// context.
func (c *client) ask(ctx context.Context, e *Explainer, each func(*look, *protocol.Session)) error {
	asked := c.streams[:0]
	for _, l := range c.streams {
		l.err = l.Inspect(ctx, func(s *protocol.Session) {
			l.types = s.States()
			each(&l, s)
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !errors.Is(l.err, server.ErrEnded) {
			asked = append(asked, l)
		}
	}
	if c.streams = asked; len(asked) > 0 {
		return nil
	}
	for i := range c.clients { // those that were connected have left meanwhile
		if c.clients[i].Left == nil {
			c.clients[i].Left = &api.Left{At: e.d.Now(), Why: "it has just left"}
		}
	}
	return nil
}

func connectedFirst(c api.Client) int {
	if c.Left == nil {
		return 0
	}
	return 1
}

// connected reports whether there is a stream.
func (c *client) connected() bool { return len(c.streams) > 0 }

// state returns what a stream said of a type, nil if that is not open on it.
func (l *look) state(t *xds.Type) *protocol.TypeState {
	for i := range l.types {
		if l.types[i].Type.Is(t) {
			return &l.types[i]
		}
	}
	return nil
}

// status returns what the tracker remembers of a type; nil if nothing.
func (c *client) status(t *xds.Type, stream uint64) *api.TypeStatus {
	for i := range c.clients {
		for j := range c.clients[i].Types {
			if is := &c.clients[i].Types[j]; is.URL == t.URL && (stream == 0 || is.Stream == stream) {
				return is
			}
		}
	}
	if stream != 0 {
		return c.status(t, 0)
	}
	return nil
}

// nacked returns the refusal of a type that stands; nil if there is none.
func (c *client) nacked(t *xds.Type, stream uint64) *api.NackedStatus {
	if is := c.status(t, stream); is != nil {
		return is.Nacked
	}
	return nil
}

// agent says what the client is: "envoy 1.40.0".
func (c *client) agent() string {
	return strings.TrimSpace(c.node.UserAgentName + " " + c.node.UserAgentVersion)
}
