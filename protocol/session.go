package protocol

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/protocol/internal/delay"
	"github.com/chancery-xds/chancery/protocol/internal/names"
	"github.com/chancery-xds/chancery/xds"
)

// A Session is the server side of one stream. It is not safe for concurrent use: the goroutine that
// serves the stream owns it.
type Session struct {
	variant xds.Variant
	met     bool      // the node of the first request was read
	ttl     bool      // responses to this client have TTLs
	resumes bool      // the client has state of an earlier stream
	agent   string    // user agent name of the client
	only    *xds.Type // the type of a per-type stream; nil on an aggregated stream
	opts    Options
	began   time.Time // time of the first request

	sibling

	view   xds.View // nil between Release and Change
	views  uint64   // number of the current view
	now    time.Time
	nonces uint64          // the newest nonce; the first message has the nonce 1
	subs   []*subscription // in push order
	events []Event
	err    error // see Err
}

// A subscription is the state of one resource type on one stream. Each part of it belongs to one
// room, which is a group of files. Only the files of the room write to the part. No file changes
// typ. Terms: see doc.go.
//
//   - want, matching: what the client subscribes to (want.go, match.go, scope.go)
//   - record: what the client was told and answered (told.go, delivery.go, settle.go,
//     refusal.go, refusing.go, world.go)
//   - withdrawing, waiting, mute: removals and names that wait because of other types (withdraw.go,
//     order.go, waiting.go, warm.go, due.go, mute.go)
//   - saying: what to send next (diff.go, say.go, tell.go, response.go, beat.go)
//
// The rooms share package names: the rows of single names and the lists of their changes.
type subscription struct {
	typ *xds.Type
	names.Set
	want
	matching
	record
	withdrawing
	warming
	waiting *waiting // nil while no name waits
	mute    *mutes   // names whose absence is not reported yet; nil: none
	saying
}

func newSubscription(t *xds.Type) *subscription {
	u := &subscription{typ: t, want: want{implicit: true}}
	u.record = record{demand: u}
	return u
}

// NewSession returns the session of a stream that serves view. If only is not nil, it is a per-type
// stream of this type; otherwise the stream is aggregated.
func NewSession(v xds.Variant, only *xds.Type, view xds.View, opts Options) *Session {
	opts.MaxTypes = cmp.Or(opts.MaxTypes, 64)
	opts.MaxNames = cmp.Or(opts.MaxNames, 100_000)
	opts.MaxNameLen = cmp.Or(opts.MaxNameLen, 4096)
	opts.MaxResponse = cmp.Or(opts.MaxResponse, 3<<20)
	opts.Grace = cmp.Or(opts.Grace, 5*time.Second)
	// ForceTTL also holds for a client that sends no node.
	return &Session{variant: v, only: only, view: view, opts: opts, ttl: v == xds.Delta && opts.ForceTTL}
}

// Receive applies a request. An error ends the stream; it wraps ErrLimit if a limit was exceeded.
// The session keeps none of the request's memory.
func (s *Session) Receive(req xds.Request) error {
	if req.Node != nil && !s.met {
		s.meet(req.Node)
	}
	typ, err := s.typeOf(req)
	if err != nil {
		return err
	}
	u := s.sub(typ)
	first := u == nil
	if first {
		u = newSubscription(typ)
	}
	if err := s.check(u, req, first); err != nil {
		return err
	}
	if first {
		s.open(u, req)
	}
	// The names apply whatever the nonce is, because a stream keeps its order. The nonce only pairs
	// an answer with its response (SOTW-3, DELTA-3).
	t := s.table(u.typ)
	s.applyNames(u, req, t)
	u.dropUnwanted()
	if first {
		if s.began.IsZero() {
			s.began = s.now
		}
		u.begin(s, req, t)
		u.NoteAll()
		s.retain(u, nil) // from now on, keep names that the client holds and the view has lost
		s.warming(u)
	} else {
		s.narrow(u)
		s.returnMatched(u)
		if req.Nonce != "" || s.variant == xds.SotW && u.nonce != 0 {
			u.settle(s, req)
		}
	}
	s.scope(u)
	for _, v := range s.subs {
		s.returnMatched(v)
	}
	if u.idle() {
		u.excuse()
		u.unstall()
	}
	if u.moved {
		s.event(Event{Kind: Subscribed, Type: u.typ, Count: int(u.named), Wildcard: u.wildcard || u.scopes != nil})
	}
	return nil
}

