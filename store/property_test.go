package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chancery-xds/chancery/internal/testkit/watchtest"
	"github.com/chancery-xds/chancery/xds"
)

// A model is a simple store that copies whole maps.
type model map[slot]cell

type slot struct {
	group string
	url   string
}

type cell struct {
	resources map[string]*xds.Resource
	version   string // supplied by the source
}

func (m model) clone() model {
	c := model{}
	for k, v := range m {
		c[k] = cell{maps.Clone(v.resources), v.version}
	}
	return c
}

func same(a, b map[string]*xds.Resource) bool {
	return maps.EqualFunc(a, b, func(r, s *xds.Resource) bool {
		return r.Sum == s.Sum && r.Version == s.Version && slices.Equal(r.Refs, s.Refs)
	})
}

var (
	modelGroups = []string{DefaultGroup, "edge", "far"}
	modelTypes  = []*xds.Type{xds.Cluster, xds.VirtualHost, unlisted()}
)

// modelNodes is the number of nodes. Their names are numbers.
const modelNodes = 6

// A choice has the groups of each node.
type choice map[string][]string

func randomChoice(rng *rand.Rand) choice {
	c := choice{}
	for i := range modelNodes {
		order := rng.Perm(len(modelGroups))[:1+rng.IntN(len(modelGroups))]
		for _, g := range order {
			c[fmt.Sprint(i)] = append(c[fmt.Sprint(i)], modelGroups[g])
		}
	}
	return c
}

func (c choice) of(_ context.Context, n *xds.Node) ([]string, error) { return c[n.ID], nil }

// laid merges groups as the documentation says: a name finds the resource of the first group, unless one of its
// names finds another resource in an earlier group.
func (m model) laid(t *testing.T, groups []string) xds.Tables {
	view := xds.Tables{}
	for _, typ := range modelTypes {
		seen, taken := map[string]*xds.Resource{}, map[string]bool{} // names and aliases of groups before
		for _, g := range groups {
			c := m[slot{g, typ.URL}]
			for name, r := range c.resources {
				if !slices.ContainsFunc(append(slices.Clone(r.Aliases), name), func(n string) bool { return taken[n] }) {
					seen[name] = r
				}
			}
			for name, r := range c.resources {
				for _, n := range append(slices.Clone(r.Aliases), name) {
					taken[n] = true
				}
			}
		}
		table, err := xds.NewTable(typ).With(slices.Collect(maps.Values(seen)))
		if err != nil {
			t.Fatal(err)
		}
		view[typ.URL] = table
	}
	return view
}

// known reports whether the content of all groups is known.
func known(st *Store, groups []string) bool {
	return !slices.ContainsFunc(groups, func(g string) bool { return st.newest(g).view == nil })
}

func randomName(rng *rand.Rand) string { return fmt.Sprint("n", rng.IntN(12)) }

func randomResource(rng *rand.Rand) *xds.Resource {
	r := &xds.Resource{Stamp: &xds.Stamp{Name: randomName(rng)}, Body: fmt.Append(nil, rng.IntN(3))}
	switch rng.IntN(16) {
	case 0:
		r.Aliases = []string{randomName(rng)}
	case 1:
		r.Aliases = []string{fmt.Sprint("a", rng.IntN(4))}
	case 2:
		r.Aliases = []string{fmt.Sprint("a", rng.IntN(4)), r.Name, fmt.Sprint("a", rng.IntN(4))}
	}
	version := ""
	if rng.IntN(8) == 0 {
		version = fmt.Sprint("v", rng.IntN(3))
	}
	r.Seal(version)
	if rng.IntN(8) == 0 {
		r.Refs = []xds.Ref{{Type: xds.Cluster, Name: randomName(rng)}}
	}
	return r
}

// clash reports whether a name finds two resources of a type.
func (m model) clash() bool {
	for _, c := range m {
		finds := map[string]string{} // resources by name and alias
		for _, r := range c.resources {
			for _, name := range append([]string{r.Name}, r.Aliases...) {
				if other, ok := finds[name]; ok && other != r.Name {
					return true
				}
				finds[name] = r.Name
			}
		}
	}
	return false
}

var errChanged = errors.New("changed my mind")

