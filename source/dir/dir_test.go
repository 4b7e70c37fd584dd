package dir

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/disk/watch"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fixture is a directory, a store, and a source between the two.
type fixture struct {
	*testing.T
	dir string
	st  *store.Store
	src *Source
}

// newFixture returns a fixture whose directory has the files: pairs of name and content.
func newFixture(t *testing.T, files ...string) *fixture {
	b := &fixture{T: t, dir: t.TempDir(), st: store.New()}
	b.src = New(b.dir, b.st, Options{Log: slog.New(slog.DiscardHandler)})
	b.write(files...)
	return b
}

// write writes files; it replaces each at once, as a program should.
func (b *fixture) write(files ...string) {
	b.Helper()
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(b.dir, files[i])
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			b.Fatal(err)
		}
		temp := filepath.Join(filepath.Dir(path), ".new")
		if err := os.WriteFile(temp, []byte(files[i+1]), 0o666); err != nil {
			b.Fatal(err)
		}
		if err := os.Rename(temp, path); err != nil {
			b.Fatal(err)
		}
	}
}

func (b *fixture) remove(name string) {
	b.Helper()
	if err := os.RemoveAll(filepath.Join(b.dir, name)); err != nil {
		b.Fatal(err)
	}
}

func (b *fixture) link(target, name string) {
	b.Helper()
	temp := filepath.Join(b.dir, ".link")
	if err := os.Symlink(target, temp); err != nil {
		b.Fatal(err)
	}
	if err := os.Rename(temp, filepath.Join(b.dir, name)); err != nil {
		b.Fatal(err)
	}
}

