package dir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/disk/lastgood"
	"github.com/chancery-xds/chancery/internal/disk/watch"
	"github.com/chancery-xds/chancery/internal/testkit/watchtest"
	"github.com/chancery-xds/chancery/xds"
)

// sees returns the resources of a node of all types: "CDS a b"; "refused: …" if it is refused, and
// "nothing is known" if it would get no response.
func (b *fixture) sees(id string) string {
	b.Helper()
	w, err := b.st.Watch(context.Background(), &xds.Node{ID: id})
	if err != nil {
		return "refused: " + err.Error()
	}
	defer w.Close()
	view, _, err := w.Next()
	switch {
	case err != nil:
		return "refused: " + err.Error()
	case view == nil || view.(xds.Tables) == nil:
		return "nothing is known"
	}
	return contents(view.(xds.Tables))
}

func contents(view xds.Tables) string {
	var types []string
	for _, t := range xds.Types() {
		var names []string
		for _, r := range view.Table(t).Since(nil).Upserts {
			names = append(names, r.Name)
		}
		if len(names) > 0 {
			slices.Sort(names)
			types = append(types, t.Short+" "+strings.Join(names, " "))
		}
	}
	return strings.Join(types, ", ")
}

func (b *fixture) expectNode(id, want string) {
	b.Helper()
	if got := b.sees(id); got != want {
		b.Errorf("node %q sees %q, want %q", id, got, want)
	}
}

// expectLoad loads; refused is part of the error, and kept is part of the errors of rejected groups.
func (b *fixture) expectLoad(refused, kept string) Report {
	b.Helper()
	r, err := b.src.Load()
	b.expect(r, err, refused, kept)
	return r
}

func (b *fixture) expect(r Report, err error, refused, kept string) {
	b.Helper()
	if got := fmt.Sprint(err); (err == nil) != (refused == "") || !strings.Contains(strings.ReplaceAll(got, b.dir+"/", ""), refused) {
		b.Errorf("refused: %v, want %q", err, refused)
	}
	if got := r.Rejected.Error(); (r.Rejected == nil) != (kept == "") || !strings.Contains(strings.ReplaceAll(got, b.dir+"/", ""), kept) {
		b.Errorf("kept: %q, want %q", got, kept)
	}
}

// approve loads, and approves all removals.
func (b *fixture) approve() {
	b.Helper()
	r, err := b.src.load(order{force: true, approve: true}, &scanner{})
	b.expect(r, err, "", "")
}

const (
	edgeGroup   = "match: {id: \"edge-*\"}\ninclude: [default]\n"
	canaryGroup = "match: {id: canary}\n"
	alone       = "on_error: alone\n"
)

// bad is a file with a mistake.
const bad = "{" + clusterURL + ", name: x, nonsense: 1}\n"

