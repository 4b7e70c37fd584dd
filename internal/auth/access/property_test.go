package access_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/chancery-xds/chancery/internal/auth/access"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type caller struct{}

// called returns the context of a connection with an identity.
func called(id access.Identity) context.Context {
	return context.WithValue(context.Background(), caller{}, id)
}

func identity(ctx context.Context) (access.Identity, error) {
	id, _ := ctx.Value(caller{}).(access.Identity)
	return id, nil
}

func policy(t testing.TB, text string) *access.Policy {
	t.Helper()
	p, problems := access.Parse("access.yaml", []byte(text))
	if p == nil {
		t.Fatalf("%v\n%s", problems, text)
	}
	return p
}

var worldTypes = []*xds.Type{xds.Secret, xds.Cluster, xds.VirtualHost, xds.Secret.Legacy()}

// A simulation is a store and streams that see parts of it, by random rules.
type simulation struct {
	*testing.T
	r     *rand.Rand
	st    *store.Store
	src   *access.Source[*store.Watch]
	views []*viewer
}

// A viewer is a stream with the state that it saw last, and a second stream that sees everything.
type viewer struct {
	id    string
	node  *xds.Node
	view  *access.View
	whole *store.Watch
	last  map[string]map[string]*xds.Resource // by type and name
	group []string
}

func (w *simulation) pick(words ...string) string { return words[w.r.IntN(len(words))] }

func (w *simulation) name() string {
	return w.pick("a", "b", "c") + w.pick("/", "/", "-", ".") + w.pick("x", "y", "z", "*", "{n}", "é") + w.pick("", "", "/1", "-2")
}

// rules returns a random access.yaml.
func (w *simulation) rules() string {
	if w.r.IntN(10) == 0 {
		return "otherwise: default"
	}
	var b strings.Builder
	b.WriteString("rules:\n")
	patterns := func() string {
		var list []string
		for range w.r.IntN(3) {
			list = append(list, `"`+w.pick("{n}/*", "{n}/**", "**", "*/x", "a/y", "{n}-*", "b/\\\\*", "**/1", "{n}/x", "c.z", "a-**")+`"`)
		}
		return "[" + strings.Join(list, ", ") + "]"
	}
	for range 1 + w.r.IntN(3) {
		b.WriteString(`- {identity: {dns: "{n}"}, node: {id: "{n}"}`)
		if w.r.IntN(3) == 0 {
			b.WriteString(`, groups: [` + w.pick(`"g-{n}", default`, `default`, `"*"`) + `]`)
		}
		types := ""
		if w.r.IntN(4) == 0 {
			types = w.pick("CDS", "VHDS")
			b.WriteString(", types: [" + types + "]")
		}
		if w.r.IntN(2) == 0 {
			of := types
			if of == "" {
				of = w.pick("CDS", "VHDS")
			}
			b.WriteString(", names: {" + of + ": " + patterns() + "}")
		}
		if w.r.IntN(3) > 0 {
			b.WriteString(", secrets: " + patterns())
		}
		b.WriteString("}\n")
	}
	switch w.r.IntN(5) {
	case 0:
		b.WriteString(`- {deny: true, secrets: ["**/1", "a/x"]}` + "\n")
	case 1:
		b.WriteString(`- {deny: true, identity: {dns: "{n}"}, names: {CDS: ["{n}/x"]}}` + "\n")
	case 2:
		b.WriteString(`- {deny: true, groups: [g-b]}` + "\n")
	}
	return b.String()
}

