package evidence

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// acks returns the event of an ACK of the resources with the names; "*" is the wildcard.
func acks(t *testing.T, table *xds.Table, names ...string) (e protocol.Event) {
	t.Helper()
	view := xds.Tables{table.Type().URL: table}
	s := protocol.NewSession(xds.Delta, nil, view, protocol.Options{})
	s.Advance(start)
	if err := s.Receive(xds.Request{Type: table.Type(), Subscribe: names}); err != nil {
		t.Fatal(err)
	}
	nonce := ""
	for r := range s.Responses() {
		nonce = r.Nonce
	}
	for range s.Events() {
	}
	if err := s.Receive(xds.Request{Type: table.Type(), Nonce: nonce}); err != nil {
		t.Fatal(err)
	}
	for got := range s.Events() {
		if got.Kind == protocol.Acked {
			e = got
		}
	}
	return e
}

func TestAcceptedByName(t *testing.T) {
	v1 := table(t, xds.NewTable(xds.Cluster), "a", "1", "b", "1", "c", "1")
	v2 := table(t, v1, "a", "2", "b", "2", "c", "2")
	v3 := table(t, v2, "a", "3")
	before := func(s *Scope, name, agent string) string {
		return bodies(previous(s, start, xds.Cluster, name, agent))
	}
	accept := func(s *Scope, agent string, e protocol.Event) {
		s.Accept(xds.Cluster, agent, "h", e.Version, e.Accepted)
	}

	t.Run("HEAL-3 only the names of the message count", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		s.Show(start, xds.Cluster, v1, none)
		e := acks(t, v1, "a", "b", "absent")
		if e.Accepted.All != nil {
			t.Error("the client has not accepted the whole table")
		}
		accept(s, "x", e)
		accept(s, "y", acks(t, v1, "b"))
		s.Show(start, xds.Cluster, v2, none)
		for name, want := range map[string]string{"a": "1 ", "b": "1 ", "c": "", "absent": ""} {
			if got := before(s, name, "x"); got != want {
				t.Errorf("%s: %q", name, got)
			}
		}
		accept(s, "y", acks(t, v2, "a"))
		s.Show(start, xds.Cluster, v3, none)
		if x, y := before(s, "a", "x"), before(s, "a", "y"); x != "1 2 " || y != "2 1 " {
			t.Errorf("%q, %q: the same kind of client comes first", x, y)
		}
		if any, same := s.Accepted(xds.Cluster, "b", v2.Lookup("b").Sum, "x"); any || same {
			t.Error("a version without an ACK counts as accepted")
		}
	})
	t.Run("HEAL-3 a late ACK by name, also of a name that is gone", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		gone, err := v2.With(nil, "c")
		if err != nil {
			t.Fatal(err)
		}
		s.Show(start, xds.Cluster, v1, none)
		s.Show(start, xds.Cluster, gone, none)
		accept(s, "x", acks(t, v1, "a", "c"))
		if a, b := before(s, "a", "x"), before(s, "b", "x"); a != "1 " || b != "" {
			t.Errorf("%q, %q", a, b)
		}
		if r := s.Removed(start, xds.Cluster, "c"); r == nil || string(r.Body) != "1" {
			t.Errorf("%v", r)
		}
		if s.Removed(start.Add(MaxAge+1), xds.Cluster, "c") != nil {
			t.Error("a removed resource that is too old")
		}
	})
	t.Run("HEAL-3 a wildcard ACK has the whole table", func(t *testing.T) {
		if e := acks(t, v1, "*"); e.Accepted.All.Sum() != v1.Versions().Sum() {
			t.Errorf("%+v", e.Accepted)
		}
	})
	t.Run("HEAL-3 names survive a restart, except names that changed meanwhile", func(t *testing.T) {
		var b, next, other Book
		s := b.Scope("g", "")
		s.Show(start, xds.Cluster, v1, none)
		accept(s, "x", acks(t, v1, "a", "b"))
		data, err := b.Save(start, 1<<20)
		if err == nil {
			err = next.Restore(data)
		}
		if err != nil {
			t.Fatal(err)
		}
		half := table(t, v1, "b", "2")
		s = next.Scope("g", "")
		s.Show(start, xds.Cluster, half, none)
		s.Show(start, xds.Cluster, v2, none)
		if a, b := before(s, "a", "x"), before(s, "b", "x"); a != "1 " || b != "" {
			t.Errorf("%q, %q", a, b)
		}
		learns(&other, []*xds.Table{v1}, data) // what clients of another server accepted before the change
		o := other.Scope("g", "")
		o.Show(start, xds.Cluster, v1, none)
		o.Show(start, xds.Cluster, v2, none)
		if a, c := before(o, "a", "x"), before(o, "c", "x"); a != "1 " || c != "" {
			t.Errorf("%q, %q", a, c)
		}
	})
	t.Run("HEAL-3 a client in quarantine has the table except some names", func(t *testing.T) {
		var b, next Book
		s := b.Scope("g", "")
		s.Show(start, xds.Cluster, v2, none)
		quarantined := table(t, v2, "a", "1") // this client keeps a
		s.Accept(xds.Cluster, "x", "h", "1", all(quarantined))
		data, err := b.Save(start, 1<<20)
		if err == nil {
			err = next.Restore(data)
		}
		if err != nil {
			t.Fatal(err)
		}
		s = next.Scope("g", "")
		s.Show(start, xds.Cluster, v2, none)
		s.Show(start, xds.Cluster, table(t, v2, "a", "4", "b", "4"), none)
		if a, b := before(s, "a", "x"), before(s, "b", "x"); a != "" || b != "2 " {
			t.Errorf("%q, %q", a, b)
		}
	})
}