func TestGroups(t *testing.T) {
	t.Run("a directory with a group.yaml, and all below it down to the next", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"), "plain/b.yaml", clusters("b"), "edge/group.yaml", edgeGroup, "edge/x/y/c.yaml", clusters("c"),
			"edge/x/z/group.yaml", "match: {id: z}\n", "edge/x/z/d.yaml", clusters("d"))
		r := b.expectLoad("", "")
		if r.Groups != 3 || len(r.Counts) != 1 || r.Counts[0].N != 4 || !strings.Contains(fmt.Sprint(r.Attrs()...), "groups3") && !strings.Contains(fmt.Sprint(r.Attrs()...), "groups 3") {
			t.Error(r, r.Attrs())
		}
		b.expectNode("nobody", "CDS a b")
		b.expectNode("edge-1", "CDS a b c")
		b.expectNode("z", "CDS d")
		if groups := b.st.Snapshot().Groups(); !slices.Equal(groups, []string{"default", "edge", "edge/x/z"}) {
			t.Error(groups)
		}
	})
	t.Run("without a group.yaml no group is selected", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"), "edge/c.yaml", clusters("c"))
		if r := b.expectLoad("", ""); r.Groups != 0 || b.src.rules != nil {
			t.Error(r)
		}
		b.expectNode("edge-1", "CDS a c")
	})
	t.Run("names of groups", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"), "x/group.yaml", "name: one\n"+canaryGroup, "x/c.yaml", clusters("c"))
		b.expectLoad("", "")
		b.expectNode("canary", "CDS c")
		b.write("y/group.yaml", "name: one\n")
		b.expectLoad("two groups have the name \"one\"", "")
	})
	t.Run("a name may be in two groups, but not twice in one", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"), "edge/group.yaml", edgeGroup, "edge/a.yaml", clusters("a"))
		b.expectLoad("", "")
		b.expectNode("edge-1", "CDS a")
		b.write("edge/b.yaml", clusters("a"))
		b.expectLoad("edge/b.yaml:2:3: group edge: CDS \"a\" is already at", "")
	})
	t.Run("otherwise: refuse", func(t *testing.T) {
		b := newFixture(t, "group.yaml", "otherwise: refuse\n", "a.yaml", clusters("a"), "edge/group.yaml", edgeGroup)
		b.expectLoad("", "")
		b.expectNode("edge-1", "CDS a")
		if got := b.sees("stranger"); !strings.Contains(got, `refused: no group matches node id "stranger", cluster ""`) {
			t.Error(got)
		}
	})
	t.Run("an edit of a rule moves nodes in one commit with the content", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"), "canary/group.yaml", canaryGroup, "canary/c.yaml", clusters("c"))
		b.expectLoad("", "")
		w := watchtest.Open(b, b.st, &xds.Node{ID: "canary"})
		defer w.Close()
		w.Interested(xds.Cluster, true, nil, nil)
		before, _ := watchtest.Next(b, w)
		b.write("canary/group.yaml", "match: {id: other}\n", "a.yaml", clusters("a", "a2"))
		b.expectLoad("", "")
		after, _ := watchtest.Next(b, w)
		if got := contents(before.(xds.Tables)) + " then " + contents(after.(xds.Tables)); got != "CDS c then CDS a a2" {
			t.Error(got)
		}
		b.expectNode("other", "CDS c")
	})
	t.Run("a group that only includes others", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"), "edge/group.yaml", edgeGroup)
		b.expectLoad("", "")
		b.expectNode("edge-1", "CDS a")
	})
	t.Run("SAFE-10 a new group without resources does not block the others", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"), "canary/group.yaml", canaryGroup, "other/group.yaml", canaryGroup, "other/b.yaml", clusters("b"))
		b.expectLoad("", "")
		b.expectNode("canary", "CDS b")
	})
	t.Run("SAFE-10 a root without resources is unknown", func(t *testing.T) {
		b := newFixture(t, "other/group.yaml", canaryGroup, "other/b.yaml", clusters("b"))
		b.expectLoad("", "")
		b.expectNode("nobody", "nothing is known")
		b.expectNode("canary", "CDS b")
	})
	t.Run("mistakes in a group.yaml have a place", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"), "edge/group.yaml", "mtch: {}\n")
		b.expectLoad(`edge/group.yaml:1:1: group edge: unknown key "mtch"`, "")
		b.write("edge/group.yaml", "match: {}\ninclude: [defalt]\n")
		b.expectLoad(`edge/group.yaml:2:11: group edge: include[0]: there is no group "defalt" (did you mean "default"?)`, "")
		b.expectNode("edge", "nothing is known")
	})
	t.Run("SAFE-10 a directory in the place of a group.yaml", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"), "edge/e.yaml", clusters("e"))
		if err := os.Mkdir(filepath.Join(b.dir, "edge", "group.yaml"), 0o755); err != nil {
			t.Fatal(err)
		}
		b.expectLoad("edge/group.yaml: group edge: a directory in the place of a file", "")
	})
	t.Run("only the root is named default", func(t *testing.T) {
		for file, text := range map[string]string{"group.yaml": "name: foo\n", "default/group.yaml": "match: {}\n", "edge/group.yaml": "name: default\n"} {
			b := newFixture(t, "a.yaml", clusters("a"), file, text)
			b.expectLoad(file+": ", "")
			if err := b.try(); !strings.Contains(err, `"default"`) {
				t.Error(err)
			}
		}
	})
	t.Run("places are those of the group that a node sees", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a", "b"), "edge/group.yaml", edgeGroup, "edge/a.yaml", clusters("x", "a"))
		b.expectLoad("", "")
		for _, tt := range []struct{ id, name, want string }{
			{"edge-1", "a", "edge/a.yaml:3:3"}, {"edge-1", "b", "a.yaml:3:3"}, {"nobody", "a", "a.yaml:2:3"}, {"nobody", "x", "edge/a.yaml:2:3"}, {"nobody", "y", ""},
		} {
			if got := strings.TrimPrefix(b.src.PlaceFor(&xds.Node{ID: tt.id}, xds.Cluster, tt.name), b.dir+"/"); got != tt.want {
				t.Errorf("%s of %s: %q, want %q", tt.name, tt.id, got, tt.want)
			}
		}
		if got := b.src.Place(xds.Cluster, "a"); got != filepath.Join(b.dir, "a.yaml:2:3") {
			t.Error(got)
		}
	})
}

