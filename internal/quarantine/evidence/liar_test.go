package evidence

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// TestLiars has clients that accept each version, and a client that accepts only the first.
func TestLiars(t *testing.T) {
	versions := []*xds.Table{table(t, xds.NewTable(xds.Cluster), "a", "1")}
	for i := 2; i <= 5; i++ {
		versions = append(versions, table(t, versions[len(versions)-1], "a", fmt.Sprint(i)))
	}
	named := func(is *xds.Table) protocol.Acceptance {
		return acks(t, is, "a").Accepted
	}
	type liar struct{ agent, owner string }
	var made []liar
	for i := range 3 * maxAgents {
		made = append(made, liar{fmt.Sprint("fake", i), "liar"})
	}
	for name, c := range map[string]struct {
		liars []liar
		from  int // the first version that the liars accept
		want  string
	}{
		"no liar":                        {nil, 0, "1 "},
		"one with the same agent":        {[]liar{{"envoy", "liar"}}, 0, "5 1 4 "},
		"one that starts later":          {[]liar{{"envoy", "liar"}}, 1, "5 1 4 "},
		"one with another agent":         {[]liar{{"fake", "liar"}}, 0, "1 5 4 "},
		"one owner with many agents":     {made, 0, "1 5 4 "},
		"two owners with the same agent": {[]liar{{"envoy", "liar"}, {"envoy", "liar 2"}}, 1, "5 1 4 "},
	} {
		for kind, ack := range map[string]func(*xds.Table) protocol.Acceptance{"wildcard": all, "names": named} {
			t.Run("HEAL-3 "+name+", "+kind, func(t *testing.T) {
				var b Book
				s := b.Scope("g", "")
				for i, is := range versions {
					s.Show(start, xds.Cluster, is, none)
					for _, l := range c.liars {
						if i >= c.from {
							s.Accept(xds.Cluster, l.agent, l.owner, fmt.Sprint(i), ack(is))
						}
					}
					if i == 0 {
						s.Accept(xds.Cluster, "envoy", "honest", "0", ack(is))
					}
				}
				s.Show(start, xds.Cluster, table(t, versions[4], "a", "6"), none)
				if got := bodies(previous(s, start, xds.Cluster, "a", "envoy")); got != c.want {
					t.Errorf("%q, want %q", got, c.want)
				}
				data, err := b.Save(start, 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				var next Book
				if err := next.Restore(data); err != nil {
					t.Fatal(err)
				}
				if got := bodies(previous(next.Scope("g", ""), start, xds.Cluster, "a", "envoy")); got != c.want {
					t.Errorf("after a restart: %q, want %q", got, c.want)
				}
			})
		}
	}
	t.Run("HEAL-3 a liar with an identity of its own", func(t *testing.T) {
		for range 20 {
			var b Book
			honest, liar, starts := b.Scope("g", "honest"), b.Scope("g", "liar"), b.Scope("g", "starts")
			for i, is := range versions {
				for _, s := range []*Scope{honest, liar, starts} {
					s.Show(start.Add(time.Duration(i)*time.Second), xds.Cluster, is, none)
				}
				liar.Accept(xds.Cluster, "envoy", "liar", fmt.Sprint(i), all(is))
				if i == 0 {
					honest.Accept(xds.Cluster, "envoy", "honest", "0", all(is))
				}
			}
			if got := bodies(previous(starts, start.Add(time.Minute), xds.Cluster, "a", "envoy")); got != "4 1 3 " {
				t.Fatalf("%q", got)
			}
		}
	})
	t.Run("HEAL-3 owners of several identities add up", func(t *testing.T) {
		var b Book
		scopes := map[string]*Scope{}
		for _, identity := range []string{"a", "b", "c", "starts"} {
			scopes[identity] = b.Scope("g", identity)
		}
		for i, by := range []string{"a b", "c", "c", ""} {
			for _, s := range scopes {
				s.Show(start.Add(time.Duration(i)*time.Second), xds.Cluster, versions[i], none)
			}
			for identity := range strings.FieldsSeq(by) {
				scopes[identity].Accept(xds.Cluster, "envoy", identity+fmt.Sprint(i), fmt.Sprint(i), all(versions[i]))
			}
		}
		if got := bodies(previous(scopes["starts"], start.Add(time.Minute), xds.Cluster, "a", "envoy")); got != "3 1 2 " {
			t.Errorf("%q", got)
		}
	})
	t.Run("HEAL-3 of a secret, other identities have one predecessor", func(t *testing.T) {
		var b Book
		secret := func(text string) *xds.Table {
			is, err := xds.NewTable(xds.Secret).With([]*xds.Resource{xds.NewResource(xds.Secret, "a", []byte(text))})
			if err != nil {
				t.Fatal(err)
			}
			return is
		}
		for i, identity := range []string{"a", "b"} {
			s := b.Scope("g", identity)
			for j, is := range []*xds.Table{secret(identity), secret("now")} {
				s.Show(start.Add(time.Duration(i+j)*time.Second), xds.Secret, is, none)
				s.Accept(xds.Secret, "envoy", identity, fmt.Sprint(j), all(is))
			}
		}
		s := b.Scope("g", "starts")
		s.Show(start, xds.Secret, secret("now"), none)
		if got := bodies(previous(s, start.Add(time.Minute), xds.Secret, "a", "envoy")); got != "b " {
			t.Errorf("%q", got)
		}
	})
	t.Run("HEAL-3 a liar that accepts more versions than the limit", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		is := table(t, xds.NewTable(xds.Cluster), "a", "1", "b", "1")
		for i := 2; i < 2*maxVersions; i++ {
			s.Show(start, xds.Cluster, is, none)
			s.Accept(xds.Cluster, "envoy", "liar", fmt.Sprint(i), all(is))
			if i == 2 {
				s.Accept(xds.Cluster, "envoy", "honest", "2", all(is))
			}
			is = table(t, is, "a", fmt.Sprint(i))
		}
		s.Show(start, xds.Cluster, is, none)
		s.Show(start, xds.Cluster, table(t, is, "b", "2"), none)
		if got := bodies(previous(s, start, xds.Cluster, "a", "envoy")); got != "10 1 9 " {
			t.Errorf("%q", got)
		}
		if vs := s.find(xds.Cluster).replaced["b"]; vs[0].owners.count() != 2 {
			t.Errorf("%d owners", vs[0].owners.count())
		}
	})
	t.Run("HEAL-3 kinds of an earlier release make room", func(t *testing.T) {
		var b, next Book
		s := b.Scope("g", "")
		s.Show(start, xds.Cluster, versions[0], none)
		e := s.find(xds.Cluster)
		for i := range maxAgents {
			e.agents = append(e.agents, fmt.Sprint("old", i))
			e.owners[i] = 1 << i
			e.keepWorld(i, world{versions[0].Versions(), 0})
		}
		data, err := b.Save(start, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if err := next.Restore(data); err != nil {
			t.Fatal(err)
		}
		s = next.Scope("g", "")
		s.Show(start, xds.Cluster, versions[0], none)
		s.Show(start, xds.Cluster, versions[1], none)
		s.Accept(xds.Cluster, "new", "h", "2", all(versions[1]))
		s.Show(start, xds.Cluster, versions[2], none)
		for agent, want := range map[string]string{"new": "2 1 ", "old0": "1 2 ", fmt.Sprint("old", maxAgents-1): "2 1 "} {
			if got := bodies(previous(s, start, xds.Cluster, "a", agent)); got != want {
				t.Errorf("%s: %q, want %q", agent, got, want)
			}
		}
		if e := s.find(xds.Cluster); len(e.agents) != maxAgents || e.shared() != maxAgents-1 || e.agents[maxAgents-1] != others || e.owners[maxAgents-1]&(1<<15) != 0 {
			t.Errorf("%q", e.agents)
		}
	})
	t.Run("HEAL-3 a kind that moves to the others keeps its ACKs", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		s.Show(start, xds.Cluster, versions[0], none)
		for i := range maxAgents - 1 {
			s.Accept(xds.Cluster, fmt.Sprint("fake", i), "liar", "1", all(versions[0]))
		}
		s.Show(start, xds.Cluster, versions[1], none)
		for i := range 3 {
			s.Accept(xds.Cluster, fmt.Sprint("real", i), fmt.Sprint(i), "2", all(versions[1]))
		}
		s.Show(start, xds.Cluster, versions[2], none)
		e := s.find(xds.Cluster)
		if vs := e.replaced["a"]; len(e.agents) != maxAgents || vs[1].by&(1<<e.shared()) == 0 || vs[1].by.has(e, "real0") {
			t.Errorf("%v, %b", e.agents, vs[1].by)
		}
		if n := e.kinds(ownersOf("0")); n != 1 {
			t.Errorf("the kind that moved leaves its owner: %d", n)
		}
		for i := range 3 {
			if got := bodies(previous(s, start, xds.Cluster, "a", fmt.Sprint("real", i))); got != "2 1 " {
				t.Errorf("%d: %q", i, got)
			}
		}
		if got := bodies(previous(s, start, xds.Cluster, "a", fmt.Sprint("fake", maxAgents-2))); got != "1 2 " {
			t.Errorf("%q", got)
		}
	})
}
