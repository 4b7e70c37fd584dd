package dir

import (
	"strings"
	"testing"
)

// SAFE-3: an error in one file causes no second error that is wrong, neither in a check nor in a load.
func TestOneErrorCausesNoOther(t *testing.T) {
	const badGroup = "matchx: {id: e}\n"
	const unknownKey = `unknown key "matchx" in group.yaml (did you mean "match"?)`
	inside := func(socketOf, group string) []string {
		return []string{"l.yaml", tcpListener("l", "80"), "edge/l.yaml", tcpListener(socketOf, "80"), "edge/group.yaml", group}
	}
	for name, tt := range map[string]struct {
		files  []string
		errors string // all errors, without codes
	}{
		"a name that is also in the directory above a broken group": {
			files:  []string{"a.yaml", clusters("a"), "edge/a.yaml", clusters("a"), "edge/group.yaml", badGroup},
			errors: "edge/group.yaml:1:1: group edge: " + unknownKey},
		"a group file that is a directory": {
			files:  []string{"a.yaml", clusters("a"), "edge/a.yaml", clusters("a"), "edge/group.yaml/x.yaml", clusters("x")},
			errors: "edge/group.yaml: group edge: a directory in the place of a file"},
		"two broken groups, one in the other": {
			files:  []string{"a.yaml", clusters("a"), "edge/a.yaml", clusters("a"), "edge/group.yaml", badGroup, "edge/in/a.yaml", clusters("a"), "edge/in/group.yaml", badGroup},
			errors: "edge/group.yaml:1:1: group edge: " + unknownKey + "\nedge/in/group.yaml:1:1: group edge/in: " + unknownKey},
		"a socket that a group outside a broken one has": {
			files:  inside("m", badGroup),
			errors: "edge/group.yaml:1:1: group edge: " + unknownKey},
		"an include of a broken group": {
			files:  []string{"a.yaml", clusters("a"), "x/e.yaml", clusters("e"), "x/group.yaml", "name: edge\n" + badGroup, "w/b.yaml", clusters("b"), "w/group.yaml", "match: {id: w}\ninclude: [edge]\n"},
			errors: "x/group.yaml:2:1: group edge: " + unknownKey},
		"a group that only a broken group includes": {
			files:  []string{"a.yaml", clusters("a"), "x/e.yaml", clusters("e"), "x/group.yaml", "include: [w]\n" + badGroup, "w/b.yaml", clusters("b"), "w/group.yaml", "priority: 1\n"},
			errors: "x/group.yaml:2:1: group x: " + unknownKey},
		"a resource in a broken group": {
			files:  []string{"a.yaml", placed("e", "[x]"), "x/e.yaml", clusters("b"), "x/group.yaml", badGroup},
			errors: "x/group.yaml:1:1: group x: " + unknownKey},
		"nodes that match no rule get a broken group": {
			files:  []string{"a.yaml", clusters("a"), "group.yaml", "otherwise: x\n", "x/e.yaml", clusters("b"), "x/group.yaml", badGroup},
			errors: "x/group.yaml:1:1: group x: " + unknownKey},
		"references to and from a broken group": {
			files: []string{"c.yaml", clusters("c"), "l.yaml", inlineRoutes("cluster: b", "", ""), "x/b.yaml", clusters("b"),
				"x/l.yaml", strings.Replace(inlineRoutes("cluster: c", "", ""), "name: l,", "name: m,", 1), "x/group.yaml", badGroup},
			errors: "x/group.yaml:1:1: group x: " + unknownKey},
		"two groups of one name, which have the same resources": {
			files:  []string{"x/e.yaml", clusters("e"), "x/group.yaml", "name: edge\nmatch: {id: x}\n", "y/e.yaml", clusters("e"), "y/group.yaml", "name: edge\nmatch: {id: y}\n"},
			errors: `y/group.yaml:1:7: group edge: name: two groups have the name "edge" (the other is in x/group.yaml)`},
		"a broken group with the name of another": {
			files:  []string{"a.yaml", clusters("e"), "x/e.yaml", clusters("e"), "x/group.yaml", "name: edge\nmatch: {id: x}\n", "y/e.yaml", clusters("e"), "y/group.yaml", "name: edge\n" + badGroup},
			errors: "y/group.yaml:2:1: group y: " + unknownKey},
		"a reference to a broken resource": {
			files:  []string{"l.yaml", inlineRoutes("cluster: b", "", ""), "b.yaml", strings.Replace(bad, "name: x", "name: b", 1)},
			errors: `b.yaml:1:73: unknown field "nonsense" in Cluster`},
		"the same name in a broken resource": {
			files:  []string{"a.yaml", clusters("b"), "b.yaml", strings.Replace(bad, "name: x", "name: b", 1)},
			errors: `b.yaml:1:73: unknown field "nonsense" in Cluster`},
		// These errors are true.
		"another include of the group": {
			files: []string{"a.yaml", clusters("a"), "x/e.yaml", clusters("e"), "x/group.yaml", badGroup, "w/b.yaml", clusters("b"), "w/group.yaml", "match: {id: w}\ninclude: [nope]\n"},
			errors: "w/group.yaml:2:11: group w: include[0]: there is no group \"nope\"\n" +
				"x/group.yaml:1:1: group x: " + unknownKey},
		"the same name twice in a broken group": {
			files: []string{"a.yaml", clusters("a"), "x/e.yaml", clusters("e"), "x/f.yaml", clusters("e"), "x/group.yaml", badGroup},
			errors: "x/f.yaml:2:3: group x: CDS \"e\" is already at x/e.yaml:2:3\n" +
				"x/group.yaml:1:1: group x: " + unknownKey},
	} {
		t.Run("SAFE-3 "+name, func(t *testing.T) {
			b := newFixture(t, tt.files...)
			text := func(s string) string { return strings.TrimSuffix(strings.ReplaceAll(s, b.dir+"/", ""), "\n") }
			c := Check(b.dir, Options{})
			if got := text(Errors(c.Errors).Error()); got != tt.errors {
				t.Errorf("check: %s\nwant %s", got, tt.errors)
			}
			if got := text(Errors(c.Warnings).Error()); len(c.Warnings) > 0 {
				t.Errorf("check warns: %s", got)
			}
			if _, err := b.src.Load(); err == nil || text(err.Error()) != tt.errors {
				t.Errorf("load: %v\nwant %s", err, tt.errors)
			}
		})
	}
}

func TestInvalidGroupInGroupThatIsAlone(t *testing.T) {
	b := newFixture(t, "a.yaml", clusters("a"), "edge/e.yaml", clusters("e"), "edge/group.yaml", "match: {id: e}\n"+alone, "edge/in/i.yaml", clusters("i"))
	b.expectLoad("", "")
	b.write("a.yaml", clusters("a", "b"), "edge/in/group.yaml", "matchx: {id: i}\n")
	b.expectLoad("", `edge/in/group.yaml:1:1: group edge: unknown key "matchx"`)
	b.expectNode("other", "CDS a b")
	b.expectNode("e", "CDS e i")
	// The correction makes a group of its own.
	b.write("edge/in/group.yaml", "match: {id: i}\n")
	b.approve()
	b.expectNode("e", "CDS e")
	b.expectNode("i", "CDS i")
}
