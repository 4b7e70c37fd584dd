package evidence

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

func table(t *testing.T, was *xds.Table, pairs ...string) *xds.Table {
	t.Helper()
	var set []*xds.Resource
	for i := 0; i < len(pairs); i += 2 {
		set = append(set, xds.NewResource(xds.Cluster, pairs[i], []byte(pairs[i+1])))
	}
	is, err := was.With(set)
	if err != nil {
		t.Fatal(err)
	}
	return is
}

func none(*xds.Type) []*xds.Table { return nil }

func all(t *xds.Table) protocol.Acceptance { return protocol.Acceptance{All: t.Versions()} }

func bodies(rs []*xds.Resource) (all string) {
	for _, r := range rs {
		all += string(r.Body) + " "
	}
	return all
}

// previous returns the versions for a client that refuses the current version.
func previous(s *Scope, now time.Time, t *xds.Type, name, agent string) []*xds.Resource {
	var refused xds.Sum
	if e := s.find(t); e != nil && e.visible(name) != nil {
		refused = e.visible(name).Sum
	}
	return s.Before(now, t, name, refused, agent)
}

// learns passes bytes of other servers to a book. The revisions have the content of the tables.
func learns(b *Book, tables []*xds.Table, servers ...[]byte) {
	b.Learn(func(yield func(time.Time, []byte) bool) {
		for _, data := range servers {
			if !yield(start, data) {
				return
			}
		}
	}, func(_ string, typ *xds.Type, name, sum string) *xds.Resource {
		for _, table := range tables {
			if r := table.Lookup(name); r != nil && table.Type().Is(typ) && r.Sum.String() == sum {
				return r
			}
		}
		return nil
	})
}

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func TestEvidence(t *testing.T) {
	t.Run("HEAL-3 a late ACK counts", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		v1 := table(t, xds.NewTable(xds.Cluster), "a", "1", "b", "1")
		v2 := table(t, v1, "a", "2")
		s.Show(start, xds.Cluster, v1, none)
		s.Show(start, xds.Cluster, v2, none)
		if got := bodies(previous(s, start, xds.Cluster, "a", "x")); got != "" {
			t.Errorf("without an ACK: %q", got)
		}
		s.Accept(xds.Cluster, "x", "h", "1", all(v1))
		if got := bodies(previous(s, start, xds.Cluster, "a", "x")); got != "1 " {
			t.Errorf("%q", got)
		}
		if any, same := s.Accepted(xds.Cluster, "b", v1.Lookup("b").Sum, "y"); !any || same {
			t.Error(any, same)
		}
	})
	t.Run("HEAL-3 the tables before the first client count", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		v1 := table(t, xds.NewTable(xds.Cluster), "a", "1")
		v2 := table(t, v1, "a", "2")
		s.Show(start, xds.Cluster, v2, func(*xds.Type) []*xds.Table { return []*xds.Table{v1} })
		s.Accept(xds.Cluster, "x", "h", "1", all(v1))
		if got := bodies(previous(s, start, xds.Cluster, "a", "x")); got != "1 " {
			t.Errorf("%q", got)
		}
	})
	t.Run("HEAL-3 clients of a group with other identities count, those of other groups do not", func(t *testing.T) {
		var b Book
		v1 := table(t, xds.NewTable(xds.Cluster), "a", "1")
		v2 := table(t, v1, "a", "2")
		s := b.Scope("g", "i")
		s.Show(start, xds.Cluster, v1, none)
		s.Accept(xds.Cluster, "x", "h", "1", all(v1))
		s.Show(start, xds.Cluster, v2, none)
		if got := bodies(previous(b.Scope("g", "j"), start, xds.Cluster, "a", "x")); got != "1 " {
			t.Errorf("%q", got)
		}
		if got := bodies(previous(b.Scope("h", "i"), start, xds.Cluster, "a", "x")); got != "" {
			t.Errorf("%q", got)
		}
	})
	t.Run("HEAL-3 removed secrets and endpoints do not come back", func(t *testing.T) {
		for typ, want := range map[*xds.Type]bool{xds.Cluster: true, xds.Route: true, xds.Secret: false, xds.Endpoint: false} {
			var b Book
			s := b.Scope("g", "")
			v1, err := xds.NewTable(typ).With([]*xds.Resource{xds.NewResource(typ, "a", []byte("1"))})
			if err != nil {
				t.Fatal(err)
			}
			v2, err := v1.With(nil, "a")
			if err != nil {
				t.Fatal(err)
			}
			s.Show(start, typ, v1, none)
			s.Show(start, typ, v2, none)
			if got := s.Removed(start, typ, "a") != nil; got != want {
				t.Errorf("%s: %v", typ, got)
			}
		}
	})
}

