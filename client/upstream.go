package client

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/chancery-xds/chancery/internal/guard"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// An upstream is a server while something of it is watched, by one authority or several. The
// loop owns it.
type upstream struct {
	Server
	uri     string
	said    said             // what has no version in common: in delta, or of no response
	links   map[string]*link // by type URL; one under "" if the streams are aggregated
	tried   bool             // a stream was opened
	healthy bool             // as it was told to Metrics
}

func (c *Client) upstream(s Server) *upstream {
	u := c.upstreams[s]
	if u == nil {
		u = &upstream{Server: s, uri: s.Transport.String(), links: map[string]*link{}}
		u.said.server = u.uri
		c.upstreams[s] = u
	}
	return u
}

// link returns the link for a type, nil if there is none.
func (u *upstream) link(t *xds.Type) *link {
	if u == nil {
		return nil
	}
	if u.Transport.Aggregated() {
		return u.links[""]
	}
	return u.links[t.URL]
}

// outage is why the server does not send resources of a type; nil: it does, as far as is known.
func (u *upstream) outage(t *xds.Type) *outage {
	if l := u.link(t); l != nil {
		return l.outage
	}
	return nil
}

// quietTimeout is how long a stream after an outage has to last, and bring nothing, until the
// server is taken to have nothing new.
const quietTimeout = 15 * time.Second

// A link is a conversation with an upstream: about all types, or about one if the streams are
// per type. It survives its streams. The loop owns it.
type link struct {
	c     *Client
	up    *upstream
	only  *xds.Type // nil: all types
	core  *protocol.Client
	names int // subscribed

	s     *stream // nil: there is none
	anew  bool    // it is followed by another once it has answered, so that something is sent again
	retry reconnect
	again time.Time // when the next one is due

	turned   time.Time // when the server first answered on a stream, or that ended
	failed   error     // of the stream that ended last
	failedAt time.Time

	outage *outage         // why the server cannot be reached; nil: it can, as far as is known
	vain   map[string]int  // responses that told nothing, in the same way; "": of types that are not watched
	bad    map[string]int  // responses refused, one after the other, by type URL
	wild   map[string]bool // types of which "*" or a collection was asked for on this stream
}

func (c *Client) newLink(u *upstream, t *xds.Type) *link {
	l := &link{c: c, up: u, bad: map[string]int{}, vain: map[string]int{}}
	key := ""
	if !u.Transport.Aggregated() {
		l.only, key = t, t.URL
	}
	l.core = protocol.NewClient(u.Transport.Variant(), protocol.ClientOptions{
		Node: c.cfg.Node, Legacy: true, Check: c.check, Timeout: c.cfg.Timeout,
		Retain: u.IgnoreDeletion, DropOnError: u.FailOnDataErrors, Transient: u.TimerIsTransient,
	})
	l.core.Advance(c.now)
	u.links[key] = l
	return l
}

func (c *Client) subscribe(s Server, t *xds.Type, names ...string) *link {
	u := c.upstream(s)
	l := u.link(t)
	if l == nil {
		l = c.newLink(u, t)
	}
	l.core.Subscribe(t, names...)
	l.names += len(names)
	return l
}

func (c *Client) unsubscribe(s Server, t *xds.Type, names ...string) {
	l := c.upstreams[s].link(t)
	l.core.Unsubscribe(t, names...)
	l.names -= len(names)
}

// step does what is due on a link: it opens a stream, and sends a request. It reports when
// it must be called next; zero: when something happens.
func (l *link) step() time.Time {
	now := l.c.now
	l.core.Advance(now)
	l.drain(&l.up.said)
	if l.s == nil {
		if l.again.After(now) {
			return earlier(l.again, l.core.Deadline())
		}
		l.open()
	}
	s := l.s
	if l.anew && s.answered {
		l.anew = false
		l.leave(s)
		return now
	}
	if s.stalled(now) {
		l.ended(s, fmt.Errorf("the server has read nothing for %v", stallTimeout))
		return earlier(l.again, l.core.Deadline())
	}
	l.hand()
	next := earlier(l.core.Deadline(), s.deadline(now))
	if l.outage != nil && s.ready && !s.sending {
		// A server that has nothing new to say to a client that states what it has says nothing.
		quiet := s.since.Add(quietTimeout)
		if !quiet.After(now) {
			l.reached()
			l.c.up(l.up, l.only)
		}
		next = earlier(next, quiet)
	}
	return next
}

// hand hands a request that is due to the stream, if that has sent the one before. So of what
// is due while the server does not read there is but the newest.
func (l *link) hand() {
	s := l.s
	if !s.ready || s.sending {
		return
	}
	for req := range l.core.Requests() {
		l.wild[req.Type.URL] = l.c.wild(l.up, req.Type)
		s.send(&req, l.c.now)
		return
	}
	s.unanswered = 0
}

// opened tells that a stream has begun.
func (l *link) opened(s *stream) {
	if l.s != s {
		return
	}
	s.ready = true
	l.wild = map[string]bool{}
	l.core.Connected(nil)
	l.drain(&l.up.said)
}

