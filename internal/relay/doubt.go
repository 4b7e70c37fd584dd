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

// Refusals of clients are passed up to the upstream, if that is enabled. A NACK answers one response, and
// the relay has already acknowledged the response with the resource. So the relay subscribes to the
// refused resource again, on a new stream, and sends a NACK there. It still serves the resource to
// clients that accept it.

// A Refusal is a resource of a source that clients refuse.
type Refusal struct {
	Type *xds.Type
	Name string
	Sum  xds.Sum
	Text string // the clients' error
}

const (
	gatherTime   = time.Second      // from a refusal to the stream that passes it up, so that one stream passes up many
	passInterval = 30 * time.Second // the shortest time between two such streams
)

// doubts are the refusals of clients that the source passes up.
type doubts struct {
	mu  sync.Mutex // held for memory only
	all map[content]string

	// refused has a key without a sum for each name in all: whether check has refused the last resource of the name.
	refused map[content]bool
}

// A content is one version of a resource.
type content struct {
	url, name string
	sum       xds.Sum
}

func (c content) withoutSum() content { return content{url: c.url, name: c.name} }

// set replaces the refusals. It returns the names to request again, by type URL: names with a new refusal, and
// names whose refusal has ended after it was passed up.
func (d *doubts) set(of []Refusal) (again map[string][]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all, passed, names := map[content]string{}, map[content]bool{}, map[content]bool{}
	for _, r := range of {
		c := content{r.Type.URL, xds.CanonicalName(r.Name), r.Sum}
		all[c] = strings.Map(func(r rune) rune {
			if unicode.IsControl(r) {
				return ' ' // a line break would let the text blame another resource
			}
			return r
		}, r.Text)
		passed[c.withoutSum()] = d.refused[c.withoutSum()]
		if _, was := d.all[c]; !was {
			names[c.withoutSum()] = true
		}
	}
	for c := range d.all {
		if _, is := all[c]; !is && d.refused[c.withoutSum()] {
			names[c.withoutSum()] = true
		}
	}
	d.all, d.refused = all, passed
	again = map[string][]string{}
	for c := range names {
		again[c.url] = append(again[c.url], c.name)
	}
	return again
}

// check returns an error if clients refuse the resource.
func (d *doubts) check(r *xds.Resource) error {
	if r.Type == nil || r.Stamp == nil {
		return nil
	}
	c := content{url: r.Type.URL, name: xds.CanonicalName(r.Name)}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, any := d.refused[c]; !any {
		return nil
	}
	served := xds.Resource{Body: r.Body, Aliases: r.Aliases, TTL: r.TTL, Stamp: &xds.Stamp{Name: r.Name}}
	served.Seal("")
	text, is := d.all[content{c.url, c.name, served.Sum}]
	d.refused[c] = is
	if is {
		return fmt.Errorf("clients of the relay refuse it: %s", text)
	}
	return nil
}

// Check is for [client.Config.Check], if Options.Refused is set. It refuses the resources that clients refuse.
func (s *Source) Check(r *xds.Resource) error { return s.doubts.check(r) }

// Refused notifies the source that the result of Options.Refused has changed. It does not block.
func (s *Source) Refused() {
	s.moved.Store(true)
	s.ring()
}

// passUp requests again the names whose refusals have changed.
func (s *Source) passUp(now time.Time) {
	if s.opts.Refused == nil {
		return
	}
	if s.moved.Swap(false) && s.look.IsZero() {
		s.look = now.Add(gatherTime)
		if at := s.passed.Add(passInterval); s.look.Before(at) {
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
