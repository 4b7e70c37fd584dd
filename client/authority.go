package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// An authority is a name space with servers of its own (gRFC A47), while something of it is
// watched. The loop owns it.
type authority struct {
	name    string
	servers []Server // no two are the same
	fallback
	tables map[string]*table // by type URL
}

// charged is the server in charge.
func (a *authority) charged() Server { return a.servers[a.charge] }

// authority returns the authority of a name.
func (c *Client) authority(name string) (*authority, error) {
	of, xdstp := authorityOf(name)
	servers := c.cfg.Servers
	if of != "" {
		own, ok := c.cfg.Authorities[of]
		if !ok {
			return nil, fmt.Errorf("unknown authority %q: it is none of those that are configured", of)
		}
		if len(own.Servers) > 0 {
			servers = own.Servers
		}
	}
	key := of
	if !xdstp {
		key = oldNames
	}
	a := c.authorities[key]
	if a != nil {
		return a, nil
	}
	if len(servers) == 0 {
		return nil, errors.New("no server is configured")
	}
	a = &authority{name: key, tables: map[string]*table{}}
	for _, s := range servers {
		if !slices.Contains(a.servers, s) {
			a.servers = append(a.servers, s)
		}
	}
	c.authorities[key] = a
	return a, nil
}

// oldNames is the authority of names that are no xdstp names: "#old" in gRFC A78, which no
// authority can be called.
const oldNames = "#old"

// join begins a watch.
func (c *Client) join(ctx context.Context, w *watch) error {
	result := make(chan error, 1)
	select {
	case c.calls <- func() { result <- c.joinNow(w, slices.Sorted(maps.Keys(w.names))) }:
		return <-result
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.ctx.Done():
		return ErrClosed
	}
}

// joinNow adds a watch to names of it, in their canonical form, or to none.
func (c *Client) joinNow(w *watch, names []string) error {
	of := make([]*authority, len(names))
	for i, name := range names {
		a, err := c.authority(name)
		if err != nil {
			for _, a := range of[:i] {
				c.release(a)
			}
			return fmt.Errorf("watch %s %q: %w", w.typ, w.names[name], err)
		}
		of[i] = a
	}
	for i, name := range names {
		a := of[i]
		t := a.tables[w.typ.URL]
		if t == nil {
			t = newTable(w.typ)
			t.disk = c.disk
			a.tables[w.typ.URL] = t
		}
		if !t.join(w, name) {
			continue
		}
		for _, s := range a.servers[:a.charge+1] {
			l := c.subscribe(s, w.typ, name)
			l.core.Adopt(w.typ, false, t.recalled(name)...)
		}
	}
	return nil
}

// leave takes a watch from names of it.
func (c *Client) leave(w *watch, names iter.Seq[string]) {
	for name := range names {
		a, err := c.authority(name)
		if err != nil {
			continue
		}
		t := a.tables[w.typ.URL]
		if !t.leave(w, name) {
			continue
		}
		for _, s := range a.servers[:a.charge+1] {
			c.unsubscribe(s, w.typ, name)
		}
		if len(t.entries) == 0 {
			c.forget(a, t)
			delete(a.tables, w.typ.URL)
		}
		c.release(a)
	}
}

// release forgets an authority of which nothing is watched: the next watch begins with the
// preferred server.
func (c *Client) release(a *authority) {
	if len(a.tables) == 0 {
		delete(c.authorities, a.name)
	}
}

// decide lets authorities fall back, and tells the watches which servers cannot be reached. It
// reports whether an authority has turned to another server, and when it must be called next.
func (c *Client) decide() (moved bool, next time.Time) {
	for _, a := range c.authorities {
		for a.failed(len(a.servers), func(i int) bool { return c.lacks(a, i) }) {
			moved = true
			c.turn(a)
		}
		u := c.upstreams[a.charged()]
		for _, t := range a.tables {
			t.down(u.outage(t.typ))
			t.sweep(u.uri, c.now)
			next = earlier(next, t.sweepAt)
		}
	}
	return moved, next
}

// lacks reports whether something is missing that a server cannot send, as it cannot be reached.
func (c *Client) lacks(a *authority, i int) bool {
	u := c.upstreams[a.servers[i]]
	for _, t := range a.tables {
		if t.missing > 0 && u.outage(t.typ) != nil {
			return true
		}
	}
	return false
}

// turn asks the server that is in charge now for all names: "the client subscribes to all
// watched resources on the fallback server" (gRFC A71). What is in use stays until it is
// replaced.
func (c *Client) turn(a *authority) {
	s := a.charged()
	c.log.Warn("fallback to another xDS server", a.logged(s.Transport.String())...)
	for _, t := range a.tables {
		if names := t.watched(); len(names) > 0 {
			l := c.subscribe(s, t.typ, names...)
			l.core.Adopt(t.typ, false, t.adopted(l.up.uri)...)
		}
	}
}