// load loads, and compares the content of the store, or the errors, with want: "CDS a@timeout b". File
// names in errors are relative.
func (b *fixture) load(want string) {
	b.Helper()
	got := b.try()
	if got != want {
		b.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func (b *fixture) try() string {
	if _, err := b.src.Load(); err != nil {
		return strings.ReplaceAll(err.Error(), b.dir+"/", "")
	}
	return b.content()
}

func (b *fixture) content() string {
	var types []string
	view := b.st.Snapshot().View(store.DefaultGroup)
	for _, t := range xds.Types() {
		var names []string
		for _, r := range view.Table(t).Since(nil).Upserts {
			names = append(names, r.Name)
		}
		if len(names) > 0 {
			types = append(types, t.Short+" "+strings.Join(names, " "))
		}
	}
	return strings.Join(types, ", ")
}

func clusters(names ...string) string {
	var b strings.Builder
	b.WriteString("resources:\n")
	for _, n := range names {
		fmt.Fprintf(&b, "- {%s, name: %s}\n", clusterURL, n)
	}
	return b.String()
}

const endpointsE = `{"@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment", "cluster_name": "e"}`

func TestLoad(t *testing.T) {
	t.Run("files at any depth, by their extension", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"), "x/y/b.YML", clusters("b"), "x/e.json", endpointsE,
			".c.yaml", "{", "_d.yaml", "{", "_shared/d.yaml", "{", ".git/d.yaml", "{", "README.md", "{", "f.yaml~", "{", "g.yaml.tmp", "{")
		b.load("CDS a b, EDS e")
	})
	t.Run("an empty directory", func(t *testing.T) { newFixture(t).load("") })
	t.Run("no directory", func(t *testing.T) {
		b := newFixture(t)
		b.src.root += "/none"
		b.load("none: no such file or directory")
	})
	t.Run("no path", func(t *testing.T) {
		b := newFixture(t)
		b.src.root = ""
		b.load(`"": the path of the directory is empty`)
	})
	t.Run("a file instead of a directory", func(t *testing.T) {
		b := newFixture(t, "a.yaml", "")
		b.src.root += "/a.yaml"
		b.load("a.yaml: not a directory")
	})
	t.Run("all mistakes of all files at once, and nothing changes", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"))
		b.load("CDS a")
		b.write("b.yaml", "nonsense: 1", "c/c.yaml", clusters("c", "d")+"- {"+clusterURL+", x: 1}\n", "d.yaml", clusters("a", "d"))
		b.load("b.yaml:1:1: neither \"@type\" nor \"resources\" (it must be a resource, a DiscoveryResponse or the protocol's Resource)\n" +
			"c/c.yaml:4:66: resources[2]: unknown field \"x\" in Cluster\n" +
			"d.yaml:2:3: CDS \"a\" is already at a.yaml:2:3\n" +
			"d.yaml:3:3: CDS \"d\" is already at c/c.yaml:3:3")
		if got := b.content(); got != "CDS a" {
			t.Errorf("the store has %q", got)
		}
		b.write("b.yaml", "", "c/c.yaml", clusters("c"), "d.yaml", clusters("d"))
		b.load("CDS a c d")
	})
	t.Run("every file format, and both places of a duplicate name", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a2"), "b.txtpb", textResponse, "c.json", endpointsE,
			"d.textproto", "# proto-message: envoy.config.cluster.v3.Cluster\nname: 'd'")
		b.load("CDS a a2 d, EDS e, VHDS r/v")
		b.write("e.pb", string(encoded(t, textResponse)))
		b.load("e.pb: resources[0]: CDS \"a\" is already at b.txtpb (resources[0])\n" +
			"e.pb: resources[1]: VHDS \"r/v\" is already at b.txtpb (resources[1])")
	})
	t.Run("DELTA-11 a duplicate name or alias has both places", func(t *testing.T) {
		vhost := func(name, aliases string) string {
			return strings.Replace(vhds(name), "resource:", "aliases: ["+aliases+"]\nresource:", 1)
		}
		b := newFixture(t, "a.yaml", vhost("r/a", "r/x, r/x, r/a, other"), "c.yaml", "\n"+clusterURL+"\nname: r/x\n")
		b.load("CDS r/x, VHDS r/a")
		b.write("b.yaml", vhost("r/b", "r/x"), "d.yaml", vhost("r/x", ""), "e.yaml", vhost("r/e", "r/e2, r/a")+"---\n"+vhost("r/f", ""))
		b.load("b.yaml:1:1: VHDS \"r/b\": its alias \"r/x\" is already an alias of \"r/a\" at a.yaml:1:1\n" +
			"d.yaml:1:1: VHDS \"r/x\" is already an alias of \"r/a\" at a.yaml:1:1\n" +
			"e.yaml:1:1: VHDS \"r/e\": its alias \"r/a\" is already the name of the one at a.yaml:1:1")
		b.remove("d.yaml")
		b.remove("e.yaml")
		b.write("b.yaml", vhost("r/b", "r/y"), "a.yaml", vhost("r/a", ""))
		b.load("CDS r/x, VHDS r/a r/b")
	})
	t.Run("NAME-2 one name, written in two ways", func(t *testing.T) {
		newFixture(t, "a.yaml", clusters(`"xdstp://a/t/x?b=1&a=2"`, `"xdstp://a/t/x?a=2&b=1"`)).
			load("a.yaml:3:3: CDS \"xdstp://a/t/x?a=2&b=1\" is already at a.yaml:2:3")
	})
	t.Run("SUB-6 a resource that becomes on-demand leaves the wildcard", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a", "b"))
		b.load("CDS a b")
		b.write("a.yaml", strings.Replace(clusters("a", "b"), "name: b", "name: b, x-chancery: {on_demand: true}", 1))
		b.load("CDS a")
		if r := b.st.Snapshot().View(store.DefaultGroup).Table(xds.Cluster).Lookup("b"); r == nil || !r.OnDemand {
			t.Errorf("b is %v", r)
		}
	})
	t.Run("resources of other programs in the store stay", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"), "e.json", endpointsE)
		b.load("CDS a, EDS e")
		if _, err := b.st.Update(func(tx *store.Tx) error {
			tx.Set(xds.NewResource(xds.Endpoint, "other", nil))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		b.remove("e.json")
		b.load("CDS a, EDS other")
		if _, err := b.st.Update(func(tx *store.Tx) error {
			tx.Set(xds.NewResource(xds.Cluster, "another", nil))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		b.write("a.yaml", clusters("b"))
		b.load("CDS another b, EDS other") // also next to resources of the type in files
	})
	t.Run("an excerpt for a terminal", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusterURL+"\nnam: a\n")
		_, err := b.src.Load()
		errs, _ := errors.AsType[Errors](err)
		if len(errs) != 1 || !strings.HasSuffix(errs[0].Text(), "    2 | nam: …\n        ^") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("hundreds of mistakes are counted", func(t *testing.T) {
		b := newFixture(t, "a.yaml", "resources:\n"+strings.Repeat("- {}\n", 130), "b.yaml", "x: y")
		_, err := b.src.Load()
		errs, _ := errors.AsType[Errors](err)
		if len(errs) != 101 || errs[100].Error() != b.dir+": and 31 more errors" || errs[99].Pos.Line != 101 || errs.Count() != 131 {
			t.Errorf("got %v", err)
		}
	})
	t.Run("hundreds of warnings are counted, or all reported on request", func(t *testing.T) {
		const doubtful = "- {" + clusterURL + ", name: %d}\n"
		var lines strings.Builder
		for i := range 130 {
			fmt.Fprintf(&lines, doubtful, i)
		}
		b := newFixture(t, "a.yaml", "resources:\n"+lines.String(), "b.yaml", clusterURL+"\nname: 1000\n")
		report, err := b.src.Load()
		if w := report.Warnings; err != nil || len(w) != 101 || findings.Count(w) != 131 || w[100].Error() != b.dir+": warning: and 31 more warnings" {
			t.Errorf("got %v, %v", err, w)
		}
		if w := Check(b.dir, Options{MaxProblems: 130}).Warnings; len(w) != 131 || w[130].Error() != b.dir+": warning: and 1 more warning" {
			t.Errorf("got %v", w)
		}
		if w := Check(b.dir, Options{MaxProblems: -1}).Warnings; len(w) != 131 || w[130].Pos.Line != 2 {
			t.Errorf("got %v", w)
		}
	})
	t.Run("warnings are returned, and change nothing", func(t *testing.T) {
		b := newFixture(t, "b.yaml", clusterURL+"\nname: 12\n", "a.yaml", "")
		report, err := b.src.Load()
		if err != nil || len(report.Warnings) != 2 || !strings.HasPrefix(report.Warnings[0].Message, "the file is empty") || report.Warnings[1].Pos.Line != 2 || b.content() != "CDS 12" {
			t.Errorf("got %v, %v", report.Warnings, err)
		}
		if again, _ := b.src.Load(); len(again.Warnings) != 2 {
			t.Errorf("then %v", again.Warnings)
		}
	})
	t.Run("the last resource of a type is removed", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"), "e.json", endpointsE)
		b.load("CDS a, EDS e")
		b.remove("e.json")
		b.load("CDS a")
	})
	t.Run("nothing changed, no commit", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"))
		b.load("CDS a")
		b.write("a.yaml", clusters("a"))
		b.load("CDS a")
		if seq := b.st.Snapshot().Seq(); seq != 1 {
			t.Errorf("%d commits", seq)
		}
	})
	t.Run("the same content elsewhere", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"))
		b.load("CDS a")
		b.remove("a.yaml")
		b.write("b.yaml", clusters("a"))
		b.load("CDS a")
		if seq := b.st.Snapshot().Seq(); seq != 1 {
			t.Errorf("%d commits", seq)
		}
	})
	t.Run("SOTW-13 a version supplied by the source", func(t *testing.T) {
		version := func(b *fixture) string { return b.st.Snapshot().View(store.DefaultGroup).Table(xds.Cluster).Version() }
		b := newFixture(t, "a.yaml", "version_info: v1\n"+clusters("a", "b"))
		b.load("CDS a b")
		if got := version(b); got != "v1" {
			t.Errorf("version %q", got)
		}
		b.write("a.yaml", "version_info: v2\n"+clusters("a", "b"))
		b.load("CDS a b")
		if got := version(b); got != "v2" {
			t.Errorf("then version %q", got)
		}
		b.write("b.yaml", clusters("c"))
		b.load("CDS a b c")
		hash := version(b)
		if len(hash) != 16 {
			t.Errorf("version %q of resources from two files", hash)
		}
		b.write("a.yaml", clusters("a", "b"))
		b.load("CDS a b c")
		if got := version(b); got != hash {
			t.Errorf("version %q, was %q", got, hash)
		}
	})
}

