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

// An Answer is what a server has given.
type Answer struct {
	Resources []Found   // in push order, then by name
	Missing   []Missing // in the same order
	Malformed []Malformed
	Ends      []End // streams that ended before anything came, which are not tried again

	// Unfinished says that news was still coming when the time for all of it was over.
	Unfinished bool
}

// A Found is a resource.
type Found struct {
	*xds.Resource
	Version string // as the server says it: of the resource in delta, of the response in SotW
	Refused error  // the last one that came cannot be used; Resource may be nil then
	Name    string
	Type    *xds.Type
}

// A Missing is what was asked for and is not there.
type Missing struct {
	Type  *xds.Type
	Name  string // may be [xds.Wildcard]
	Err   error  // what the server says of it; nil: nothing
	Said  bool   // the server has said that it does not exist; else it has not answered
	Asked bool   // by the options, and not only because something refers to it
}

// A Malformed is a resource of a response that cannot be read.
type Malformed struct {
	Type *xds.Type
	Name string // "" if nobody knows it
	Err  error
}

// An End is that of a stream.
type End struct {
	Type *xds.Type // nil: of all
	Err  error
}

// All asks, and returns when each question has its answer:
//
//   - a name has one when the resource came, or the server says that there is none;
//   - a wildcard has one when a response came. That of SotW has all listeners or clusters; no other
//     says whether it is the last: then nothing new must have come for Settle.
//
// What has no answer for Timeout is missing. News that never ends is not waited for: see
// [Answer.Unfinished]. An error is ctx's, or the client's.
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

// A progress is how far the answer is. It reads no clock.
type progress struct {
	Options
	variant   xds.Variant
	asked     map[xds.Ref]bool          // also what is asked for later
	found     map[xds.Ref]*client.Event // the last of each name
	heard     map[*xds.Type]string      // types of which a response came, with its version
	malformed []Malformed
	ends      []End
	settle    bool      // a response may not be the last
	news      time.Time // when something was new
	began     time.Time
	whole     time.Time // when each question had its answer for the first time
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
		return // the end of the stream says why
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

// broken notes what cannot be read, once: a server may send it again after each refusal.
func (p *progress) broken(t *xds.Type, err error) {
	m := Malformed{Type: t, Err: err}
	if named, is := errors.AsType[*xds.MalformedError](err); is {
		m.Name = named.Name
	}
	if !slices.ContainsFunc(p.malformed, func(n Malformed) bool { return n.Type == t && n.Err.Error() == err.Error() }) {
		p.malformed = append(p.malformed, m)
	}
}

// end notes the end of a stream on which nothing has come: another would end as well.
func (p *progress) end(s Step) {
	_, heard := p.heard[s.Type]
	if s.Type == nil {
		heard = len(p.heard) > 0
	}
	if !heard && !p.ended(s.Type) {
		p.ends = append(p.ends, End{s.Type, s.End})
	}
}

// ended reports whether nothing more comes of a type.
func (p *progress) ended(t *xds.Type) bool {
	return slices.ContainsFunc(p.ends, func(e End) bool { return e.Type == nil || e.Type == t })
}

// open reports whether a question has no answer.
func (p *progress) open(r xds.Ref) bool {
	return p.found[r] == nil && !p.ended(r.Type) && !p.unreadable(r)
}

// unreadable reports whether what came of a name cannot be read.
func (p *progress) unreadable(r xds.Ref) bool {
	return slices.ContainsFunc(p.malformed, func(m Malformed) bool { return m.Type == r.Type && m.Name == r.Name })
}

// most is how many times Timeout the whole of an answer may take.
const most = 10

// until returns when waiting ends if nothing comes, and whether it ends then although news may be
// coming: a server may have a new name for ever.
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
		case e.Kind == client.Refused && e.Resource == nil && p.unreadable(r): // Malformed tells of it
		case e.Kind == client.Updated, e.Kind == client.Refused:
			found := Found{Resource: e.Resource, Type: r.Type, Name: r.Name, Refused: e.Err, Version: p.heard[r.Type]}
			if p.variant == xds.Delta && e.Resource != nil {
				found.Version = e.Resource.Version
			}
			a.Resources = append(a.Resources, found)
		case p.asked[r]:
			a.Missing = append(a.Missing, Missing{r.Type, r.Name, e.Err, true, p.meant(r)})
		}
	}
	for r := range p.asked {
		if p.open(r) {
			a.Missing = append(a.Missing, Missing{Type: r.Type, Name: r.Name, Asked: p.meant(r)})
		}
	}
	slices.SortFunc(a.Resources, func(x, y Found) int { return order(x.Type, x.Name, y.Type, y.Name) })
	slices.SortFunc(a.Missing, func(x, y Missing) int { return order(x.Type, x.Name, y.Type, y.Name) })
	return a
}

// meant reports whether the options ask for a name.
func (p *progress) meant(r xds.Ref) bool {
	return slices.ContainsFunc(p.Asked, func(a Asked) bool { return a.Type.Is(r.Type) && slices.Contains(a.Names, r.Name) })
}

func order(t *xds.Type, name string, u *xds.Type, other string) int {
	return cmp.Or(cmp.Compare(t.Rank(), u.Rank()), strings.Compare(t.URL, u.URL), strings.Compare(name, other))
}
