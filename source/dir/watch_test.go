package dir

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/disk/watch"
	"github.com/chancery-xds/chancery/internal/testkit/watchtest"
	"github.com/chancery-xds/chancery/xds"
)

// lines is a log that has its lines without their times.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	_, line, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
	l <- line
	return len(b), nil
}

// run loads, and then runs the source with real events of the file system, without polls.
func (b *fixture) run() lines {
	b.Helper()
	log := make(lines, 100)
	was := b.src.opts
	b.src = New(b.src.root, b.st, Options{Log: slog.New(slog.NewTextHandler(log, nil)), Poll: time.Hour,
		FollowLinksOutside: was.FollowLinksOutside, References: was.References, Bootstraps: was.Bootstraps, ReadBootstraps: was.ReadBootstraps, Validate: was.Validate})
	if _, err := b.src.Load(); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done, began := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		close(began)
		b.src.Run(ctx)
	}()
	<-began
	b.Cleanup(func() { cancel(); <-done })
	return log
}

// follow returns a function that waits until the store has the given content.
func (b *fixture) follow() func(string) {
	w := watchtest.Open(b, b.st, nil)
	b.Cleanup(w.Close)
	for _, t := range xds.Types() {
		w.Interested(t, true, nil, nil)
	}
	return func(want string) {
		b.Helper()
		for late := time.After(10 * time.Second); ; {
			w.Next() // before content, so that the bell rings for what comes after it
			if b.content() == want {
				return
			}
			select {
			case <-w.C():
			case <-late:
				b.Fatalf("the store has %q, want %q", b.content(), want)
			}
		}
	}
}

// wait waits for a line of the log.
func (b *fixture) wait(log lines, part string) {
	b.Helper()
	for late := time.After(10 * time.Second); ; {
		select {
		case line := <-log:
			if strings.Contains(line, part) {
				return
			}
		case <-late:
			b.Fatalf("no line with %q", part)
		}
	}
}