// Paths that are not regular files, and files that are too large, are errors, and never block the
// load.
func TestUnreadableFiles(t *testing.T) {
	t.Run("a named pipe", func(t *testing.T) {
		b := newFixture(t)
		if err := syscall.Mkfifo(filepath.Join(b.dir, "p.yaml"), 0o666); err != nil {
			t.Skip(err)
		}
		b.load("p.yaml: a named pipe, not a regular file")
	})
	t.Run("a file that became a named pipe", func(t *testing.T) {
		b := newFixture(t)
		path := filepath.Join(b.dir, "p.yaml")
		if err := syscall.Mkfifo(path, 0o666); err != nil {
			t.Skip(err)
		}
		if _, _, err := watch.Read(path, 1); err == nil || err.Error() != "a named pipe, not a regular file" {
			t.Error(err)
		}
	})
	t.Run("a device", func(t *testing.T) {
		b := newFixture(t)
		b.src.opts.FollowLinksOutside = true
		b.link("/dev/zero", "z.yaml")
		b.load("z.yaml: a device, not a regular file")
	})
	t.Run("a link to nothing", func(t *testing.T) {
		b := newFixture(t)
		b.link("nothing", "x.yaml")
		b.load("x.yaml: a symbolic link to nothing, which does not exist")
	})
	t.Run("a link to itself", func(t *testing.T) {
		b := newFixture(t)
		b.link("x.yaml", "x.yaml")
		b.load("x.yaml: too many levels of symbolic links")
	})
	t.Run("a link to a directory above", func(t *testing.T) {
		b := newFixture(t, "x/a.yaml", clusters("a"))
		b.link("..", "x/up")
		b.load("x/up: the same directory as " + b.dir + ", through a symbolic link")
	})
	t.Run("two ways to one directory", func(t *testing.T) {
		b := newFixture(t, "x/a.yaml", clusters("a"))
		b.link("x", "y")
		b.load("y: the same directory as x, through a symbolic link")
	})
	t.Run("links to a file and a directory outside", func(t *testing.T) {
		other := newFixture(t, "a", clusters("a"), "d/b.yaml", clusters("b"))
		b := newFixture(t)
		b.link(other.dir+"/a", "a.yaml")
		b.link(other.dir+"/d", "d")
		const out = ": a symbolic link that points outside the directory, to "
		for _, name := range []string{"a.yaml", "d"} {
			if got := b.try(); !strings.Contains(got, name+out) || !strings.Contains(got, ": Options.FollowLinksOutside follows it") {
				t.Error(got)
			}
		}
		b.src.opts.FollowLinksOutside = true
		b.load("CDS a b")
	})
	t.Run("SAFE-11 one of several links leads out", func(t *testing.T) {
		other := newFixture(t, "x.yaml", clusters("a"))
		b := newFixture(t, "real/b.yaml", clusters("b"))
		b.link(other.dir, "real/.hop")
		b.link(".hop/x.yaml", "real/a.yaml")
		if got := b.try(); !strings.Contains(got, "real/a.yaml: a symbolic link that points outside the directory, to ") {
			t.Error(got)
		}
	})
	t.Run("a link to a directory whose links stay inside", func(t *testing.T) {
		b := newFixture(t, "v1/.data/b.yaml", clusters("b"))
		b.link(".data/b.yaml", "v1/a.yaml")
		b.link("v1", "live")
		b.src = New(b.dir+"/live", b.st, Options{Log: b.src.opts.Log})
		b.load("CDS b")
	})
	t.Run("a link to an unread file", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"))
		b.link("/etc/hosts", "hosts.txt")
		b.load("CDS a")
	})
	t.Run("a directory with the name of a file", func(t *testing.T) {
		newFixture(t, "d.yaml/a.yaml", clusters("a")).load("CDS a")
	})
	t.Run("a large file", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"))
		b.src.opts.MaxFile = 10
		b.load(fmt.Sprintf("a.yaml: %d bytes, more than the limit of 10 (Options.MaxFile)", len(clusters("a"))))
	})
	t.Run("a file of a gigabyte is not read", func(t *testing.T) {
		b := newFixture(t, "a.yaml", "")
		if err := os.Truncate(filepath.Join(b.dir, "a.yaml"), 1<<30); err != nil {
			t.Skip(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		b.load("a.yaml: 1073741824 bytes, more than the limit of 67108864 (Options.MaxFile)")
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
			t.Errorf("%d bytes allocated", n)
		}
	})
	t.Run("a valid file that becomes unreadable keeps its resources", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"), "b.yaml", clusters("b"), "p.pb", string(encoded(t, textResponse[:strings.LastIndex(textResponse, "resources {")])))
		b.remove("a.yaml") // p.pb has another one
		b.load("CDS a b")
		for _, tt := range []struct{ file, in, want string }{
			{"b.yaml", clusters("b", "c")[:70], "b.yaml:2:60: did not find expected ',' or '}' (in the mapping whose { is at 2:3)"},
			{"b.yaml", "resources:\n- {" + clusterURL + ", name: \"b", "b.yaml:2:74: found unexpected end of stream (in the text whose quotes begin at 2:72)"},
			{"b.yaml", "", "b.yaml: has become empty, which may be an unfinished write: delete the file, or leave a comment in it"},
			{"b.yaml", "\x7fELF\x02\x00", "b.yaml:1:6: this is not text: byte 0x00"},
			{"b.yaml", "\xff\xfea\x00", "b.yaml:1:1: this is not text: byte 0xff (it looks like UTF-16: save it as UTF-8)"},
			{"b.yaml", "resources: [x]", "b.yaml:1:13: resources[0]: a mapping is needed, not a string"},
			{"p.pb", clusters("c"), "p.pb: not an encoded DiscoveryResponse: cannot parse invalid wire-format data"},
		} {
			was, err := os.ReadFile(filepath.Join(b.dir, tt.file))
			if err != nil {
				t.Fatal(err)
			}
			b.write(tt.file, tt.in, "new.yaml", clusters("new"))
			b.load(tt.want)
			if got := b.content(); got != "CDS a b" {
				t.Errorf("the store has %q", got)
			}
			b.remove("new.yaml")
			b.write(tt.file, string(was))
			b.load("CDS a b")
		}
		b.remove("b.yaml")
		b.link("b.yaml", "b.yaml")
		b.load("b.yaml: too many levels of symbolic links")
	})
	t.Run("a file that becomes unreadable", func(t *testing.T) {
		if os.Getuid() == 0 {
			t.Skip("root may read everything")
		}
		b := newFixture(t, "a.yaml", clusters("a"))
		path, old := filepath.Join(b.dir, "a.yaml"), time.Now().Add(-time.Hour)
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
		b.load("CDS a")
		for _, tt := range []struct {
			mode os.FileMode
			want string
		}{{0, "a.yaml: permission denied"}, {0o600, "CDS a"}} {
			if err := os.Chmod(path, tt.mode); err != nil {
				t.Fatal(err)
			}
			if tt.mode == 0 {
				tt.want += " (" + deniedHint(path) + ")"
			}
			b.load(tt.want)
		}
	})
	t.Run("files without read permission", func(t *testing.T) {
		if os.Getuid() == 0 {
			t.Skip("root may read everything")
		}
		b := newFixture(t, "a.yaml", "", "d/b.yaml", "")
		for _, name := range []string{"a.yaml", "d"} {
			path := filepath.Join(b.dir, name)
			if err := os.Chmod(path, 0); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Chmod(path, 0o700) })
		}
		b.load("a.yaml: permission denied\nd: permission denied")
	})
	t.Run("too many nested directories", func(t *testing.T) {
		b := newFixture(t, strings.Repeat("d/", 70)+"a.yaml", clusters("a"))
		b.load(strings.Repeat("d/", 64) + "d: more than 64 directories deep")
	})
}

