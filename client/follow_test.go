package client_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/xds"
)

func TestFollower(t *testing.T) {
	both(t, "if one name of an Add cannot be watched, no name is watched, and each other name can be added later", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		w := c.Follow()
		defer w.Close()
		if err := w.Add(xds.Cluster, "a"); err != nil {
			t.Fatal(err)
		}
		s := f.stream()
		s.skip()
		if err := w.Add(xds.Cluster, "b", "xdstp://nobody/envoy.config.cluster.v3.Cluster/c"); err == nil {
			t.Fatal("the authority is unknown")
		}
		s.want("", "")
		if err := w.Add(xds.Cluster, "b"); err != nil {
			t.Fatal(err)
		}
		s.want("CDS names=[a b]", "CDS sub=[b]")
	})

	both(t, "a name is removed as it was given to Add", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		w := c.Follow()
		defer w.Close()
		const name = "xdstp:///envoy.config.cluster.v3.Cluster/a?z=1&b=2"
		if err := w.Add(xds.Cluster, name); err != nil {
			t.Fatal(err)
		}
		f.stream()
		w.Remove(xds.Cluster, name)
		synctest.Wait()
		if n := f.open.Load(); n != 0 {
			t.Errorf("%d streams are open", n)
		}
	})

	both(t, "Recheck asks again on a new stream once the server has answered, and the new stream is not an outage", func(t *testing.T, v xds.Variant) {
		f := newFake(t, "xds://a", v)
		var bad error
		c := begin(t, client.Config{Check: func(*xds.Resource) error { return bad }}, f)
		w := c.Follow()
		defer w.Close()
		if err := w.Add(xds.Cluster, "a"); err != nil {
			t.Fatal(err)
		}
		s := f.stream()
		s.skip()
		w.Recheck(xds.Cluster, "a") // the client does not know the state of a yet
		f.idle()
		s.respond(xds.Cluster, "v1", "a=1")
		s.skip()
		w.Take()
		f.idle()
		bad = errors.New("it is bad")
		w.Recheck(xds.Cluster, "a")
		time.Sleep(2 * time.Second)
		s = f.stream()
		s.want("CDS node=n names=[a]", "CDS node=n sub=[a] initial=[{a }]")
		s.respond(xds.Cluster, "v1", "a=1")
		s.want("CDS nonce=n1 names=[a] error=a: it is bad", "CDS nonce=n1 error=a: it is bad")
		news := w.Take()
		if len(news) != 1 || len(news[0].Events) != 1 || news[0].Events[0].Kind != client.Refused || news[0].Events[0].Resource == nil {
			t.Errorf("%v", news)
		}
		time.Sleep(time.Minute)
		f.idle()
		if s := c.Servers(); len(s) != 1 || !s[0].Connected || s[0].Err != nil {
			t.Errorf("%v", s)
		}
	})
}