// settle pairs the client's answer with the response that it answers.
func (u *subscription) settle(s *Session, req xds.Request) {
	u.pairAnswer(s, req, answering{u.waiting.len() > 0, func(d *delivery, p *part) { s.belated(u, d, p) }})
}

// typeOf returns the type of a request. On a per-type stream, type_url may be missing.
func (s *Session) typeOf(req xds.Request) (*xds.Type, error) {
	typ := cmp.Or(req.Type, s.only)
	switch {
	case typ == nil:
		return nil, errors.New("type_url is missing: each request on an aggregated stream needs it")
	case s.only != nil && !typ.Is(s.only):
		return nil, fmt.Errorf("type_url %.200q does not belong on this stream: it carries only %s", typ.URL, s.only.URL)
	}
	return typ, nil
}

// open adds the subscription of a type, in push order.
func (s *Session) open(u *subscription, req xds.Request) {
	i := len(s.subs)
	for i > 0 && s.subs[i-1].typ.Rank() > u.typ.Rank() {
		i--
	}
	s.subs = slices.Insert(s.subs, i, u)
	if s.siblings != nil {
		u.Watch() // until EndStep
	}
	s.event(Event{Kind: Opened, Type: u.typ, Version: req.Version, Count: len(req.Initial)})
}

// applyNames applies the names of a request.
func (s *Session) applyNames(u *subscription, req xds.Request, t *xds.Table) {
	if s.variant == xds.SotW {
		if !req.SameNames {
			u.replace(req.Names, t)
		}
		return
	}
	u.subscribe(req.Subscribe, t)
	s.keepBack(u, req.Subscribe)
	s.comeBack(u, req.Subscribe, t)
	for _, n := range req.Subscribe {
		u.match(t, n)
		s.returnMatched(u)
	}
	// After subscribe: a name in both lists ends unsubscribed (DELTA-14).
	s.unsubscribe(u, req.Unsubscribe, t)
}

// Change replaces the view. The hint touched has the names that may differ from the last view, in
// one or several lists. Nil: any name may differ; an empty list: no name differs. The hint only
// saves work.
func (s *Session) Change(view xds.View, touched []xds.Names) {
	s.view = view
	if touched != nil && len(touched) == 0 {
		// A view that finds resources on demand may change with each request. So the cost of a
		// request must not include the names of all earlier requests.
		return
	}
	s.views++
	for _, u := range s.subs {
		u.lookAnew()
		if touched == nil || len(touched) > u.Set.Len() { // it costs less to compare all names
			u.TouchAll()
			for name := range u.leaving {
				u.returned(s.table(u.typ), name)
			}
			continue
		}
		for _, names := range touched {
			for _, n := range names[u.typ.URL] {
				if len(u.leaving) > 0 {
					u.returned(s.table(u.typ), n)
				}
				if e := u.Entry(n); e != nil {
					s.recognize(u, e)
					u.Touch(e)
				}
			}
		}
	}
	for _, u := range s.subs {
		s.markAll(u)
	}
	for _, u := range s.subs { // after all types are marked
		s.retain(u, touched)
	}
}

// Release drops the view, so that an idle stream does not keep it in memory. The next input must be
// Change.
func (s *Session) Release() { s.view = nil }

// Advance sets the current time. Call it before each other input, and at the Deadline.
func (s *Session) Advance(now time.Time) {
	s.now = now
	for _, u := range s.subs {
		s.unmute(u)
	}
}

// Deadline returns the time at which Advance must be called next; the zero time: never. At that
// time responses may be due.
func (s *Session) Deadline() (next time.Time) {
	at := func(t time.Time) {
		if t.After(s.now) {
			next = sooner(next, t)
		}
	}
	for _, u := range s.subs {
		at(s.blockedBy(u))
		at(s.waitEnds(u))
		u.withdrawBy(at)
		at(u.mutedBy())
		at(u.beatBy())
		u.retryBy(at)
	}
	return next
}

