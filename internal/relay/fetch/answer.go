package fetch

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/xds"
)

// An Answer is the result of [All].
type Answer struct {
	Resources []Found   // in push order, then by name
	Missing   []Missing // in the same order
	Malformed []Malformed
	Ends      []End // streams that ended before any response; they are not retried

	// Unfinished means that the total time was over while new resources were arriving.
	Unfinished bool
}

// A Found is a resource that the server sent.
type Found struct {
	*xds.Resource
	Version string // of the resource in delta, of the response in SotW
	Refused error  // the last received resource is unusable; then Resource may be nil
	Name    string
	Type    *xds.Type
}

// A Missing is a requested name without a resource.
type Missing struct {
	Type   *xds.Type
	Name   string // may be [xds.Wildcard]
	Err    error  // the error of the server; nil: none
	Denied bool   // the server has answered that it does not exist; false: it has not answered
	Asked  bool   // requested by the options, and not only through a reference
}

// A Malformed is a resource in a response that cannot be decoded.
type Malformed struct {
	Type *xds.Type
	Name string // "" if unknown
	Err  error
}

// An End is the end of a stream.
type End struct {
	Type *xds.Type // nil: all types
	Err  error
}

// All requests resources, and returns when each question has its answer:
//
//   - a name is answered when the resource came, or the server reported that it does not exist;
//   - a wildcard is answered when a response came. A SotW response has all listeners or clusters. For
//     other types any response may not be the last, so the answer ends when nothing new came for Settle.
//
// Names without an answer after Timeout are missing. All does not wait forever for a server that keeps
// sending new names: see [Answer.Unfinished]. An error is that of ctx or of the client.
func All(ctx context.Context, o Options) (*Answer, error) {
	f, err := begin(ctx, o)
	if err != nil {
		return nil, err
	}
	defer f.end()
	p := newProgress(o, f.asked)
	p.news = time.Now()
	p.began = p.news
	for {
		until, limited, done := p.until()
		if done {
			return p.answer(), nil
		}
		s, err := f.next(until)
		if err != nil {
			return nil, err
		}
		if s.At.IsZero() {
			a := p.answer()
			a.Unfinished = limited
			return a, nil
		}
		p.add(s)
	}
}

// A progress is the state of an answer. It reads no clock.
type progress struct {
	Options
	variant   xds.Variant
	asked     map[xds.Ref]bool          // including references
	found     map[xds.Ref]*client.Event // the last event of each name
	heard     map[*xds.Type]string      // types with a response, and its version
	malformed []Malformed
	ends      []End
	settle    bool      // a response may not be the last
	news      time.Time // when the last new name came
	began     time.Time
	whole     time.Time // when all questions were answered for the first time
}

func newProgress(o Options, asked map[xds.Ref]bool) *progress {
	return &progress{Options: o, variant: o.Transport.Variant(), asked: asked, found: map[xds.Ref]*client.Event{}, heard: map[*xds.Type]string{}}
}

func (p *progress) add(s Step) {
	switch {
	case s.Event != nil:
		p.event(s)
	case s.Response != nil:
		p.heard[s.Type] = s.Response.Version
		for _, err := range s.Response.Malformed {
			p.broken(s.Type, err)
		}
	case s.End != nil:
		p.end(s)
	}
}

func (p *progress) event(s Step) {
	e := s.Event
	switch e.Kind {
	case client.Stale:
		return // the end of the stream has the reason
	case client.Unavailable:
		if e.Name == xds.Wildcard {
			return
		}
	case client.Complete:
		if p.variant == xds.Delta || !s.Type.FullState {
			p.settle = true
		}
	}
	r := xds.Ref{Type: s.Type, Name: e.Name}
	if p.found[r] == nil {
		p.news = s.At
	}
	p.found[r] = e
}