func (w *simulation) commit() {
	_, err := w.st.Update(func(tx *store.Tx) error {
		for range 1 + w.r.IntN(3) {
			g := tx.Group(w.pick("default", "g-a", "g-b", "g-c"))
			t := worldTypes[w.r.IntN(len(worldTypes))]
			for range 1 + w.r.IntN(4) {
				if name := w.name(); w.r.IntN(3) == 0 {
					g.Delete(t, name)
				} else {
					r := &xds.Resource{Stamp: &xds.Stamp{Name: name}, Type: t, Body: []byte{byte(w.r.IntN(3)), 1}, OnDemand: w.r.IntN(5) == 0}
					if w.r.IntN(4) == 0 && g.Lookup(t, name) == nil {
						r.Aliases = []string{fmt.Sprintf("alias-%s-%d", name, w.r.IntN(1e9))}
					}
					r.Seal("")
					g.Set(r)
				}
			}
			if w.r.IntN(4) == 0 {
				g.Version(t, w.pick("", "v1", "v2"))
			}
		}
		if w.r.IntN(6) == 0 {
			tx.Select(w.selector())
		}
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
}

func (w *simulation) selector() store.Selector {
	n := w.r.IntN(4)
	return func(_ context.Context, node *xds.Node) ([]string, error) {
		switch n {
		case 0:
			return []string{"default"}, nil
		case 1:
			return []string{"g-" + node.ID, "default"}, nil
		case 2:
			return []string{"default", "g-" + node.ID}, nil
		}
		return []string{"g-" + node.ID}, nil
	}
}

func (w *simulation) open() {
	id := w.pick("a", "b", "c", "a")
	s := &viewer{id: id, node: &xds.Node{ID: id}}
	ctx := called(access.Identity{Kind: access.MTLS, DNS: []string{id}})
	var err error
	if s.view, err = w.src.Watch(ctx, s.node); err != nil {
		w.allowed(s, w.groupsOf(ctx, s.node), err)
		return
	}
	if s.whole, err = w.st.Watch(ctx, s.node); err != nil {
		w.Fatal(err)
	}
	for _, t := range worldTypes {
		s.view.Interested(t, true, []string{"a/x"}, nil)
	}
	w.views = append(w.views, s)
	w.look(len(w.views) - 1)
}

func (w *simulation) groupsOf(ctx context.Context, n *xds.Node) []string {
	watch, err := w.st.Watch(ctx, n)
	if err != nil {
		w.Fatal(err)
	}
	defer watch.Close()
	return watch.Groups()
}

// allowed compares an error of a watch with the policy's own decision.
func (w *simulation) allowed(s *viewer, groups []string, err error) access.Grant {
	g, want := w.src.Policy().Decide(access.Identity{Kind: access.MTLS, DNS: []string{s.id}}, s.node)
	if want == nil {
		g, want = g.In(groups)
	}
	if (want == nil) != (err == nil) {
		w.Fatalf("%s in %v: %v, want %v", s.id, groups, err, want)
	}
	return g
}

// look compares what a stream sees with the allowed part of everything.
func (w *simulation) look(i int) {
	s := w.views[i]
	view, hints, err := s.view.Next()
	all, _, _ := s.whole.Next()
	g := w.allowed(s, s.whole.Groups(), err)
	if err != nil {
		s.view.Close()
		s.whole.Close()
		w.views = slices.Delete(w.views, i, i+1)
		return
	}
	if view == nil {
		if all != nil {
			w.Fatal("the stream has no view, but the unlimited stream has one")
		}
		return
	}
	seen := map[string]map[string]*xds.Resource{}
	for _, t := range worldTypes {
		table, whole := view.Table(t), all.Table(t)
		if view.Table(t) != table {
			w.Fatal("two calls of Table return different tables")
		}
		var want []*xds.Resource
		hidden := 0
		for r := range whole.All() {
			if g.Allows(t, r.Name) {
				want = append(want, r)
			} else {
				hidden++
			}
		}
		naive, err := xds.NewTable(t).With(want)
		if err != nil {
			w.Fatal(err)
		}
		have := map[string]*xds.Resource{}
		for r := range table.All() {
			have[r.Name] = r
		}
		if len(have) != len(want) || table.Len() != naive.Len() || table.Versions().Sum() != naive.Versions().Sum() {
			w.Fatalf("%s sees %d of %s (%d by the wildcard), not %d (%d)", s.id, len(have), t, table.Len(), len(want), naive.Len())
		}
		if hidden > 0 && (!table.Hashed() || table.Version() != naive.Version()) {
			w.Fatalf("%s: version %q of %d hidden", t, table.Version(), hidden)
		}
		for r := range whole.All() {
			is := g.Allows(t, r.Name)
			if same(table.Lookup(r.Name), r) != is {
				w.Fatalf("%s is seen: %v", r.Name, !is)
			}
			for _, find := range append([]string{t.Collection(r.Name)}, r.Aliases...) {
				if find != "" && !same(table.Aliased(find).Get(r.Name), naive.Aliased(find).Get(r.Name)) {
					w.Fatalf("%s finds %s", find, r.Name)
				}
			}
		}
		for _, a := range []string{"a", "b", "c"} {
			for _, z := range []string{"/x", "/y", "-x", ".z", "/x/1", "/*"} {
				if d, of := table.Departed(a+z), whole.Departed(a+z); d != nil && !g.Allows(t, a+z) || g.Allows(t, a+z) && d != of {
					w.Fatalf("%s departed: %v, %v", a+z, d, of)
				}
			}
		}
		for _, old := range s.view.Recent(t) {
			for r := range old.All() {
				if !g.Allows(t, r.Name) {
					w.Fatalf("a recent table has the forbidden resource %s", r.Name)
				}
			}
		}
		if got, want := len(s.view.Recent(t)), len(s.whole.Recent(t)); got != want {
			w.Fatalf("%d recent tables, want %d", got, want)
		}
		seen[t.URL] = have
		w.hinted(s, t, hints, have, s.whole.Groups())
	}
	s.last, s.group = seen, s.whole.Groups()
}

// same reports whether two resources are the same to clients. A store may make the same resource
// again.
func same(a, b *xds.Resource) bool {
	return a == b || a != nil && b != nil && a.Sum == b.Sum && a.Version == b.Version
}

// hinted fails if a resource changed and the hints do not name it.
func (w *simulation) hinted(s *viewer, t *xds.Type, hints []xds.Names, have map[string]*xds.Resource, groups []string) {
	if hints == nil || s.last == nil {
		return
	}
	if !slices.Equal(groups, s.group) {
		w.Fatal("the groups changed, without a hint")
	}
	named := func(name string) bool {
		return slices.ContainsFunc(hints, func(n xds.Names) bool { return slices.Contains(n[t.URL], name) })
	}
	for name, r := range have {
		if !same(s.last[t.URL][name], r) && !named(name) {
			w.Fatalf("no hint of the change of %s %s", t, name)
		}
	}
	for name := range s.last[t.URL] {
		if have[name] == nil && !named(name) {
			w.Fatalf("no hint of the removal of %s %s", t, name)
		}
	}
}

// Rules, resources, groups and streams are random. Each stream sees exactly the allowed resources,
// learns of changes, and shares tables with equal streams.
func TestRandomViews(t *testing.T) {
	worlds := 300
	if testing.Short() {
		worlds = 30
	}
	for seed := range worlds {
		w := &simulation{T: t, r: rand.New(rand.NewPCG(uint64(seed), 8))}
		w.st = store.New(store.WithEmptyGroups(), store.WithLog(1+w.r.IntN(20)))
		w.src = access.New(w.st, policy(t, w.rules()), access.Options{Identity: identity})
		for range 60 {
			switch w.r.IntN(8) {
			case 0:
				w.open()
			case 1:
				if w.r.IntN(3) == 0 {
					w.src.SetPolicy(policy(t, w.rules()))
				}
			case 2:
				w.shared()
			case 3, 4, 5:
				w.commit()
			default:
				if len(w.views) > 0 {
					w.look(w.r.IntN(len(w.views)))
				}
			}
		}
		for len(w.views) > 0 {
			s := w.views[0]
			w.look(0)
			if len(w.views) > 0 && w.views[0] == s {
				s.view.Close()
				s.whole.Close()
				w.views = w.views[1:]
			}
		}
		if n := w.src.Lenses(); n != 0 {
			t.Fatalf("seed %d: %d lenses and views are left", seed, n)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// shared fails if two streams that see the same resources do not share tables.
func (w *simulation) shared() {
	if len(w.views) < 2 {
		return
	}
	a, b := w.views[0], w.views[1]
	x, _, err := a.view.Next()
	y, _, err2 := b.view.Next()
	a.last, b.last = nil, nil
	for _, s := range []*viewer{a, b} {
		if _, _, err := s.view.Next(); err != nil {
			s.view.Close()
			s.whole.Close()
			w.views = slices.DeleteFunc(w.views, func(o *viewer) bool { return o == s })
		}
	}
	if err != nil || err2 != nil || x == nil || y == nil || !slices.Equal(a.view.Groups(), b.view.Groups()) {
		return
	}
	g, _ := a.view.Grant()
	h, _ := b.view.Grant()
	for _, t := range worldTypes {
		if g.Key() == h.Key() && x.Table(t) != y.Table(t) {
			w.Fatalf("%s is not shared", t)
		}
	}
}
