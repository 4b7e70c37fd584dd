package protocol

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A stated version is known if a recorded response had it, or if the present table or a recent
// table has it.
func TestWorld(t *testing.T) {
	var tables []*xds.Table // the newest first
	table := xds.NewTable(xds.Cluster)
	for i := range 6 {
		table = with(table, resources(i, "c"))
		tables = slices.Insert(tables, 0, table)
	}
	supplied := tables[3].WithVersion("v7")
	recent := append(slices.Clone(tables), supplied)
	told := &World{Versions: tables[2].Versions()}
	opts := Options{
		Recent: func(*xds.Type) []*xds.Table { return recent },
		Told: func(_ *xds.Type, version string, table *World) *World {
			if version == "told" {
				return told
			}
			return table
		},
	}
	for _, c := range []struct {
		name    string
		typ     *xds.Type
		version string
		opts    Options
		want    *xds.Versions
	}{
		{"SOTW-12 the present version", xds.Cluster, table.Version(), Options{}, table.Versions()},
		{"ADS-3 the version before", xds.Cluster, tables[1].Version(), opts, tables[1].Versions()},
		{"ADS-3 the version five commits ago", xds.Cluster, tables[5].Version(), opts, tables[5].Versions()},
		{"ADS-3 a forgotten version", xds.Cluster, tables[5].Version(), Options{}, nil},
		{"ADS-3 the state of another stream", xds.Cluster, "told", opts, told.Versions},
		{"ADS-3 the same with named subscriptions", xds.Endpoint, "told", opts, told.Versions},
		{"SOTW-1 the table's version with named subscriptions", xds.Endpoint, table.Version(), opts, nil},
		{"SOTW-13 a version from the source does not identify content", xds.Cluster, "v7", opts, nil},
		{"SOTW-12 no version", xds.Cluster, "", opts, nil},
		{"SOTW-12 an unknown version", xds.Cluster, "?", opts, nil},
	} {
		s := NewSession(xds.SotW, nil, xds.Tables{}, c.opts)
		var got *xds.Versions
		if w := s.world(c.typ, c.version, table); w != nil {
			got = w.Versions
		}
		if got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	s := NewSession(xds.SotW, nil, xds.Tables{}, opts)
	if s.world(xds.Cluster, "v7", supplied) != nil {
		t.Error("SOTW-13: the present one")
	}
}

// The next stream adopts the states that the events report of a client, including states that the
// view does not have.
func TestWorldOfAnEarlierStream(t *testing.T) {
	refer := func(version int) []*xds.Resource {
		return []*xds.Resource{resource("l", version, xds.Ref{Type: xds.Cluster, Name: "x"})}
	}
	view := xds.Tables{
		xds.Cluster.URL: tableOf(xds.Cluster, "x", "y"),
		xds.Route.URL:   with(xds.NewTable(xds.Route), refer(1)),
	}
	l := newLine(t, xds.SotW, nil, Options{}, view)
	worlds := map[string]*World{} // by type and version
	listen := func() {
		for r := range l.Responses() {
			l.last[r.Type.URL] = r.Nonce
		}
		for e := range l.Events() {
			if e.Kind == Sent {
				worlds[e.Type.Short+e.Version] = e.World
				worlds[e.Type.Short] = e.World
			}
		}
	}
	routes := func(err *xds.Status) {
		l.ask(xds.Request{Type: xds.Route, Names: []string{"l"}, Nonce: l.last[xds.Route.URL], Error: err})
	}
	l.ask(xds.Request{Type: xds.Cluster})
	routes(nil)
	listen()
	l.ack(xds.Cluster)
	listen()
	routes(nil)
	l.commit(xds.Route, resources(2, "l"))
	listen()
	routes(&xds.Status{Message: "no"}) // it may keep l@1, which refers to x
	l.commit(xds.Route, resources(3, "l"))
	listen()
	if got := othersOf(worlds["RDS"]); got != "l1 l2" {
		t.Error("other routes that the client may have:", got)
	}
	l.commit(xds.Cluster, resources(1, "z"), "x") // x is kept
	listen()
	if got := othersOf(worlds["CDS"]); got != "x1" {
		t.Error("other clusters that the client may have:", got)
	}

	// On the next stream x is kept as well, since a route may refer to it.
	opts := Options{
		Told:   func(typ *xds.Type, version string, _ *World) *World { return worlds[typ.Short+version] },
		Recent: func(typ *xds.Type) []*xds.Table { return []*xds.Table{view.Table(typ)} },
	}
	version := func(typ string) string {
		for key, w := range worlds {
			if v, ok := strings.CutPrefix(key, typ); ok && v != "" && w == worlds[typ] {
				return v
			}
		}
		return ""
	}
	n := newLine(t, xds.SotW, nil, opts, l.view)
	n.ask(xds.Request{Type: xds.Cluster, Version: version("CDS")})
	n.ask(xds.Request{Type: xds.Route, Names: []string{"l"}, Version: version("RDS")})
	if u := n.sub(xds.Cluster); u.told("x").Version != "1" {
		t.Errorf("the state of x is unknown: %+v", u.told("x"))
	}
	if got := n.held(xds.Route); got != "l1 l2" {
		t.Error("other routes that the client may have:", got)
	}
	n.drain()
	if n.sub(xds.Cluster).lingers("x") == nil {
		t.Error("ADS-3: x does not linger")
	}
}

func othersOf(w *World) string {
	var out []string
	for _, st := range w.Others {
		out = append(out, st.Name+st.Version)
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), " ")
}