// placed returns a cluster that names its groups.
func placed(name, groups string) string {
	return fmt.Sprintf("{%s, name: %s, x-chancery: {groups: %s}}\n", clusterURL, name, groups)
}

func TestResourceNamesItsGroups(t *testing.T) {
	files := func(more ...string) []string {
		return append([]string{"a.yaml", clusters("a"), "edge/group.yaml", "match: {id: edge}\n", "edge/e.yaml", clusters("e"), "canary/group.yaml", canaryGroup, "canary/c.yaml", clusters("c")}, more...)
	}
	t.Run("in the groups that the resource names, not in the group of its file", func(t *testing.T) {
		b := newFixture(t, files("s.yaml", placed("s", "[edge, canary]"), "edge/t.yaml", placed("t", "default"))...)
		b.expectLoad("", "")
		b.expectNode("edge", "CDS e s")
		b.expectNode("canary", "CDS c s")
		b.expectNode("nobody", "CDS a t")
		b.write("s.yaml", placed("s", "canary"))
		b.expectLoad("", "")
		b.expectNode("edge", "CDS e")
	})
	for name, tt := range map[string]struct{ file, want string }{
		"a group that does not exist":     {placed("s", "[edge, canry]"), `s.yaml:1:101: group default: x-chancery.groups[1]: there is no group "canry" (did you mean "canary"?)`},
		"another key":                     {"{" + clusterURL + ", name: s, x-chancery: {group: edge}}\n", `unknown key "group" (the keys are groups and on_demand)`},
		"an empty list":                   {placed("s", "[]"), "a list of groups without a name"},
		"not a text":                      {placed("s", "[1]"), "x-chancery.groups[0]: the name of a group is needed"},
		"a duplicate name in a group":     {placed("e", "[edge]"), `s.yaml:1:1: group default: CDS "e" is already at`},
		"the same group twice":            {placed("s", "[edge, edge]"), ""},
		"a name that the root has, too":   {placed("a", "[edge]"), ""},
		"a name that another group has":   {placed("c", "[edge]"), ""},
		"the group of the directory, too": {placed("s", "[default, edge]"), ""},
	} {
		t.Run(name, func(t *testing.T) { newFixture(t, files("s.yaml", tt.file)...).expectLoad(tt.want, "") })
	}
}