// The cost of a reload depends on the changed files: other files are neither read nor decoded, and
// their resources are not written.
func TestReloadReadsOnlyChangedFiles(t *testing.T) {
	b := &fixture{T: t, dir: large(t, 300), st: store.New()}
	b.src = New(b.dir, b.st, Options{Log: slog.New(slog.DiscardHandler)})
	if _, err := b.src.Load(); err != nil {
		t.Fatal(err)
	}
	was, before := b.src.files, b.src.home.content
	one := filepath.Join(b.dir, "7/c7.yaml")
	b.write("7/c7.yaml", clusterURL+"\nname: cluster-7\n")
	report, err := b.src.Load()
	if err != nil || len(report.Commit.Changes) != 1 || report.Commit.Changes[0].Set != 1 || report.Commit.Changes[0].Removed != 0 {
		t.Errorf("got %+v, %v", report.Commit, err)
	}
	for path, f := range b.src.files {
		if same := f == was[path]; same == (path == one) {
			t.Errorf("%s: the same is %v", path, same)
		}
	}
	set, gone := b.src.home.content.types[xds.Cluster.URL].since(before.types[xds.Cluster.URL])
	if len(set) != 1 || len(gone) != 0 {
		t.Errorf("%d written, %v removed", len(set), gone)
	}
}

