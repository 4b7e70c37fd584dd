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

// maxStreams is the maximum number of inspected streams for one node ID.
const maxStreams = 64

// A client has all clients of one node ID: the connected ones, and the remembered disconnected ones.
type client struct {
	id      string
	clients []api.Client // connected ones first
	streams []inspection
	node    *xds.Node // the client's node message; for a disconnected client only its ID and cluster
}

// An inspection is the state of one stream. The stream's goroutine fills in the fields, and sends nothing
// in the meantime.
type inspection struct {
	*server.Stream
	types []protocol.TypeState
	err   error // why the stream could not be inspected

	is      *protocol.NameState // state of the explained resource; nil: the stream has not opened the type
	parents []protocol.NameState
	refused map[string][]string // refused names of the types in question, by type URL
	missing []*missingReference // of resources to which the client subscribes, at most one for each
	names   []named             // names of the types in question; if refused is set, only names that are neither synced nor refused
}

// A named is the state of a name, with its type.
type named struct {
	t *xds.Type
	protocol.NameState
}

// find returns the client with a node ID, before the inspection of its streams.
func (e *Explainer) find(node string) *client {
	c := &client{id: node, clients: e.d.Tracker.Client(node), node: &xds.Node{ID: node}}
	streams := e.d.Tracker.Streams(node)
	for _, st := range streams[:min(len(streams), maxStreams)] {
		c.streams = append(c.streams, inspection{Stream: st})
	}
	slices.SortStableFunc(c.clients, func(a, b api.Client) int { return connectedFirst(a) - connectedFirst(b) })
	if len(c.streams) > 0 {
		c.node = c.streams[0].Node
	} else if len(c.clients) > 0 {
		c.node.Cluster = c.clients[0].Cluster
	}
	return c
}

// ask inspects all streams, and calls the function each with the inspection of every stream. The
// stream's goroutine runs each, so it must be quick. Ended streams are left out. The error is that of
// the context.
func (c *client) ask(ctx context.Context, e *Explainer, each func(*inspection, *protocol.Session)) error {
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
	c.streams = asked
	if len(asked) > 0 {
		return nil
	}
	for i := range c.clients { // all connected clients have disconnected in the meantime
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

// connected reports whether the client has a stream.
func (c *client) connected() bool { return len(c.streams) > 0 }

// state returns the state of a type on the stream; nil if the stream has not opened the type.
func (l *inspection) state(t *xds.Type) *protocol.TypeState {
	for i := range l.types {
		if l.types[i].Type.Is(t) {
			return &l.types[i]
		}
	}
	return nil
}

// status returns the tracker's state of a type on a stream. If that stream lacks the type, it uses
// any other stream; nil if no stream has the type.
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

// nacked returns the current refusal of a type, or nil.
func (c *client) nacked(t *xds.Type, stream uint64) *api.NackedStatus {
	if is := c.status(t, stream); is != nil {
		return is.Nacked
	}
	return nil
}

// agent returns the name and version of the client, such as "envoy 1.40.0".
func (c *client) agent() string {
	if len(c.streams) == 0 && len(c.clients) > 0 {
		return c.clients[0].Agent
	}
	return strings.TrimSpace(c.node.UserAgentName + " " + c.node.UserAgentVersion)
}