func TestRun(t *testing.T) {
	t.Run("a file replaced, written in place, removed, made again", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"), "z.json", endpointsE)
		want := b.follow()
		b.run()
		b.write("a.yaml", clusters("b"))
		want("CDS b, EDS e")
		if err := os.WriteFile(filepath.Join(b.dir, "a.yaml"), []byte(clusters("c")), 0o666); err != nil {
			t.Fatal(err)
		}
		want("CDS c, EDS e")
		b.remove("a.yaml")
		want("EDS e")
		b.write("a.yaml", clusters("d"))
		want("CDS d, EDS e")
	})
	t.Run("a bad file changes nothing, a good one does", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"))
		want := b.follow()
		log := b.run()
		b.write("a.yaml", clusters("b")+"- {x: y}\n", "b.yaml", "{")
		b.wait(log, `level=ERROR msg="reload rejected, keeping the previous configuration" errors=2`)
		b.wait(log, `level=ERROR msg="configuration error" code=XDS0106 error="`+b.dir+`/a.yaml:3:3: resources[1]: no \"@type\" `)
		b.wait(log, `level=ERROR msg="configuration error" code=XDS0101 error="`+b.dir+`/b.yaml:1:`)
		want("CDS a")
		b.write("a.yaml", clusters("b"), "b.yaml", "")
		want("CDS b")
		b.wait(log, `level=INFO msg=loaded files=2 resources=1 types.CDS=1 set=1 removed=1`)
	})
	t.Run("new directories, and directories in them", func(t *testing.T) {
		b := newFixture(t)
		want := b.follow()
		b.run()
		b.write("x/y/z/a.yaml", clusters("a"))
		want("CDS a")
		b.write("x/y/z/b.yaml", clusters("b"))
		want("CDS a b")
		b.remove("x/y")
		b.write("c.yaml", clusters("c"))
		want("CDS c")
		b.write("x/y/a.yaml", clusters("a"))
		want("CDS a c")
		if err := os.Rename(filepath.Join(b.dir, "x"), filepath.Join(b.dir, "w")); err != nil {
			t.Fatal(err)
		}
		b.write("w/y/d.yaml", clusters("d"))
		want("CDS a c d")
		b.write("w/y/e.yaml", clusters("e"))
		want("CDS a c d e")
	})
	t.Run("a ConfigMap of Kubernetes", func(t *testing.T) {
		b := newFixture(t, "..1/a.yaml", clusters("a"))
		b.link("..1", "..data")
		b.link("..data/a.yaml", "a.yaml")
		want := b.follow()
		b.run()
		want("CDS a")
		for _, next := range []string{"b", "c", "d"} {
			b.write(".."+next+"/a.yaml", clusters(next))
			b.link(".."+next, "..data")
			want("CDS " + next)
		}
	})
	t.Run("a projected volume of Kubernetes with subdirectories: each update is one commit", func(t *testing.T) {
		b := newFixture(t)
		// update makes a volume of files as the AtomicWriter of the kubelet does: a new directory, the swap of
		// ..data, links for new names, removal of old names and of the old directory.
		was := []string{}
		update := func(version string, files ...string) {
			now := []string{}
			for i := 0; i < len(files); i += 2 {
				b.write(".."+version+"/"+files[i], files[i+1])
				if top, _, _ := strings.Cut(files[i], "/"); !slices.Contains(now, top) {
					now = append(now, top)
				}
			}
			old, _ := os.Readlink(filepath.Join(b.dir, "..data"))
			b.link(".."+version, "..data")
			for _, top := range now {
				if !slices.Contains(was, top) {
					b.link("..data/"+top, top)
				}
			}
			for _, top := range was {
				if !slices.Contains(now, top) {
					b.remove(top)
				}
			}
			if old != "" {
				b.remove(old)
			}
			was = now
		}
		update("1", "a.yaml", clusters("a"), "x/y/b.yaml", clusters("b"))
		want := b.follow()
		b.run()
		want("CDS a b")
		commits := b.st.Snapshot().Seq()
		for i, u := range []struct {
			want  string
			files []string
		}{
			{"CDS c d", []string{"a.yaml", clusters("c"), "x/y/b.yaml", clusters("d")}},
			{"CDS c d e", []string{"a.yaml", clusters("c"), "x/y/b.yaml", clusters("d"), "z/e.yaml", clusters("e")}},
			{"CDS f g", []string{"x/y/b.yaml", clusters("f"), "z/e.yaml", clusters("g")}},
			{"CDS h", []string{"z/e.yaml", clusters("h")}},
		} {
			update(strconv.Itoa(i+2), u.files...)
			want(u.want)
			commits++
			if got := b.st.Snapshot().Seq(); got != commits {
				t.Errorf("%s: %d commits, want %d", u.want, got, commits)
			}
		}
	})
	t.Run("a directory behind a link that is swapped", func(t *testing.T) {
		// As git-sync does: the served files are below the link.
		b := newFixture(t, "1/config/a.yaml", clusters("a"), "2/config/a.yaml", clusters("b"), "3/config/a.yaml", clusters("c"))
		b.link("1", "current")
		b.src.root = b.dir + "/current/config"
		want := b.follow()
		b.run()
		want("CDS a")
		b.link("2", "current")
		want("CDS b")
		b.link("3", "current")
		want("CDS c")
		b.write("3/config/a.yaml", clusters("d"))
		want("CDS d")
	})
	t.Run("the directory itself is replaced", func(t *testing.T) {
		b := newFixture(t, "x/a.yaml", clusters("a"), "y/a.yaml", clusters("b"))
		b.src.root = b.dir + "/x"
		want := b.follow()
		log := b.run()
		b.remove("x")
		b.wait(log, b.dir+"/x")
		want("CDS a")
		if err := os.Rename(b.dir+"/y", b.dir+"/x"); err != nil {
			t.Fatal(err)
		}
		want("CDS b")
		b.write("x/a.yaml", clusters("c"))
		want("CDS c")
	})
	t.Run("a link to a file elsewhere", func(t *testing.T) {
		other := newFixture(t, "a", clusters("a"))
		b := newFixture(t)
		b.src.opts.FollowLinksOutside = true
		b.link(other.dir+"/a", "a.yaml")
		want := b.follow()
		b.run()
		other.write("a", clusters("b"))
		want("CDS b")
		other.write("c", clusters("c"))
		b.link(other.dir+"/c", "a.yaml")
		want("CDS c")
	})
	t.Run("a link to a file next to it, and another file", func(t *testing.T) {
		b := newFixture(t, "a", clusters("a"))
		b.link("a", "a.yaml")
		want := b.follow()
		b.run()
		want("CDS a")
		b.write("b.yaml", clusters("b"))
		want("CDS a b")
		b.write("a", clusters("c"))
		want("CDS b c")
	})
	t.Run("forced", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"))
		log := b.run()
		b.src.Reload()
		b.wait(log, "msg=loaded files=1 resources=1 types.CDS=1 set=0 removed=0")
	})
}