// After a refused response of a type, it is unknown which resources the client holds, whatever
// version it states.
func TestRefusedBefore(t *testing.T) {
	table := tableOf(xds.Cluster, "a")
	for _, refused := range []bool{false, true} {
		l := newLine(t, xds.SotW, nil, Options{Refused: func(*xds.Type) bool { return refused }}, xds.Tables{xds.Cluster.URL: table})
		l.ask(xds.Request{Type: xds.Cluster, Version: table.Version()})
		want := map[bool]string{false: "", true: "?"}[refused]
		if got := l.held(xds.Cluster); got != want {
			t.Errorf("refused %v: the client may have %q", refused, got)
		}
		want = map[bool]string{false: "", true: "CDS a@1"}[refused]
		if got := l.said(); got != want {
			t.Errorf("SOTW-18, refused %v: sent %q", refused, got)
		}
	}
}

// DELTA-9: a client gets resources that it does not state, or states in another version. Stated
// names that the client may not have are removed.
func TestInitialVersions(t *testing.T) {
	view := xds.Tables{xds.Endpoint.URL: with(tableOf(xds.Endpoint, "a", "b"), []*xds.Resource{aliased("c", "n")})}
	for _, c := range []struct{ sub, initial, want string }{
		{"*", "", "EDS a@1 b@1 c@1"},
		{"*", "a@1 b@1 c@1", ""},
		{"*", "a@1", "EDS b@1 c@1"},
		{"*", "a@1 a@1 a@1", "EDS b@1 c@1"}, // stated several times is stated once
		{"*", "a@0 a@1", "EDS b@1 c@1"},     // the later statement counts
		{"*", "a@1 a@0", "EDS a@1 b@1 c@1"},
		{"*", "a@0 b@1 c@1", "EDS a@1"},
		{"*", "a@1 b@1 c@1 gone@1", "EDS -gone"},
		{"a,b", "a@1", "EDS b@1"},
		{"a,b", "a@1 b@1", ""},
		{"a,gone", "a@1 gone@1", "EDS -gone"},
		{"a", "a@1 b@1 never@1", "EDS -b -never"}, // stated and not subscribed
		{"n", "c@1", ""},
		{"n", "c@0", "EDS c@1"},
	} {
		l := newLine(t, xds.Delta, xds.Endpoint, Options{Grace: -1}, view)
		var initial []xds.Version
		for f := range strings.FieldsSeq(c.initial) {
			n, v, _ := strings.Cut(f, "@")
			initial = append(initial, xds.Version{Name: n, Version: v})
		}
		l.ask(xds.Request{Type: xds.Endpoint, Subscribe: strings.Split(c.sub, ","), Initial: initial})
		if got := l.said(); got != c.want {
			t.Errorf("sub=%s initial=%s: %q, want %q", c.sub, c.initial, got, c.want)
		}
	}
}