// Generated JSON is often one long line. A place in it must not cost the length of the line.
func TestPlacesInOneLongLine(t *testing.T) {
	var in strings.Builder
	in.WriteString(`{"resources":[`)
	for i := range 20_000 {
		fmt.Fprintf(&in, `{"@type":"type.googleapis.com/envoy.config.cluster.v3.Cluster","name":"é%d"},`, i)
	}
	in.WriteString(`{}]}`)
	d := envoy.decode("x.json", []byte(in.String()))
	if len(d.loaded) != 20_000 || d.Errors() != 1 || d.Problems[0].Pos.Column != utf8.RuneCountInString(in.String())-3 {
		t.Errorf("%d resources, %v", len(d.loaded), d.Problems)
	}
}

// Resources of a file stay the same objects until the file changes.
func TestUnchangedFilesKeepResources(t *testing.T) {
	old := time.Now().Add(-time.Hour)
	date := func(b *fixture, at time.Time) {
		if err := os.Chtimes(filepath.Join(b.dir, "a.yaml"), at, at); err != nil {
			b.Fatal(err)
		}
	}
	// overwrite keeps size and inode.
	overwrite := func(b *fixture, s string) {
		if err := os.WriteFile(filepath.Join(b.dir, "a.yaml"), []byte(s), 0o666); err != nil {
			b.Fatal(err)
		}
	}
	t.Run("same stamp: not read", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"))
		date(b, old)
		b.load("CDS a")
		overwrite(b, clusters("b"))
		date(b, old)
		b.load("CDS a")
		if _, err := b.src.load(order{force: true}, &scanner{}); err != nil || b.content() != "CDS b" {
			t.Errorf("forced: %v, %s", err, b.content())
		}
	})
	t.Run("another date: read", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"))
		date(b, old)
		b.load("CDS a")
		overwrite(b, clusters("b"))
		date(b, old.Add(time.Nanosecond))
		b.load("CDS b")
	})
	t.Run("written just now: the stamp is not settled", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"))
		now := time.Now()
		date(b, now)
		b.load("CDS a")
		overwrite(b, clusters("b"))
		date(b, now)
		b.load("CDS b")
	})
	t.Run("an emptied file is an unfinished write", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"), "b.yaml", "")
		b.load("CDS a")
		const want = "a.yaml: has become empty, which may be an unfinished write: delete the file, or leave a comment in it"
		overwrite(b, "")
		b.load(want)
		b.load(want)
		overwrite(b, "# nothing\n")
		b.load("")
	})
}

