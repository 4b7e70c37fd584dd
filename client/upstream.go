package client

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/internal/panics"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// An upstream is a server whose resources one or more authorities watch. The loop owns it.
type upstream struct {
	Server
	uri     string
	origin  origin           // origin without a version: of delta responses, and of events without a response
	links   map[string]*link // by type URL; one under "" if the streams are aggregated
	tried   bool             // a stream was opened
	healthy bool             // the last value reported to Metrics
}

func (c *Client) upstream(s Server) *upstream {
	u := c.upstreams[s]
	if u == nil {
		u = &upstream{Server: s, uri: s.Transport.String(), links: map[string]*link{}}
		u.origin.server = u.uri
		c.upstreams[s] = u
	}
	return u
}

// link returns the link for a type, or nil.
func (u *upstream) link(t *xds.Type) *link {
	if u == nil {
		return nil
	}
	if u.Transport.Aggregated() {
		return u.links[""]
	}
	return u.links[t.URL]
}

// outage returns the reason why the server does not send resources of a type. Nil means that no
// failure is known.
func (u *upstream) outage(t *xds.Type) *outage {
	if l := u.link(t); l != nil {
		return l.outage
	}
	return nil
}

// quietTimeout is how long a stream after an outage may be silent before the server counts as reachable
// again.
const quietTimeout = 15 * time.Second

// A link is the conversation with an upstream about all types or, if streams are per type, about
// one type. It continues over consecutive streams. The client's loop owns a link.
type link struct {
	c     *Client
	up    *upstream
	only  *xds.Type // nil: all types
	core  *protocol.Client
	names int // number of subscriptions

	s       *stream // nil: no open stream
	reopen  bool    // replace the stream once it has answered, so that the server sends resources again
	retry   reconnect
	retryAt time.Time // when the next stream is due

	changedAt time.Time // when the server first answered on the present stream, or when the last stream ended
	failed    error     // error of the last failed stream
	failedAt  time.Time
	exceeded  map[string]error // by type URL, the limits that the newest responses exceed; "" for a response that gRPC refused

	outage       *outage         // why the server cannot be reached; nil: no failure is known
	emptyInRow   map[string]int  // consecutive responses without events, by type URL; "" for types that are not watched
	refusedInRow map[string]int  // consecutive refused responses, by type URL
	asksGlob     map[string]bool // type URLs for which this stream asked for "*" or a collection
}

