package access

import (
	"slices"
	"testing"

	"github.com/chancery-xds/chancery/xds"
)

// tableOf returns a table of secrets with different content.
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

// A still view still looks for every name.
type still struct{ xds.Tables }

func (still) Undecided(*xds.Type, string) bool { return true }

// An invisible name is absent at once, although the source is still looking for it.
func TestHiddenNameIsNotUndecided(t *testing.T) {
	g, _ := decide(t, parse(t, `rules: [{identity: {dns: "{n}"}, secrets: ["{n}/**"]}]`), dns("a"), &xds.Node{ID: "a"})
	v := undecidedView{limitedView: limitedView{of: still{}, lenses: &lenses{grant: g}}, of: still{}}
	if !v.Undecided(xds.Secret, "a/x") || v.Undecided(xds.Secret, "b/x") {
		t.Error("want a/x undecided, and the hidden b/x decided")
	}
}

// A denying rule also hides names that the source looks up one by one.
func TestDenialHidesExactNames(t *testing.T) {
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

// xdstp names are equal in any order of their parameters.
func TestXDSTPNamesAreCanonical(t *testing.T) {
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

// If the groups of a node are unknown, a rule that denies some groups denies the node.
func TestUnknownGroupsAreDenied(t *testing.T) {
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

// User and group IDs only match unix sockets: no other identity matches that of root.
func TestUIDsOnlyOfUnixSockets(t *testing.T) {
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