func names(prefix string, n int) []string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprint(prefix, i))
	}
	return list
}

func TestMassRemovalIsRefused(t *testing.T) {
	some := names("c", 20)
	kept := func(b *fixture, n int) {
		b.Helper()
		if got := b.st.Snapshot().View(store.DefaultGroup).Table(xds.Cluster).Len(); got != n {
			b.Errorf("%d clusters, want %d", got, n)
		}
	}
	load := func(b *fixture, refused string) {
		b.Helper()
		_, err := b.src.Load()
		if got := fmt.Sprint(err); !strings.Contains(got, cmp.Or(refused, "<nil>")) {
			b.Errorf("error %q, want %q", got, refused)
		}
	}
	t.Run("half of 20", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters(some...))
		load(b, "")
		b.write("a.yaml", clusters(some[10:]...))
		load(b, "")
		kept(b, 10)
	})
	t.Run("more than half of 20", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters(some...), "e.json", endpointsE)
		load(b, "")
		b.write("a.yaml", clusters(some[11:]...))
		load(b, "this would remove 11 of 20 CDS resources")
		load(b, "this would remove 11 of 20 CDS resources") // also when nothing changes
		kept(b, 20)
		b.write("a.yaml", clusters(some[1:]...))
		load(b, "")
		kept(b, 19)
	})
	t.Run("all of 20", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters(some...), "e.json", endpointsE)
		load(b, "")
		b.remove("a.yaml")
		load(b, "this would remove 20 of 20 CDS resources")
		kept(b, 20)
	})
	t.Run("other names are other resources", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters(some...))
		load(b, "")
		b.write("a.yaml", clusters(names("d", 20)...))
		load(b, "this would remove 20 of 20 CDS resources")
	})
	t.Run("all of 19", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters(some[1:]...), "e.json", endpointsE)
		load(b, "")
		b.remove("a.yaml")
		load(b, "")
		kept(b, 0)
	})
	t.Run("the last file", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"))
		load(b, "")
		b.remove("a.yaml")
		load(b, "the directory has no files any more")
		kept(b, 1)
	})
	t.Run("allowed", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters(some...))
		b.src.opts.AllowMassDelete = true
		load(b, "")
		b.remove("a.yaml")
		load(b, "")
		kept(b, 0)
	})
}