// received takes a response in.
func (l *link) received(s *stream, resp *xds.Response) {
	if l.s != s {
		return
	}
	if resp.Type == nil {
		typed := *resp
		typed.Type = l.only
		resp = &typed
	}
	if !s.answered {
		s.answered, l.turned = true, l.c.now
	}
	s.unanswered++
	l.retry.answered()
	l.reached()
	l.c.responded(l.up)
	l.core.Advance(l.c.now)
	l.drain(&l.up.said)
	l.c.refused = 0
	err := l.core.Receive(resp)
	by := &l.up.said
	if l.up.Transport.Variant() == xds.SotW {
		by = &said{server: l.up.uri, version: resp.Version}
	}
	url := typeURL(resp.Type)
	if !l.c.watches(l.up, resp.Type) {
		url = "" // there are others without end
	}
	if l.drain(by) {
		delete(l.vain, url)
	} else {
		l.vain[url]++
	}
	l.judged(resp, err)
	l.c.settled(l.up, resp, l.wild[typeURL(resp.Type)])
	s.pause = l.c.now.Add(max(pauseAfter(l.bad[url]), pauseAfter(l.vain[url]-mostVain)))
}

func typeURL(t *xds.Type) string {
	if t == nil {
		return ""
	}
	return t.URL
}

// errTypeless is said of a response that no request can answer: it cannot be refused.
var errTypeless = errors.New("a response without a type is ignored")

// judged counts and logs what became of a response of a type that is watched: there are others
// without end.
func (l *link) judged(resp *xds.Response, err error) {
	if resp.Type == nil {
		l.c.logRefused(l, resp, errTypeless)
	}
	if !l.c.watches(l.up, resp.Type) {
		return
	}
	n := 0
	if resp.Changes != nil {
		n = len(resp.Upserts)
	}
	invalid := l.c.refused + len(resp.Malformed)
	if err == nil {
		delete(l.bad, resp.Type.URL)
	} else {
		l.bad[resp.Type.URL]++
		l.c.logRefused(l, resp, err)
	}
	if l.c.cfg.Metrics != nil {
		l.c.tell(func(m Metrics) { m.ResourceUpdates(l.up.uri, metricType(resp.Type), max(n-l.c.refused, 0), invalid) })
	}
}

// mostVain is how many responses in a row may tell nothing: a server that answers each ACK with the same again makes
// no hot loop either.
const mostVain = 30

// pauseAfter is how long the next response waits after some that were refused one after the
// other: a server that answers each NACK with the same again makes no hot loop.
func pauseAfter(bad int) time.Duration {
	if bad <= 3 {
		return 0
	}
	return min(10*time.Millisecond<<min(bad-4, 10), time.Second)
}

// reached tells that the server answers.
func (l *link) reached() {
	if l.outage != nil {
		l.outage = nil
		l.c.log.Info("the xDS server answers again", slog.String("server", l.up.uri))
	}
	l.c.connected(l.up, true)
}

// ended tells that a stream has ended. "If the stream has brought a response, that is no
// error" (gRFC A57): it is opened again.
func (l *link) ended(s *stream, err error) {
	if l.s != s {
		return
	}
	s.cancel()
	l.s = nil
	l.core.Disconnected(nil)
	l.drain(&l.up.said)
	if l.failed, l.failedAt = err, l.c.now; s.answered {
		l.turned = l.c.now
	}
	l.again = l.retry.ended(l.c.now, s.answered, l.c.random())
	if s.answered {
		return
	}
	was := l.outage
	l.outage = &outage{server: l.up.uri, err: l.c.failure(l.up, err)}
	if was == nil || was.err.Error() != l.outage.err.Error() {
		l.c.log.Warn("the xDS server cannot be reached", slog.String("server", l.up.uri), slog.Any("error", err),
			slog.String("retry", l.again.Sub(l.c.now).Round(time.Millisecond).String()))
	}
	l.c.connected(l.up, false)
}

// leave ends a stream that has answered, for another.
func (l *link) leave(s *stream) {
	s.cancel()
	l.s = nil
	l.core.Disconnected(nil)
	l.drain(&l.up.said)
	l.turned, l.again = l.c.now, l.retry.ended(l.c.now, true, l.c.random())
}

// drain passes on what the core tells. It reports whether that is anything.
func (l *link) drain(by *said) (any bool) {
	for ev := range l.core.Events() {
		any = true
		l.c.hear(l.up, word{ClientEvent: ev, said: by, by: &l.up.Server, now: l.c.now})
	}
	return any
}

// close ends a link of which nothing is watched any more.
func (l *link) close() {
	if l.s != nil {
		l.s.cancel()
		l.s = nil
	}
	key := ""
	if l.only != nil {
		key = l.only.URL
	}
	delete(l.up.links, key)
}

// check is asked by the core about each resource.
func (c *Client) check(r *xds.Resource) (err error) {
	if c.cfg.Check != nil {
		if p := guard.Do(func() { err = c.cfg.Check(r) }); p != nil {
			p.Log(c.log, "Config.Check")
			err = p
		}
	}
	if f := c.checks[typeURL(r.Type)]; err == nil && f != nil {
		err = f(r.Body)
	}
	if err != nil {
		c.refused++
	}
	return err
}

// earlier returns the earlier of two times; a zero time is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