// SAFE-9: of many versions the oldest go first, those that a client accepted last.
func TestEvidenceKeepsTheNewest(t *testing.T) {
	t.Run("of a name", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		is := xds.NewTable(xds.Cluster)
		for i := range 3 * maxVersions {
			is = table(t, is, "a", fmt.Sprint(i))
			s.Show(start, xds.Cluster, is, none)
			if i == 0 {
				s.Accept(xds.Cluster, "x", "h", "1", all(is))
			}
		}
		if got := bodies(previous(s, start, xds.Cluster, "a", "x")); got != "0 " {
			t.Errorf("the only accepted version is gone: %q", got)
		}
		if n := len(s.find(xds.Cluster).replaced["a"]); n != maxVersions {
			t.Errorf("%d versions", n)
		}
	})
	t.Run("of a type", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		set := func(text string) (all []string) {
			for i := range maxReplaced * 3 / 5 {
				all = append(all, fmt.Sprint(text, i), text)
			}
			return all
		}
		is := xds.NewTable(xds.Cluster)
		for i, change := range [][]string{set("old"), set("new")} {
			with := table(t, is, change...)
			s.Show(start.Add(time.Duration(2*i)*time.Second), xds.Cluster, with, none)
			s.Accept(xds.Cluster, "x", "h", fmt.Sprint(i), all(with))
			for j := range change {
				if j%2 == 1 {
					change[j] += "2"
				}
			}
			is = table(t, with, change...)
			s.Show(start.Add(time.Duration(2*i+1)*time.Second), xds.Cluster, is, none)
		}
		if a, b := bodies(previous(s, start, xds.Cluster, "old1", "x")), bodies(previous(s, start, xds.Cluster, "new1", "x")); a != "" || b != "new " {
			t.Errorf("%q, %q", a, b)
		}
		if n := s.find(xds.Cluster).count; n > maxReplaced || n == 0 {
			t.Errorf("%d versions", n)
		}
	})
	t.Run("of one large commit", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		var was, is []string
		for i := range maxReplaced + 100 {
			was, is = append(was, fmt.Sprint(i), "1"), append(is, fmt.Sprint(i), "2")
		}
		v1 := table(t, xds.NewTable(xds.Cluster), was...)
		s.Show(start, xds.Cluster, v1, none)
		s.Show(start, xds.Cluster, table(t, v1, is...), none)
		if n := s.find(xds.Cluster).count; n != maxReplaced || b.bytes.Load() != int64(n) {
			t.Errorf("%d versions, %d bytes", n, b.bytes.Load())
		}
	})
	t.Run("of a book", func(t *testing.T) {
		var b Book
		first := b.Scope("g", "0")
		for i := range maxScopes {
			b.Scope("g", fmt.Sprint(i))
			if b.Scope("g", "0") != first {
				t.Fatal("a scope in use is dropped")
			}
		}
		b.Scope("g", "more")
		if b.Scope("g", "0") != first || len(b.scopes) != maxScopes {
			t.Errorf("%d scopes", len(b.scopes))
		}
	})
	t.Run("on disk", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		for _, typ := range []*xds.Type{xds.Endpoint, xds.Route} {
			for i := range 2 {
				is, err := xds.NewTable(typ).With([]*xds.Resource{xds.NewResource(typ, "a", []byte(strings.Repeat(fmt.Sprint(i), 1000)))})
				if err != nil {
					t.Fatal(err)
				}
				s.Show(start, typ, is, none)
				s.Accept(typ, "x", "h", "1", all(is))
			}
		}
		data, err := b.Save(start, 2000)
		if err != nil {
			t.Fatal(err)
		}
		var next Book
		if err := next.Restore(data); err != nil {
			t.Fatal(err)
		}
		s = next.Scope("g", "")
		if len(previous(s, start, xds.Route, "a", "x")) != 1 || len(previous(s, start, xds.Endpoint, "a", "x")) != 0 {
			t.Errorf("%s", data)
		}
		data, err = b.Save(start.Add(MaxAge+1), 2000)
		if err != nil || strings.Contains(string(data), "replaced") {
			t.Errorf("old versions are stored: %s, %v", data, err)
		}
	})
}

