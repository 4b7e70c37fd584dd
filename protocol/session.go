package protocol

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// Options of a session. The zero value is ready to use.
type Options struct {
	// MaxTypes is how many resource types one stream may open; 64 if zero.
	MaxTypes int

	// MaxNames is how many names of one type a stream may subscribe to; 100,000
	// if zero.
	MaxNames int

	// MaxNameLen is the longest resource name in bytes; 4,096 if zero.
	MaxNameLen int

	// MaxResponse is the size in bytes above which a response is split, save
	// where a SotW type is told whole; 3 MiB if zero.
	MaxResponse int

	// Refused reports whether this node refused a response of the type on an
	// earlier stream and has accepted none since. Nil: it did not.
	Refused func(*xds.Type) bool

	// Told returns what this client was told of a type, on whatever stream, under
	// the version that it states (SotW): the World of the Sent event; of several
	// responses of that version, which it may all have accepted or not, what it may
	// have of any; also of all that it was told after that, for it may have applied a
	// part before it answered. If that is not known it returns the last argument, which
	// is what the table of that version has, nil if there is none. Nil: it never is
	// known.
	Told func(t *xds.Type, version string, table *World) *World

	// Recent returns the tables that a type had lately in this view, the newest
	// first. By them a session knows the content of versions that clients state,
	// and the bodies of what changed and vanished behind their backs. Nil: it
	// does not.
	Recent func(*xds.Type) []*xds.Table

	// Grace is how long a stream of one type keeps what resources of other
	// types may refer to after the view has lost it, and how long a stream that
	// resumes waits for types that are not open yet; 5 s if zero, none if
	// negative.
	Grace time.Duration

	// ForceTTL tells delta clients TTLs that do not say that they support them.
	ForceTTL bool

	// Bodyless tells delta clients of a name that does not exist by a Resource
	// without body instead of removed_resources.
	Bodyless bool

	// ResourceErrors tells of names that do not exist in resource_errors, too
	// (gRFC A88).
	ResourceErrors bool

	// Spread is any number that differs from stream to stream: it spreads their
	// heartbeats over time.
	Spread uint64
}

// A Session is the server's half of one stream. It is not safe for concurrent
// use: the goroutine that serves the stream owns it.
type Session struct {
	variant xds.Variant
	met     bool      // the client has said who it is
	ttl     bool      // it is told TTLs
	resumes bool      // it has state of an earlier stream
	patient bool      // overdue was asked
	agent   string    // its user agent name
	only    *xds.Type // nil on an aggregated stream
	opts    Options
	began   time.Time // when the first request came

	view   xds.View // nil between Release and Change
	views  uint64   // counts them
	now    time.Time
	turns  time.Time       // the first time that before has noted
	nonces uint64          // counts messages
	subs   []*subscription // by rank
	events []Event
}

// A subscription is the state of one resource type on one stream. Each of its
// parts belongs to one room, whose files alone write to it, but for typ, which is
// never changed:
//
//   - want, matching: what the client wants (want.go, match.go, scope.go)
//   - record: what it was told, and what became of it (told.go, cargo.go,
//     delivery.go, settle.go, refusal.go, resume.go)
//   - withdrawing, heed, waiting: what has to stay and what has to wait because of other
//     types (withdraw.go, order.go, waiting.go, warm.go)
//   - saying: what is to be said next (diff.go, say.go, tell.go, response.go, beat.go)
//
// They share the rows of single names (names.go).
type subscription struct {
	typ *xds.Type
	names
	want
	matching
	record
	withdrawing
	heed
	waiting *waiting // nil while nothing waits
	saying
}

// NewSession returns the session of a stream that serves view. If only is
// non-nil, the stream carries that type alone.
func NewSession(v xds.Variant, only *xds.Type, view xds.View, opts Options) *Session {
	if opts.MaxTypes == 0 {
		opts.MaxTypes = 64
	}
	if opts.MaxNames == 0 {
		opts.MaxNames = 100_000
	}
	if opts.MaxNameLen == 0 {
		opts.MaxNameLen = 4096
	}
	if opts.MaxResponse == 0 {
		opts.MaxResponse = 3 << 20
	}
	if opts.Grace == 0 {
		opts.Grace = 5 * time.Second
	}
	// What is forced holds for a client that does not say who it is, too.
	return &Session{variant: v, only: only, view: view, opts: opts, ttl: v == xds.Delta && opts.ForceTTL}
}

