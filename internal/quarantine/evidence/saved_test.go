package evidence

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

func stored(t *testing.T, b *Book, limit int) (data []byte, is saved) {
	t.Helper()
	data, err := b.Save(start, limit)
	if err == nil {
		err = json.Unmarshal(data, &is)
	}
	if err != nil {
		t.Fatal(err)
	}
	return data, is
}

func restored(t *testing.T, data []byte) *Book {
	t.Helper()
	var b Book
	if err := b.Restore(data); err != nil {
		t.Fatal(err)
	}
	return &b
}

func TestStoredBytes(t *testing.T) {
	many := func(n, size int) (v1, v2 *xds.Table) {
		var was, is []string
		for i := range n {
			name := fmt.Sprintf("%0*d", 20, i)
			was, is = append(was, name, strings.Repeat("1", size)), append(is, name, strings.Repeat("2", size))
		}
		v1 = table(t, xds.NewTable(xds.Cluster), was...)
		return v1, table(t, v1, is...)
	}
	t.Run("SAFE-9 large versions stay below the limit", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		v1, v2 := many(200, 3000)
		s.Show(start, xds.Cluster, v1, none)
		s.Accept(xds.Cluster, "x", "h", "1", all(v1))
		s.Show(start, xds.Cluster, v2, none)
		s.find(xds.Cluster).worlds[0] = nil // only the replaced versions count
		if data, is := stored(t, &b, 100_000); len(data) > 100_000 || len(data) < 90_000 || len(is.Scopes[0].Types[0].Replaced) != 100_000/(4000+20+256) {
			t.Errorf("%d bytes, %d versions", len(data), len(is.Scopes[0].Types[0].Replaced))
		}
		size := 4000 + 20 + 256
		for limit, want := range map[int]int{size - 1: 0, size: 1, 2*size - 1: 1, 2 * size: 2} {
			data, err := b.Save(start, limit)
			if err != nil || strings.Count(string(data), `"body"`) != want {
				t.Errorf("limit %d: %d versions, %v", limit, strings.Count(string(data), `"body"`), err)
			}
		}
		for age, want := range map[time.Duration]int{MaxAge: 200, MaxAge + 1: 0} {
			data, err := b.Save(start.Add(age), 10<<20)
			var is saved
			if err == nil {
				err = json.Unmarshal(data, &is)
			}
			var got []savedVersion
			if err == nil && len(is.Scopes) > 0 {
				got = is.Scopes[0].Types[0].Replaced
			}
			if len(got) != want || !slices.IsSortedFunc(got, func(a, b savedVersion) int { return strings.Compare(a.Name, b.Name) }) {
				t.Errorf("after %v: %d versions, %v", age, len(got), err)
			}
		}
	})
	t.Run("SAFE-9 names count", func(t *testing.T) {
		old, v2 := many(500, 1)
		v0 := table(t, xds.NewTable(xds.Cluster), "z", "1")
		v2 = table(t, v2, "z", "2")
		var names []string
		for r := range v2.All() {
			names = append(names, r.Name)
		}
		for what, c := range map[string]struct {
			is   protocol.Acceptance
			size int
		}{
			"by name":              {acks(t, v2, names...).Accepted, 500*(20+48) + 1 + 48},
			"a table without them": {all(old), 500*(20+4) + 1 + 4},
		} {
			var b Book
			s := b.Scope("g", "")
			s.Show(start, xds.Cluster, v0, none)
			s.Accept(xds.Cluster, "x", "h", "0", all(v0))
			s.Show(start, xds.Cluster, v2, none)
			s.find(xds.Cluster).worlds[0] = nil
			s.Accept(xds.Cluster, "x", "h", "1", c.is)
			version := 1 + 1 + 256
			for limit, want := range map[int]int{c.size + version - 1: 0, c.size + version: 1} {
				if _, is := stored(t, &b, limit); len(is.Scopes[0].Types[0].Replaced) != want {
					t.Errorf("%s: limit %d: %d versions", what, limit, len(is.Scopes[0].Types[0].Replaced))
				}
			}
		}
	})
	t.Run("SAFE-9 names beyond the limit are not stored", func(t *testing.T) {
		var b Book
		s := b.Scope("g", "")
		v1, _ := many(1, 1)
		s.Show(start, xds.Cluster, v1, none)
		e := s.find(xds.Cluster)
		for i := range maxSavedNames + 100 {
			e.named[fmt.Sprint(i)] = acceptance{}
		}
		_, is := stored(t, &b, 1<<20)
		if n := is.Scopes[0].Types[0].Named; len(n) != maxSavedNames || !slices.IsSortedFunc(n, func(a, b savedName) int { return strings.Compare(a.Name, b.Name) }) {
			t.Errorf("%d names", len(n))
		}
	})
	t.Run("HEAL-3 a table that differs in too many names is not stored", func(t *testing.T) {
		for n, want := range map[int]int{2: 1, maxExcept: 1, maxExcept + 1: 0} {
			var b Book
			s := b.Scope("g", "")
			v1, v2 := many(n, 1)
			v1, v2 = table(t, v1, "same", "1"), table(t, v2, "same", "1")
			s.Show(start, xds.Cluster, v2, none)
			s.Accept(xds.Cluster, "x", "h", "1", all(table(t, v1, "own", "1")))
			_, is := stored(t, &b, 1<<20)
			var worlds []savedWorld
			if len(is.Scopes) > 0 {
				worlds = is.Scopes[0].Types[0].Worlds
			}
			if len(worlds) != want || want > 0 && (len(worlds[0].Except) != n || !slices.IsSorted(worlds[0].Except)) {
				t.Errorf("%d names: %+v", n, worlds)
			}
		}
	})
	t.Run("HEAL-3 nothing is stored without an ACK", func(t *testing.T) {
		var b Book
		v1, v2 := many(1, 1)
		s := b.Scope("g", "")
		s.Show(start, xds.Cluster, v1, none)
		s.Show(start, xds.Cluster, v2, none)
		if data, _ := stored(t, &b, 1<<20); string(data) != `{"format":1,"scopes":[]}` {
			t.Errorf("%s", data)
		}
	})
	t.Run("HEAL-3 scopes and types are in order", func(t *testing.T) {
		var b Book
		for _, k := range []scopeKey{{"g", "b"}, {"h", "a"}, {"g", "a"}} {
			s := b.Scope(k.group, k.identity)
			for _, typ := range []*xds.Type{xds.Route, xds.Endpoint, xds.Cluster, xds.Listener} {
				is, err := xds.NewTable(typ).With([]*xds.Resource{xds.NewResource(typ, "a", []byte("1"))})
				if err != nil {
					t.Fatal(err)
				}
				s.Show(start, typ, is, none)
				s.Accept(typ, "x", "h", "1", all(is))
			}
		}
		data, is := stored(t, &b, 1<<20)
		var got []string
		for _, s := range is.Scopes {
			for _, typ := range s.Types {
				got = append(got, s.Group+s.Identity+xds.TypeOf(typ.URL).Short)
			}
		}
		if text := strings.Join(got, " "); text != "gaCDS gaLDS gaRDS gaEDS gbCDS gbLDS gbRDS gbEDS haCDS haLDS haRDS haEDS" {
			t.Errorf("%s", text)
		}
		again, _ := stored(t, restored(t, data), 1<<20)
		if string(again) != string(data) {
			t.Errorf("%s\n%s", data, again)
		}
	})
}