// A group with "on_error: alone" and errors keeps its last good configuration, and does not stop other
// groups from changing.
func TestOnErrorAlone(t *testing.T) {
	start := func(t *testing.T, more ...string) *fixture {
		b := newFixture(t, append([]string{"a.yaml", clusters("a"), "edge/group.yaml", alone + "match: {id: edge}\n", "edge/e.yaml", clusters("e"), "canary/group.yaml", canaryGroup, "canary/c.yaml", clusters("c")}, more...)...)
		b.expectLoad("", "")
		return b
	}
	t.Run("a mistake in a file of the group", func(t *testing.T) {
		b := start(t)
		var told error
		b.src.opts.Done = func(_ time.Time, err error) { told = err }
		b.write("edge/x.yaml", bad, "edge/e.yaml", clusters("e2"), "canary/c.yaml", clusters("c2"))
		b.expectLoad("", `edge/x.yaml:1:`)
		b.expectNode("edge", "CDS e")
		b.expectNode("canary", "CDS c2")
		if _, ok := errors.AsType[RejectedGroups](told); !ok || b.src.loaded {
			t.Errorf("%T %v", told, told)
		}
		b.remove("edge/x.yaml")
		b.expectLoad("", "")
		b.expectNode("edge", "CDS e2")
	})
	t.Run("a mistake in another group rejects the load", func(t *testing.T) {
		b := start(t)
		b.write("canary/x.yaml", bad, "edge/e.yaml", clusters("e2"))
		b.expectLoad("canary/x.yaml:1:", "")
		b.expectNode("edge", "CDS e")
		b.write("edge/x.yaml", bad)
		b.expectLoad("edge/x.yaml:1:", "") // its errors are reported, too
	})
	t.Run("a mistake in its group.yaml", func(t *testing.T) {
		b := start(t)
		for _, text := range []string{"on_error: alone\nmatch: {id: [}", "", "mtch: 1", "match: {id: edge}\ninclude: [nobody]", "match: {id: canary}\nname: canary"} {
			b.write("edge/group.yaml", text, "edge/e.yaml", clusters("e2"))
			b.expectLoad("", `edge/group.yaml`)
			b.expectNode("edge", "CDS e")
			b.expectNode("canary", "CDS c")
		}
		b.write("a.yaml", clusters("a2"))
		b.expectLoad("", `edge/group.yaml`)
		b.expectNode("nobody", "CDS a2")
	})
	t.Run("a group that takes the name of another does not change it", func(t *testing.T) {
		for name, file := range map[string]string{"alone now": "name: canary\n" + alone, "no more": "name: canary\nmatch: {}\n"} {
			b := newFixture(t, "a.yaml", clusters("a"), "aa/group.yaml", alone+"match: {id: aa}\n", "canary/group.yaml", canaryGroup, "canary/c.yaml", clusters("c"))
			b.expectLoad("", "")
			b.src.parts["aa"] = b.src.newPart("aa")
			b.write("aa/group.yaml", file, "canary/c.yaml", clusters("c2"))
			b.expectLoad("", "aa/group.yaml:1:7")
			if b.expectNode("canary", "CDS c2"); t.Failed() {
				t.Log(name)
			}
		}
	})
	t.Run("the old or the new definition has on_error: alone", func(t *testing.T) {
		b := start(t)
		b.write("edge/group.yaml", "match: {id: edge}\n", "edge/x.yaml", bad, "a.yaml", clusters("a2"))
		b.expectLoad("", "edge/x.yaml")
		b.expectNode("nobody", "CDS a2")
		b.write("canary/x.yaml", bad, "a.yaml", clusters("a3"))
		b.expectLoad("canary/x.yaml", "")
		b.write("canary/group.yaml", alone+canaryGroup) // so that it does not stop the others any more
		b.expectLoad("", "canary/x.yaml")
		b.expectNode("nobody", "CDS a3")
		b.expectNode("canary", "CDS c")
	})
	t.Run("a group.yaml or a directory that is gone", func(t *testing.T) {
		for _, name := range []string{"edge/group.yaml", "edge"} {
			b := start(t)
			b.remove(name)
			b.write("a.yaml", clusters("a2"))
			b.expectLoad("", `group "edge": `+"")
			b.expectNode("edge", "CDS e")
			b.expectNode("nobody", "CDS a2")
			b.approve()
			b.expectNode("edge", map[string]string{"edge/group.yaml": "CDS a2 e", "edge": "CDS a2"}[name])
			if len(b.src.parts) != 2 {
				t.Error(b.src.parts)
			}
		}
	})
	t.Run("a large removal", func(t *testing.T) {
		all := names("e", 30)
		b := newFixture(t, "a.yaml", clusters("a"), "edge/group.yaml", alone+"match: {id: edge}\n", "edge/e.yaml", clusters(all...))
		b.expectLoad("", "")
		b.write("edge/e.yaml", clusters(all[:3]...), "a.yaml", clusters("a2"))
		b.expectLoad("", `group "edge": this would remove 27 of 30 CDS resources`)
		b.expectNode("nobody", "CDS a2")
		b.approve()
		b.expectNode("edge", "CDS "+strings.Join(all[:3], " "))
	})
	t.Run("its resources in other groups stay", func(t *testing.T) {
		b := start(t, "edge/s.yaml", placed("s", "[canary]"))
		b.expectNode("canary", "CDS c s")
		b.write("edge/x.yaml", bad, "canary/c.yaml", clusters("c2"), "edge/s.yaml", placed("s2", "[canary]"))
		b.expectLoad("", "edge/x.yaml")
		b.expectNode("canary", "CDS c2 s")
		b.remove("edge/x.yaml")
		b.write("edge/s.yaml", placed("c2", "[canary]")) // group canary already has this name
		b.expectLoad("", `edge/s.yaml:1:1: group edge: CDS "c2" is already at`)
		b.expectNode("canary", "CDS c2 s")
	})
	t.Run("a group that is rejected at the first start is unknown", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"), "edge/group.yaml", alone+edgeGroup, "edge/x.yaml", bad, "edge/e.yaml", clusters("e"))
		if r := b.expectLoad("", "edge/x.yaml"); !r.Rejected[0].NeverLoaded {
			t.Error(r.Rejected)
		}
		b.expectNode("nobody", "CDS a")
		b.expectNode("edge-1", "nothing is known")
		b.remove("edge/x.yaml")
		b.expectLoad("", "")
		b.expectNode("edge-1", "CDS a e")
	})
	t.Run("SAFE-10 a new group with errors does not change the nodes", func(t *testing.T) {
		b := start(t)
		b.write("new/group.yaml", alone+"match: {}\n", "new/x.yaml", bad, "a.yaml", clusters("a2"))
		for range 2 {
			b.expectLoad("", "new/x.yaml")
			b.expectNode("nobody", "CDS a2")
			b.expectNode("edge", "CDS e")
			b.src.Reload()
		}
		b.write("canary/group.yaml", canaryGroup+"include: [new]\n", "a.yaml", clusters("a3"))
		b.expectLoad("", "new/x.yaml")
		b.expectNode("canary", "CDS c")
		b.expectNode("nobody", "CDS a3")
		b.remove("new/x.yaml")
		b.write("new/n.yaml", clusters("n"))
		b.expectLoad("", "")
		b.expectNode("nobody", "CDS n")
		b.expectNode("edge", "CDS e n")
	})
	t.Run("the log has the places of the errors", func(t *testing.T) {
		b := start(t)
		var log bytes.Buffer
		b.src.opts.Log = slog.New(slog.NewTextHandler(&log, nil))
		b.write("edge/x.yaml", bad)
		w := watch.NewWatcher(b.src.opts.Log, b.src.opts.Poll)
		defer w.Close()
		b.src.reload(order{}, w)
		if got := log.String(); strings.Count(got, `group rejected, keeping its previous configuration`) != 1 || !strings.Contains(got, "group=edge") || !strings.Contains(got, "edge/x.yaml:1:") {
			t.Error(got)
		}
		log.Reset()
		b.src.reload(order{}, w)
		if log.Len() > 0 {
			t.Error("the rejection is logged again:", log.String())
		}
	})
}