// Receive applies a request. An error ends the stream; it wraps ErrLimit if a
// limit was exceeded. The session keeps none of the request's memory.
func (s *Session) Receive(req xds.Request) error {
	if req.Node != nil && !s.met {
		s.meet(req.Node)
	}
	switch {
	case req.Type == nil && s.only == nil:
		return errors.New("type_url is missing, which an aggregated stream needs in each request")
	case req.Type == nil:
		req.Type = s.only
	case s.only != nil && !req.Type.Is(s.only):
		return fmt.Errorf("type_url %.200q does not belong on this stream, which carries %s", req.Type.URL, s.only.URL)
	}
	u := s.sub(req.Type)
	first := u == nil
	if first {
		if len(s.subs) >= s.opts.MaxTypes {
			return exceeds(xds.LimitTypes, "more than %d resource types on one stream", s.opts.MaxTypes)
		}
		u = &subscription{typ: req.Type, want: want{implicit: true}}
	}
	if err := s.check(u, req, first); err != nil {
		return err
	}
	if first {
		i := len(s.subs)
		for i > 0 && s.subs[i-1].typ.Rank() > u.typ.Rank() {
			i--
		}
		s.subs = slices.Insert(s.subs, i, u)
		s.event(Event{Kind: Opened, Type: u.typ, Version: req.Version, Count: len(req.Initial)})
	}

	// The names count whatever the nonce, for the stream keeps its order; the
	// nonce only pairs an answer with its response.
	t := s.table(u.typ)
	if s.variant == xds.SotW {
		if !req.Same {
			u.replace(req.Names, t)
		}
	} else {
		u.subscribe(req.Subscribe, t)
		s.keepBack(u, req.Subscribe)
		s.comeBack(u, req.Subscribe, t)
		for _, n := range req.Subscribe {
			u.match(t, n)
		}
		s.unsubscribe(u, req.Unsubscribe, t)
	}
	u.dropUnwanted()
	if first {
		if s.began.IsZero() {
			s.began = s.now
		}
		u.begin(s, req, t)
		u.moveAll()
		s.retain(u, nil) // what it brought and the view has lost is kept from now on
		s.warming(u)
	} else {
		s.narrow(u)
		if req.Nonce != "" || s.variant == xds.SotW && u.nonce != 0 {
			u.settle(s, req)
		}
	}
	s.scope(u)
	if u.idle() {
		u.excuse()
		u.unstall()
	}
	if u.moved {
		s.event(Event{Kind: Subscribed, Type: u.typ, Count: int(u.named), Wildcard: u.wildcard, Refuses: len(u.refusals) > 0})
	}
	return nil
}

// check enforces the limits on names. Names that are listed twice, or that the
// stream subscribes to already, count once. What the first request states is as long as
// names may be, for it is kept and may be told again.
func (s *Session) check(u *subscription, req xds.Request, first bool) error {
	count := len(req.Names)
	if s.variant == xds.Delta {
		count = int(u.named) + len(req.Subscribe)
	}
	if count > s.opts.MaxNames {
		is := make(map[string]bool, len(req.Names)+len(req.Subscribe))
		for _, n := range req.Names {
			is[n] = true
		}
		count = len(is)
		if s.variant == xds.Delta {
			for _, n := range req.Subscribe {
				is[n] = true
			}
			for _, n := range req.Unsubscribe {
				is[n] = false
			}
			count = int(u.named)
			for n, wanted := range is {
				switch e := u.entry(n); {
				case e != nil && e.named && !wanted:
					count--
				case wanted && (e == nil || !e.named):
					count++
				}
			}
		}
	}
	if count > s.opts.MaxNames {
		return exceeds(xds.LimitNames, "%d names of %s, more than %d", count, u.typ, s.opts.MaxNames)
	}
	if n := u.hoard(s.table(u.typ)); n > s.opts.MaxNames {
		return exceeds(xds.LimitNames, "%d names of %s to remember that are given up or gone, more than %d", n, u.typ, s.opts.MaxNames)
	}
	for _, names := range [][]string{req.Names, req.Subscribe} {
		for _, n := range names {
			if len(n) > s.opts.MaxNameLen {
				return exceeds(xds.LimitNameLength, "a name of %d bytes, of type %s: more than %d", len(n), u.typ, s.opts.MaxNameLen)
			}
		}
	}
	if !first {
		return nil // they are ignored
	}
	longest := len(req.Version)
	for _, v := range req.Initial {
		longest = max(longest, len(v.Name), len(v.Version))
	}
	if longest > s.opts.MaxNameLen {
		return exceeds(xds.LimitNameLength, "a name or version of %d bytes, of type %s: more than %d", longest, u.typ, s.opts.MaxNameLen)
	}
	return nil
}

// Change replaces the view. touched lists what may differ since the last view,
// in one or several steps; nil: anything may; an empty list: nothing does. A hint only
// saves work.
func (s *Session) Change(view xds.View, touched []xds.Names) {
	s.view = view
	if touched != nil && len(touched) == 0 {
		return // at each request: what thousands have asked for is not looked at again for one more
	}
	s.views++
	for _, u := range s.subs {
		u.lookAnew()
		if touched == nil || len(touched) > u.names.len() { // it costs less to look at all
			u.doubtAll()
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
				if e := u.entry(n); e != nil {
					s.recognize(u, e)
					u.mark(e)
				}
			}
		}
	}
	for _, u := range s.subs {
		s.markAll(u)
	}
	for _, u := range s.subs { // when all is marked
		s.retain(u, touched)
	}
}

