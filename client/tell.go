package client

import (
	"log/slog"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/guard"
	"github.com/chancery-xds/chancery/xds"
)

// What the loop tells Metrics and the log.

// tell tells Metrics, whose panic is no business of the loop.
func (c *Client) tell(f func(Metrics)) {
	if c.cfg.Metrics == nil {
		return
	}
	if p := guard.Do(func() { f(c.cfg.Metrics) }); p != nil {
		p.Log(c.log, "Config.Metrics")
	}
}

func metricType(t *xds.Type) string { return strings.TrimPrefix(t.URL, "type.googleapis.com/") }

// connecting tells that a stream is opened: "set to 1 when the stream is initially created"
// (gRFC A78).
func (c *Client) connecting(u *upstream) {
	if !u.tried {
		u.tried = true
		c.connected(u, true)
	}
}

// connected tells whether a server can be reached. "A server goes unhealthy when we have a
// connectivity failure or when the ADS stream fails without seeing a response message" (A78).
func (c *Client) connected(u *upstream, yes bool) {
	if u.healthy == yes {
		return
	}
	u.healthy = yes
	c.tell(func(m Metrics) {
		if !yes {
			m.ServerFailure(u.uri)
		}
		m.Connected(u.uri, yes)
	})
}

// disconnected tells that nothing of a server is watched any more.
func (c *Client) disconnected(u *upstream) {
	if u.healthy {
		c.tell(func(m Metrics) { m.Connected(u.uri, false) })
	}
}

type gaugeKey struct {
	authority, typ string
	gauge          gauge
}

// tellGauges tells how many resources there are, where that has changed.
func (c *Client) tellGauges() {
	if c.cfg.Metrics == nil {
		return
	}
	for _, a := range c.authorities {
		for url, t := range a.tables {
			for g := uncounted + 1; g < gauges; g++ {
				c.tellGauge(gaugeKey{a.name, url, g}, t.counts[g], t.typ)
			}
		}
	}
}

func (c *Client) tellGauge(k gaugeKey, n int, t *xds.Type) {
	if was, told := c.gauges[k]; was == n && (told || n == 0) {
		return
	}
	c.gauges[k] = n
	c.tell(func(m Metrics) { m.Resources(k.authority, gaugeNames[k.gauge], metricType(t), n) })
}

// forget tells that nothing of a type is watched any more.
func (c *Client) forget(a *authority, t *table) {
	for g := uncounted + 1; g < gauges; g++ {
		k := gaugeKey{a.name, t.typ.URL, g}
		if c.gauges[k] != 0 {
			c.tellGauge(k, 0, t.typ)
		}
		delete(c.gauges, k)
	}
}

// A refusalLog keeps the log short of a server that sends the same nonsense again and again.
type refusalLog struct {
	at   time.Time // of the last line
	wait time.Duration
	left int // refusals that made no line
}

const (
	refusalFirst = time.Second
	refusalMost  = 10 * time.Minute
)

// logRefused logs that a response was refused: each time in the beginning, then ever less often,
// until a minute passes without.
func (c *Client) logRefused(l *link, resp *xds.Response, err error) {
	key := l.up.uri + " " + typeURL(resp.Type)
	r := c.refusals[key]
	switch {
	case r == nil:
		r = &refusalLog{}
		c.refusals[key] = r
	case c.now.Sub(r.at) < r.wait:
		r.left++
		return
	}
	if c.now.Sub(r.at) > r.wait+time.Minute {
		r.wait = 0
	}
	c.log.Warn("resources of an xDS server are refused", slog.String("server", l.up.uri), slog.String("type", resp.Type.String()),
		slog.String("version", resp.Version), slog.Any("error", err), slog.Int("left_out", r.left))
	r.at, r.left, r.wait = c.now, 0, min(max(2*r.wait, refusalFirst), refusalMost)
}