// The references of a stated version are known if the view had this version recently. Otherwise the
// resource may refer to anything.
func TestStated(t *testing.T) {
	ref := func(name string) xds.Ref { return xds.Ref{Type: xds.Cluster, Name: name} }
	one := with(xds.NewTable(xds.Route), []*xds.Resource{resource("r", 1, ref("x"))})
	two := with(one, []*xds.Resource{resource("r", 2, ref("y"))})
	gone := with(two, nil, "r")
	for _, c := range []struct {
		name    string
		table   *xds.Table
		recent  []*xds.Table
		version string
		want    string
	}{
		{"as the view has it", two, nil, "2", "[CDS y]"},
		{"as the view had it", two, []*xds.Table{two, one}, "1", "[CDS x]"},
		{"deleted since", gone, nil, "2", "[CDS y]"},
		{"deleted, and an older version", gone, []*xds.Table{gone, two, one}, "1", "[CDS x]"},
		{"a forgotten version", two, nil, "1", "anything"},
	} {
		s := NewSession(xds.Delta, nil, xds.Tables{}, Options{Recent: func(*xds.Type) []*xds.Table { return c.recent }})
		st := stated(slices.Concat([]*xds.Table{c.table}, s.recent(xds.Route)), xds.Version{Name: "r", Version: c.version})
		got := "anything"
		if st.Refs != nil {
			got = ""
			for _, r := range st.Refs {
				got += fmt.Sprintf("[%s %s]", r.Type, r.Name)
			}
		}
		if got != c.want || st.Name != "r" || st.Version != c.version {
			t.Errorf("%s: %s, %+v", c.name, got, st)
		}
	}
}

// ADS-9: a resource that was sent, and was not replaced or removed, counts as held on the next
// stream. The wait for references to it begins with the first call of Responses, whatever caused
// this call.
func TestKeptFromTheFirstRequest(t *testing.T) {
	was := with(xds.NewTable(xds.Listener), []*xds.Resource{resource("l", 1, xds.Ref{Type: xds.Cluster, Name: "x"})})
	lost := tableOf(xds.Cluster, "x", "y")
	view := xds.Tables{xds.Listener.URL: with(was, resources(2, "l")), xds.Cluster.URL: with(lost, nil, "x")}
	for _, touched := range [][]xds.Names{nil, {}} {
		l := newLine(t, xds.Delta, nil, Options{Recent: func(typ *xds.Type) []*xds.Table {
			return map[string][]*xds.Table{xds.Listener.URL: {was}, xds.Cluster.URL: {lost}}[typ.URL]
		}}, view)
		first := func(typ *xds.Type, name, version string) {
			l.ask(xds.Request{Type: typ, Initial: []xds.Version{{Name: name, Version: version}}})
		}
		first(xds.Listener, "l", "1")
		l.want("LDS l@2") // never answered
		first(xds.Cluster, "x", "1")
		l.want("CDS y@1")
		l.ack(xds.Cluster)
		l.wait(5 * time.Second)
		l.Change(view, touched)
		l.want("")
		l.wait(10 * time.Second)
		l.want("CDS -x")
	}
}