// The same mistake is logged once, and again at a requested reload.
func TestErrorIsLoggedOnce(t *testing.T) {
	b := newFixture(t, "a.yaml", "{")
	log := make(lines, 100)
	b.src.opts.Log = slog.New(slog.NewTextHandler(log, nil))
	w := watch.NewWatcher(b.src.opts.Log, time.Hour)
	defer w.Close()
	for i, tt := range []struct {
		write string
		force bool
		lines int
	}{
		{"{", false, 2},
		{"{", false, 0},
		{"{", true, 2},
		{"{}\n---\n{}", false, 3},
		{clusters("a"), false, 1},
		{clusters("a"), false, 0},
		{"{", false, 2},
	} {
		b.write("a.yaml", tt.write)
		b.src.reload(order{force: tt.force}, w)
		if n := len(log); n != tt.lines {
			t.Errorf("step %d: %d lines, want %d", i, n, tt.lines)
		}
		for len(log) > 0 {
			<-log
		}
	}
}

// A change next to a link in the path of the root does not cause a scan.
func TestUnrelatedChangesCauseNoScan(t *testing.T) {
	other := newFixture(t, "a", clusters("a"))
	b := newFixture(t)
	b.src.opts.FollowLinksOutside = true
	b.link(other.dir+"/a", "a.yaml")
	w := watch.NewWatcher(b.src.opts.Log, time.Hour)
	defer w.Close()
	w.Begin()
	if _, err := b.src.load(order{}, &scanner{enter: w.Enter, touch: w.Touch}); err != nil {
		t.Fatal(err)
	}
	w.End()
	other.write("b", "")
	select {
	case <-w.Bell():
		t.Error("rang for a file that no link leads to")
	case <-time.After(200 * time.Millisecond):
	}
	other.write("a", "")
	select {
	case <-w.Bell():
	case <-time.After(10 * time.Second):
		t.Error("silent when the file changed that a link leads to")
	}
}

func TestMissesChanges(t *testing.T) {
	b := newFixture(t, "a.yaml", clusters("a"))
	w := watch.NewWatcher(b.src.opts.Log, time.Hour)
	look := func(want bool, w *watch.Watcher) {
		t.Helper()
		b.src.reload(order{}, w)
		if b.src.MissesChanges() != want {
			t.Errorf("misses changes: %v, want %v", !want, want)
		}
	}
	look(false, w)
	look(true, new(watch.Watcher)) // the system cannot provide a watcher
	look(false, w)
	w.Close()
	look(true, w) // watches cannot be added any more
}

// Options.Done is called for loads that changed something or failed, and for the first that succeeds
// after failures.
func TestDoneIsCalledForNews(t *testing.T) {
	b := newFixture(t, "a.yaml", clusters("a"))
	var told []string
	b.src.opts.Done = func(_ time.Time, err error) {
		told = append(told, map[bool]string{true: "good", false: "bad"}[err == nil])
	}
	for _, content := range []string{clusters("a"), clusters("a"), "{", "{", clusters("a"), clusters("a"), clusters("b")} {
		b.write("a.yaml", content)
		_, _ = b.src.Load()
	}
	if got := strings.Join(told, " "); got != "good bad bad good good" {
		t.Error(got)
	}
}

// If the first load failed, the source loads the files once they are valid.
func TestRunLoadsAfterFailedStart(t *testing.T) {
	b := newFixture(t, "a.yaml", "half of a fi")
	if _, err := b.src.Load(); err == nil {
		t.Fatal("no error")
	}
	shows := b.follow()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); b.src.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	b.write("a.yaml", clusters("a"))
	shows("CDS a")
}