// transact makes the same random transaction in the store and in the model.
func transact(t *testing.T, rng *rand.Rand, st *Store, m model) (_ model, _ Commit, clashed int) {
	next := m.clone()
	said := map[slot]bool{}
	var fail error
	c, err := st.Update(func(root *Tx) error {
		for range rng.IntN(6) {
			group, typ := modelGroups[rng.IntN(3)], modelTypes[rng.IntN(3)]
			tx, k := root, slot{group, typ.URL}
			if group != DefaultGroup || rng.IntN(2) == 0 {
				tx = root.Group(group)
			}
			in := func() cell {
				v, ok := next[k]
				if !ok {
					v.resources = map[string]*xds.Resource{}
					next[k] = v
				}
				return v
			}
			var rs []*xds.Resource
			for range rng.IntN(4) {
				rs = append(rs, randomResource(rng))
			}
			switch rng.IntN(12) {
			case 0:
				tx.Replace(typ, of(typ, rs...)...)
				clear(in().resources)
				for _, r := range rs {
					in().resources[r.Name] = r
				}
			case 1, 2, 3:
				for _, r := range rs {
					tx.Delete(typ, r.Name)
					delete(in().resources, r.Name)
				}
			case 4:
				tx.Clear()
				for k, v := range next {
					if k.group == group {
						clear(v.resources)
					}
				}
			case 5:
				version := fmt.Sprint("", rng.IntN(3))
				tx.Version(typ, version)
				v := in()
				v.version = version
				next[k], said[k] = v, true
			default:
				tx.Set(of(typ, rs...)...)
				for _, r := range rs {
					in().resources[r.Name] = r
				}
			}
			name := randomName(rng)
			if got, want := tx.Lookup(typ, name), in().resources[name]; (got == nil) != (want == nil) || got != nil && got.Sum != want.Sum {
				t.Fatalf("in the transaction %s is %v, want %v", name, got, want)
			}
		}
		if rng.IntN(10) == 0 {
			fail = errChanged
		}
		return fail
	})
	if fail == nil && next.clash() {
		if err == nil || !strings.Contains(err.Error(), "is an alias of") {
			t.Fatalf("error %v of a name that finds two resources", err)
		}
		return m, c, 1
	}
	if !errors.Is(err, fail) {
		t.Fatalf("error %v, want %v", err, fail)
	}
	if fail != nil {
		return m, c, 0
	}
	for k, v := range next {
		if !said[k] && !same(v.resources, m[k].resources) {
			v.version = "" // the version belonged to the old content
			next[k] = v
		}
	}
	return next, c, 0
}

// check compares a snapshot with the model.
func (m model) check(t *testing.T, s *Snapshot) {
	t.Helper()
	for _, group := range modelGroups {
		for _, typ := range modelTypes {
			table, want := s.View(group).Table(typ), m[slot{group, typ.URL}]
			got := map[string]*xds.Resource{}
			for r := range table.All() {
				got[r.Name] = r
			}
			if !same(got, want.resources) {
				t.Fatalf("%s %s: got %v, want %v", group, typ, got, want.resources)
			}
			version := want.version
			if version == "" {
				table, err := new(xds.Table).With(slices.Collect(maps.Values(want.resources)))
				if err != nil {
					t.Fatal(err)
				}
				version = table.Version()
			}
			if table.Version() != version || table.Len() != len(got) {
				t.Fatalf("%s %s: version %s, want %s; %d resources", group, typ, table.Version(), version, table.Len())
			}
		}
	}
}

func (m model) equal(n model) bool {
	for _, k := range slices.Concat(slices.Collect(maps.Keys(m)), slices.Collect(maps.Keys(n))) {
		if !same(m[k].resources, n[k].resources) || m[k].version != n[k].version {
			return false
		}
	}
	return true
}

// finds returns the content that a stream gets for a name: the resource with that name, and those with that
// alias.
func finds(v xds.View, t *xds.Type, name string) string {
	if v == nil { // nothing is known yet
		return ""
	}
	tell := func(r *xds.Resource) string { return fmt.Sprint(r.Name, r.Sum, r.Version, r.Refs) }
	out, table := "", v.Table(t)
	if r := table.Lookup(name); r != nil {
		out = tell(r)
	}
	var members []string
	for r := range table.Aliased(name).All() {
		members = append(members, " alias of "+tell(table.Lookup(r.Name)))
	}
	slices.Sort(members)
	return out + strings.Join(members, "")
}

// A follower is a stream like those of the server: it looks at names only after a signal, and only at the
// touched ones.
type follower struct {
	w        *Watch
	node     string                       // the selection chooses its groups
	wants    map[string]map[string]bool   // by type URL; "*" is the wildcard
	has      map[string]map[string]string // results of the function finds, by type URL and name
	previous xds.View
	forgot   int // how often any name could differ
}

func follow(t *testing.T, st *Store, node string) *follower {
	f := &follower{w: watchtest.Open(t, st, &xds.Node{ID: node}), node: node, wants: map[string]map[string]bool{}, has: map[string]map[string]string{}}
	for _, typ := range modelTypes {
		f.wants[typ.URL], f.has[typ.URL] = map[string]bool{}, map[string]string{}
	}
	return f
}

// everyName has all names to which a stream may subscribe.
var everyName = func() (names []string) {
	for i := range 12 {
		names = append(names, fmt.Sprint("n", i))
	}
	for i := range 4 {
		names = append(names, fmt.Sprint("a", i))
	}
	return names
}()

