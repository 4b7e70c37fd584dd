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

// sees returns what a node sees of all types: "CDS a b"; "refused: …" if it is, and
// "nothing is known" if it is told nothing.
func (b *bench) sees(id string) string {
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

func (b *bench) want(id, want string) {
	b.Helper()
	if got := b.sees(id); got != want {
		b.Errorf("node %q sees %q, want %q", id, got, want)
	}
}

// loads loads; refused is part of why not, kept of why groups stay as they are.
func (b *bench) loads(refused, kept string) Report {
	b.Helper()
	r, err := b.src.Load()
	b.judge(r, err, refused, kept)
	return r
}

func (b *bench) judge(r Report, err error, refused, kept string) {
	b.Helper()
	if got := fmt.Sprint(err); (err == nil) != (refused == "") || !strings.Contains(strings.ReplaceAll(got, b.dir+"/", ""), refused) {
		b.Errorf("refused: %v, want %q", err, refused)
	}
	if got := r.Rejected.Error(); (r.Rejected == nil) != (kept == "") || !strings.Contains(strings.ReplaceAll(got, b.dir+"/", ""), kept) {
		b.Errorf("kept: %q, want %q", got, kept)
	}
}

// approves loads, and says that all that goes is meant.
func (b *bench) approves() {
	b.Helper()
	r, err := b.src.loadSafely(order{force: true, approve: true}, &scanner{})
	b.judge(r, err, "", "")
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
		b := newBench(t, "a.yaml", clusters("a"), "plain/b.yaml", clusters("b"), "edge/group.yaml", edgeGroup, "edge/x/y/c.yaml", clusters("c"),
			"edge/x/z/group.yaml", "match: {id: z}\n", "edge/x/z/d.yaml", clusters("d"))
		r := b.loads("", "")
		if r.Groups != 3 || len(r.Counts) != 1 || r.Counts[0].N != 4 || !strings.Contains(fmt.Sprint(r.Attrs()...), "groups3") && !strings.Contains(fmt.Sprint(r.Attrs()...), "groups 3") {
			t.Error(r, r.Attrs())
		}
		b.want("nobody", "CDS a b")
		b.want("edge-1", "CDS a b c")
		b.want("z", "CDS d")
		if groups := b.st.Snapshot().Groups(); !slices.Equal(groups, []string{"default", "edge", "edge/x/z"}) {
			t.Error(groups)
		}
	})
	t.Run("without one nobody is chosen", func(t *testing.T) {
		b := newBench(t, "a.yaml", clusters("a"), "edge/c.yaml", clusters("c"))
		if r := b.loads("", ""); r.Groups != 0 || b.src.rules != nil {
			t.Error(r)
		}
		b.want("edge-1", "CDS a c")
	})
	t.Run("names of groups", func(t *testing.T) {
		b := newBench(t, "a.yaml", clusters("a"), "x/group.yaml", "name: one\n"+canaryGroup, "x/c.yaml", clusters("c"))
		b.loads("", "")
		b.want("canary", "CDS c")
		b.write("y/group.yaml", "name: one\n")
		b.loads("two groups have the name \"one\"", "")
	})
	t.Run("a name in two groups is no error, and twice in one is", func(t *testing.T) {
		b := newBench(t, "a.yaml", clusters("a"), "edge/group.yaml", edgeGroup, "edge/a.yaml", clusters("a"))
		b.loads("", "")
		b.want("edge-1", "CDS a")
		b.write("edge/b.yaml", clusters("a"))
		b.loads("edge/b.yaml:2:3: group edge: CDS \"a\" is already at", "")
	})
	t.Run("otherwise: refuse", func(t *testing.T) {
		b := newBench(t, "group.yaml", "otherwise: refuse\n", "a.yaml", clusters("a"), "edge/group.yaml", edgeGroup)
		b.loads("", "")
		b.want("edge-1", "CDS a")
		if got := b.sees("stranger"); !strings.Contains(got, `refused: no group matches node id "stranger", cluster ""`) {
			t.Error(got)
		}
	})
	t.Run("an edit of a rule moves nodes in one commit with the content", func(t *testing.T) {
		b := newBench(t, "a.yaml", clusters("a"), "canary/group.yaml", canaryGroup, "canary/c.yaml", clusters("c"))
		b.loads("", "")
		w := watchtest.Open(b, b.st, &xds.Node{ID: "canary"})
		defer w.Close()
		w.Interested(xds.Cluster, true, nil, nil)
		before, _ := watchtest.Next(b, w)
		b.write("canary/group.yaml", "match: {id: other}\n", "a.yaml", clusters("a", "a2"))
		b.loads("", "")
		after, _ := watchtest.Next(b, w)
		if got := contents(before.(xds.Tables)) + " then " + contents(after.(xds.Tables)); got != "CDS c then CDS a a2" {
			t.Error(got)
		}
		b.want("other", "CDS c")
	})
	t.Run("a group of nothing but others", func(t *testing.T) {
		b := newBench(t, "a.yaml", clusters("a"), "edge/group.yaml", edgeGroup)
		b.loads("", "")
		b.want("edge-1", "CDS a")
	})
	t.Run("SAFE-10 a new group without resources silences no other", func(t *testing.T) {
		b := newBench(t, "a.yaml", clusters("a"), "canary/group.yaml", canaryGroup, "other/group.yaml", canaryGroup, "other/b.yaml", clusters("b"))
		b.loads("", "")
		b.want("canary", "CDS b")
	})
	t.Run("SAFE-10 nothing is known of a root without resources", func(t *testing.T) {
		b := newBench(t, "other/group.yaml", canaryGroup, "other/b.yaml", clusters("b"))
		b.loads("", "")
		b.want("nobody", "nothing is known")
		b.want("canary", "CDS b")
	})
	t.Run("mistakes in a group.yaml have a place", func(t *testing.T) {
		b := newBench(t, "a.yaml", clusters("a"), "edge/group.yaml", "mtch: {}\n")
		b.loads(`edge/group.yaml:1:1: unknown key "mtch"`, "")
		b.write("edge/group.yaml", "match: {}\ninclude: [defalt]\n")
		b.loads(`edge/group.yaml:2:11: group edge: include[0]: there is no group "defalt" (did you mean "default"?)`, "")
		b.want("edge", "nothing is known")
	})
	t.Run("SAFE-10 a directory in the place of a group.yaml", func(t *testing.T) {
		b := newBench(t, "a.yaml", clusters("a"), "edge/e.yaml", clusters("e"))
		if err := os.Mkdir(filepath.Join(b.dir, "edge", "group.yaml"), 0o755); err != nil {
			t.Fatal(err)
		}
		b.loads("edge/group.yaml: a directory in the place of a file", "")
	})
	t.Run("the root alone is default, and nothing else", func(t *testing.T) {
		for file, text := range map[string]string{"group.yaml": "name: foo\n", "default/group.yaml": "match: {}\n", "edge/group.yaml": "name: default\n"} {
			b := newBench(t, "a.yaml", clusters("a"), file, text)
			b.loads(file+": ", "")
			if err := b.try(); !strings.Contains(err, `"default"`) {
				t.Error(err)
			}
		}
	})
	t.Run("places are those of the group that a node sees", func(t *testing.T) {
		b := newBench(t, "a.yaml", clusters("a", "b"), "edge/group.yaml", edgeGroup, "edge/a.yaml", clusters("x", "a"))
		b.loads("", "")
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

// placed is a cluster that is put into groups.
func placed(name, groups string) string {
	return fmt.Sprintf("{%s, name: %s, x-chancery: {groups: %s}}\n", clusterURL, name, groups)
}

func TestElsewhere(t *testing.T) {
	files := func(more ...string) []string {
		return append([]string{"a.yaml", clusters("a"), "edge/group.yaml", "match: {id: edge}\n", "edge/e.yaml", clusters("e"), "canary/group.yaml", canaryGroup, "canary/c.yaml", clusters("c")}, more...)
	}
	t.Run("in the groups that it names, and not in that of its file", func(t *testing.T) {
		b := newBench(t, files("s.yaml", placed("s", "[edge, canary]"), "edge/t.yaml", placed("t", "default"))...)
		b.loads("", "")
		b.want("edge", "CDS e s")
		b.want("canary", "CDS c s")
		b.want("nobody", "CDS a t")
		b.write("s.yaml", placed("s", "canary"))
		b.loads("", "")
		b.want("edge", "CDS e")
	})
	for name, tt := range map[string]struct{ file, want string }{
		"a group that there is not":       {placed("s", "[edge, canry]"), `s.yaml:1:101: group default: x-chancery.groups[1]: there is no group "canry" (did you mean "canary"?)`},
		"another key":                     {"{" + clusterURL + ", name: s, x-chancery: {group: edge}}\n", `unknown key "group" (the keys are groups and on_demand)`},
		"no name":                         {placed("s", "[]"), "a list of groups without a name"},
		"no text":                         {placed("s", "[1]"), "x-chancery.groups[0]: the name of a group is needed"},
		"a name that a group has twice":   {placed("e", "[edge]"), `s.yaml:1:1: group default: CDS "e" is already at`},
		"the same one, named twice":       {placed("s", "[edge, edge]"), ""},
		"a name that the root has, too":   {placed("a", "[edge]"), ""},
		"a name that another group has":   {placed("c", "[edge]"), ""},
		"the group of the directory, too": {placed("s", "[default, edge]"), ""},
	} {
		t.Run(name, func(t *testing.T) { newBench(t, files("s.yaml", tt.file)...).loads(tt.want, "") })
	}
}

// A group that is alone with its errors keeps its last good, and keeps nobody else's from
// changing.
func TestAlone(t *testing.T) {
	start := func(t *testing.T, more ...string) *bench {
		b := newBench(t, append([]string{"a.yaml", clusters("a"), "edge/group.yaml", alone + "match: {id: edge}\n", "edge/e.yaml", clusters("e"), "canary/group.yaml", canaryGroup, "canary/c.yaml", clusters("c")}, more...)...)
		b.loads("", "")
		return b
	}
	t.Run("a mistake in a file of it", func(t *testing.T) {
		b := start(t)
		var told error
		b.src.opts.Done = func(_ time.Time, err error) { told = err }
		b.write("edge/x.yaml", bad, "edge/e.yaml", clusters("e2"), "canary/c.yaml", clusters("c2"))
		b.loads("", `edge/x.yaml:1:`)
		b.want("edge", "CDS e")
		b.want("canary", "CDS c2")
		if _, ok := errors.AsType[RejectedGroups](told); !ok || b.src.loaded {
			t.Errorf("%T %v", told, told)
		}
		b.remove("edge/x.yaml")
		b.loads("", "")
		b.want("edge", "CDS e2")
	})
	t.Run("a mistake elsewhere keeps everything", func(t *testing.T) {
		b := start(t)
		b.write("canary/x.yaml", bad, "edge/e.yaml", clusters("e2"))
		b.loads("canary/x.yaml:1:", "")
		b.want("edge", "CDS e")
		b.write("edge/x.yaml", bad)
		b.loads("edge/x.yaml:1:", "") // it is told, too
	})
	t.Run("a mistake in its group.yaml", func(t *testing.T) {
		b := start(t)
		for _, text := range []string{"on_error: alone\nmatch: {id: [}", "", "mtch: 1", "match: {id: edge}\ninclude: [nobody]", "match: {id: canary}\nname: canary"} {
			b.write("edge/group.yaml", text, "edge/e.yaml", clusters("e2"))
			b.loads("", `edge/group.yaml`)
			b.want("edge", "CDS e")
			b.want("canary", "CDS c")
		}
		b.write("a.yaml", clusters("a2"))
		b.loads("", `edge/group.yaml`)
		b.want("nobody", "CDS a2")
	})
	t.Run("who takes the name of another changes nothing for that one", func(t *testing.T) {
		for name, file := range map[string]string{"alone now": "name: canary\n" + alone, "no more": "name: canary\nmatch: {}\n"} {
			b := newBench(t, "a.yaml", clusters("a"), "aa/group.yaml", alone+"match: {id: aa}\n", "canary/group.yaml", canaryGroup, "canary/c.yaml", clusters("c"))
			b.loads("", "")
			b.src.parts["aa"] = b.src.newPart("aa")
			b.write("aa/group.yaml", file, "canary/c.yaml", clusters("c2"))
			b.loads("", "aa/group.yaml:1:7")
			if b.want("canary", "CDS c2"); t.Failed() {
				t.Log(name)
			}
		}
	})
	t.Run("it was alone, or says so now", func(t *testing.T) {
		b := start(t)
		b.write("edge/group.yaml", "match: {id: edge}\n", "edge/x.yaml", bad, "a.yaml", clusters("a2"))
		b.loads("", "edge/x.yaml")
		b.want("nobody", "CDS a2")
		b.write("canary/x.yaml", bad, "a.yaml", clusters("a3"))
		b.loads("canary/x.yaml", "")
		b.write("canary/group.yaml", alone+canaryGroup) // so that it keeps nobody from changing any more
		b.loads("", "canary/x.yaml")
		b.want("nobody", "CDS a3")
		b.want("canary", "CDS c")
	})
	t.Run("a group.yaml or a directory that is gone", func(t *testing.T) {
		for _, name := range []string{"edge/group.yaml", "edge"} {
			b := start(t)
			b.remove(name)
			b.write("a.yaml", clusters("a2"))
			b.loads("", `group "edge": `+"")
			b.want("edge", "CDS e")
			b.want("nobody", "CDS a2")
			b.approves()
			b.want("edge", map[string]string{"edge/group.yaml": "CDS a2 e", "edge": "CDS a2"}[name])
			if len(b.src.parts) != 2 {
				t.Error(b.src.parts)
			}
		}
	})
	t.Run("a large removal", func(t *testing.T) {
		all := names("e", 30)
		b := newBench(t, "a.yaml", clusters("a"), "edge/group.yaml", alone+"match: {id: edge}\n", "edge/e.yaml", clusters(all...))
		b.loads("", "")
		b.write("edge/e.yaml", clusters(all[:3]...), "a.yaml", clusters("a2"))
		b.loads("", `group "edge": this would remove 27 of 30 CDS resources`)
		b.want("nobody", "CDS a2")
		b.approves()
		b.want("edge", "CDS "+strings.Join(all[:3], " "))
	})
	t.Run("what its files put elsewhere stays as it was", func(t *testing.T) {
		b := start(t, "edge/s.yaml", placed("s", "[canary]"))
		b.want("canary", "CDS c s")
		b.write("edge/x.yaml", bad, "canary/c.yaml", clusters("c2"), "edge/s.yaml", placed("s2", "[canary]"))
		b.loads("", "edge/x.yaml")
		b.want("canary", "CDS c2 s")
		b.remove("edge/x.yaml")
		b.write("edge/s.yaml", placed("c2", "[canary]")) // a name that is taken there
		b.loads("", `edge/s.yaml:1:1: group edge: CDS "c2" is already at`)
		b.want("canary", "CDS c2 s")
	})
	t.Run("at the first start it is not known", func(t *testing.T) {
		b := newBench(t, "a.yaml", clusters("a"), "edge/group.yaml", alone+edgeGroup, "edge/x.yaml", bad, "edge/e.yaml", clusters("e"))
		if r := b.loads("", "edge/x.yaml"); !r.Rejected[0].NeverLoaded {
			t.Error(r.Rejected)
		}
		b.want("nobody", "CDS a")
		b.want("edge-1", "nothing is known")
		b.remove("edge/x.yaml")
		b.loads("", "")
		b.want("edge-1", "CDS a e")
	})
	t.Run("SAFE-10 a new one with errors takes no node from what it has", func(t *testing.T) {
		b := start(t)
		b.write("new/group.yaml", alone+"match: {}\n", "new/x.yaml", bad, "a.yaml", clusters("a2"))
		for range 2 {
			b.loads("", "new/x.yaml")
			b.want("nobody", "CDS a2")
			b.want("edge", "CDS e")
			b.src.Reload()
		}
		b.write("canary/group.yaml", canaryGroup+"include: [new]\n", "a.yaml", clusters("a3"))
		b.loads("", "new/x.yaml")
		b.want("canary", "CDS c")
		b.want("nobody", "CDS a3")
		b.remove("new/x.yaml")
		b.write("new/n.yaml", clusters("n"))
		b.loads("", "")
		b.want("nobody", "CDS n")
		b.want("edge", "CDS e n")
	})
	t.Run("the log tells it with its places", func(t *testing.T) {
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
			t.Error("it is told again:", log.String())
		}
	})
}

func TestGroupsThatGo(t *testing.T) {
	start := func(t *testing.T) *bench {
		b := newBench(t, "a.yaml", clusters("a"), "edge/group.yaml", "match: {id: edge}\n", "edge/e.yaml", clusters("e"))
		b.loads("", "")
		return b
	}
	for name, tt := range map[string]struct {
		do               func(b *bench)
		refused, becomes string
	}{
		"its file":       {func(b *bench) { b.remove("edge/group.yaml") }, "edge/group.yaml is gone, with a group of 1 resources", "CDS a e"},
		"its directory":  {func(b *bench) { b.remove("edge") }, `group "edge": `, "CDS a"},
		"all its files":  {func(b *bench) { b.remove("edge/e.yaml") }, `group "edge": the directory has no files any more`, ""},
		"its name":       {func(b *bench) { b.write("edge/group.yaml", "name: x\nmatch: {id: x}\n") }, `group "edge": it has another name now`, "CDS a"},
		"the whole tree": {func(b *bench) { b.remove("edge"); b.remove("a.yaml") }, "the directory has no files any more", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			tt.do(b)
			b.loads(tt.refused, "")
			b.want("edge", "CDS e")
			b.want("nobody", "CDS a")
			b.approves()
			b.want("edge", tt.becomes)
		})
	}
	t.Run("one that moves is no other", func(t *testing.T) {
		b := newBench(t, "a.yaml", clusters("a"), "x/group.yaml", "name: one\n"+canaryGroup, "x/c.yaml", clusters("c"))
		b.loads("", "")
		b.write("y/group.yaml", "name: one\n"+canaryGroup, "y/c.yaml", clusters("c"))
		b.remove("x")
		b.loads("", "")
		b.want("canary", "CDS c")
	})
	t.Run("one without resources", func(t *testing.T) {
		b := newBench(t, "a.yaml", clusters("a"), "edge/group.yaml", edgeGroup)
		b.loads("", "")
		b.remove("edge")
		b.loads("", "")
		b.want("edge-1", "CDS a")
	})
}

