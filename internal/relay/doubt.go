package relay

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/chancery-xds/chancery/xds"
)

// What clients refuse is passed up if that is wanted. A NACK answers one response, and the ACK of that which
// brought a resource is out before a client could refuse it. So the relay asks for what is refused once more, on a
// new stream, and refuses that. It shows it still, to those who take it.

// A Refusal is content of a source that clients of it refuse.
type Refusal struct {
	Type *xds.Type
	Name string
	Sum  xds.Sum
	Text string // why
}

const (
	gather = time.Second      // from a refusal to the stream that passes it up, so that one passes up what many refuse
	apart  = 30 * time.Second // between two such streams
)

// doubts are what clients refuse, as far as the upstream is told.
type doubts struct {
	mu  sync.Mutex // held for memory only
	all map[content]string
	by  map[content]bool // has a type and a name alone: there is something of it in all; true: it was refused since
}

// A content is one of a name.
type content struct {
	url, name string
	sum       xds.Sum
}

func (c content) anyOf() content { return content{url: c.url, name: c.name} }

// set replaces what is refused, and returns the names of which something is asked for once more, by the URL of
// their types: what is refused now, and what the upstream was told to be refused, and is not any more.
func (d *doubts) set(of []Refusal) (again map[string][]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all, by, names := map[content]string{}, map[content]bool{}, map[content]bool{}
	for _, r := range of {
		c := content{r.Type.URL, xds.CanonicalName(r.Name), r.Sum}
		all[c] = strings.Map(func(r rune) rune {
			if unicode.IsControl(r) {
				return ' ' // a line more would accuse another resource
			}
			return r
		}, r.Text)
		by[c.anyOf()] = d.by[c.anyOf()]
		if _, was := d.all[c]; !was {
			names[c.anyOf()] = true
		}
	}
	for c := range d.all {
		if _, is := all[c]; !is && d.by[c.anyOf()] {
			names[c.anyOf()] = true
		}
	}
	d.all, d.by = all, by
	again = map[string][]string{}
	for c := range names {
		again[c.url] = append(again[c.url], c.name)
	}
	return again
}

// check says that clients refuse a resource.
func (d *doubts) check(r *xds.Resource) error {
	if r.Type == nil || r.Stamp == nil {
		return nil
	}
	c := content{url: r.Type.URL, name: xds.CanonicalName(r.Name)}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, any := d.by[c]; !any {
		return nil
	}
	served := xds.Resource{Body: r.Body, Aliases: r.Aliases, TTL: r.TTL, Stamp: &xds.Stamp{Name: r.Name}}
	served.Seal("")
	text, is := d.all[content{c.url, c.name, served.Sum}]
	if d.by[c] = is; is {
		return fmt.Errorf("clients of the relay refuse it: %s", text)
	}
	return nil
}

// Check is for [client.Config.Check], if Options.Refused is set: it refuses what clients refuse.
func (s *Source) Check(r *xds.Resource) error { return s.doubts.check(r) }

// Refused says that Options.Refused may return something else. It waits for nobody.
func (s *Source) Refused() {
	s.moved.Store(true)
	s.ring()
}

// passUp asks for what is refused now, or not any more.
func (s *Source) passUp(now time.Time) {
	if s.opts.Refused == nil {
		return
	}
	if s.moved.Swap(false) && s.look.IsZero() {
		s.look = now.Add(gather)
		if at := s.passed.Add(apart); s.look.Before(at) {
			s.look = at
		}
	}
	if s.look.IsZero() || now.Before(s.look) {
		return
	}
	s.look = time.Time{}
	again := s.doubts.set(s.opts.Refused())
	for _, url := range slices.Sorted(maps.Keys(again)) {
		s.passed = now
		s.follow.Recheck(xds.TypeOf(url), again[url]...)
	}
}