// Waits returns a time before which changes of the view have no effect. Unless a request arrives,
// these changes cannot make the session send a response or set an earlier deadline. The zero time:
// a change may have an effect at once.
//
// Until that time the owner need not call Change. One later call can report several changes
// together.
func (s *Session) Waits() (until time.Time) {
	for _, u := range s.subs {
		if !u.wildcard && u.Set.Len() == 0 {
			continue // the client subscribes to nothing
		}
		if !s.blocked(u) {
			return time.Time{}
		}
		until = sooner(until, u.newest(s.variant).sent.Add(delay.Behind.Limit(0)))
	}
	return until
}

// Answered reports whether the client has answered the newest response of each type. Only responses
// that were sent at the time since or later count. Types without a subscription need no answer.
func (s *Session) Answered(since time.Time) bool {
	return !slices.ContainsFunc(s.subs, func(u *subscription) bool {
		return !u.answered() && !u.deliveries[len(u.deliveries)-1].sent.Before(since)
	})
}

// Responses yields the responses that are due, "make before break": in push order, removals last
// and in reverse (ADS-2).
func (s *Session) Responses() iter.Seq[*xds.Response] {
	return func(yield func(*xds.Response) bool) { s.speak(yield) } // small enough to be inlined: no allocation for the caller
}

func (s *Session) speak(yield func(*xds.Response) bool) {
	for _, u := range s.subs { // first for all types: below, a type also looks at what the client holds of other types
		s.recallLately(u)
		s.withhold(u)
		s.retry(u)
		s.markAll(u)
		s.outlived(u)
		u.holdAgain(s.table(u.typ))
	}
	for _, u := range s.subs {
		s.prepare(u)
	}
	s.withdraw() // unreferenced names are removed with the first response (ADS-8)
	var more, goOn bool
	for again := true; again; again = s.withdraw() || more {
		more, goOn = s.round(yield)
		if !goOn {
			return
		}
	}
	for _, u := range s.subs {
		for _, r := range s.beat(u) {
			if !yield(r) {
				return
			}
		}
	}
	for _, u := range s.subs {
		s.recovered(u)
	}
}

// recovered reports the end of a refusal with an event (HEAL-5).
func (s *Session) recovered(u *subscription) {
	rests := func() bool { return u.waiting.len() > 0 || s.owesAny(u, s.table(u.typ)) }
	if f := s.endRefusing(u, !u.idle(), rests); f != nil {
		s.event(Event{Kind: Recovered, Type: u.typ, Version: s.version(u, s.table(u.typ)), Took: s.now.Sub(f.since), Settled: f.acked})
	}
}

// round sends the news of each type in push order, and then the removals of each type in reverse
// order. The result more reports whether another round may have something to send. The result goOn
// is false if the caller stops.
//
// Another round is needed in two cases. A SotW response that removes clusters may make assignments
// unreferenced. In delta, names may have waited until a removal of clusters is sent: now they wait
// for the answer, or may be sent if no answer is expected.
func (s *Session) round(yield func(*xds.Response) bool) (more, goOn bool) {
	for i := range 2 * len(s.subs) {
		u, last := s.subs[min(i, 2*len(s.subs)-1-i)], i >= len(s.subs)
		for _, r := range s.respondInside(u, last) {
			if !yield(r) {
				return false, false
			}
			more = more || s.variant == xds.SotW || last && s.waitedFor(u)
		}
	}
	return more, true
}

// Err returns the error that ends the stream, or nil. Call it after [Session.Responses]. The error
// wraps [ErrLimit]: the client has left too many responses unanswered (SAFE-1).
func (s *Session) Err() error { return s.err }

// end ends the stream.
func (s *Session) end(err error) { s.err = err }

func (s *Session) event(e Event) { s.events = append(s.events, e) }

func (s *Session) table(t *xds.Type) *xds.Table { return s.view.Table(t) }

// sub returns the subscription of a type, or nil.
func (s *Session) sub(t *xds.Type) *subscription {
	if i := slices.IndexFunc(s.subs, func(u *subscription) bool { return u.typ.Is(t) }); i >= 0 {
		return s.subs[i]
	}
	return nil
}

func (s *Session) refusedBefore(t *xds.Type) bool { return s.opts.Refused != nil && s.opts.Refused(t) }
