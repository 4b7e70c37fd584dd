package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/chancery-xds/chancery/e2e/tap"
)

// heavy is the load of these tests, in requests a second.
const heavy = 500

// A chain is a site whose routes move from one cluster to the next, under load. Each commit adds a
// cluster with a new name and its assignment, points the routes to it, and deletes the previous
// cluster with its assignment.
type chain struct {
	*site
	variant         variant
	load            *load
	began           time.Time
	marks, timeouts atomic.Int64

	link     // the present one
	n    int // commits
}

// A link is a cluster and its place.
type link struct {
	at   string
	from upstream
}

// newLink returns the nth link of a chain.
func newLink(n int, s *site) link {
	return link{fmt.Sprint("backend-", n), []upstream{s.a, s.b}[n%2]}
}

// generation returns the generation in the routes to the cluster.
func (l link) generation() string {
	if l.at == "backend" {
		return "1"
	}
	return l.at
}

// patientCluster gives connections the time that a busy machine may take.
func patientCluster(name string) *cluster.Cluster { return edsCluster(name, generous) }

// patient makes the cluster that a chain begins with one of these.
func patient(w world) { w.set(patientCluster("backend")) }

// failure begins the log mark of a failed request.
const failure = "A REQUEST FAILS"

// newChain starts an Envoy and the load.
func newChain(t *testing.T, s *site, v variant) *chain {
	t.Helper()
	s.start(v)
	c := &chain{site: s, variant: v, link: link{"backend", s.a}, began: time.Now()}
	// A failed request is marked in the conversation.
	c.load = loadedAt(t, heavy, calls(posts{&http.Transport{MaxIdleConnsPerHost: 100}}, s.ingressPort), func(err error) bool {
		if errors.Is(err, context.DeadlineExceeded) {
			c.timeouts.Add(1)
		}
		if c.marks.Add(1) <= 20 {
			s.Mark(failure+": %.100v", err)
		}
		return false
	})
	return c
}

// posts makes requests POSTs, which a transport never sends a second time of
// its own accord, and lets each take 5 ms, so that some are always under way.
type posts struct{ *http.Transport }

func (p posts) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Method, r.URL.RawQuery = http.MethodPost, "after=5ms"
	return p.Transport.RoundTrip(r)
}

// next commits the next cluster, with whatever else.
func (c *chain) next(also ...func(world)) tap.Point {
	c.t.Helper()
	old := c.at
	c.n++
	c.link = newLink(c.n, c.site)
	return c.commit(c.at+" takes the place of "+old, func(w world) {
		w.drop(edsCluster(old, 0), assignment(old))
		w.set(patientCluster(c.at), assignment(c.at, c.from.port), routes("ingress", c.at, c.at))
		for _, f := range also {
			f(w)
		}
	})
}

const (
	// generous is how long a step may take that is not about speed.
	generous = 30 * time.Second

	// prompt is the limit for a step without a wait: a second, or more on a busy machine. A timeout
	// of the server would take 5 s or 15 s.
	prompt = 3 * time.Second
)

// follows waits until requests are answered by way of the present cluster, and
// returns how long that took.
func (c *chain) follows() time.Duration {
	c.t.Helper()
	return eventually(c.t, generous, "traffic follows to "+c.at, c.ingress.gets(answer{c.from.name, c.generation()}))
}

// alone waits until Envoy has no earlier cluster, except the expected ones.
func (c *chain) alone(and ...string) {
	c.t.Helper()
	want := append(and, c.at, "other", "xds")
	eventually(c.t, generous, "nothing lingers in Envoy", func() error {
		b, err := c.envoy.Get("/clusters")
		got := map[string]bool{}
		for line := range strings.Lines(string(b)) {
			name, _, _ := strings.Cut(line, "::")
			got[name] = true
		}
		if err == nil && !sameNames(got, want) {
			err = fmt.Errorf("/clusters has %v", got)
		}
		return err
	})
}

// ends makes sure that no request failed, and that neither Envoy nor the server
// has kept anything.
func (c *chain) ends() {
	c.t.Helper()
	c.follows()
	c.alone()
	eventually(c.t, generous, "nothing lingers in the server", func() error {
		has, asks := told(c.Since(0)), asked(c.Since(0))
		if want := []string{c.at, "other"}; !slices.Equal(has, want) || !slices.Equal(asks, want) {
			return fmt.Errorf("the client got the clusters %v, and subscribes to the assignments %v", has, asks)
		}
		return nil
	})
	c.quiet()
	c.unharmed()

	rs := c.Since(0)
	if at := slices.IndexFunc(rs, func(r tap.Record) bool { return strings.HasPrefix(r.Text, failure) }); at >= 0 {
		c.t.Logf("around the first failure:\n%s", rs[max(0, at-30):min(len(rs), at+30)])
	}
	p := c.Mark("what lingers would leave with the next change")
	c.nextChange()
	carries(c.t, "EDS other", c.Since(p).Responses())
}

// told returns the clusters of the client according to the responses.
func told(rs tap.Records) []string {
	has := map[string]bool{}
	for _, r := range rs.Responses("CDS") {
		if !r.Delta {
			clear(has)
		}
		for _, x := range r.Resources {
			has[x.Name] = true
		}
		for _, name := range r.Removed {
			delete(has, name)
		}
	}
	return names(has)
}

// asked returns the assignments that the client is subscribed to.
func asked(rs tap.Records) []string {
	has := map[string]bool{}
	stream := 0
	for _, r := range rs.Requests("EDS") {
		if !r.Delta || r.Stream != stream {
			clear(has)
		}
		stream = r.Stream
		for _, name := range append(r.Names, r.Subscribe...) {
			has[name] = true
		}
		for _, name := range r.Unsubscribe {
			delete(has, name)
		}
	}
	return names(has)
}

func names(has map[string]bool) []string {
	var s []string
	for name := range has {
		s = append(s, name)
	}
	slices.Sort(s)
	return s
}

func TestMakeBeforeBreak(t *testing.T) {
	t.Parallel()
	each(t, "ADS-2 ADS-3 ADS-4 a hundred clusters, one after the other", func(t *testing.T, v variant) {
		c := newChain(t, newSite(t, renamed, patient), v)
		c.paced(100, 100*time.Millisecond, func() {
			c.next()
			c.follows()
			c.alone()
		})
		c.ends()
		exactly(t, 0, "NACK", c.Since(0).NACKs())
	})
}

// unharmed stops the load, and makes sure that no request failed.
func (c *chain) unharmed() {
	c.t.Helper()
	c.load.Stop()
	took := time.Since(c.began).Seconds()
	n, failed := c.load.OK.Load()+c.load.Failed.Load(), c.load.Failed.Load()
	c.t.Logf("%v: %d commits in %.1f s, %d CDS responses; %d requests, %.0f a second; %d failed, %d of them without an answer",
		c.variant, c.n, took, len(c.Since(0).Responses("CDS")), n, float64(n)/took, failed, c.timeouts.Load())
	c.load.Unharmed(c.t)
}