func TestRemovedGroups(t *testing.T) {
	start := func(t *testing.T) *fixture {
		b := newFixture(t, "a.yaml", clusters("a"), "edge/group.yaml", "match: {id: edge}\n", "edge/e.yaml", clusters("e"))
		b.expectLoad("", "")
		return b
	}
	for name, tt := range map[string]struct {
		do               func(b *fixture)
		refused, becomes string
	}{
		"its file":       {func(b *fixture) { b.remove("edge/group.yaml") }, "edge/group.yaml is gone, with a group of 1 resource", "CDS a e"},
		"its directory":  {func(b *fixture) { b.remove("edge") }, `group "edge": `, "CDS a"},
		"all its files":  {func(b *fixture) { b.remove("edge/e.yaml") }, `group "edge": the directory has no files any more`, ""},
		"its name":       {func(b *fixture) { b.write("edge/group.yaml", "name: x\nmatch: {id: x}\n") }, `group "edge": it has another name now`, "CDS a"},
		"the whole tree": {func(b *fixture) { b.remove("edge"); b.remove("a.yaml") }, "the directory has no files any more", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			tt.do(b)
			b.expectLoad(tt.refused, "")
			b.expectNode("edge", "CDS e")
			b.expectNode("nobody", "CDS a")
			b.approve()
			b.expectNode("edge", tt.becomes)
		})
	}
	t.Run("a group whose directory moves keeps its content", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"), "x/group.yaml", "name: one\n"+canaryGroup, "x/c.yaml", clusters("c"))
		b.expectLoad("", "")
		b.write("y/group.yaml", "name: one\n"+canaryGroup, "y/c.yaml", clusters("c"))
		b.remove("x")
		b.expectLoad("", "")
		b.expectNode("canary", "CDS c")
	})
	t.Run("one without resources", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"), "edge/group.yaml", edgeGroup)
		b.expectLoad("", "")
		b.remove("edge")
		b.expectLoad("", "")
		b.expectNode("edge-1", "CDS a")
	})
}