func TestKindsOfClients(t *testing.T) {
	v1 := table(t, xds.NewTable(xds.Cluster), "a", "1", "b", "1")
	v2 := table(t, v1, "a", "2")
	v3 := table(t, v2, "a", "3")
	t.Run("HEAL-3 kinds keep their versions when another server takes over", func(t *testing.T) {
		var b, other Book
		s := b.Scope("g", "")
		s.Show(start, xds.Cluster, v1, none)
		s.Accept(xds.Cluster, "x", "h", "1", all(v1))
		s.Accept(xds.Cluster, "y", "h", "1", all(v1))
		data, err := b.Save(start, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		learns(&other, []*xds.Table{v1}, data)
		o := other.Scope("g", "")
		o.Show(start, xds.Cluster, v1, none)
		o.Show(start, xds.Cluster, v2, none)
		o.Accept(xds.Cluster, "z", "h", "2", all(v2)) // the other server does not know this
		o.Show(start, xds.Cluster, v3, none)
		if y, z := bodies(previous(o, start, xds.Cluster, "a", "y")), bodies(previous(o, start, xds.Cluster, "a", "z")); y != "1 2 " || z != "2 1 " {
			t.Errorf("%q, %q", y, z)
		}
		o = other.Scope("g", "another table")
		o.Show(start, xds.Cluster, v2, none)
		o.Show(start, xds.Cluster, v3, none)
		if by := o.find(xds.Cluster).replaced["a"][0].by; by != 0 {
			t.Errorf("the ACK of another table counts: %b", by)
		}
	})
	t.Run("HEAL-3 more kinds than the limit share the last", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		s.Show(start, xds.Cluster, v1, none)
		for i := range 2 * maxAgents {
			s.Accept(xds.Cluster, fmt.Sprint(i), "h", "1", all(v1))
		}
		s.Show(start, xds.Cluster, v2, none)
		e := s.find(xds.Cluster)
		if by := e.replaced["a"][0].by; len(e.agents) != maxAgents || by != 1<<maxAgents-1 {
			t.Errorf("%d kinds, %b", len(e.agents), by)
		}
	})
	t.Run("HEAL-3 of a secret only the direct predecessor", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		for i, text := range []string{"1", "2", "3"} {
			is, err := xds.NewTable(xds.Secret).With([]*xds.Resource{xds.NewResource(xds.Secret, "a", []byte(text))})
			if err != nil {
				t.Fatal(err)
			}
			s.Show(start, xds.Secret, is, none)
			if got := bodies(previous(s, start, xds.Secret, "a", "x")); got != []string{"", "1 ", ""}[i] {
				t.Errorf("%d: %q", i, got)
			}
			if i == 0 {
				s.Accept(xds.Secret, "x", "h", "1", all(is))
			}
		}
	})
	t.Run("HEAL-3 a late ACK counts for each kind once", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		if s.Accept(xds.Cluster, "early", "h", "1", all(v1)); s.Removed(start, xds.Cluster, "a") != nil || len(previous(s, start, xds.Cluster, "a", "early")) != 0 {
			t.Error("there is no version yet")
		}
		for _, v := range []*xds.Table{v1, v2, v3} {
			s.Show(start, xds.Cluster, v, none)
		}
		for i, v := range []*xds.Table{v1, v2, v3, table(t, v3, "b", "0"), v1} {
			s.Accept(xds.Cluster, "x", "h", fmt.Sprint(i), all(v))
		}
		if got := bodies(previous(s, start, xds.Cluster, "a", "x")); got != "2 1 " {
			t.Errorf("%q", got)
		}
		e := s.find(xds.Cluster)
		if n := len(e.worlds[e.agent("x", 0)]); n > maxWorlds {
			t.Errorf("%d tables", n)
		}
	})
	t.Run("HEAL-3 saved versions are sorted by their age, and bounded", func(t *testing.T) {
		var versions []string
		for i := range 2 * maxVersions {
			versions = append(versions, fmt.Sprintf(`{"name":"a","body":"eHh4","refs":[],"until":"2030-01-01T00:00:%02dZ","by":1}`, i))
		}
		text := `{"format":1,"scopes":[{"group":"g","types":[{"type":"` + xds.Cluster.URL + `","agents":["x"],"replaced":[` + strings.Join(versions, ",") + `]}]}]}`
		var b Book
		if err := b.Restore([]byte(text)); err != nil {
			t.Fatal(err)
		}
		vs := b.Scope("g", "").find(xds.Cluster).replaced["a"]
		if len(vs) != maxVersions || !vs[0].until.After(vs[1].until) || b.bytes.Load() != int64(3*maxVersions) {
			t.Errorf("%d versions, %d bytes", len(vs), b.bytes.Load())
		}
		if b.Restore([]byte(`{"format":2}`)) == nil || b.Restore([]byte(`{`)) == nil {
			t.Error("an unknown format is read")
		}
	})
}