// broken records a malformed resource once: a server may send it again after each refusal.
func (p *progress) broken(t *xds.Type, err error) {
	m := Malformed{Type: t, Err: err}
	if named, is := errors.AsType[*xds.MalformedError](err); is {
		m.Name = named.Name
	}
	if !slices.ContainsFunc(p.malformed, func(n Malformed) bool { return n.Type == t && n.Err.Error() == err.Error() }) {
		p.malformed = append(p.malformed, m)
	}
}

// end records the end of a stream without a response: another stream would end as well.
func (p *progress) end(s Step) {
	_, heard := p.heard[s.Type]
	if s.Type == nil {
		heard = len(p.heard) > 0
	}
	if !heard && !p.ended(s.Type) {
		p.ends = append(p.ends, End{s.Type, s.End})
	}
}

// ended reports whether no more responses of a type will come.
func (p *progress) ended(t *xds.Type) bool {
	return slices.ContainsFunc(p.ends, func(e End) bool { return e.Type == nil || e.Type == t })
}

// open reports whether a question has no answer.
func (p *progress) open(r xds.Ref) bool {
	return p.found[r] == nil && !p.ended(r.Type) && !p.unreadable(r)
}

// unreadable reports whether the resource of a name came and is malformed.
func (p *progress) unreadable(r xds.Ref) bool {
	return slices.ContainsFunc(p.malformed, func(m Malformed) bool { return m.Type == r.Type && m.Name == r.Name })
}

// most limits the total time, in multiples of Timeout.
const most = 10

// until returns when the wait ends if no step comes before. The result limited means that the total time is over
// then, and new names may still be coming.
func (p *progress) until() (at time.Time, limited, done bool) {
	limit := p.began.Add(most * p.Timeout)
	at = p.news.Add(p.Timeout)
	if !p.waits() {
		if !p.settle {
			return at, false, true
		}
		if p.whole.IsZero() {
			p.whole = p.news
		}
		at = p.news.Add(p.Settle)
	}
	if end := p.whole.Add(p.Timeout + p.Settle); !p.whole.IsZero() && end.Before(limit) {
		limit = end
	}
	if limit.Before(at) {
		return limit, true, false
	}
	return at, false, false
}

// waits reports whether any question has no answer.
func (p *progress) waits() bool {
	for r := range p.asked {
		if p.open(r) {
			return true
		}
	}
	return false
}

func (p *progress) answer() *Answer {
	a := &Answer{Ends: p.ends, Malformed: p.malformed}
	for r, e := range p.found {
		switch {
		case e.Kind == client.Complete:
		case e.Kind == client.Refused && e.Resource == nil && p.unreadable(r): // it is in Malformed
		case e.Kind == client.Updated, e.Kind == client.Refused:
			found := Found{Resource: e.Resource, Type: r.Type, Name: r.Name, Refused: e.Err, Version: p.heard[r.Type]}
			if p.variant == xds.Delta && e.Resource != nil {
				found.Version = e.Resource.Version
			}
			a.Resources = append(a.Resources, found)
		case p.asked[r]:
			a.Missing = append(a.Missing, Missing{r.Type, r.Name, e.Err, true, p.inOptions(r)})
		}
	}
	for r := range p.asked {
		if p.open(r) {
			a.Missing = append(a.Missing, Missing{Type: r.Type, Name: r.Name, Asked: p.inOptions(r)})
		}
	}
	slices.SortFunc(a.Resources, func(x, y Found) int { return order(x.Type, x.Name, y.Type, y.Name) })
	slices.SortFunc(a.Missing, func(x, y Missing) int { return order(x.Type, x.Name, y.Type, y.Name) })
	return a
}

// inOptions reports whether the options contain a name.
func (p *progress) inOptions(r xds.Ref) bool {
	return slices.ContainsFunc(p.Asked, func(a Asked) bool { return a.Type.Is(r.Type) && slices.Contains(a.Names, r.Name) })
}

func order(t *xds.Type, name string, u *xds.Type, other string) int {
	return cmp.Or(cmp.Compare(t.Rank(), u.Rank()), strings.Compare(t.URL, u.URL), strings.Compare(name, other))
}