// logged says what has turned to a server: an authority, unless it is that of all other names.
func (a *authority) logged(server string) []any {
	args := []any{slog.String("server", server)}
	if a.name != oldNames {
		args = append(args, slog.String("authority", a.name))
	}
	return args
}

// responded brings an upstream into charge of the authorities that it is preferred by: "when
// a higher-priority server responds, the client switches to it, and drops the others".
func (c *Client) responded(u *upstream) {
	for _, a := range c.authorities {
		i, was := slices.Index(a.servers, u.Server), a.charge
		if i < 0 || !a.responded(i) {
			continue
		}
		c.log.Info("back at the preferred xDS server", a.logged(u.uri)...)
		for _, s := range a.servers[i+1 : was+1] {
			for _, t := range a.tables {
				if names := t.watched(); len(names) > 0 {
					c.unsubscribe(s, t.typ, names...)
				}
			}
		}
	}
}

// watched returns the names that are watched.
func (t *table) watched() (names []string) {
	for _, e := range t.entries {
		if e.watches != nil {
			names = append(names, e.name)
		}
	}
	slices.Sort(names)
	return names
}

// hear applies what an upstream says in the authorities that it is in charge of. "Updates of
// servers that are not in use are ignored."
func (c *Client) hear(u *upstream, w word) {
	for _, a := range c.authorities {
		if t := a.tables[w.Type.URL]; t != nil && a.charged() == u.Server {
			t.hear(c.ours(a, w))
			c.disk.changed()
		}
	}
}

// ours is what a word says to an authority: several may have the same upstream, and each asked
// for names of its own.
func (c *Client) ours(a *authority, w word) word {
	if len(c.authorities) == 1 {
		return w
	}
	mine := make([]string, 0, len(w.Asked))
	for _, name := range w.Asked {
		if e := a.tables[w.Type.URL].entries[name]; e != nil && e.watches != nil {
			mine = append(mine, name)
		}
	}
	w.Asked = mine
	return w
}

// settled tells the tables of a type that a response was applied. One of which nothing can be read
// is no answer to a wildcard: it does not say what there is.
func (c *Client) settled(u *upstream, resp *xds.Response, wild bool) {
	typ := resp.Type
	if typ == nil {
		return
	}
	nameless := slices.ContainsFunc(resp.Malformed, func(err error) bool { return xds.MalformedName(err) == "" })
	wild = wild && (!nameless || resp.Changes != nil && len(resp.Upserts) > 0)
	for _, a := range c.authorities {
		if t := a.tables[typ.URL]; t != nil && a.charged() == u.Server {
			if nameless {
				t.unreadable(u.uri)
			}
			if wild {
				t.complete(&u.said, c.now)
			}
			t.up()
		}
	}
}

// watches reports whether something of a type is watched of an upstream.
func (c *Client) watches(u *upstream, typ *xds.Type) bool {
	for _, a := range c.authorities {
		if a.tables[typeURL(typ)] != nil && slices.Contains(a.servers[:a.charge+1], u.Server) {
			return true
		}
	}
	return false
}

// up tells the tables of a type, of all if that is nil, that an upstream is as good as ever.
func (c *Client) up(u *upstream, only *xds.Type) {
	for _, a := range c.authorities {
		for _, t := range a.tables {
			if a.charged() == u.Server && (only == nil || t.typ.Is(only)) {
				t.up()
			}
		}
	}
}

// wild reports whether an upstream is asked for a wildcard or a collection of a type.
func (c *Client) wild(u *upstream, typ *xds.Type) bool {
	for _, a := range c.authorities {
		if t := a.tables[typ.URL]; t != nil && len(t.finders) > 0 && slices.Contains(a.servers[:a.charge+1], u.Server) {
			return true
		}
	}
	return false
}

// failure is the error of a stream, for watches.
func (c *Client) failure(u *upstream, err error) error {
	id := ""
	if c.cfg.Node != nil {
		id = c.cfg.Node.ID
	}
	return &ConnectionError{Server: u.uri, NodeID: id, Err: err}
}

// A ConnectionError says that a server could not be reached, or ended a stream before it
// answered.
type ConnectionError struct {
	Server string // Transport.String
	NodeID string // of the client
	Err    error
}

// Error implements error.
func (e *ConnectionError) Error() string {
	said := strings.TrimPrefix(e.Err.Error(), e.Server+": ") // as a transport says, too
	return fmt.Sprintf("%s cannot be reached by node %q: %s", e.Server, e.NodeID, said)
}

// Unwrap returns Err.
func (e *ConnectionError) Unwrap() error { return e.Err }
