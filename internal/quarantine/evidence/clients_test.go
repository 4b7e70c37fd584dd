package evidence

import (
	"fmt"
	"testing"

	"github.com/chancery-xds/chancery/xds"
)

// The hashes of owners are in the bytes that servers of other builds read: they must not change.
func TestOwnersAreEqualOnAllServers(t *testing.T) {
	for owner, want := range map[string]ownerSet{"": 1 << 1, "192.0.2.1": 1 << 33, "spiffe://example.org/envoy": 1 << 49} {
		if got := ownersOf(owner); got != want {
			t.Errorf("%q: %b", owner, got)
		}
	}
}

func TestKindsMakeRoom(t *testing.T) {
	v1 := table(t, xds.NewTable(xds.Cluster), "a", "1")
	v2 := table(t, v1, "a", "2")
	v3 := table(t, v2, "a", "3")
	full := func(s *Scope, is *xds.Table) *evidence { // one owner has all kinds
		for i := range maxAgents + 3 {
			s.Accept(xds.Cluster, fmt.Sprint("fake", i), "liar", "1", all(is))
		}
		return s.find(xds.Cluster)
	}
	t.Run("HEAL-3 others is no kind of an owner", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		s.Show(start, xds.Cluster, v1, none)
		e := full(s, v1)
		if n := e.kinds(ownersOf("liar")); n != maxAgents-1 || e.shared() != maxAgents-1 || e.owners[maxAgents-1] != 0 {
			t.Errorf("%d kinds, %b", n, e.owners)
		}
	})
	t.Run("HEAL-3 only the ACKs of a kind that makes room move to the others", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		s.Show(start, xds.Cluster, v1, none)
		s.Accept(xds.Cluster, "fake0", "liar", "1", all(v1))
		s.Show(start, xds.Cluster, v2, none)
		s.Accept(xds.Cluster, "fake1", "liar", "1", all(v2))
		s.Show(start, xds.Cluster, v3, none)
		s.Accept(xds.Cluster, "fake0", "liar", "3", acks(t, v3, "a").Accepted)
		e := full(s, v3)
		s.Accept(xds.Cluster, "real", "h", "3", all(v3)) // takes the index of fake0
		if e.agents[0] != "real" {
			t.Fatalf("%q", e.agents)
		}
		vs := e.replaced["a"]
		if vs[1].by != 1<<e.shared() || vs[0].by != 1<<1 || e.named["a"].by != 1<<e.shared() || len(e.messages) != 0 {
			t.Errorf("%b, %b, %b", vs[1].by, vs[0].by, e.named["a"].by)
		}
	})
	t.Run("HEAL-3 others may have any index", func(t *testing.T) {
		e := &evidence{agents: []string{others, "x"}}
		if e.shared() != 0 || len(e.agents) != 2 {
			t.Errorf("%q", e.agents)
		}
		for i := range maxAgents {
			e.agent(fmt.Sprint(i), ownersOf(fmt.Sprint(i)))
		}
		if e.agent(others, 1); e.shared() != 0 || len(e.agents) != maxAgents || e.agents[maxAgents-1] == others {
			t.Errorf("%q", e.agents)
		}
	})
	t.Run("HEAL-3 an owner with as many kinds shares the others", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		s.Show(start, xds.Cluster, v1, none)
		for i := range maxAgents - 1 {
			s.Accept(xds.Cluster, fmt.Sprint("kind", i), fmt.Sprint("owner", i%8), "1", all(v1)) // two kinds each, but one
		}
		s.Accept(xds.Cluster, "more", "owner0", "1", all(v1))
		if e := s.find(xds.Cluster); len(e.agents) != maxAgents || e.agents[maxAgents-1] != others || e.agents[0] != "kind0" {
			t.Errorf("%q", e.agents)
		}
	})
	t.Run("HEAL-3 the ACKs of an earlier run move, too", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		s.Show(start, xds.Cluster, v1, none)
		s.Accept(xds.Cluster, "fake0", "liar", "1", acks(t, v1, "a").Accepted)
		full(s, v1)
		data, _ := stored(t, &b, 1<<20)
		s = restored(t, data).Scope("g", "")
		s.Accept(xds.Cluster, "real", "h", "1", all(v2)) // before the first table
		if e := s.find(xds.Cluster); e.agents[0] != "real" {
			t.Fatalf("%q", e.agents)
		}
		s.Show(start, xds.Cluster, v1, none)
		if _, same := s.Accepted(xds.Cluster, "a", v1.Lookup("a").Sum, "real"); same {
			t.Error("the ACKs of a displaced kind count for the kind that displaced it")
		}
	})
}
