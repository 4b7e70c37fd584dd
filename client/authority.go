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

// An authority is a name space with its own servers (gRFC A47). An authority exists while some of
// its names are watched. The client's loop owns it.
type authority struct {
	name    string
	servers []Server // without duplicates
	fallback
	tables map[string]*table // by type URL
}

// activeServer returns the server whose resources are used.
func (a *authority) activeServer() Server { return a.servers[a.active] }

// authority returns the authority of a name. It creates the authority if necessary.
func (c *Client) authority(name string) (*authority, error) {
	of, xdstp := authorityOf(name)
	servers := c.cfg.Servers
	if of != "" {
		own, ok := c.cfg.Authorities[of]
		if !ok {
			return nil, fmt.Errorf("unknown authority %q: it is not configured", of)
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

// oldNames is the key of the authority of names that are not xdstp names: "#old" in gRFC A78. No xdstp
// authority can have this name.
const oldNames = "#old"

// addWatch starts a watch. It waits until the loop has added the watch.
func (c *Client) addWatch(ctx context.Context, w *watch) error {
	result := make(chan error, 1)
	select {
	case c.calls <- func() { result <- c.addWatchNow(w, slices.Sorted(maps.Keys(w.names))) }:
		return <-result
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.ctx.Done():
		return ErrClosed
	}
}

// addWatchNow adds a watch to all of these canonical names. If it returns an error, it has added no
// watch.
func (c *Client) addWatchNow(w *watch, names []string) error {
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
		if !t.addWatch(w, name) {
			continue
		}
		for _, s := range a.servers[:a.active+1] {
			l := c.subscribe(s, w.typ, name)
			l.core.Adopt(w.typ, false, t.unconfirmed(name)...)
		}
	}
	return nil
}

// removeWatch removes a watch from some of its names.
func (c *Client) removeWatch(w *watch, names iter.Seq[string]) {
	for name := range names {
		a, err := c.authority(name)
		if err != nil {
			continue
		}
		t := a.tables[w.typ.URL]
		if !t.removeWatch(w, name) {
			continue
		}
		for _, s := range a.servers[:a.active+1] {
			c.unsubscribe(s, w.typ, name)
		}
		if len(t.entries) == 0 {
			c.forgetGauges(a, t)
			delete(a.tables, w.typ.URL)
		}
		c.release(a)
	}
}

// release forgets an authority without watches. A later watch starts again with the preferred server.
func (c *Client) release(a *authority) {
	if len(a.tables) == 0 {
		delete(c.authorities, a.name)
	}
}

// updateServers switches authorities to fallback servers if necessary, and reports outages to the
// watches. It returns whether an authority has switched, and the time of the next call.
func (c *Client) updateServers() (moved bool, next time.Time) {
	for _, a := range c.authorities {
		for a.advance(len(a.servers), func(i int) bool { return c.needsFallback(a, i) }) {
			moved = true
			c.subscribeActive(a)
		}
		u := c.upstreams[a.activeServer()]
		for _, t := range a.tables {
			t.setOutage(u.outage(t.typ))
			t.sweep(u.uri, c.now)
			next = earlier(next, t.sweepAt)
		}
	}
	return moved, next
}

// needsFallback reports whether server i of the authority cannot be reached and a resource from
// this server is missing.
func (c *Client) needsFallback(a *authority, i int) bool {
	u := c.upstreams[a.servers[i]]
	for _, t := range a.tables {
		if t.missing > 0 && u.outage(t.typ) != nil {
			return true
		}
	}
	return false
}

// subscribeActive subscribes to all watched names on the server that just became active: "the client
// subscribes to all watched resources on the fallback server" (gRFC A71). Resources in use stay until
// they are replaced.
func (c *Client) subscribeActive(a *authority) {
	s := a.activeServer()
	c.log.Warn("fell back to another xDS server", a.logAttrs(s.Transport.String())...)
	for _, t := range a.tables {
		if names := t.watched(); len(names) > 0 {
			l := c.subscribe(s, t.typ, names...)
			l.core.Adopt(t.typ, false, t.fromOtherServers(l.up.uri)...)
		}
	}
}

// logAttrs returns the attributes for a log line about a change of the active server. The authority of
// old names is left out.
func (a *authority) logAttrs(server string) []any {
	args := []any{slog.String("server", server)}
	if a.name != oldNames {
		args = append(args, slog.String("authority", a.name))
	}
	return args
}

// responded makes u the active server of each authority that prefers it to the present one: "when a
// higher-priority server responds, the client switches to it, and drops the others".
func (c *Client) responded(u *upstream) {
	for _, a := range c.authorities {
		i, was := slices.Index(a.servers, u.Server), a.active
		if i < 0 || !a.responded(i) {
			continue
		}
		c.log.Info("preferred xDS server answers again", a.logAttrs(u.uri)...)
		for _, s := range a.servers[i+1 : was+1] {
			for _, t := range a.tables {
				if names := t.watched(); len(names) > 0 {
					c.unsubscribe(s, t.typ, names...)
				}
			}
		}
	}
}

// watched returns the watched names, sorted.
func (t *table) watched() (names []string) {
	for _, e := range t.entries {
		if e.watches != nil {
			names = append(names, e.name)
		}
	}
	slices.Sort(names)
	return names
}

// applyUpdate applies an update to the authorities whose active server is u: "Updates of servers that
// are not in use are ignored."
func (c *Client) applyUpdate(u *upstream, w nameUpdate) {
	for _, a := range c.authorities {
		if t := a.tables[w.Type.URL]; t != nil && a.activeServer() == u.Server {
			t.applyUpdate(c.askedBy(a, w))
			c.disk.changed()
		}
	}
}

// askedBy returns w with only the names that authority a asked for. Several authorities may share
// an upstream, and each authority asks for its own names.
func (c *Client) askedBy(a *authority, w nameUpdate) nameUpdate {
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

// responseApplied informs the tables of a type after a response was applied. If no resource in the
// response has a readable name, the response does not count as an answer to a wildcard: the list of
// resources is unknown.
func (c *Client) responseApplied(u *upstream, resp *xds.Response, wild bool) {
	typ := resp.Type
	if typ == nil {
		return
	}
	nameless := slices.ContainsFunc(resp.Malformed, func(err error) bool { return xds.MalformedName(err) == "" })
	wild = wild && (!nameless || resp.Changes != nil && len(resp.Upserts) > 0)
	for _, a := range c.authorities {
		if t := a.tables[typ.URL]; t != nil && a.activeServer() == u.Server {
			if nameless {
				t.unreadable(u.uri)
			}
			if wild {
				t.complete(&u.origin, c.now)
			}
			t.clearOutage()
		}
	}
}

// isWatched reports whether resources of a type are watched at an upstream.
func (c *Client) isWatched(u *upstream, typ *xds.Type) bool {
	for _, a := range c.authorities {
		if a.tables[typeURL(typ)] != nil && slices.Contains(a.servers[:a.active+1], u.Server) {
			return true
		}
	}
	return false
}

// serverUp clears the outage in the tables whose active server is u, of one type or, if only is nil, of
// all types.
func (c *Client) serverUp(u *upstream, only *xds.Type) {
	for _, a := range c.authorities {
		for _, t := range a.tables {
			if a.activeServer() == u.Server && (only == nil || t.typ.Is(only)) {
				t.clearOutage()
			}
		}
	}
}

// asksGlob reports whether the client subscribes to a wildcard or a collection of a type at an
// upstream.
func (c *Client) asksGlob(u *upstream, typ *xds.Type) bool {
	for _, a := range c.authorities {
		if t := a.tables[typ.URL]; t != nil && len(t.globs) > 0 && slices.Contains(a.servers[:a.active+1], u.Server) {
			return true
		}
	}
	return false
}

// failure returns the error that watches receive for a failed stream.
func (c *Client) failure(u *upstream, err error) error {
	id := ""
	if c.cfg.Node != nil {
		id = c.cfg.Node.ID
	}
	return &ConnectionError{Server: u.uri, NodeID: id, Err: err}
}

// A ConnectionError reports that a server cannot be reached, or that it ended a stream before it
// answered.
type ConnectionError struct {
	Server string // Transport.String
	NodeID string // of the client
	Err    error
}

// Error implements error.
func (e *ConnectionError) Error() string {
	cause := strings.TrimPrefix(e.Err.Error(), e.Server+": ") // some transports put their URI first, too
	return fmt.Sprintf("%s cannot be reached by node %q: %s", e.Server, e.NodeID, cause)
}

// Unwrap returns Err.
func (e *ConnectionError) Unwrap() error { return e.Err }