// interest changes the follower's subscriptions. It looks up new names in the view that it has.
func (f *follower) interest(rng *rand.Rand) {
	typ := modelTypes[rng.IntN(3)]
	wants := f.wants[typ.URL]
	var added, removed []string
	for range rng.IntN(4) {
		name := everyName[rng.IntN(len(everyName))]
		if wants[name] {
			removed = append(removed, name)
			delete(wants, name)
		} else if !slices.Contains(removed, name) {
			added = append(added, name)
			wants[name] = true
		}
	}
	if wants["*"] = rng.IntN(3) == 0; !wants["*"] {
		delete(wants, "*")
	}
	added = slices.DeleteFunc(added, func(n string) bool { return !wants[n] })
	f.w.Interested(typ, wants["*"], added, removed)
	if f.previous != nil {
		f.look(f.previous, typ, everyName)
	}
}

func (f *follower) look(v xds.View, typ *xds.Type, names []string) {
	for _, name := range names {
		f.has[typ.URL][name] = finds(v, typ, name)
	}
}

// next takes the newest view, and checks that the touched names cover every difference from the view before.
func (f *follower) next(t *testing.T) {
	view, touched := watchtest.Next(t, f.w)
	if (f.previous == nil) != (touched == nil) {
		f.forgot++
	}
	for _, typ := range modelTypes {
		if touched == nil {
			f.look(view, typ, everyName)
			continue
		}
		var names []string
		for _, n := range touched {
			names = append(names, n[typ.URL]...)
		}
		f.look(view, typ, names)
		for _, name := range everyName {
			if was, is := finds(f.previous, typ, name), finds(view, typ, name); was != is && !slices.Contains(names, name) {
				t.Fatalf("%s %s %s was %q and is %q, but was not touched", f.node, typ, name, was, is)
			}
		}
	}
	f.previous = view
}

// check reports changes that the follower missed: without a signal it must have the newest state of all its names.
func (f *follower) check(t *testing.T, newest xds.View) {
	t.Helper()
	for _, typ := range modelTypes {
		for _, name := range everyName {
			if f.wants[typ.URL][name] || f.wants[typ.URL]["*"] {
				if got, want := f.has[typ.URL][name], finds(newest, typ, name); got != want {
					t.Fatalf("%s %s: a stream that wants %v has %s as %q; it is %q and nothing rings",
						f.node, typ, f.wants[typ.URL], name, got, want)
				}
			}
		}
	}
}

// After random transactions the store agrees with the model. Streams that look only at touched names after a
// signal miss no change.
func TestStoreAgreesWithModel(t *testing.T) {
	forgot, silent, clashes, moved := 0, 0, 0, 0
	for seed := range uint64(150) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 0))
				chosen := randomChoice(rng)
				st := New(WithLog(1+rng.IntN(6)), WithGroups(chosen.of))
				m := model{}
				var fs []*follower
				var seq uint64
				for range 80 {
					if len(fs) == 0 || rng.IntN(10) == 0 {
						fs = append(fs, follow(t, st, fmt.Sprint(rng.IntN(modelNodes))))
					}
					next, c, clashed := transact(t, rng, st, m)
					clashes += clashed
					if changed := !next.equal(m); changed != (len(c.Changes) > 0) {
						t.Fatalf("changed: %v, but the commit says %+v", changed, c.Changes)
					} else if changed {
						if c.Seq <= seq {
							t.Fatalf("commit %d after commit %d", c.Seq, seq)
						}
					}
					if rng.IntN(12) == 0 {
						chosen = randomChoice(rng)
						if c, err := st.Update(func(tx *Tx) error { tx.Select(chosen.of); return nil }); err != nil || c.Seq <= seq {
							t.Fatalf("commit %d of a choice: %v", c.Seq, err)
						}
					}
					seq = max(seq, c.Seq) // c.Seq is lower if the transaction only marked a group as empty
					m = next
					m.check(t, st.Snapshot())
					for _, f := range fs {
						if rng.IntN(6) == 0 {
							f.interest(rng)
						}
					}
					if rng.IntN(3) > 0 {
						continue // streams are slow
					}
					synctest.Wait()
					for _, f := range fs {
						if f.w.Groups()[0] != chosen[f.node][0] || len(f.w.Groups()) != len(chosen[f.node]) {
							moved++
						}
						select {
						case <-f.w.C():
							f.next(t)
						default:
							if f.previous == nil {
								f.next(t)
							} else if f.w.seenSeq.Load() < seq {
								silent++
							}
						}
						if known(st, chosen[f.node]) {
							f.check(t, next.laid(t, chosen[f.node]))
						}
						forgot += f.forgot
					}
					if i := rng.IntN(len(fs)); rng.IntN(8) == 0 {
						fs[i].w.Close()
						fs = slices.Delete(fs, i, i+1)
					}
				}
				for _, f := range fs {
					f.w.Close()
				}
			})
		})
	}
	t.Log(forgot, "logs were too short,", silent, "doorbells stayed silent,", clashes, "commits clashed,", moved, "streams saw other groups")
	if !t.Failed() && (forgot == 0 || silent == 0 || clashes == 0 || moved == 0) {
		t.Errorf("the worlds are dull: %d logs were too short, %d doorbells stayed silent for a commit, %d commits clashed, %d streams saw other groups", forgot, silent, clashes, moved)
	}
}
