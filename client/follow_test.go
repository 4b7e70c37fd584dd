package client_test

import (
	"testing"
	"testing/synctest"

	"github.com/chancery-xds/chancery/xds"
)

func TestFollower(t *testing.T) {
	both(t, "of names of which one cannot be watched none is, and each can be later", func(t *testing.T, v xds.Variant) {
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

	both(t, "a name is given up in the spelling in which it was asked for", func(t *testing.T, v xds.Variant) {
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
}