func TestStoredVersions(t *testing.T) {
	cluster := func(text string, refs []xds.Ref) *xds.Resource {
		r := &xds.Resource{Stamp: &xds.Stamp{Name: "a", Refs: refs}, Type: xds.Cluster, Body: []byte(text), Aliases: []string{"alias"}, TTL: time.Minute}
		r.Seal("v" + text)
		return r
	}
	for name, refs := range map[string][]xds.Ref{
		"unknown":      nil,
		"none":         {},
		"of two types": {{Type: xds.Endpoint, Name: "e"}, {Type: xds.Secret, Name: "s"}},
	} {
		t.Run("HEAL-3 references: "+name, func(t *testing.T) {
			var b Book
			s := b.Scope("g", "")
			for i, text := range []string{"1", "2"} {
				is, err := xds.NewTable(xds.Cluster).With([]*xds.Resource{cluster(text, refs)})
				if err != nil {
					t.Fatal(err)
				}
				s.Show(start, xds.Cluster, is, none)
				s.Accept(xds.Cluster, "x", "h", fmt.Sprint(i), all(is))
			}
			data, _ := stored(t, &b, 1<<20)
			got := previous(restored(t, data).Scope("g", ""), start, xds.Cluster, "a", "x")
			want := cluster("1", refs)
			if len(got) != 1 || got[0].Sum != want.Sum || got[0].Version != "v1" || !slices.Equal(got[0].Refs, refs) || (got[0].Refs == nil) != (refs == nil) || got[0].TTL != time.Minute {
				t.Errorf("%+v", got)
			}
		})
	}
	t.Run("HEAL-3 kinds that the bytes do not have", func(t *testing.T) {
		v1 := table(t, xds.NewTable(xds.Cluster), "a", "1")
		for _, agent := range []int{-1, 0, 1, 100} {
			data := fmt.Appendf(nil, `{"format":1,"scopes":[{"group":"g","types":[{"type":%q,"agents":["x"],"owners":[2],"tables":[{"agent":%d,"sum":%q}]},{"type":""}]}]}`, xds.Cluster.URL, agent, v1.Versions().Sum())
			b := restored(t, data)
			s := b.Scope("g", "")
			s.Show(start, xds.Cluster, v1, none)
			var other Book
			learns(&other, []*xds.Table{v1}, data)
			o := other.Scope("g", "")
			for _, is := range []*xds.Table{v1, table(t, v1, "a", "2")} {
				o.Show(start, xds.Cluster, is, none)
			}
			want := fmt.Sprint(agent == 0, agent == 0)
			if got, before := accepted(s, v1, "a", "x"), len(previous(o, start, xds.Cluster, "a", "x")); got != want || (before == 1) != (agent == 0) {
				t.Errorf("agent %d: %s, %d versions", agent, got, before)
			}
			if agent == 0 && o.find(xds.Cluster).owners[0] != 2 {
				t.Error("the owners of another server's clients are unknown")
			}
		}
	})
	t.Run("HEAL-3 other content than that of the earlier run is not accepted", func(t *testing.T) {
		var b Book
		v1 := table(t, xds.NewTable(xds.Cluster), "a", "1", "b", "1", "c", "1")
		v2 := table(t, v1, "b", "2")
		s := b.Scope("g", "")
		s.Show(start, xds.Cluster, v1, none)
		s.Accept(xds.Cluster, "x", "h", "1", all(v1))
		s.Accept(xds.Cluster, "y", "h", "1", acks(t, v1, "a", "b", "c").Accepted)
		data, _ := stored(t, &b, 1<<20)
		s = restored(t, data).Scope("g", "")
		s.Show(start, xds.Cluster, v2, none)
		if is := accepted(s, v2, "a", "y") + accepted(s, v2, "b", "y") + accepted(s, v2, "a", "x"); is != "true truefalse falsetrue false" {
			t.Error(is)
		}
		var other Book
		learns(&other, []*xds.Table{v1}, data)
		o := other.Scope("g", "")
		o.Accept(xds.Cluster, "own", "h", "1", all(v2)) // the servers number kinds by themselves
		o.Show(start, xds.Cluster, v2, none)
		o.Show(start, xds.Cluster, table(t, v2, "a", "3", "b", "3", "c", "3"), none)
		for name, want := range map[string]string{"a": "y", "b": "own", "c": "y"} {
			e := o.find(xds.Cluster)
			v := e.replaced[name][0]
			if !v.by.has(e, want) || v.by.has(e, "x") || v.by.has(e, "y") != (want == "y") {
				t.Errorf("%s: %b of %q", name, v.by, e.agents)
			}
		}
	})
	t.Run("SAFE-9 the bytes have too many accepted names", func(t *testing.T) {
		v1 := table(t, xds.NewTable(xds.Cluster), "a", "1", "b", "1")
		b := restored(t, fmt.Appendf(nil, `{"format":1,"scopes":[{"group":"g","types":[{"type":%q,"agents":["x"],"names":[{"name":"a","sum":%q,"by":1},{"name":"b","sum":%q,"by":1}]}]}]}`,
			xds.Cluster.URL, v1.Lookup("a").Sum, v1.Lookup("b").Sum))
		s := b.Scope("g", "")
		e := s.find(xds.Cluster)
		for i := range maxNamed - 1 {
			e.named[fmt.Sprint(i)] = acceptance{}
		}
		if s.Show(start, xds.Cluster, v1, none); len(e.named) != maxNamed {
			t.Errorf("%d names", len(e.named))
		}
	})
	t.Run("SAFE-9 the bytes of one type have too many versions", func(t *testing.T) {
		var versions []string
		for i := range maxReplaced + 10 {
			versions = append(versions, fmt.Sprintf(`{"name":"%d","body":"eA==","until":"2030-01-01T00:00:00Z","by":1}`, i))
		}
		b := restored(t, []byte(`{"format":1,"scopes":[{"group":"g","types":[{"type":"`+xds.Cluster.URL+`","agents":["x"],"replaced":[`+strings.Join(versions, ",")+`]}]}]}`))
		if n := b.Scope("g", "").find(xds.Cluster).count; n != maxReplaced || b.bytes.Load() != maxReplaced {
			t.Errorf("%d versions, %d bytes", n, b.bytes.Load())
		}
	})
	t.Run("SAFE-9 the bytes have too many scopes", func(t *testing.T) {
		var scopes []string
		for i := range maxScopes + 10 {
			scopes = append(scopes, fmt.Sprintf(`{"group":"%d"}`, i))
		}
		data := []byte(`{"format":1,"scopes":[` + strings.Join(scopes, ",") + `]}`)
		var other Book
		learns(&other, nil, data)
		if b := restored(t, data); len(b.scopes) != maxScopes || len(other.foreign) != maxScopes {
			t.Errorf("%d, %d scopes", len(b.scopes), len(other.foreign))
		}
	})
}

