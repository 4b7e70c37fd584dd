package protocoltest

import (
	"testing"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// The judge knows what names have found: by an alias, by a collection, or of a world.
func TestJudgeFound(t *testing.T) {
	const all, one = "xdstp://a/e/g/*", "xdstp://a/e/g/1"
	t.Run("DELTA-15 a member that it was told of before it refused to let it go", func(t *testing.T) {
		start := func(acknowledges string, refuses bool) *court {
			c := newCourt(t, xds.Delta)
			c.commit("LEDS", one+"=1")
			c.ask(xds.LbEndpoint, all)
			told := c.told(xds.LbEndpoint, one+"=1")
			c.wait(patience)
			c.commit("LEDS", "-"+one)
			gone := c.told(xds.LbEndpoint, "-"+one, "-"+all)
			if acknowledges == "before" {
				c.answer(xds.LbEndpoint, told, false)
			}
			c.answer(xds.LbEndpoint, gone, refuses)
			c.ask(xds.LbEndpoint, all)
			return c
		}
		start("before", true).told(xds.LbEndpoint, "-"+one, "-"+all)
		start("never", true).told(xds.LbEndpoint, "-"+one, "-"+all)
		_, err := start("before", false).try(xds.LbEndpoint, "-"+one, "-"+all)
		wrong(t, err, "DELTA-8: removes "+one)
	})
	t.Run("DELTA-9 what belongs to no route does not linger, though nothing is asked for by its name", func(t *testing.T) {
		start := func(has string) *court {
			c := newCourt(t, xds.Delta)
			c.commit("RDS", "r=1")
			c.resume(xds.Route, []string{"r"}, xds.Version{Name: "r", Version: "old"})
			c.resume(xds.VirtualHost, []string{"", xds.Wildcard}, xds.Version{Name: has, Version: "old"})
			return c
		}
		start("nope").told(xds.VirtualHost, "-", "-nope", "-r/*")
		_, err := start("r/a").try(xds.VirtualHost, "-", "-r/a", "-r/*")
		wrong(t, err, "ADS-8: r/a leaves while the client has RDS r@old")
	})
	t.Run("SOTW-13 what lingers counts in the version of a world that is asked for by name", func(t *testing.T) {
		start := func() *court {
			c := newCourt(t, xds.SotW)
			c.commit("CDS", "x=1", "RDS", "r=to-x>CDS/x")
			c.ask(xds.Cluster, "x", "y")
			c.l.receive(xds.Request{Type: xds.Cluster, Names: []string{"x", "y"}, Nonce: c.told(xds.Cluster, "x=1")}, false)
			c.ask(xds.Route, "r")
			c.told(xds.Route, "r=to-x>CDS/x")
			c.commit("CDS", "-x", "y=1", "RDS", "r=to-y>CDS/y")
			return c
		}
		start().told(xds.Cluster, "x=1", "y=1")
		c := start()
		c.l.begun()
		err := c.l.sent(&xds.Response{Type: xds.Cluster, Nonce: "3", Version: c.view.Table(xds.Cluster).Version(), Changes: &xds.Changes{Upserts: []*xds.Resource{thing("x=1"), thing("y=1")}}})
		wrong(t, err, "SOTW-13: version")
	})
	t.Run("SOTW-13 what was given up on its way, and is there when it is asked for again, does not linger", func(t *testing.T) {
		tell := func(version string) error {
			c := newCourt(t, xds.Delta)
			c.commit("LEDS", one+"=1")
			c.ask(xds.LbEndpoint, all)
			c.told(xds.LbEndpoint, one+"=1")
			c.l.receive(xds.Request{Type: xds.LbEndpoint, Unsubscribe: []string{all}}, false)
			c.ask(xds.LbEndpoint, all)
			if version == "" {
				version = c.view.Table(xds.LbEndpoint).Version()
			}
			c.l.begun()
			return c.l.sent(&xds.Response{Type: xds.LbEndpoint, Nonce: "2", Version: version, Changes: &xds.Changes{Upserts: []*xds.Resource{thing(one + "=1")}}})
		}
		if err := tell(""); err != nil {
			t.Error(err)
		}
		wrong(t, tell("another"), "SOTW-13: version")
	})
	t.Run("DELTA-11 a name is missing when what it finds has left, and is told so then", func(t *testing.T) {
		start := func(stated, errors bool, lost string, lingers time.Duration) *court {
			c := newCourt(t, xds.Delta)
			c.l.only, c.l.opts.ResourceErrors = xds.Secret, errors
			c.commit("SDS", "x|n=1")
			if stated { // what was called so, and is gone: it finds x
				c.resume(xds.Secret, []string{"n"}, xds.Version{Name: "n", Version: "old"})
			} else {
				c.ask(xds.Secret, "x")
			}
			c.takes(xds.Secret, "x|n=1")
			c.wait(time.Second)
			c.commit("SDS", lost)
			c.l.begun()  // the session is asked what it has to say, and lets it linger from now on
			if !stated { // it has found nothing since
				c.ask(xds.Secret, "n")
			}
			c.wait(lingers)
			return c
		}
		left := func(c *court, want string) {
			t.Helper()
			if left := c.l.waiting(); left != want {
				t.Errorf("waiting: %q", left)
			}
		}
		for _, lost := range []string{"x=2", "-x"} { // its alias, or itself
			c := start(true, true, lost, 4*time.Second)
			c.takes(xds.Secret, "-n")
			left(c, "")
			c.wait(time.Second)
			left(c, "SDS: n is owed, if only its absence")
			_, err := c.try(xds.Secret, "-n", "-x")
			wrong(t, err, "A88: n is removed, and not told missing")
			c = start(true, true, lost, 4*time.Second)
			c.takes(xds.Secret, "-n", "!n")
			c.wait(time.Second)
			left(c, "SDS: x is gone")
			c = start(true, false, lost, 4*time.Second)
			c.takes(xds.Secret, "-n")
			c.wait(time.Second)
			c.told(xds.Secret, "-n", "-x")
			_, err = start(true, true, lost, 5*time.Second).try(xds.Secret, "-n")
			wrong(t, err, "A88: n is removed, and not told missing")
		}
		_, err := start(false, true, "-x", 0).try(xds.Secret, "-n")
		wrong(t, err, "A88: n is removed, and not told missing")
	})
	t.Run("DELTA-15 a collection that was refused to be gone, and that nobody asks for, does not move with its members", func(t *testing.T) {
		waiting := func(names ...string) string {
			c := newCourt(t, xds.Delta)
			c.commit("EDS", "e=1>LEDS/"+all, "LEDS", "h=1")
			c.ask(xds.Endpoint, "e")
			c.takes(xds.Endpoint, "e=1>LEDS/"+all)
			c.ask(xds.LbEndpoint, names...)
			c.refuses(xds.LbEndpoint, "h=1", "-"+all) // which the assignment has asked for
			c.commit("LEDS", one+"=1")
			c.takes(xds.LbEndpoint, one+"=1")
			return c.l.waiting()
		}
		if left := waiting(xds.Wildcard); left != "" {
			t.Errorf("waiting: %q", left)
		}
		if left := waiting(xds.Wildcard, all); left != "LEDS: h is owed" {
			t.Errorf("waiting: %q", left)
		}
	})
}