// Release lets go of the view, which an idle stream must not keep alive. The
// next input must be Change.
func (s *Session) Release() { s.view = nil }

// Advance tells the session what time it is. Call it before each other input,
// and at the Deadline.
func (s *Session) Advance(now time.Time) {
	s.now = now
	for _, u := range s.subs {
		s.unmute(u)
	}
}

// Deadline returns when Advance is wanted next, the zero time if never.
// Responses may be due then.
func (s *Session) Deadline() (next time.Time) {
	at := func(t time.Time) {
		if t.After(s.now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, u := range s.subs {
		at(s.blockedBy(u))
		at(s.waitEnds(u))
		u.withdrawBy(at)
		at(u.mutedBy())
		at(u.beatBy())
	}
	return next
}

// Waits returns until when no change of the view can make the session say
// anything, or set a deadline that is earlier, unless a request comes before. The
// zero time: a change may at once.
//
// Whoever serves the session need not tell it of changes until then: those that
// came meanwhile are told of together.
func (s *Session) Waits() (until time.Time) {
	for _, u := range s.subs {
		if !u.wildcard && u.names.len() == 0 {
			continue // it wants nothing
		}
		if !s.blocked(u) {
			return time.Time{}
		}
		if at := u.newest(s.variant).sent.Add(patience); until.IsZero() || at.Before(until) {
			until = at
		}
	}
	return until
}

// Answered reports whether the client has answered the newest response of each type,
// of those that were sent at a time or later. It need not answer those before the newest,
// nor what it no longer wants.
func (s *Session) Answered(since time.Time) bool {
	return !slices.ContainsFunc(s.subs, func(u *subscription) bool {
		return !u.answered() && !u.deliveries[len(u.deliveries)-1].sent.Before(since)
	})
}

// Responses yields the responses that are due, "make before break": in push
// order, removals last and in reverse.
func (s *Session) Responses() iter.Seq[*xds.Response] {
	return func(yield func(*xds.Response) bool) { s.speak(yield) } // small, so that it costs its caller nothing
}

func (s *Session) speak(yield func(*xds.Response) bool) {
	for _, u := range s.subs { // of all, before anything is asked of what they hold
		s.recallLately(u)
		s.markAll(u)
		s.outlived(u)
		if len(u.leaving) > 0 {
			u.holdAgain(s.table(u.typ))
		}
	}
	for _, u := range s.subs {
		s.prepare(u)
	}
	s.withdraw() // what nothing refers to goes with the first response
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
}

// round lets each type say what is new, in push order, and then what is gone. It
// reports whether there may be more to say then, and whether more is wanted.
//
// A world of clusters that only lacks some may take assignments with it, too. And what
// waited for the client to be told that clusters are gone waits for the answer from now on,
// or, if none is to be expected, no longer.
func (s *Session) round(yield func(*xds.Response) bool) (more, goOn bool) {
	for i := range 2 * len(s.subs) {
		u, last := s.subs[min(i, 2*len(s.subs)-1-i)], i >= len(s.subs)
		for _, r := range s.respond(u, last) {
			if !yield(r) {
				return false, false
			}
			more = more || s.variant == xds.SotW || last && s.waitedFor(u)
		}
	}
	return more, true
}

// Interests yields how the subscriptions have moved since it was last called.
func (s *Session) Interests() iter.Seq[Interest] {
	return func(yield func(Interest) bool) {
		for _, u := range s.subs {
			if !u.moved {
				continue
			}
			if !yield(u.interest()) {
				return
			}
		}
	}
}

// Events yields what happened since it was last called.
func (s *Session) Events() iter.Seq[Event] {
	return func(yield func(Event) bool) {
		events := s.events
		// A step has about as many as the one before, but the first has more than others.
		s.events = s.events[:0]
		if cap(events) > manyEvents || cap(events) > 2*len(events) {
			s.events = nil
		}
		for i := range events {
			e := events[i]
			events[i] = Event{} // keep nothing alive that it has
			if !yield(e) {
				return
			}
		}
	}
}

// manyEvents is for how many events memory is kept.
const manyEvents = 64

func (s *Session) event(e Event) { s.events = append(s.events, e) }

func (s *Session) table(t *xds.Type) *xds.Table { return s.view.Table(t) }

// sub returns the subscription of a type, or nil.
func (s *Session) sub(t *xds.Type) *subscription {
	for _, u := range s.subs {
		if u.typ.Is(t) {
			return u
		}
	}
	return nil
}

func (s *Session) refusedBefore(t *xds.Type) bool { return s.opts.Refused != nil && s.opts.Refused(t) }
