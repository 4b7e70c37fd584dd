package access

import (
	"slices"
	"testing"

	"github.com/chancery-xds/chancery/xds"
)

// tableOf returns a table of secrets with some names, each with content of its own.
func tableOf(t *testing.T, content string, names ...string) *xds.Table {
	t.Helper()
	var all []*xds.Resource
	for _, name := range names {
		all = append(all, xds.NewResource(xds.Secret, name, []byte(content)))
	}
	table, err := xds.NewTable(xds.Secret).With(all)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func namesOf(t *xds.Table) (names []string) {
	for r := range t.All() {
		names = append(names, r.Name)
	}
	slices.Sort(names)
	return names
}

// still is a view of which everything is still looked for.
type still struct{ xds.Tables }

func (still) Undecided(*xds.Type, string) bool { return true }

// A name that may not be seen is absent at once, though the source is still looking for it.
func TestHiddenIsDecided(t *testing.T) {
	g, _ := decide(t, parse(t, `rules: [{identity: {dns: "{n}"}, secrets: ["{n}/**"]}]`), dns("a"), &xds.Node{ID: "a"})
	v := undecided{limited: limited{of: still{}, lenses: &lenses{grant: g}}, of: still{}}
	if !v.Undecided(xds.Secret, "a/x") || v.Undecided(xds.Secret, "b/x") {
		t.Error("what is hidden is looked for, or what is seen is not")
	}
}

// What rules that deny hide is hidden also where few names are seen, which are looked up.
func TestFewWithoutHidden(t *testing.T) {
	g, _ := decide(t, parse(t, `
rules:
- {identity: {dns: "{n}"}, secrets: ["{n}/x", "{n}/y", shared]}
- {deny: true, secrets: ["**/y"]}
`), dns("a"), &xds.Node{ID: "a"})
	f := g.filter(xds.Secret)
	if !f.few() {
		t.Fatal("not few")
	}
	if got := namesOf(f.of(tableOf(t, "1", "a/x", "a/y", "b/x", "shared"), nil)); !slices.Equal(got, []string{"a/x", "shared"}) {
		t.Errorf("%q are seen", got)
	}
}

// Names of new style are the same in any order of their parameters.
func TestNamesOfNewStyle(t *testing.T) {
	const rule = `xdstp://x/t/a\\?b=1&a=2`
	p := parse(t, `
rules:
- {identity: {dns: a}, types: [CDS], names: {CDS: ["`+rule+`"]}}
- {identity: {dns: b}}
- {deny: true, identity: {dns: b}, names: {CDS: ["`+rule+`"]}}
`)
	a, _ := decide(t, p, dns("a"), &xds.Node{ID: "a"})
	b, _ := decide(t, p, dns("b"), &xds.Node{ID: "b"})
	for _, n := range []string{"xdstp://x/t/a?b=1&a=2", "xdstp://x/t/a?a=2&b=1"} {
		if !a.Allows(xds.Cluster, n) || b.Allows(xds.Cluster, n) {
			t.Errorf("%s: %v, %v", n, a.Allows(xds.Cluster, n), b.Allows(xds.Cluster, n))
		}
	}
}

// Where nobody knows the groups of a node, rules that refuse some refuse it.
func TestUnknownGroups(t *testing.T) {
	p := parse(t, `
rules:
- {identity: {dns: "{n}"}}
- {deny: true, groups: [secret]}
`)
	for _, c := range []struct {
		groups []string
		ok     bool
	}{{nil, false}, {[]string{"open"}, true}, {[]string{"open", "secret"}, false}} {
		if _, err := decide(t, p, dns("a"), &xds.Node{ID: "a"}, c.groups...); (err == "") != c.ok {
			t.Errorf("in %v: %q", c.groups, err)
		}
	}
}

// Numbers of users and groups are those of unix sockets: no other identity has that of root.
func TestRootIsOfUnix(t *testing.T) {
	for _, of := range []string{"uid", "gid"} {
		p := parse(t, `rules: [{identity: {`+of+`: 0}, node: {id: "**"}}]`)
		for _, id := range []Identity{{}, dns("a"), spiffe("spiffe://d/a"), {Kind: JWT, Subject: "a"}} {
			if _, err := decide(t, p, id, &xds.Node{ID: "a"}); err == "" {
				t.Errorf("%s 0 is %v", of, id)
			}
		}
		if _, err := decide(t, p, Identity{Kind: Unix}, &xds.Node{ID: "a"}); err != "" {
			t.Error(err)
		}
	}
}