// "After a restart on bad files each node sees what it saw." (SAFE-10)
func TestGroupsRestored(t *testing.T) {
	var kept lastgood.Config
	files := []string{"a.yaml", clusters("a"), "edge/group.yaml", alone + edgeGroup, "edge/e.yaml", clusters("e"), "canary/group.yaml", canaryGroup, "canary/c.yaml", clusters("c"), "mix/group.yaml", "match: {id: mix}\ninclude: [canary]\n"}
	first := newBench(t, files...)
	first.src.opts.Keep = func(c lastgood.Config) { kept = c }
	first.loads("", "")
	again := func(t *testing.T, more ...string) *bench {
		b := newBench(t, append(slices.Clone(files), more...)...)
		if err := b.src.Restore(kept); err != nil {
			t.Fatal(err)
		}
		return b
	}
	asBefore := func(b *bench) {
		b.Helper()
		b.want("nobody", "CDS a")
		b.want("edge-1", "CDS a e")
		b.want("canary", "CDS c")
		b.want("mix", "CDS c")
	}
	t.Run("before the files are read", func(t *testing.T) { asBefore(again(t)) })
	t.Run("files as they were", func(t *testing.T) {
		b := again(t)
		b.loads("", "")
		asBefore(b)
	})
	t.Run("SAFE-10 a group that was never loaded since it has errors", func(t *testing.T) {
		first.write("new/group.yaml", alone+"match: {}\n", "new/x.yaml", bad)
		was := kept
		defer func() { kept = was; first.remove("new") }()
		first.loads("", "new/x.yaml")
		b := again(t, "new/group.yaml", alone+"match: {}\n", "new/x.yaml", bad)
		asBefore(b)
		b.loads("", "new/x.yaml")
		asBefore(b)
		b.remove("new/x.yaml")
		b.write("new/n.yaml", clusters("n"))
		b.loads("", "")
		b.want("edge-1", "CDS a e n")
	})
	t.Run("mistakes", func(t *testing.T) {
		b := again(t, "x.yaml", bad)
		b.loads("x.yaml", "")
		asBefore(b)
	})
	t.Run("mistakes in a group that is alone", func(t *testing.T) {
		b := again(t, "edge/x.yaml", bad, "canary/c.yaml", clusters("c", "c2"))
		b.loads("", "edge/x.yaml")
		b.want("edge-1", "CDS a e")
		b.want("canary", "CDS c c2")
	})
	t.Run("nothing", func(t *testing.T) {
		b := newBench(t)
		if err := b.src.Restore(kept); err != nil {
			t.Fatal(err)
		}
		b.loads("the directory has no files any more", "")
		asBefore(b)
		b.approves()
		b.want("edge-1", "")
	})
	t.Run("a group that is in no file any more", func(t *testing.T) {
		b := again(t)
		b.remove("canary")
		b.loads(`group "canary"`, "")
		asBefore(b)
	})
	t.Run("a group that is empty now", func(t *testing.T) {
		b := again(t, "canary/c.yaml", "# nothing\n")
		b.loads(`group "canary": no file has a resource any more`, "")
		asBefore(b)
	})
	t.Run("an edit of a rule alone is kept, too", func(t *testing.T) {
		b := newBench(t, files...)
		n := 0
		b.src.opts.Keep = func(c lastgood.Config) { kept = c; n++ }
		b.loads("", "")
		b.write("canary/group.yaml", "match: {id: other}\n")
		b.loads("", "")
		if n != 2 {
			t.Error(n)
		}
		b = newBench(t, files...)
		if err := b.src.Restore(kept); err != nil {
			t.Fatal(err)
		}
		b.want("other", "CDS c")
	})
}