// ADS-9: a client that states a version holds its World: without the names that it lacks, and with
// the others that it may hold instead or in addition.
func TestRecall(t *testing.T) {
	cds := func(name string) xds.Ref { return xds.Ref{Type: xds.Cluster, Name: name} }
	stamps := func(rs ...*xds.Resource) (sts []*xds.Stamp) {
		for _, r := range rs {
			sts = append(sts, r.Stamp)
		}
		return sts
	}
	x, y := resource("r", 1, cds("x")), resource("r", 2, cds("y"))
	was := with(xds.NewTable(xds.Route), []*xds.Resource{y, resource("q", 1)})
	for _, c := range []struct {
		name  string
		names []string
		world World
		view  []*xds.Resource
		held  string // that the view does not have
		said  string
	}{
		{"ADS-9 the sent states", []string{"q", "r"}, World{Versions: was.Versions()}, []*xds.Resource{y, resource("q", 1)}, "", "RDS q@1 r@2"},
		{"ADS-9 with a kept state", []string{"q", "r"}, World{Versions: was.Versions(), Others: stamps(x)}, []*xds.Resource{y, resource("q", 1)}, "r1", "RDS q@1 r@2"},
		{"ADS-9 with an unknown state", []string{"q", "r"}, World{Versions: was.Versions(), Others: []*xds.Stamp{{Name: "r"}}}, []*xds.Resource{y, resource("q", 1)}, "?", "RDS q@1 r@2"},
		{"ADS-9 with a kept state, or an unknown one", []string{"q", "r"}, World{Versions: was.Versions(), Others: []*xds.Stamp{x.Stamp, {Name: "r"}}}, []*xds.Resource{y, resource("q", 1)}, "? r1", "RDS q@1 r@2"},
		{"ADS-9 without one name", []string{"q", "r"}, World{Versions: was.Versions(), Lacks: []string{"r"}}, []*xds.Resource{x, resource("q", 1)}, "", "RDS q@1 r@1"},
		{"ADS-9 with the earlier state of that name", []string{"q", "r"}, World{Versions: was.Versions(), Lacks: []string{"r"}, Others: stamps(x)}, []*xds.Resource{y, resource("q", 1)}, "r1", "RDS q@1 r@2"},
		{"ADS-9 a wildcard without a name that the view has again", []string{"*"}, World{Versions: was.Versions(), Lacks: []string{"r"}, Others: stamps(x)}, []*xds.Resource{x, resource("q", 1)}, "", "RDS q@1 r@1"},
		{"ADS-9 a wildcard with the earlier state of a missing name", []string{"*"}, World{Versions: was.Versions(), Lacks: []string{"r"}, Others: stamps(x)}, []*xds.Resource{y, resource("q", 1)}, "r1", "RDS q@1 r@2"},
	} {
		view := xds.Tables{xds.Route.URL: with(xds.NewTable(xds.Route), c.view), xds.Cluster.URL: tableOf(xds.Cluster, "x", "y")}
		l := newLine(t, xds.SotW, nil, Options{Told: func(*xds.Type, string, *World) *World { return &c.world }}, view)
		l.ask(xds.Request{Type: xds.Cluster})
		l.settle()
		l.ask(xds.Request{Type: xds.Route, Version: "v", Names: c.names})
		if got := l.held(xds.Route); got != c.held {
			t.Errorf("%s: the client may have %q, want %q", c.name, got, c.held)
		}
		if got := l.said(); got != c.said {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}

// ADS-9, SOTW-12: a client that may hold more than it states gets a response. "The server can skip"
// the response only for a client that holds exactly the resources that it states.
func TestStatedVersionAfterRefusalIsAnswered(t *testing.T) {
	table := tableOf(xds.Listener, "l")
	for _, c := range []struct {
		name  string
		world *World
		said  string
	}{
		{"SOTW-12 exactly the stated resources", &World{Versions: table.Versions()}, ""},
		{"ADS-9 another state was sent later", &World{Versions: table.Versions(), Since: true}, "LDS l@1"},
		{"ADS-9 unknown resources", &World{Versions: table.Versions(), Others: []*xds.Stamp{{}}}, "LDS l@1"},
	} {
		l := newLine(t, xds.SotW, nil, Options{Told: func(*xds.Type, string, *World) *World { return c.world }}, xds.Tables{xds.Listener.URL: table})
		l.ask(xds.Request{Type: xds.Listener, Version: table.Version()})
		if got := l.said(); got != c.said {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

// ADS-9: a World lacks names that waited. They are sorted for the lookup, in whatever order they
// began to wait.
func TestWorldLacks(t *testing.T) {
	many := numbered(20)
	routes := func(version int, cluster string) (all []*xds.Resource) {
		for _, n := range many {
			all = append(all, resource(n, version, xds.Ref{Type: xds.Cluster, Name: cluster}))
		}
		return append(all, resource("q", version))
	}
	l := newLine(t, xds.SotW, nil, Options{}, xds.Tables{
		xds.Cluster.URL: tableOf(xds.Cluster, "x"), xds.Route.URL: with(xds.NewTable(xds.Route), routes(1, "x")),
	})
	l.ask(xds.Request{Type: xds.Cluster})
	l.ask(xds.Request{Type: xds.Route, Names: append([]string{"q"}, many...)})
	l.settle()
	l.commit(xds.Cluster, resources(1, "y"))
	l.commit(xds.Route, routes(2, "y"))
	var w *World
	for range l.Responses() {
	}
	for e := range l.Events() {
		if e.Kind == Sent && e.Type.Is(xds.Route) {
			w = e.World
		}
	}
	if w == nil || !slices.Equal(w.Lacks, many) || othersOf(w) != strings.Join(many, "1 ")+"1" {
		t.Errorf("%+v", w)
	}
}

// ADS-9: other states that a client may hold are sorted by name for the lookup, in whatever order
// the view lost them.
func TestWorldOthersAreInOrder(t *testing.T) {
	many := numbered(50)
	l := newLine(t, xds.SotW, nil, Options{}, xds.Tables{
		xds.Cluster.URL: tableOf(xds.Cluster, append(many, "x")...), xds.Route.URL: with(xds.NewTable(xds.Route), []*xds.Resource{xds.NewResource(nil, "r", nil)}),
	})
	l.ask(xds.Request{Type: xds.Cluster})
	l.ask(xds.Request{Type: xds.Route, Names: []string{"r"}})
	l.settle()
	l.commit(xds.Route, resources(2, "r")) // the old state of r may refer to any of them
	l.commit(xds.Cluster, resources(2, "x"), many...)
	for range l.Responses() {
	}
	for e := range l.Events() {
		if e.Kind != Sent || !e.Type.Is(xds.Cluster) {
			continue
		}
		var names []string
		for _, st := range e.World.Others {
			names = append(names, st.Name)
		}
		if !slices.Equal(names, many) {
			t.Errorf("%d: %s", len(names), names)
		}
	}
}

// DELTA-9: an index agrees with a map, even if the index is as full as possible.
func TestIndex(t *testing.T) {
	for n := range 70 {
		var of []xds.Version
		for i := range n {
			of = append(of, xds.Version{Name: strings.Repeat("x", i*7%(n/2+1))}) // some names twice, and the empty name
		}
		x, is := newIndex(of), map[string]bool{}
		for i, v := range of {
			if x.has(v.Name) != is[v.Name] || x.add(i) == is[v.Name] {
				t.Fatalf("%d of %d: %q", i, n, v.Name)
			}
			is[v.Name] = true
		}
		if x.has("y") {
			t.Fatalf("y, of %d", n)
		}
	}
}

// ADS-9: a World may have several other states of a name. After the client accepts the new state,
// it holds none of the others any more.
func TestSeveralOthersOfOneName(t *testing.T) {
	old := func(v int) *xds.Stamp { return resource("a", v).Stamp }
	w := &World{Versions: with(xds.NewTable(xds.Endpoint), resources(1, "a")).Versions(), Others: []*xds.Stamp{old(3), old(2)}}
	l := newLine(t, xds.SotW, nil, Options{Told: func(*xds.Type, string, *World) *World { return w }}, xds.Tables{
		xds.Endpoint.URL: with(xds.NewTable(xds.Endpoint), resources(4, "a")),
	})
	l.ask(xds.Request{Type: xds.Endpoint, Version: "v", Names: []string{"a"}})
	l.drain()
	l.ask(xds.Request{Type: xds.Endpoint, Version: "v", Names: []string{"a"}, Nonce: "1"})
	if r := l.subs[0].refusals; len(r) != 0 {
		t.Errorf("%d refusals are left, counted with %d names", len(r), r[0].left)
	}
}

// ADS-9: the client may hold an earlier state of each name that was not sent to it. The next stream
// knows that, even if nothing waits for the name any more. Names that were sent to the client count
// as held.
func TestWorldOfUnknownVersion(t *testing.T) {
	l := newLine(t, xds.SotW, nil, Options{}, xds.Tables{
		xds.Cluster.URL: tableOf(xds.Cluster, "x"), xds.Route.URL: with(xds.NewTable(xds.Route), append(route(1, "x"), resources(1, "a", "z")...)),
	})
	world := func() string {
		t.Helper()
		got := "nothing"
		for r := range l.Responses() {
			l.last[r.Type.URL] = r.Nonce
		}
		for e := range l.Events() {
			if e.Kind != Sent || !e.Type.Is(xds.Route) {
				continue
			}
			got = ""
			for _, st := range e.World.Others {
				got += fmt.Sprintf("%s@%s ", st.Name, st.Version)
			}
		}
		return got
	}
	names := []string{"a", "gone", "r", "z"}
	l.ask(xds.Request{Type: xds.Route, Names: names, Version: "of another replica"})
	l.ask(xds.Request{Type: xds.Cluster, Version: "of another replica"})
	if got := world(); got != "@ gone@ r@ " { // r waits for x
		t.Errorf("at first the client may have %q", got)
	}
	l.ask(xds.Request{Type: xds.Route, Names: names, Nonce: l.last[xds.Route.URL]})
	l.ask(xds.Request{Type: xds.Cluster, Nonce: l.last[xds.Cluster.URL]})
	if got := world(); got != "@ gone@ " {
		t.Errorf("then the client may have %q", got)
	}
	l.ask(xds.Request{Type: xds.Route, Names: names, Nonce: l.last[xds.Route.URL]})
	l.wait(silence)
	l.commit(xds.Route, resources(2, "a"), "z")
	if got := world(); got != "gone@ z@1 " { // SotW cannot remove these
		t.Errorf("at last the client may have %q", got)
	}
}

// ADS-9: a client that has accepted a full state holds exactly this state, and no earlier
// resources.
func TestWorldOfFullState(t *testing.T) {
	l := newLine(t, xds.SotW, nil, Options{}, xds.Tables{xds.Route.URL: tableOf(xds.Route, "a", "b")})
	l.ask(xds.Request{Type: xds.Route, Names: []string{"*"}, Version: "of another replica"})
	for range l.Responses() {
	}
	sent := 0
	for e := range l.Events() {
		if e.Kind != Sent {
			continue
		}
		if sent++; len(e.World.Others) > 0 {
			t.Errorf("the client may also have %+v", e.World.Others[0])
		}
	}
	if sent != 1 {
		t.Errorf("%d responses", sent)
	}
}

// SAFE-1: the memory for the states of a name that a client may hold is bounded, however many
// states there were.
func TestManyOthersOfOneName(t *testing.T) {
	var old []*xds.Stamp
	for v := range 40 {
		old = append(old, resource("a", 100-v).Stamp)
	}
	w := &World{Versions: with(xds.NewTable(xds.Endpoint), resources(1, "a")).Versions(), Others: old}
	l := newLine(t, xds.SotW, nil, Options{Told: func(*xds.Type, string, *World) *World { return w }}, xds.Tables{
		xds.Endpoint.URL: with(xds.NewTable(xds.Endpoint), resources(4, "a")),
	})
	l.ask(xds.Request{Type: xds.Endpoint, Version: "v", Names: []string{"a"}})
	if n := len(l.subs[0].refusals); n > maxRefusals {
		t.Errorf("%d refusals", n)
	}
}

// Sorted lists of stamps agree with maps, for removed names and for the order of equal names.
func TestStampLists(t *testing.T) {
	list := func(version string, which int) (all []*xds.Stamp) {
		for i := range 8 {
			if which&(1<<i) != 0 {
				all = append(all, &xds.Stamp{Name: fmt.Sprint(i), Version: version})
			}
		}
		return all
	}
	say := func(all []*xds.Stamp) (out string) {
		for _, st := range all {
			out += st.Name + st.Version + " "
		}
		return out
	}
	for a := range 256 {
		for b := range 256 {
			few, many := list("a", a), list("b", b)
			var both, left string
			var out []string
			for i := range 8 {
				if a&(1<<i) != 0 {
					both += fmt.Sprint(i, "a ")
					out = append([]string{fmt.Sprint(i)}, out...)
				}
				if b&(1<<i) != 0 {
					both += fmt.Sprint(i, "b ")
					if a&(1<<i) == 0 {
						left += fmt.Sprint(i, "b ")
					}
				}
			}
			if got := say(merged(few, many)); got != strings.ReplaceAll(both, "  ", " ") {
				t.Fatalf("merged %q, want %q", got, both)
			}
			if got := say(except(many, out)); got != left {
				t.Fatalf("left %q, want %q", got, left)
			}
			if say(many) != say(list("b", b)) {
				t.Fatalf("changed: %q", say(many))
			}
		}
	}
}

// ADS-4, ADS-9: a client with an unknown version may hold resources that the view had recently.
// Resources of later tables are new to the client, and resources that refer to these wait (ADS-3).
func TestRecallIgnoresLaterTables(t *testing.T) {
	was := tableOf(xds.Cluster, "x")
	is := with(was, nil, "x")
	next := with(is, resources(1, "y"))
	recent := func(*xds.Type) []*xds.Table { return []*xds.Table{next, is, was} }
	l := newLine(t, xds.SotW, nil, Options{Recent: recent}, xds.Tables{xds.Cluster.URL: is})
	l.ask(xds.Request{Type: xds.Cluster, Version: "of another replica", Names: []string{"x", "y"}})
	l.want("CDS x@1")
	answer := func() {
		l.ask(xds.Request{Type: xds.Cluster, Nonce: l.last[xds.Cluster.URL], Names: []string{"x", "y"}})
	}
	answer()
	l.ask(xds.Request{Type: xds.Route, Names: []string{"r"}})
	l.want("")
	l.commit(xds.Cluster, resources(1, "y"))
	l.commit(xds.Route, route(1, "y"))
	l.want("CDS x@1 y@1")
	answer()
	l.want("RDS r@1")
}

// A version proves which kept resources another server sent together with a table.
func TestWorldOfAnotherServer(t *testing.T) {
	before := with(xds.NewTable(xds.Cluster), append(resources(0, "a", "b", "c"), resources(1, "d")...))
	table := with(before, nil, "b", "d")
	s := NewSession(xds.SotW, nil, xds.Tables{}, Options{Recent: func(*xds.Type) []*xds.Table { return []*xds.Table{before} }})
	b, d := before.Lookup("b").Stamp, before.Lookup("d").Stamp
	for _, c := range []struct {
		name  string
		extra []*xds.Stamp
	}{
		{"ADS-3 one that was removed", []*xds.Stamp{b}},
		{"ADS-3 another one", []*xds.Stamp{d}},
		{"ADS-3 nothing", nil},
	} {
		version := table.VersionWith(slices.Values(c.extra))
		if w := s.world(xds.Cluster, version, table); w == nil || w.Versions != table.Versions() || !slices.Equal(w.Others, c.extra) {
			t.Errorf("%s: %+v", c.name, w)
		}
	}
	if w := s.world(xds.Cluster, table.VersionWith(slices.Values([]*xds.Stamp{b, d})), table); w == nil || w.Versions != before.Versions() {
		t.Errorf("both match the earlier table: %+v", w)
	}
	foreign := resources(7, "x")[0].Stamp
	if w := s.world(xds.Cluster, table.VersionWith(slices.Values([]*xds.Stamp{foreign})), table); w != nil {
		t.Errorf("an unknown version has a state: %+v", w)
	}
}

// Brings reports whether a request states resources from an earlier stream, and whether the view
// has or had exactly these.
func TestBrings(t *testing.T) {
	first := with(xds.NewTable(xds.Cluster), resources(0, "a"))
	before := with(first, resources(0, "b"))
	demand := resources(0, "d")
	demand[0].OnDemand = true
	table := with(with(before, resources(1, "a")), demand)
	opts := Options{Recent: func(*xds.Type) []*xds.Table { return []*xds.Table{before, first} }}
	version := func(table *xds.Table, name string) xds.Version {
		return xds.Version{Name: name, Version: table.Lookup(name).Version}
	}
	for _, c := range []struct {
		name       string
		variant    xds.Variant
		req        xds.Request
		brings, is bool
	}{
		{"SOTW-12 nothing", xds.SotW, xds.Request{}, false, true},
		{"SOTW-12 the present version", xds.SotW, xds.Request{Version: table.Version()}, true, true},
		{"SOTW-12 the version before", xds.SotW, xds.Request{Version: before.Version()}, true, true},
		{"SOTW-12 an unknown version", xds.SotW, xds.Request{Version: "?"}, true, false},
		{"DELTA-5 nothing", xds.Delta, xds.Request{}, false, true},
		{"DELTA-5 the present resources", xds.Delta, xds.Request{Initial: []xds.Version{version(table, "a"), version(table, "b")}}, true, true},
		{"DELTA-5 the earlier resources", xds.Delta, xds.Request{Initial: []xds.Version{version(before, "a"), version(table, "b")}}, true, true},
		{"DELTA-5 the present resources, without one that another server may have removed", xds.Delta, xds.Request{Initial: []xds.Version{version(table, "b")}}, true, false},
		{"DELTA-5 the resources before one was added", xds.Delta, xds.Request{Initial: []xds.Version{version(first, "a")}}, true, true},
		{"DELTA-5 the present resource of a name", xds.Delta, xds.Request{Subscribe: []string{"a"}, Initial: []xds.Version{version(table, "a")}}, true, true},
		{"DELTA-5 the present resource of a name, and a missing name", xds.Delta, xds.Request{Subscribe: []string{"a", "c"}, Initial: []xds.Version{version(table, "a")}}, true, true},
		{"DELTA-5 the present resource of one of two names", xds.Delta, xds.Request{Subscribe: []string{"a", "b"}, Initial: []xds.Version{version(table, "a")}}, true, false},
		{"DELTA-5 a present resource of a name and the wildcard", xds.Delta, xds.Request{Subscribe: []string{"a", xds.Wildcard}, Initial: []xds.Version{version(table, "a")}}, true, false},
		{"DELTA-5 the present resources of the wildcard and an on-demand name", xds.Delta, xds.Request{Subscribe: []string{xds.Wildcard, "d"}, Initial: []xds.Version{version(table, "a"), version(table, "b")}}, true, false},
		{"DELTA-5 the number of resources of the wildcard, one of them on demand", xds.Delta, xds.Request{Subscribe: []string{xds.Wildcard, "d"}, Initial: []xds.Version{version(table, "a"), version(table, "d")}}, true, false},
		{"DELTA-5 another one", xds.Delta, xds.Request{Initial: []xds.Version{version(table, "b"), {Name: "a", Version: "?"}}}, true, false},
		{"DELTA-5 the present resources, and another name", xds.Delta, xds.Request{Initial: []xds.Version{version(table, "a"), version(table, "b"), {Name: "c", Version: "1"}}}, true, false},
		{"DELTA-5 another name", xds.Delta, xds.Request{Initial: []xds.Version{{Name: "c", Version: "1"}}}, true, false},
	} {
		s := NewSession(c.variant, nil, xds.Tables{xds.Cluster.URL: table}, opts)
		c.req.Type = xds.Cluster
		if brings, is := s.Brings(c.req); brings != c.brings || is != c.is {
			t.Errorf("%s: %t %t", c.name, brings, is)
		}
		if err := s.Receive(c.req); err != nil {
			t.Fatal(err)
		}
		if brings, _ := s.Brings(c.req); brings {
			t.Errorf("%s: a later request brings it again", c.name)
		}
		s = NewSession(c.variant, xds.Cluster, xds.Tables{xds.Cluster.URL: table}, opts)
		c.req.Type = nil // the type of the stream
		if brings, is := s.Brings(c.req); brings != c.brings || is != c.is {
			t.Errorf("%s, on a stream of one type: %t %t", c.name, brings, is)
		}
	}
}