// SAFE-9: the evidence is bounded, whatever clients and commits do.
func TestEvidenceIsBounded(t *testing.T) {
	var b Book
	s := b.Scope("g", "")
	is := xds.NewTable(xds.Cluster)
	for i := range 50 {
		var set []*xds.Resource
		for n := range 1000 {
			set = append(set, xds.NewResource(xds.Cluster, fmt.Sprint(n), fmt.Appendf(make([]byte, 1000), "%d", i)))
		}
		var err error
		is, err = is.With(set)
		if err != nil {
			t.Fatal(err)
		}
		s.Show(start.Add(time.Duration(i)*time.Second), xds.Cluster, is, none)
		s.Accept(xds.Cluster, fmt.Sprint(i), "h", "1", all(is))
	}
	e := s.find(xds.Cluster)
	n, bytes := 0, 0
	for _, vs := range e.replaced {
		n += len(vs)
		for _, v := range vs {
			bytes += len(v.Body)
		}
	}
	if n != e.count || int64(bytes) != b.bytes.Load() || n > 1000*maxVersions || len(e.agents) > maxAgents {
		t.Errorf("%d versions, %d counted, %d bytes, %d counted, %d agents", n, e.count, bytes, b.bytes.Load(), len(e.agents))
	}
	if b.names.Load() != int64(is.Len()) {
		t.Errorf("%d names", b.names.Load())
	}
	for i := range 2 * maxScopes {
		b.Scope("h", fmt.Sprint(i))
	}
	s.Show(start, xds.Cluster, xds.NewTable(xds.Cluster), none) // a stream still uses it
	if len(b.scopes) != maxScopes || b.bytes.Load() != 0 || b.names.Load() != 0 {
		t.Errorf("%d scopes, %d bytes", len(b.scopes), b.bytes.Load())
	}
}

