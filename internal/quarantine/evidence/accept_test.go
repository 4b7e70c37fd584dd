package evidence

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// accepted reports whether any client, and a client of the kind x, has accepted the a of a table.
func accepted(s *Scope, of *xds.Table, name, agent string) string {
	any, same := s.Accepted(xds.Cluster, name, of.Lookup(name).Sum, agent)
	return fmt.Sprint(any, same)
}

func TestAccept(t *testing.T) {
	v1 := table(t, xds.NewTable(xds.Cluster), "a", "1", "b", "1")
	v2 := table(t, v1, "a", "2")
	t.Run("HEAL-3 an ACK without resources is no evidence", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		changed := b.Changed()
		s.Accept(xds.Cluster, "x", "h", "1", protocol.Acceptance{})
		if s.find(xds.Cluster) != nil || len(changed) > 0 {
			t.Error("it is evidence")
		}
	})
	t.Run("HEAL-3 only new evidence is a change", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		s.Show(start, xds.Cluster, v1, none)
		changed := b.Changed()
		for i, c := range []struct {
			agent, owner string
			is           protocol.Acceptance
			news         int
		}{
			{"x", "h", all(v1), 1},
			{"x", "h", all(v1), 0},
			{"x", "i", all(v1), 1}, // another owner
			{"y", "h", all(v1), 1}, // another kind
			{"y", "h", acks(t, v1, "a").Accepted, 1},
		} {
			s.Accept(xds.Cluster, c.agent, c.owner, "1", c.is)
			if len(changed) != c.news {
				t.Errorf("%d: %d changes, want %d", i, len(changed), c.news)
			}
			for range len(changed) {
				<-changed
			}
		}
		e := acks(t, v1, "a")
		for i, news := range []int{1, 0} {
			s.Accept(xds.Cluster, "z", "h", "1", e.Accepted)
			if len(changed) != news {
				t.Errorf("by name, %d: %d changes, want %d", i, len(changed), news)
			}
			for range len(changed) {
				<-changed
			}
		}
	})
	t.Run("HEAL-3 a late ACK of a table without a name of the current one", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		s.Show(start, xds.Cluster, v1, none)
		s.Show(start, xds.Cluster, table(t, v2, "c", "1"), none)
		s.Accept(xds.Cluster, "x", "h", "1", all(v1))
		if got := bodies(previous(s, start, xds.Cluster, "a", "x")); got != "1 " {
			t.Errorf("%q", got)
		}
	})
	t.Run("HEAL-3 ACKs of several kinds by name add up, for this version only", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		s.Show(start, xds.Cluster, v2, none)
		for _, agent := range []string{"x", "y"} {
			s.Accept(xds.Cluster, agent, agent, "1", acks(t, v2, "a").Accepted)
		}
		if is := accepted(s, v2, "a", "x") + accepted(s, v2, "a", "y") + accepted(s, v1, "a", "x"); is != "true truetrue truefalse false" {
			t.Error(is)
		}
		if a := s.find(xds.Cluster).named["a"]; a.owners.count() != 2 {
			t.Errorf("%d owners", a.owners.count())
		}
	})
	t.Run("SAFE-9 too many names make no room for more", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		s.Show(start, xds.Cluster, v1, none)
		e := s.find(xds.Cluster)
		for i := range maxNamed {
			e.named[fmt.Sprint(i)] = acceptance{}
		}
		s.Accept(xds.Cluster, "x", "h", "1", acks(t, v1, "a").Accepted)
		if len(e.named) != maxNamed || accepted(s, v1, "a", "x") != "false false" {
			t.Errorf("%d names", len(e.named))
		}
		delete(e.named, "1")
		s.Accept(xds.Cluster, "x", "h", "1", acks(t, table(t, v1, "a", "1"), "a", "b").Accepted)
		if len(e.named) != maxNamed {
			t.Errorf("%d names", len(e.named))
		}
	})
	t.Run("SAFE-9 messages that are known are bounded", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		s.Show(start, xds.Cluster, v1, none)
		e := acks(t, v1, "a").Accepted
		for i := range maxMessages + 1 {
			s.Accept(xds.Cluster, "x", "h", fmt.Sprint(i), e)
		}
		if n := len(s.find(xds.Cluster).messages); n != 1 {
			t.Errorf("%d messages", n)
		}
	})
	t.Run("HEAL-3 an ACK of another scope of the group counts as accepted", func(t *testing.T) {
		var b Book
		s, o := b.Scope("g", "i"), b.Scope("g", "j")
		s.Show(start, xds.Cluster, v1, none)
		o.Show(start, xds.Cluster, v1, none)
		o.Accept(xds.Cluster, "x", "h", "1", all(v1))
		if is := accepted(s, v1, "a", "x") + accepted(s, v1, "a", "y") + accepted(o, v1, "a", "x"); is != "true truetrue falsetrue true" {
			t.Error(is)
		}
	})
	t.Run("HEAL-3 the kind of a client is bounded", func(t *testing.T) {
		long := AgentOf(&xds.Node{UserAgentName: strings.Repeat("x", 2*maxAgent), UserAgentVersion: "1"})
		if short := AgentOf(&xds.Node{UserAgentName: "envoy", UserAgentVersion: "1.37"}); len(long) != maxAgent || short != "envoy 1.37" {
			t.Errorf("%d bytes, %q", len(long), short)
		}
	})
}

