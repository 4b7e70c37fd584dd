package evidence

import (
	"fmt"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

func TestReplaced(t *testing.T) {
	t.Run("HEAL-3 a version that was rolled back does not count", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		is := table(t, xds.NewTable(xds.Cluster), "a", "0")
		for i, text := range []string{"0", "1", "2", "1", "3"} {
			is = table(t, is, "a", text)
			s.Show(start, xds.Cluster, is, none)
			s.Accept(xds.Cluster, "x", "h", fmt.Sprint(i), all(is))
		}
		if got := bodies(previous(s, start, xds.Cluster, "a", "x")); got != "1 0 " {
			t.Errorf("%q", got)
		}
		if e := s.find(xds.Cluster); e.count != 2 || b.bytes.Load() != 2 {
			t.Errorf("%d versions, %d bytes", e.count, b.bytes.Load())
		}
	})
	t.Run("HEAL-3 a return to content that no client accepted rolls back nothing", func(t *testing.T) {
		for _, c := range []struct {
			texts  string // B: only the clients of kind old accept it; C: no client accepts it
			before string // the versions for a client of kind x
			old    string // those for a client of kind old
		}{
			{"CGC", "G ", "G "},
			{"1C4C", "4 1 ", "4 1 "},
			{"1C4C5C", "5 4 1 ", "5 4 1 "},
			{"BGB", "G ", "G "},
			{"1B4B", "4 1 ", "4 1 "},
			{"1C1C", "1 ", "1 "},      // the clients keep 1, and do not acknowledge it again
			{"1212C", "2 1 ", "2 1 "}, // the second 2 is accepted again
		} {
			var b Book
			s := b.Scope("g", "")
			is := xds.NewTable(xds.Cluster)
			made := map[rune]*xds.Table{}
			for i, text := range c.texts {
				if made[text] == nil {
					made[text] = table(t, is, "a", string(text))
				}
				is = made[text]
				s.Show(start.Add(time.Duration(i)*time.Second), xds.Cluster, is, none)
				switch {
				case text == 'C', c.texts == "1C1C" && i > 0:
				case text == 'B':
					s.Accept(xds.Cluster, "old", "o", "B", acks(t, is, "a").Accepted)
				default:
					s.Accept(xds.Cluster, "x", "h", string(text), acks(t, is, "a").Accepted)
				}
			}
			for agent, want := range map[string]string{"x": c.before, "old": c.old} {
				if got := bodies(previous(s, start.Add(time.Minute), xds.Cluster, "a", agent)); got != want {
					t.Errorf("%s for %s: %q, want %q", c.texts, agent, got, want)
				}
			}
			if e := s.find(xds.Cluster); e.count != len(e.replaced["a"]) || b.bytes.Load() != int64(e.count) {
				t.Errorf("%s: %d versions, %d counted, %d bytes", c.texts, len(e.replaced["a"]), e.count, b.bytes.Load())
			}
		}
	})
	t.Run("HEAL-3 versions from before the removal do not count", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		v1 := table(t, xds.NewTable(xds.Cluster), "a", "1", "b", "1")
		gone, err := v1.With(nil, "a")
		if err != nil {
			t.Fatal(err)
		}
		s.Show(start, xds.Cluster, v1, none)
		s.Accept(xds.Cluster, "x", "h", "1", all(v1))
		s.Show(start, xds.Cluster, gone, none)
		if s.Removed(start, xds.Cluster, "a") == nil || s.Removed(start, xds.Cluster, "c") != nil || s.Removed(start, xds.Route, "a") != nil {
			t.Error("a is removed, the others never existed")
		}
		if got := bodies(previous(s, start, xds.Cluster, "a", "x")); got != "" {
			t.Errorf("while it is removed: %q", got)
		}
		s.Show(start, xds.Cluster, table(t, gone, "a", "2"), none)
		if e := s.find(xds.Cluster); e.count != 0 || len(e.replaced) != 0 || b.bytes.Load() != 0 {
			t.Errorf("%d versions", e.count)
		}
	})
	t.Run("HEAL-3 a version of exactly a day counts", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		v1 := table(t, xds.NewTable(xds.Cluster), "a", "1")
		s.Show(start, xds.Cluster, v1, none)
		s.Accept(xds.Cluster, "x", "h", "1", all(v1))
		s.Show(start, xds.Cluster, table(t, v1, "a", "2"), none)
		if got := len(previous(s, start.Add(MaxAge), xds.Cluster, "a", "x")) - len(previous(s, start.Add(MaxAge+1), xds.Cluster, "a", "x")); got != 1 {
			t.Error(got)
		}
	})
	t.Run("HEAL-3 beyond the limit, a version without an ACK goes first, but not the newest", func(t *testing.T) {
		for _, c := range []struct {
			without int // the version that no client accepted
			want    string
		}{{0, "1 2 3 4 5 6 "}, {5, "0 1 2 3 4 6 "}, {6, "0 1 2 3 5 6 "}} { // 4 has the owner of 5
			var b Book
			s := b.Scope("g", "")
			is := xds.NewTable(xds.Cluster)
			for i := range maxVersions + 2 {
				is = table(t, is, "a", fmt.Sprint(i))
				s.Show(start, xds.Cluster, is, none)
				if i != c.without {
					s.Accept(xds.Cluster, "x", fmt.Sprint("owner", min(i, maxVersions-2)), fmt.Sprint(i), all(is))
				}
			}
			got := ""
			for _, v := range s.find(xds.Cluster).replaced["a"] {
				got = string(v.Body) + " " + got
			}
			if got != c.want {
				t.Errorf("without %d: %q, want %q", c.without, got, c.want)
			}
		}
	})
	t.Run("HEAL-3 a new scope looks at a bounded number of tables, the oldest first", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		is := xds.NewTable(xds.Cluster)
		var recent []*xds.Table
		for i := range 2 * maxChain {
			is = table(t, is, fmt.Sprint("n", i), "1", "a", fmt.Sprint(i%(2*maxChain)))
			recent = append([]*xds.Table{is}, recent...)
		}
		asked := 0
		s.Show(start, xds.Cluster, recent[0], func(*xds.Type) []*xds.Table { asked++; return recent[1:] })
		s.Show(start, xds.Cluster, recent[0], func(*xds.Type) []*xds.Table { asked++; return nil })
		s.Show(start, xds.Cluster, table(t, recent[0], "a", "x"), func(*xds.Type) []*xds.Table { asked++; return nil })
		e := s.find(xds.Cluster)
		if vs := e.replaced["a"]; asked != 1 || len(vs) != maxVersions || string(vs[0].Body) != fmt.Sprint(2*maxChain-1) || string(vs[1].Body) != fmt.Sprint(2*maxChain-2) {
			t.Errorf("asked %d times, %d versions", asked, len(vs))
		}
	})
}