// A repeated ACK of a large table costs no more than a lookup.
func TestRepeatedAcceptCost(t *testing.T) {
	var b Book
	s := b.Scope("g", "")
	var set []*xds.Resource
	for n := range 10_000 {
		set = append(set, xds.NewResource(xds.Cluster, fmt.Sprint(n), []byte("1")))
	}
	is, err := xds.NewTable(xds.Cluster).With(set)
	if err != nil {
		t.Fatal(err)
	}
	s.Show(start, xds.Cluster, is, none)
	if n := testing.AllocsPerRun(100, func() {
		s.Show(start, xds.Cluster, is, none)
		s.Accept(xds.Cluster, "x", "h", "1", all(is))
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// The evidence survives a restart of the server, whatever happened to the files meanwhile.
func TestSaved(t *testing.T) {
	v1 := table(t, xds.NewTable(xds.Cluster), "a", "1", "b", "1")
	v2 := table(t, v1, "a", "2")
	v3 := table(t, v2, "b", "2")
	again := func(b *Book) *Book {
		data, err := b.Save(start, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		var next Book
		if err := next.Restore(data); err != nil {
			t.Fatal(err)
		}
		same, err := next.Save(start, 1<<20)
		if err != nil || string(same) != string(data) {
			t.Errorf("%v\n%s\n%s", err, data, same)
		}
		return &next
	}
	before := func(s *Scope, name string) string {
		return bodies(previous(s, start.Add(time.Hour), xds.Cluster, name, "x"))
	}
	t.Run("HEAL-3 a replaced version", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "i")
		s.Show(start, xds.Cluster, v1, none)
		s.Accept(xds.Cluster, "x", "h", "1", all(v1))
		s.Show(start, xds.Cluster, v2, none)
		s = again(&b).Scope("g", "i")
		if got := before(s, "a"); got != "1 " {
			t.Errorf("before the first client: %q", got)
		}
		s.Show(start, xds.Cluster, v2, none)
		s.Show(start, xds.Cluster, v3, none)
		if a, b := before(s, "a"), before(s, "b"); a != "1 " || b != "1 " {
			t.Errorf("%q, %q", a, b)
		}
	})
	t.Run("HEAL-3 the files change while the server is down", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		s.Show(start, xds.Cluster, v1, none)
		s.Accept(xds.Cluster, "x", "h", "1", all(v1))
		s = again(&b).Scope("g", "")
		s.Show(start, xds.Cluster, v2, func(*xds.Type) []*xds.Table { return []*xds.Table{v1} })
		if got := before(s, "a"); got != "1 " {
			t.Errorf("%q", got)
		}
	})
	t.Run("HEAL-3 a return to the earlier version while the server is down", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		for _, v := range []*xds.Table{v1, v2, v3} {
			s.Show(start, xds.Cluster, v, none)
			s.Accept(xds.Cluster, "x", "h", "1", all(v))
		}
		s = again(&b).Scope("g", "")
		s.Show(start, xds.Cluster, v1, none)
		if a, b := before(s, "a"), before(s, "b"); a != "" || b != "" {
			t.Errorf("%q, %q", a, b)
		}
	})
	t.Run("HEAL-3 other servers", func(t *testing.T) {
		var b, other Book
		s := b.Scope("g", "")
		s.Show(start, xds.Cluster, v1, none)
		s.Accept(xds.Cluster, "x", "h", "1", all(v1))
		s.Show(start, xds.Cluster, v2, none)
		data, err := b.Save(start, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		o := other.Scope("g", "")
		o.Show(start, xds.Cluster, v2, none)
		learns(&other, []*xds.Table{v1}, []byte("{"), data)
		if got := before(o, "a"); got != "1 " {
			t.Errorf("%q", got)
		}
		learns(&other, nil)
		if got := before(o, "a"); got != "" {
			t.Errorf("%q", got)
		}
	})
	t.Run("HEAL-3 other servers that ended before the change", func(t *testing.T) {
		var b, other Book
		s := b.Scope("g", "")
		s.Show(start, xds.Cluster, v1, none)
		s.Accept(xds.Cluster, "x", "h", "1", all(v1))
		data, err := b.Save(start, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		learns(&other, nil, data)
		o := other.Scope("g", "")
		o.Show(start, xds.Cluster, v2, func(*xds.Type) []*xds.Table { return []*xds.Table{v1} })
		if got := before(o, "a"); got != "1 " {
			t.Errorf("%q", got)
		}
		if got := before(o, "b"); got != "" {
			t.Errorf("%q", got)
		}
	})
	t.Run("HEAL-3 an accepted key is not stored longer than its successor needs", func(t *testing.T) {
		secrets := func(body string) *xds.Table {
			s, err := xds.NewTable(xds.Secret).With([]*xds.Resource{xds.NewResource(xds.Secret, "a", []byte(body))})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		var b Book
		s := b.Scope("g", "")
		stored := func() bool {
			data, err := b.Save(start, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			return strings.Contains(string(data), base64.StdEncoding.EncodeToString([]byte("secret 1")))
		}
		one, two := secrets("secret 1"), secrets("secret 2")
		s.Show(start, xds.Secret, one, none)
		s.Accept(xds.Secret, "x", "h", "1", all(one))
		s.Show(start, xds.Secret, two, none)
		if !stored() {
			t.Error("the accepted key is not stored")
		}
		s.Accept(xds.Secret, "x", "h", "1", all(two))
		if stored() {
			t.Error("the rotated key is stored")
		}
	})
}

func FuzzRestore(f *testing.F) {
	f.Add([]byte(`{"format":1,"scopes":[{"group":"g","types":[{"type":"t","agents":["x"],"tables":[{"agent":0,"sum":"0000000000000000"}],"names":[{"name":"a","sum":"0","by":1}],"replaced":[{"name":"a","body":"eA==","refs":[{"type":"","name":""}],"by":1}]}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var b Book
		if b.Restore(data) != nil {
			return
		}
		learns(&b, nil, data)
		for _, s := range b.scopes {
			for e := range s.all {
				s.Show(start, e.typ, xds.NewTable(e.typ), none)
				previous(s, start, e.typ, "a", "x")
			}
		}
		if _, err := b.Save(start, 1<<20); err != nil {
			t.Error(err)
		}
	})
}