// Of the tables that clients of a kind accepted, the current one stays, and then those whose owners accepted
// no other one.
func TestAcceptedTablesMakeRoom(t *testing.T) {
	is := xds.NewTable(xds.Cluster)
	var tables []*xds.Table
	for i := range maxWorlds + 2 {
		is = table(t, is, "a", fmt.Sprint(i))
		tables = append(tables, is)
	}
	for _, c := range []struct {
		what   string
		owners []string // of the ACKs of the tables, in order
		want   []bool   // which tables are still known
	}{
		{"one owner, oldest first", []string{"h", "h", "h", "h", "h", "h"}, []bool{true, false, false, true, true, true}},
		{"each its owner, oldest first", []string{"0", "1", "2", "3", "4", "5"}, []bool{true, false, false, true, true, true}},
		{"an owner that accepts all costs others nothing", []string{"0", "1", "9", "9", "9", "9"}, []bool{true, true, false, false, true, true}},
	} {
		t.Run("HEAL-3 "+c.what, func(t *testing.T) {
			var b Book
			s := b.Scope("g", "")
			s.Show(start, xds.Cluster, tables[0], none)
			for i, owner := range c.owners {
				s.Accept(xds.Cluster, "x", owner, "1", all(tables[i]))
			}
			e := s.find(xds.Cluster)
			for i, want := range c.want {
				got := false
				for _, w := range e.worlds[0] {
					got = got || w.Versions == tables[i].Versions()
				}
				if got != want {
					t.Errorf("table %d is known: %v", i, got)
				}
			}
		})
	}
}