// large writes n resources, each in a file of its own, and returns the directory.
func large(tb testing.TB, n int) string {
	dir := tb.TempDir()
	for i := range n {
		path := filepath.Join(dir, fmt.Sprint(i%100), fmt.Sprint("c", i, ".yaml"))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(path, fmt.Appendf(nil, `"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
name: cluster-%d
type: EDS
connect_timeout: 1s
lb_policy: ROUND_ROBIN
eds_cluster_config:
  eds_config: {ads: {}, resource_api_version: V3}
common_lb_config:
  healthy_panic_threshold: {value: 50}
typed_extension_protocol_options:
  envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
    "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
    explicit_http_config:
      http2_protocol_options: {max_concurrent_streams: 100}
`, i), 0o666); err != nil {
			tb.Fatal(err)
		}
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(path, old, old); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

func BenchmarkLoad10kInOneFile(b *testing.B) {
	list := clusters(names("c", 10_000)...)
	for _, file := range []string{"x.yaml", "x.json"} {
		b.Run(file, func(b *testing.B) {
			in := list
			if file == "x.json" {
				in = strings.NewReplacer("resources:\n", `{"resources":[{}`, "- {", ",{", clusterURL, `"@type":"type.googleapis.com/envoy.config.cluster.v3.Cluster"`,
					"name: ", `"name":"`, "}\n", `"}`).Replace(list) + "]}"
				in = strings.Replace(in, "[{},", "[", 1)
			}
			path := filepath.Join(b.TempDir(), file)
			if err := os.WriteFile(path, []byte(in), 0o666); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := New(filepath.Dir(path), store.New(), Options{}).Load(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkLoad10k(b *testing.B) {
	dir := large(b, 10_000)
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			if _, err := New(dir, store.New(), Options{}).Load(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("unchanged", func(b *testing.B) {
		src := New(dir, store.New(), Options{})
		if _, err := src.Load(); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if _, err := src.Load(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("one changed", func(b *testing.B) {
		src := New(dir, store.New(), Options{})
		if _, err := src.Load(); err != nil {
			b.Fatal(err)
		}
		i := 0
		for b.Loop() {
			i++
			if err := os.WriteFile(filepath.Join(dir, "x.yaml"), fmt.Appendf(nil, "%s\nname: x\naltStatName: x%d\n", clusterURL, i), 0o666); err != nil {
				b.Fatal(err)
			}
			if _, err := src.Load(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