// "After a restart on bad files each node sees what it saw." (SAFE-10)
func TestRestoreGroups(t *testing.T) {
	var kept lastgood.Config
	files := []string{"a.yaml", clusters("a"), "edge/group.yaml", alone + edgeGroup, "edge/e.yaml", clusters("e"), "canary/group.yaml", canaryGroup, "canary/c.yaml", clusters("c"), "mix/group.yaml", "match: {id: mix}\ninclude: [canary]\n"}
	first := newFixture(t, files...)
	first.src.opts.Keep = func(c lastgood.Config) { kept = c }
	first.expectLoad("", "")
	again := func(t *testing.T, more ...string) *fixture {
		b := newFixture(t, append(slices.Clone(files), more...)...)
		if err := b.src.Restore(kept); err != nil {
			t.Fatal(err)
		}
		return b
	}
	asBefore := func(b *fixture) {
		b.Helper()
		b.expectNode("nobody", "CDS a")
		b.expectNode("edge-1", "CDS a e")
		b.expectNode("canary", "CDS c")
		b.expectNode("mix", "CDS c")
	}
	t.Run("before the files are read", func(t *testing.T) { asBefore(again(t)) })
	t.Run("files as they were", func(t *testing.T) {
		b := again(t)
		b.expectLoad("", "")
		asBefore(b)
	})
	t.Run("SAFE-10 a group with errors that was never loaded", func(t *testing.T) {
		first.write("new/group.yaml", alone+"match: {}\n", "new/x.yaml", bad)
		was := kept
		defer func() { kept = was; first.remove("new") }()
		first.expectLoad("", "new/x.yaml")
		b := again(t, "new/group.yaml", alone+"match: {}\n", "new/x.yaml", bad)
		asBefore(b)
		b.expectLoad("", "new/x.yaml")
		asBefore(b)
		b.remove("new/x.yaml")
		b.write("new/n.yaml", clusters("n"))
		b.expectLoad("", "")
		b.expectNode("edge-1", "CDS a e n")
	})
	t.Run("mistakes", func(t *testing.T) {
		b := again(t, "x.yaml", bad)
		b.expectLoad("x.yaml", "")
		asBefore(b)
	})
	t.Run("mistakes in a group with on_error: alone", func(t *testing.T) {
		b := again(t, "edge/x.yaml", bad, "canary/c.yaml", clusters("c", "c2"))
		b.expectLoad("", "edge/x.yaml")
		b.expectNode("edge-1", "CDS a e")
		b.expectNode("canary", "CDS c c2")
	})
	t.Run("nothing", func(t *testing.T) {
		b := newFixture(t)
		if err := b.src.Restore(kept); err != nil {
			t.Fatal(err)
		}
		b.expectLoad("the directory has no files any more", "")
		asBefore(b)
		b.approve()
		b.expectNode("edge-1", "")
	})
	t.Run("a group whose file is gone", func(t *testing.T) {
		b := again(t)
		b.remove("canary")
		b.expectLoad(`group "canary"`, "")
		asBefore(b)
	})
	t.Run("a group that is empty now", func(t *testing.T) {
		b := again(t, "canary/c.yaml", "# nothing\n")
		b.expectLoad(`group "canary": no file has a resource any more`, "")
		asBefore(b)
	})
	t.Run("a change of only a rule is stored, too", func(t *testing.T) {
		b := newFixture(t, files...)
		n := 0
		b.src.opts.Keep = func(c lastgood.Config) { kept = c; n++ }
		b.expectLoad("", "")
		b.write("canary/group.yaml", "match: {id: other}\n")
		b.expectLoad("", "")
		if n != 2 {
			t.Error(n)
		}
		b = newFixture(t, files...)
		if err := b.src.Restore(kept); err != nil {
			t.Fatal(err)
		}
		b.expectNode("other", "CDS c")
	})
}
