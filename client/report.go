package client

import (
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/panics"
	"github.com/chancery-xds/chancery/xds"
)

// This file reports to Metrics and the log. The loop calls it.

// report calls f with the Metrics, if any. A panic of Metrics does not stop the loop.
func (c *Client) report(f func(Metrics)) {
	if c.cfg.Metrics == nil {
		return
	}
	if p := panics.Do(func() { f(c.cfg.Metrics) }); p != nil {
		p.Log(c.log, "Config.Metrics")
	}
}

func metricType(t *xds.Type) string { return strings.TrimPrefix(t.URL, "type.googleapis.com/") }

// connecting reports the first stream to a server: "set to 1 when the stream is initially created"
// (gRFC A78).
func (c *Client) connecting(u *upstream) {
	if !u.tried {
		u.tried = true
		c.connected(u, true)
	}
}

// connected reports whether a server can be reached. "A server goes unhealthy when we have a
// connectivity failure or when the ADS stream fails without seeing a response message" (A78).
func (c *Client) connected(u *upstream, yes bool) {
	if u.healthy == yes {
		return
	}
	u.healthy = yes
	c.report(func(m Metrics) {
		if !yes {
			m.ServerFailure(u.uri)
		}
		m.Connected(u.uri, yes)
	})
}

// disconnected reports that no resource of a server is watched any more.
func (c *Client) disconnected(u *upstream) {
	if u.healthy {
		c.report(func(m Metrics) { m.Connected(u.uri, false) })
	}
}

type gaugeKey struct {
	authority, typ string
	gauge          gauge
}

// reportGauges reports the changed numbers of resources.
func (c *Client) reportGauges() {
	if c.cfg.Metrics == nil {
		return
	}
	for _, a := range c.authorities {
		for url, t := range a.tables {
			for g := uncounted + 1; g < gauges; g++ {
				c.reportGauge(gaugeKey{a.name, url, g}, t.counts[g], t.typ)
			}
		}
	}
}

func (c *Client) reportGauge(k gaugeKey, n int, t *xds.Type) {
	if was, told := c.gauges[k]; was == n && (told || n == 0) {
		return
	}
	c.gauges[k] = n
	c.report(func(m Metrics) { m.Resources(k.authority, gaugeNames[k.gauge], metricType(t), n) })
}

// forgetGauges reports zeros for a type that is not watched any more.
func (c *Client) forgetGauges(a *authority, t *table) {
	for g := uncounted + 1; g < gauges; g++ {
		k := gaugeKey{a.name, t.typ.URL, g}
		if c.gauges[k] != 0 {
			c.reportGauge(k, 0, t.typ)
		}
		delete(c.gauges, k)
	}
}

// A refusalLog limits the log lines about a server that repeats an invalid response.
type refusalLog struct {
	at      time.Time // time of the last line
	wait    time.Duration
	omitted int // refusals without a line since then
}

const (
	refusalFirst = time.Second
	refusalMax   = 10 * time.Minute
)

// logRefused logs a refused response. Repeated refusals are logged at growing intervals. After a
// minute without a refusal, the intervals start again.
func (c *Client) logRefused(l *link, resp *xds.Response, err error) {
	if attrs, due := c.repeatedLine(l, typeURL(resp.Type), err); due {
		c.log.Warn("refused resources of an xDS server", append(attrs, slog.String("type", resp.Type.String()), slog.String("version", resp.Version))...)
	}
}

// repeatedLine returns the attributes of a log line about the responses of a type; "" for a response that ended the
// stream. It reports whether the line is due: it counts the lines that are left out between two due ones.
func (c *Client) repeatedLine(l *link, of string, err error) (attrs []any, due bool) {
	key := l.up.uri + " " + of
	r := c.refusals[key]
	switch {
	case r == nil:
		r = &refusalLog{}
		c.refusals[key] = r
	case c.now.Sub(r.at) < r.wait:
		r.omitted++
		return nil, false
	}
	if c.now.Sub(r.at) > r.wait+time.Minute {
		r.wait = 0
	}
	attrs = []any{slog.String("server", l.up.uri), slog.Any("error", err), slog.Int("left_out", r.omitted)}
	if over, is := errors.AsType[*xds.LimitError](err); is {
		attrs = append(attrs, slog.String("limit", string(over.Limit)))
	}
	r.at, r.omitted, r.wait = c.now, 0, min(max(2*r.wait, refusalFirst), refusalMax)
	return attrs, true
}
