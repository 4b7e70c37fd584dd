package e2e

import (
	"testing"
	"time"
)

// The streams per type of one Envoy are one client: each cluster is in use before a route refers to it, and leaves
// when no route does, without the pause of a grace period.
func TestMakeBeforeBreakOwnStreams(t *testing.T) {
	t.Parallel()
	among(t, "ADS-11 ADS-3 a hundred clusters, one after the other", func(t *testing.T, v variant) {
		c := newChain(t, newSite(t, sourcedBy(v, renamed), patient), v)
		c.paced(100, 100*time.Millisecond, func() {
			c.next()
			c.follows()
			if took := c.gone(); took > prompt {
				t.Errorf("the earlier cluster stayed for %v", took)
			}
		})
		c.endsOnOwnStreams()
		exactly(t, 0, "NACK", c.Since(0).NACKs())
	}, ownSotw, ownDelta)
}

// gone waits until Envoy has no earlier cluster, and returns how long that took.
func (c *chain) gone() time.Duration {
	began := time.Now()
	c.alone()
	return time.Since(began)
}

// endsOnOwnStreams makes sure that no request failed, and that Envoy has kept nothing.
func (c *chain) endsOnOwnStreams() {
	c.t.Helper()
	c.follows()
	c.alone()
	c.unharmed()
}