// The clients of a lane accept versions that the group does not have yet.
func TestAcceptedInALane(t *testing.T) {
	v1 := table(t, xds.NewTable(xds.Cluster), "a", "1", "b", "1")
	v2 := table(t, v1, "a", "2", "b", "2")
	v3 := table(t, v2, "a", "3")
	ack := func(s *Scope, agent string, is *xds.Table, names ...string) {
		s.Accept(xds.Cluster, agent, agent, is.Lookup("a").Version+fmt.Sprint(names), acks(t, is, names...).Accepted)
	}
	t.Run("HEAL-3 ACKs count when the group gets the version, also as its first", func(t *testing.T) {
		for name, first := range map[string]*xds.Table{"first": nil, "later": v1} {
			var b Book
			s := b.Scope("g", "")
			if first != nil {
				s.Show(start, xds.Cluster, first, none)
			}
			ack(s, "x", v2, "a")
			ack(s, "y", v2, "a", "b")
			if is := accepted(s, v2, "a", "x"); is != "false false" {
				t.Errorf("%s, before: %s", name, is)
			}
			s.Show(start, xds.Cluster, v2, none)
			if is := accepted(s, v2, "a", "x") + accepted(s, v2, "a", "y") + accepted(s, v2, "b", "x"); is != "true truetrue truetrue false" {
				t.Errorf("%s: %s", name, is)
			}
			if e := s.find(xds.Cluster); e.named["a"].owners.count() != 2 || len(e.ahead) != 0 {
				t.Errorf("%s: %+v", name, e.named)
			}
		}
	})
	t.Run("HEAL-3 only the last version of a lane counts", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		s.Show(start, xds.Cluster, v1, none)
		ack(s, "x", v2, "a")
		ack(s, "y", v3, "a")
		s.Show(start, xds.Cluster, v2, none)
		s.Show(start, xds.Cluster, v3, none)
		if is := accepted(s, v3, "a", "y") + accepted(s, v3, "a", "x"); is != "true truetrue false" || len(previous(s, start, xds.Cluster, "a", "x")) != 0 {
			t.Error(is)
		}
	})
	t.Run("HEAL-3 a version without an owner counts in a lane", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		s.Show(start, xds.Cluster, v1, none)
		e := s.find(xds.Cluster)
		e.early(v2.Lookup("a").Stamp, support{by: 1})
		e.early(v3.Lookup("a").Stamp, support{by: 2})
		if a := e.ahead["a"]; a.by != 2 || a.sum != v3.Lookup("a").Sum {
			t.Errorf("the ACKs of another version add up: %+v", a)
		}
	})
	t.Run("HEAL-3 the version of the group comes before earlier ones", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		for i, is := range []*xds.Table{v1, v2} {
			s.Show(start, xds.Cluster, is, none)
			s.Accept(xds.Cluster, "x", "h", fmt.Sprint(i), all(is))
		}
		if got := bodies(s.Before(start, xds.Cluster, "a", v3.Lookup("a").Sum, "x")); got != "2 1 " {
			t.Errorf("%q", got)
		}
		if r := s.Removed(start, xds.Cluster, "b"); r == nil || string(r.Body) != "2" {
			t.Errorf("the lane lacks b: %v", r)
		}
	})
	t.Run("HEAL-3 the direct predecessor of a secret in a lane is that of the group", func(t *testing.T) {
		for accepts, want := range map[int]string{1: "", 2: "2 "} {
			var b Book
			s := b.Scope("g", "")
			for i := 1; i <= 2; i++ {
				is, err := xds.NewTable(xds.Secret).With([]*xds.Resource{xds.NewResource(xds.Secret, "a", fmt.Append(nil, i))})
				if err != nil {
					t.Fatal(err)
				}
				s.Show(start, xds.Secret, is, none)
				if i <= accepts {
					s.Accept(xds.Secret, "x", "h", fmt.Sprint(i), all(is))
				}
			}
			if got := bodies(s.Before(start, xds.Secret, "a", xds.NewResource(xds.Secret, "a", []byte("3")).Sum, "x")); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
	})
	t.Run("SAFE-9 names that only a lane has are bounded", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		s.Show(start, xds.Cluster, v1, none)
		ack(s, "x", v2, "a")
		e := s.find(xds.Cluster)
		for i := range maxAhead - 1 {
			e.ahead[fmt.Sprint(i)] = acceptance{}
		}
		ack(s, "x", v2, "b")
		ack(s, "x", v3, "a")
		if len(e.ahead) != maxAhead || e.ahead["a"].sum != v3.Lookup("a").Sum {
			t.Errorf("%d names", len(e.ahead))
		}
	})
}
