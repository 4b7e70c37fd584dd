package e2e

import (
	"slices"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/e2e/tap"
)

// Envoy keeps its previous routes, so their cluster must stay for as long as that.
func TestMakeBeforeBreakRefused(t *testing.T) {
	t.Parallel()
	broken := func(c *chain) func(world) {
		return func(w world) { w.set(brokenRoutes("ingress", c.at)) }
	}
	fix := func(c *chain) { c.commit("the routes fixed", func(w world) { w.set(routes("ingress", c.at, c.at)) }) }
	for _, tt := range []struct {
		name string
		end  func(c *chain, was link)
	}{
		{"fixed", func(c *chain, _ link) { fix(c) }},
		{"replaced while refused, then fixed", func(c *chain, was link) {
			c.refused(c.next(broken(c)), "RDS", was)
			c.refused(c.next(broken(c)), "RDS", was)
			fix(c)
		}},
		{"reverted", func(c *chain, was link) {
			c.commit("all as it was", func(w world) {
				w.drop(edsCluster(c.at, 0), assignment(c.at))
				w.set(patientCluster(was.at), assignment(was.at, was.from.port), routes("ingress", was.at, was.at))
			})
			c.link = was
		}},
	} {
		each(t, "ADS-3 ADS-4 routes refused, "+tt.name, func(t *testing.T, v variant) {
			c := newChain(t, newSite(t, renamed, patient), v)
			c.next()
			c.follows()
			for range 4 {
				was := c.link
				c.refused(c.next(broken(c)), "RDS", was)
				tt.end(c, was)
				c.follows()
				c.alone()
			}
			c.ends()
		})
	}
	each(t, "ADS-3 the new cluster refused, then fixed", func(t *testing.T, v variant) {
		c := newChain(t, newSite(t, renamed, patient), v)
		for range 4 {
			was := c.link
			c.refused(c.next(func(w world) { w.set(brokenCluster(c.at)) }), "CDS", was)
			c.commit("the cluster fixed", func(w world) { w.set(patientCluster(c.at)) })
			c.follows()
			c.alone()
		}
		c.ends()
	})
}

// refused waits for a NACK since p, lets another change pass, and checks that the state has not
// changed.
func (c *chain) refused(p tap.Point, typ string, was link) {
	c.t.Helper()
	c.sees(p, generous, "a NACK", func(rs tap.Records) bool { return len(rs.NACKs(typ)) > 0 })
	c.nextChange()
	if err := c.ingress.gets(answer{was.from.name, was.generation()})(); err != nil {
		c.t.Errorf("while the change is refused: %v", err)
	}
	if !slices.Contains(told(c.Since(0)), was.at) {
		c.t.Errorf("%s was withdrawn behind a NACK", was.at)
	}
}

// A cluster without an assignment keeps Envoy from acknowledging any cluster.
func TestMakeBeforeBreakStuck(t *testing.T) {
	t.Parallel()
	stuck := patientCluster("stuck")
	each(t, "ADS-6 ADS-7 while another cluster is stuck", func(t *testing.T, v variant) {
		c := newChain(t, newSite(t, renamed, patient), v)
		c.commit("stuck has no assignment", func(w world) { w.set(stuck) })
		for range 10 {
			c.next()
			if took := c.follows(); took > prompt {
				t.Errorf("the routes to %s took %v", c.at, took)
			}
		}
		c.commit("stuck deleted", func(w world) { w.drop(stuck) })
		c.ends()
	})

	each(t, "ADS-6 while another cluster is stuck and Envoy is slow", func(t *testing.T, v variant) {
		c := newChain(t, newSite(t, renamed, patient), v)
		c.commit("stuck has no assignment", func(w world) { w.set(stuck) })
		for range 5 {
			// The client asks for the new assignment a moment later.
			next := newLink(c.n+1, c.site).at
			time.AfterFunc(300*time.Millisecond, c.Hold(func(r tap.Record) bool {
				return r.Type == "EDS" && slices.Contains(append(r.Names, r.Subscribe...), next)
			}))
			c.next()
			c.follows()
		}
		c.commit("stuck deleted", func(w world) { w.drop(stuck) })
		c.ends()
	})
}

// The connection breaks between a commit and its ACKs. Resources of the reconnecting client must
// stay until it no longer uses them.
func TestMakeBeforeBreakReconnect(t *testing.T) {
	t.Parallel()
	asksFor := func(name string) func(tap.Record) bool {
		return func(r tap.Record) bool {
			return r.Type == "EDS" && slices.Contains(append(r.Names, r.Subscribe...), name)
		}
	}
	for _, tt := range []struct {
		name string
		// cut commits and breaks the connection; restored, if not nil, is for when
		// it stands again.
		cut func(c *chain) (restored func(tap.Point))
	}{
		{"when it has the clusters", func(c *chain) func(tap.Point) {
			release := c.Hold(asksFor(newLink(c.n+1, c.site).at))
			defer release()
			p := c.next()
			c.sees(p, generous, "the new cluster", func(rs tap.Records) bool { return brings(rs, c.at) })
			c.cut()
			return nil
		}},
		{"when it has the routes", func(c *chain) func(tap.Point) {
			p, next := c.Mark("the ACK of the next routes is held"), newLink(c.n+1, c.site).at
			release := c.Hold(func(r tap.Record) bool {
				return r.Type == "RDS" && r.Nonce != "" && brings(c.Since(p), next)
			})
			defer release()
			c.next()
			c.follows()
			c.cut()
			return nil
		}},
		{"when it has refused the routes", func(c *chain) func(tap.Point) {
			was := c.link
			c.refused(c.next(func(w world) { w.set(brokenRoutes("ingress", c.at)) }), "RDS", was)
			c.cut()
			return func(p tap.Point) {
				c.back(p)
				c.nextChange()
				c.commit("the routes fixed", func(w world) { w.set(routes("ingress", c.at, c.at)) })
			}
		}},
		{"before it has anything", func(c *chain) func(tap.Point) {
			c.cut()
			c.next()
			eventually(c.t, generous, "the daemon has read the files", c.daemon.serves(c.at, "other"))
			return nil
		}},
		{"and a commit comes while it asks anew", func(c *chain) func(tap.Point) {
			release := c.Hold(func(r tap.Record) bool { return r.Type == "RDS" && r.Nonce == "" })
			c.cut()
			return func(p tap.Point) {
				defer release()
				c.sees(p, generous, "the client subscribes to clusters", func(rs tap.Records) bool { return len(rs.Requests("CDS")) > 0 })
				c.next()
				eventually(c.t, generous, "the daemon has read the files", c.daemon.serves(c.at, "other"))
			}
		}},
	} {
		each(t, "ADS-3 the connection breaks "+tt.name, func(t *testing.T, v variant) {
			c := newChain(t, newSite(t, renamed, patient), v)
			for range 2 { // the second time, something may linger from the first
				restored := tt.cut(c)
				p := c.Mark("connection restored")
				c.Restore()
				if restored != nil {
					restored(p)
				}
				c.back(p)
				c.follows()
				c.quiet()
			}
			c.ends()
		})
	}
}

// brings reports whether a response carries the cluster.
func brings(rs tap.Records, name string) bool {
	return slices.ContainsFunc(rs.Responses("CDS"), func(r tap.Record) bool { return r.Has(name) })
}

func (c *chain) cut() {
	c.Mark("connection cut")
	c.Cut()
}
