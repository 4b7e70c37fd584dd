package e2e

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/e2e/tap"
)

// Commits come faster than Envoy answers.
func TestMakeBeforeBreakInHaste(t *testing.T) {
	t.Parallel()
	each(t, "ADS-3 ADS-4 a file replaced every 10 ms", func(t *testing.T, v variant) {
		c := newChain(t, newSite(t, renamed, patient), v)
		c.paced(300, 10*time.Millisecond, func() {
			c.next()
			c.hurry()
		})
		c.ends()
		exactly(t, 0, "NACK", c.Since(0).NACKs())
	})

	each(t, "ADS-3 ADS-4 a commit every 2 ms", func(t *testing.T, v variant) {
		s, lib := newLibrarySite(t)
		c := newChain(t, s, v)
		c.paced(1500, 2*time.Millisecond, func() { c.next() })
		c.ends()
		rs := c.Since(0)
		exactly(t, 0, "NACK", rs.NACKs())
		// Changes for a client are combined: never more than a few responses are in flight.
		if n := unanswered(rs, "CDS"); n > 4 {
			t.Errorf("%d CDS responses stood unanswered at a time", n)
		}
		departed, waived := lib.gone()
		if !slices.Contains(departed, "backend") || slices.Contains(departed, c.at) {
			t.Errorf("departed: %q", departed)
		}
		// A missing answer costs Envoy 15 s.
		if len(waived) > 0 {
			t.Errorf("a deadline ended %d waits, the first of them for %q", len(waived), waived[:min(len(waived), 5)])
		}
	})

	each(t, "ADS-3 ADS-6 clusters come and go elsewhere every 5 ms", func(t *testing.T, v variant) {
		c := newChain(t, newSite(t, renamed, patient), v)
		n := 0
		elsewhere := func(w world) {
			old, now := fmt.Sprint("else-", n), fmt.Sprint("else-", n+1)
			n++
			w.drop(edsCluster(old, 0), assignment(old))
			w.set(patientCluster(now), assignment(now, c.a.port))
		}
		changed := time.Now()
		c.next(elsewhere)
		c.paced(300, 5*time.Millisecond, func() {
			if c.ingress.gets(answer{c.from.name, c.generation()})() == nil {
				changed = time.Now()
				c.next(elsewhere)
			} else {
				c.commit("elsewhere", elsewhere)
			}
			if took := time.Since(changed); took > prompt {
				t.Fatalf("%s waits since %v", c.at, took)
			}
			c.hurry()
		})
		c.commit("nothing elsewhere", func(w world) {
			last := fmt.Sprint("else-", n)
			w.drop(edsCluster(last, 0), assignment(last))
		})
		c.ends()
		exactly(t, 0, "NACK", c.Since(0).NACKs())
	})
}

// paced calls f n times, one call each d.
func (c *chain) paced(n int, d time.Duration, f func()) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for range n {
		<-tick.C
		f()
	}
}

// hurry makes the daemon load the files at once, without its usual wait for stable files.
func (c *chain) hurry() {
	c.t.Helper()
	if err := c.daemon.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		c.t.Fatal(err)
	}
}

// unanswered returns the maximum number of unanswered responses of the type. An answer to a
// response also counts for earlier responses.
func unanswered(rs tap.Records, typ string) (most int) {
	var open []string
	for _, r := range rs {
		switch {
		case r.Type != typ:
		case r.Kind == tap.Response:
			open = append(open, r.Nonce)
			most = max(most, len(open))
		case r.Nonce != "":
			open = open[slices.Index(open, r.Nonce)+1:]
		}
	}
	return most
}