func (c *Client) newLink(u *upstream, t *xds.Type) *link {
	l := &link{c: c, up: u, refusedInRow: map[string]int{}, emptyInRow: map[string]int{}, exceeded: map[string]error{}}
	key := ""
	if !u.Transport.Aggregated() {
		l.only, key = t, t.URL
	}
	l.core = protocol.NewClient(u.Transport.Variant(), protocol.ClientOptions{
		Node: c.cfg.Node, Legacy: true, Check: c.check, Timeout: c.cfg.Timeout, Budget: c.budget,
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

// step does the link's due work: it opens a stream and sends a request. It returns the time of the
// next call; zero means that the next call is after the next event.
func (l *link) step() time.Time {
	now := l.c.now
	l.core.Advance(now)
	l.drainEvents(&l.up.origin)
	if l.s == nil {
		if l.retryAt.After(now) {
			return earlier(l.retryAt, l.core.Deadline())
		}
		l.open()
	}
	s := l.s
	if l.reopen && s.answered {
		l.reopen = false
		l.replaceStream(s)
		return now
	}
	if s.stalled(now) {
		l.ended(s, fmt.Errorf("the server has read nothing for %v", stallTimeout))
		return earlier(l.retryAt, l.core.Deadline())
	}
	l.sendNext()
	next := earlier(l.core.Deadline(), s.resume(now))
	if s.mute(now) {
		next = earlier(next, s.answerAfter)
	}
	if l.outage != nil && s.ready && !s.sending {
		// A server without changes may send no response, since the client stated the versions that it
		// has.
		quiet := s.sentAt.Add(quietTimeout)
		if !quiet.After(now) {
			l.reached()
			l.c.serverUp(l.up, l.only)
		}
		next = earlier(next, quiet)
	}
	return next
}

// sendNext gives a due request to the stream, if the previous request was sent. So while the server
// does not read, only the newest request of each type waits.
func (l *link) sendNext() {
	s := l.s
	if !s.ready || s.sending || s.mute(l.c.now) {
		return
	}
	for req := range l.core.Requests() {
		l.asksGlob[req.Type.URL] = l.c.asksGlob(l.up, req.Type)
		s.backlog = max(s.backlog-1, 0)
		s.send(&req, l.c.now)
		return
	}
	s.backlog = 0
}

// opened records that a stream was opened.
func (l *link) opened(s *stream) {
	if l.s != s {
		return
	}
	s.ready = true
	l.asksGlob = map[string]bool{}
	if large := l.exceeded[""]; large != nil {
		l.exceeded = map[string]error{"": large} // the server sends all again
	} else {
		l.exceeded = map[string]error{}
	}
	l.core.Connected(nil)
	l.drainEvents(&l.up.origin)
}

// received processes a response.
func (l *link) received(s *stream, resp *xds.Response) {
	if l.s != s {
		return
	}
	if s.over != nil && s.backlog >= maxBacklog {
		l.ended(s, s.over)
		return
	}
	if resp.Type == nil {
		typed := *resp
		typed.Type = l.only
		resp = &typed
	}
	if !s.answered {
		s.answered, l.changedAt = true, l.c.now
	}
	s.backlog++
	l.retry.answered()
	l.reached()
	l.c.responded(l.up)
	l.core.Advance(l.c.now)
	l.drainEvents(&l.up.origin)
	l.c.refused = 0
	err := l.core.Receive(resp)
	by := &l.up.origin
	if l.up.Transport.Variant() == xds.SotW {
		by = &origin{server: l.up.uri, version: resp.Version}
	}
	url := typeURL(resp.Type)
	if !l.c.isWatched(l.up, resp.Type) {
		url = "" // a server could invent any number of other types
	}
	if l.drainEvents(by) {
		delete(l.emptyInRow, url)
	} else {
		l.emptyInRow[url]++
	}
	l.exceeds(url, err)
	l.countResult(resp, err)
	l.c.responseApplied(l.up, resp, l.asksGlob[typeURL(resp.Type)])
	s.delay(l.c.now, max(pauseAfter(l.refusedInRow[url]), pauseAfter(l.emptyInRow[url]-maxEmptyInRow)), resp.Size)
}

// exceeds records whether a response of a type exceeds a limit. A delta response within the limits does not replace
// an earlier one.
func (l *link) exceeds(url string, err error) {
	over, is := errors.AsType[*xds.LimitError](err)
	switch {
	case is:
		l.exceeded[url] = over
	case err == nil && l.up.Transport.Variant() == xds.SotW:
		delete(l.exceeded, url)
	}
}

// largeShown is how long the next stream is answered until a response that ended an earlier stream is forgotten. Its
// type is unknown, so no response replaces it.
const largeShown = time.Minute

// exceededLimit returns a limit that the newest response of some type exceeds; nil: none.
func (l *link) exceededLimit() error {
	for _, url := range slices.Sorted(maps.Keys(l.exceeded)) {
		if url != "" || l.s == nil || !l.s.answered || l.c.now.Before(l.changedAt.Add(largeShown)) {
			return l.exceeded[url]
		}
	}
	return nil
}

func typeURL(t *xds.Type) string {
	if t == nil {
		return ""
	}
	return t.URL
}

// errTypeless is the error for a response without a type. It cannot be refused, because a NACK needs a
// type.
var errTypeless = errors.New("a response without a type is ignored")

// countResult counts and logs the result of a response of a watched type. Other types are not counted,
// since a server could invent any number of them.
func (l *link) countResult(resp *xds.Response, err error) {
	if resp.Type == nil {
		l.c.logRefused(l, resp, errTypeless)
	}
	if !l.c.isWatched(l.up, resp.Type) {
		return
	}
	n := 0
	if resp.Changes != nil {
		n = len(resp.Upserts)
	}
	invalid := l.c.refused + len(resp.Malformed)
	if err == nil {
		delete(l.refusedInRow, resp.Type.URL)
	} else {
		l.refusedInRow[resp.Type.URL]++
		l.c.logRefused(l, resp, err)
	}
	if l.c.cfg.Metrics != nil {
		l.c.report(func(m Metrics) { m.ResourceUpdates(l.up.uri, metricType(resp.Type), max(n-l.c.refused, 0), invalid) })
	}
}

// maxEmptyInRow is how many consecutive responses may cause no event before the client delays
// ACKs. This limit prevents a hot loop with a server that repeats its response after each ACK.
const maxEmptyInRow = 30

// pauseAfter returns the delay of an ACK or NACK after a number of consecutive refused
// responses. The delay prevents a hot loop with a server that repeats its response after each NACK.
func pauseAfter(bad int) time.Duration {
	if bad <= 3 {
		return 0
	}
	return min(10*time.Millisecond<<min(bad-4, 10), time.Second)
}

// reached records that the server answers.
func (l *link) reached() {
	if l.outage != nil {
		l.outage = nil
		l.c.log.Info("xDS server answers again", slog.String("server", l.up.uri))
	}
	l.c.connected(l.up, true)
}

// ended processes the end of a stream and schedules the next stream. "If the stream has brought a
// response, that is no error" (gRFC A57).
func (l *link) ended(s *stream, err error) {
	if l.s != s {
		return
	}
	s.cancel()
	l.s = nil
	l.core.Disconnected(nil)
	l.drainEvents(&l.up.origin)
	l.failed, l.failedAt = err, l.c.now
	delete(l.exceeded, "")
	if over, is := errors.AsType[*xds.LimitError](err); is {
		l.exceeded[""] = over
		if attrs, due := l.c.repeatedLine(l, "", over); due {
			l.c.log.Warn("response of an xDS server is too large", attrs...)
		}
	} else if _, is := errors.AsType[*xds.MalformedError](err); is && s.answered {
		if attrs, due := l.c.repeatedLine(l, "", err); due {
			l.c.log.Warn("malformed response of an xDS server", attrs...)
		}
	}
	if s.answered {
		l.changedAt = l.c.now
	}
	l.retryAt = l.retry.ended(l.c.now, s.answered, l.c.random())
	if s.answered {
		return
	}
	was := l.outage
	l.outage = &outage{server: l.up.uri, err: l.c.failure(l.up, err)}
	if was == nil || was.err.Error() != l.outage.err.Error() {
		l.c.log.Warn("xDS server cannot be reached", slog.String("server", l.up.uri), slog.Any("error", err),
			slog.String("retry", l.retryAt.Sub(l.c.now).Round(time.Millisecond).String()))
	}
	l.c.connected(l.up, false)
}

// replaceStream ends a stream with an answer and schedules the next stream.
func (l *link) replaceStream(s *stream) {
	s.cancel()
	l.s = nil
	l.core.Disconnected(nil)
	l.drainEvents(&l.up.origin)
	l.changedAt, l.retryAt = l.c.now, l.retry.ended(l.c.now, true, l.c.random())
}

// drainEvents applies the events of the core. It reports whether the core had any events.
func (l *link) drainEvents(by *origin) (any bool) {
	for ev := range l.core.Events() {
		any = true
		l.c.applyUpdate(l.up, nameUpdate{ClientEvent: ev, origin: by, from: &l.up.Server, now: l.c.now})
	}
	return any
}

// close ends a link whose names are not watched any more.
func (l *link) close() {
	if l.s != nil {
		l.s.cancel()
		l.s = nil
	}
	l.core.Release()
	key := ""
	if l.only != nil {
		key = l.only.URL
	}
	delete(l.up.links, key)
}

// check is ClientOptions.Check of the core: it returns the reason why a resource cannot be used.
func (c *Client) check(r *xds.Resource) (err error) {
	if c.ctx.Err() != nil {
		return ErrClosed // the rest of a large response must not delay Close
	}
	if c.cfg.Check != nil {
		if p := panics.Do(func() { err = c.cfg.Check(r) }); p != nil {
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

// earlier returns the earlier of two times. A zero time means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