// SAFE-9: the replaced versions of all scopes share a limit of bytes.
func TestTrim(t *testing.T) {
	replaced := func(b *Book, group string, at ...time.Duration) *Scope {
		s := b.Scope(group, "")
		is := table(t, xds.NewTable(xds.Cluster), "a", "-")
		for i, at := range at {
			s.Show(start.Add(at), xds.Cluster, is, none)
			s.Accept(xds.Cluster, "x", "h", fmt.Sprint(i), all(is))
			is = table(t, is, "a", fmt.Sprint(i))
		}
		return s
	}
	full := func(b *Book, s *Scope, at time.Duration) string {
		was := b.bytes.Swap(maxBytes + 1)
		e := s.find(xds.Cluster)
		s.Show(start.Add(at), xds.Cluster, table(t, e.current.Load(), "other", fmt.Sprint(at)), none)
		b.bytes.Add(was - maxBytes - 1)
		return bodies(previous(s, start.Add(at), xds.Cluster, "a", "x"))
	}
	t.Run("versions that are too old go", func(t *testing.T) {
		var b Book
		s := replaced(&b, "g", 0, time.Hour, 2*time.Hour, 3*time.Hour)
		e := s.find(xds.Cluster)
		if got := full(&b, s, MaxAge+2*time.Hour+1); got != "1 " || e.count != 1 {
			t.Errorf("%q, %d versions", got, e.count)
		}
	})
	t.Run("the older half goes, in whatever order the versions come", func(t *testing.T) {
		for range 10 {
			var b Book
			s := b.Scope("g", "")
			is := xds.NewTable(xds.Cluster)
			for i := range 9 {
				is = table(t, is, fmt.Sprint(i), "1")
			}
			s.Show(start, xds.Cluster, is, none)
			for i := range 9 {
				is = table(t, is, fmt.Sprint(i), "2")
				s.Show(start.Add(time.Duration(i)*time.Second), xds.Cluster, is, none)
			}
			full(&b, s, time.Minute)
			if e := s.find(xds.Cluster); e.count != 5 || e.replaced["3"] != nil || e.replaced["4"] == nil {
				t.Fatalf("%d versions", e.count)
			}
		}
	})
	t.Run("one commit with too many bytes", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		v1 := table(t, xds.NewTable(xds.Cluster), "a", "1", "b", "1", "c", "1")
		s.Show(start, xds.Cluster, v1, none)
		b.bytes.Store(maxBytes - 1)
		s.Show(start, xds.Cluster, table(t, v1, "a", "2", "b", "2", "c", "2"), none)
		if n := s.find(xds.Cluster).count; n != 1 || b.bytes.Load() != maxBytes {
			t.Errorf("%d versions, %d bytes", n, b.bytes.Load())
		}
	})
	t.Run("a scope without replaced versions", func(t *testing.T) {
		var b Book
		s := replaced(&b, "g", 0)
		if got := full(&b, s, time.Hour); got != "" {
			t.Errorf("%q", got)
		}
	})
	t.Run("below the limit all stay", func(t *testing.T) {
		var b Book
		s := replaced(&b, "g", 0, time.Hour, 2*time.Hour, 3*time.Hour)
		if got := bodies(previous(s, start.Add(3*time.Hour), xds.Cluster, "a", "x")); got != "1 0 - " {
			t.Errorf("%q", got)
		}
	})
	t.Run("a scope that was dropped forgets its versions, and the book their bytes", func(t *testing.T) {
		var b Book
		old := replaced(&b, "old", 0, time.Hour)
		for i := range maxScopes + 50 {
			b.Scope("g", fmt.Sprint(i))
			b.Scope("used", "")
		}
		if b.Scope("old", "") == old || b.bytes.Load() != 0 || old.find(xds.Cluster).count != 0 {
			t.Errorf("%d bytes", b.bytes.Load())
		}
		used := b.Scope("used", "")
		for i := range maxScopes - 10 {
			b.Scope("h", fmt.Sprint(i))
		}
		if b.Scope("used", "") != used {
			t.Error("a newer scope is dropped before an older one")
		}
		old.Show(start, xds.Cluster, table(t, xds.NewTable(xds.Cluster), "a", "9"), none)
		if b.names.Load() != 0 || old.find(xds.Cluster).count != 0 {
			t.Error("a dropped scope counts")
		}
	})
	t.Run("too many current names drop the oldest scope", func(t *testing.T) {
		var b Book
		b.names.Store(maxNames + 1) // without a scope there is nothing to drop
		first := b.Scope("g", "1")
		b.names.Store(0)
		first.Show(start, xds.Cluster, table(t, xds.NewTable(xds.Cluster), "a", "1"), none)
		b.names.Add(maxNames - 1)
		if b.Scope("g", "2"); len(b.scopes) != 2 {
			t.Error("the limit itself is allowed")
		}
		b.names.Add(1)
		if b.Scope("g", "3"); len(b.scopes) != 2 || b.scopes[scopeKey{"g", "1"}] != nil || b.names.Load() != maxNames {
			t.Errorf("%d scopes, %d names", len(b.scopes), b.names.Load())
		}
	})
}