// The revision is remembered when the version is replaced: later the store may not have it any more.
func TestRevisionOfAReplacedVersion(t *testing.T) {
	v1 := table(t, xds.NewTable(xds.Cluster), "a", "1")
	v2 := table(t, v1, "a", "2")
	is := "r41"
	b := Book{Revision: func(groups string, typ *xds.Type, name string, _ xds.Sum) string {
		return fmt.Sprint(groups, " ", typ, " ", name, " ", is)
	}}
	s := b.Scope("g", "")
	s.Show(start, xds.Cluster, v1, none)
	s.Accept(xds.Cluster, "x", "h", "1", all(v1))
	s.Show(start, xds.Cluster, v2, none)
	is = "r42"
	old, now := v1.Lookup("a").Sum, v2.Lookup("a").Sum
	if a, b := s.RevisionOf(xds.Cluster, "a", old), s.RevisionOf(xds.Cluster, "a", now); a != "g CDS a r41" || b != "g CDS a r42" {
		t.Errorf("HEAL-3 %q, %q", a, b)
	}
	data, _ := stored(t, &b, 1<<20)
	var other Book
	learns(&other, []*xds.Table{v1}, data)
	for what, b := range map[string]*Book{"after a restart": restored(t, data), "on another server": &other} {
		s := b.Scope("g", "")
		if a, b := s.RevisionOf(xds.Cluster, "a", old), s.RevisionOf(xds.Cluster, "a", now); a != "g CDS a r41" || b != "" {
			t.Errorf("HEAL-3 %s: %q, %q", what, a, b)
		}
	}
}
