package file

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/internal/disk/watch"
	"github.com/chancery-xds/chancery/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A talk is a stream with its file.
type talk struct {
	*testing.T
	dir string
	client.Stream
	heard chan string // responses, and in the end an error
}

func clusters(names ...string) string {
	var b strings.Builder
	b.WriteString("resources:\n")
	for _, n := range names {
		b.WriteString("- {\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: " + n + "}\n")
	}
	return b.String()
}

// begin opens a stream of a file in the directory. If deaf, no change is notified.
func begin(t *testing.T, dir, path string, o Options, deaf bool) *talk {
	t.Helper()
	made, err := New(filepath.Join(dir, path), o)
	if err != nil {
		t.Fatal(err)
	}
	if deaf { // a watch outside of the bubble would stop its time
		made.(*transport).watcher = func(*slog.Logger, time.Duration) *watch.Watcher { return new(watch.Watcher) }
	}
	s, err := made.Open(context.Background(), xds.Cluster) // ends with Close
	if err != nil {
		t.Fatal(err)
	}
	k := &talk{t, dir, s, make(chan string, 100)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			r, err := s.Recv()
			if err != nil {
				k.heard <- err.Error()
				return
			}
			k.heard <- show(r)
		}
	}()
	t.Cleanup(func() {
		_ = made.Close()
		<-done
		if last := <-k.heard; !strings.Contains(last, errClosed.Error()) {
			t.Errorf("the stream ended with %s", last)
		}
		if err := s.Send(&xds.Request{}); !errors.Is(err, errClosed) {
			t.Error(err)
		}
	})
	return k
}

func (k *talk) ask(names ...string) {
	k.Helper()
	if err := k.Send(&xds.Request{Type: xds.Cluster, Names: names}); err != nil {
		k.Fatal(err)
	}
}

// write writes files in place; the arguments are pairs of path and content.
func (k *talk) write(pairs ...string) {
	k.Helper()
	for i := 0; i < len(pairs); i += 2 {
		path := filepath.Join(k.dir, pairs[i])
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(pairs[i+1]), 0o600)); err != nil {
			k.Fatal(err)
		}
	}
}

// swap changes the target of a symbolic link atomically.
func (k *talk) swap(to, link string) {
	k.Helper()
	link = filepath.Join(k.dir, link)
	if err := errors.Join(os.Symlink(to, link+".new"), os.Rename(link+".new", link)); err != nil {
		k.Fatal(err)
	}
}

func (k *talk) remove(path string) {
	k.Helper()
	if err := os.RemoveAll(filepath.Join(k.dir, path)); err != nil {
		k.Fatal(err)
	}
}

// want waits for a response that begins with a text.
func (k *talk) want(begins string) {
	k.Helper()
	select {
	case got := <-k.heard:
		if strings.ReplaceAll(got, k.dir+"/", "") != begins && (begins == "" || !strings.HasPrefix(strings.ReplaceAll(got, k.dir+"/", ""), begins)) {
			k.Fatalf("%s, want %s", got, begins)
		}
	case <-time.After(20 * time.Second):
		k.Fatalf("no response came, want %s", begins)
	}
}

// idle expects no response for a while (in the time of the synctest bubble).
func (k *talk) idle(while time.Duration) {
	k.Helper()
	time.Sleep(while)
	synctest.Wait()
	select {
	case got := <-k.heard:
		k.Fatalf("%s, want nothing", got)
	default:
	}
}

// After Close no goroutine of the transport runs.
func TestCloseWaitsForWatchers(t *testing.T) {
	for range 100 {
		made, err := New(filepath.Join(t.TempDir(), "x.yaml"), Options{})
		if err != nil {
			t.Fatal(err)
		}
		w := watch.NewWatcher(slog.New(slog.DiscardHandler), time.Hour)
		made.(*transport).watcher = func(*slog.Logger, time.Duration) *watch.Watcher { return w }
		if _, err := made.Open(context.Background(), xds.Cluster); err != nil {
			t.Fatal(err)
		}
		_ = made.Close()
		w.Begin()
		if w.Enter(t.TempDir()); !w.MissesChanges() {
			t.Fatal("the watcher of the stream is still open")
		}
	}
}

// Each kind of change to a file is noticed without a poll.
func TestChanges_FILE2(t *testing.T) {
	for name, f := range map[string]func(k *talk){
		"in place": func(k *talk) {
			for _, n := range []string{"b", "c"} {
				k.write("x.yaml", clusters(n))
				k.want(n)
			}
		},
		"replaced by a rename": func(k *talk) {
			for _, n := range []string{"b", "c"} {
				k.write("new", clusters(n))
				if err := os.Rename(filepath.Join(k.dir, "new"), filepath.Join(k.dir, "x.yaml")); err != nil {
					k.Fatal(err)
				}
				k.want(n)
			}
		},
		"deleted and made again": func(k *talk) {
			k.remove("x.yaml")
			k.write("x.yaml", clusters("b"))
			k.want("b")
			k.remove("x.yaml")
			k.want("!x.yaml: no such file")
			k.write("x.yaml", clusters("b"))
			k.want("b")
		},
		"empty for a moment": func(k *talk) {
			k.write("x.yaml", "")
			k.write("x.yaml", clusters("b"))
			k.want("b")
			k.write("x.yaml", "")
			k.want("!x.yaml: is empty, which may be an unfinished write")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			k := begin(t, dir, "x.yaml", Options{Poll: time.Hour}, false)
			k.write("x.yaml", clusters("a"))
			k.ask()
			k.want("a")
			f(k)
		})
	}
	t.Run("a ConfigMap of Kubernetes", func(t *testing.T) {
		t.Parallel()
		for _, watched := range []string{"", "watched_directory"} {
			dir := t.TempDir()
			o := Options{Poll: time.Hour}
			if watched != "" {
				o.WatchedDirectory = dir
			}
			k := begin(t, dir, "x.yaml", o, false)
			k.write("..1/x.yaml", clusters("a"))
			k.swap("..1", "..data")
			k.swap("..data/x.yaml", "x.yaml")
			k.ask()
			k.want("a")
			for _, n := range []string{"b", "c"} {
				k.write(".."+n+"/x.yaml", clusters(n))
				k.swap(".."+n, "..data")
				k.want(n)
			}
		}
	})
	t.Run("the directory is removed and created again", func(t *testing.T) {
		t.Parallel()
		k := begin(t, t.TempDir(), "p/q/x.yaml", Options{Poll: time.Hour}, false)
		k.ask()
		k.want("!p/q/x.yaml: no such file")
		k.write("p/q/x.yaml", clusters("a"))
		k.want("a")
		k.remove("p")
		k.want("!p/q/x.yaml: no such file")
		k.write("p/q/x.yaml", clusters("b"))
		k.want("b")
	})
	t.Run("the watched directory hints", func(t *testing.T) {
		t.Parallel()
		dir, other := t.TempDir(), t.TempDir()
		k := begin(t, dir, "x.yaml", Options{Poll: time.Hour, WatchedDirectory: other}, false)
		k.write("x.yaml", clusters("a"))
		k.ask()
		k.want("a")
		if err := os.WriteFile(filepath.Join(other, "y"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		select { // an unchanged file causes no response
		case got := <-k.heard:
			t.Error(got)
		case <-time.After(time.Second):
		}
	})
}

// A half-written file is not sent, even if the writer pauses for a while.
func TestHalfWrittenFileIsNotSent_FILE2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := begin(t, t.TempDir(), "x.yaml", Options{Poll: 100 * time.Millisecond}, true)
		all := clusters("a", "b")
		k.write("x.yaml", clusters("a"))
		k.ask()
		k.idle(200 * time.Millisecond)
		k.write("x.yaml", all)
		k.idle(settleTime - time.Millisecond)
		k.want("a b")
		k.write("x.yaml", all[:len(all)-10]) // incomplete
		k.idle(settleTimeInvalid - time.Millisecond)
		k.write("x.yaml", all+"# the same")
		k.want("a b")
		k.write("x.yaml", "")
		k.idle(time.Second)
		k.remove("x.yaml")
		k.idle(time.Second)
		k.write("x.yaml", all+"# the same")
		k.idle(time.Minute)
		// An old file is sent at once.
		k.write("x.yaml", clusters("c"))
		if err := os.Chtimes(filepath.Join(k.dir, "x.yaml"), time.Time{}, time.Now().Add(-time.Minute)); err != nil {
			t.Fatal(err)
		}
		k.idle(0)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		select {
		case got := <-k.heard:
			if got != "c" {
				t.Error(got)
			}
		default:
			t.Error("nothing was told")
		}
	})
}

// An invalid file is sent once, with the position of its error. The next valid file is sent even if its
// content is the same as before.
func TestInvalidFileIsSentOnce_FILE3(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := begin(t, t.TempDir(), "x.yaml", Options{Poll: time.Second, MaxFile: 1000}, true)
		k.ask()
		k.want("!x.yaml: no such file")
		k.write("x.yaml", clusters("a"))
		k.want("a")
		for _, bad := range [][2]string{{"resources:\n  - x: [", "!x.yaml:2:9: "}, {strings.Repeat("#", 1001), "!x.yaml: 1001 bytes, more than the limit of 1000"}} {
			k.write("x.yaml", bad[0])
			k.want(bad[1])
			k.idle(time.Hour)
			k.write("x.yaml", clusters("a"))
			k.want("a")
		}
	})
}

// The file is sent again when other names are requested, and not when none are.
func TestOtherNamesGetTheFileAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := begin(t, t.TempDir(), "x.yaml", Options{}, true)
		k.write("x.yaml", clusters("a", "b"))
		k.idle(time.Minute)
		k.ask("a")
		k.want("a b")
		k.ask("a") // the ACK
		k.idle(time.Minute)
		k.ask("b", "a")
		k.want("a b")
		k.ask("a", "b")
		k.idle(time.Minute)
		k.ask()
		k.write("x.yaml", clusters("a"))
		k.idle(time.Minute)
		k.ask("a")
		k.want("a")
	})
}

func TestOpen(t *testing.T) {
	made, err := New("x.yaml", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if made.String() != "file:x.yaml" || made.Aggregated() || made.Variant() != xds.SotW {
		t.Error(made)
	}
	if _, err := made.Open(t.Context(), nil); err == nil {
		t.Error("opened without a type")
	}
	ctx, cancel := context.WithCancel(t.Context())
	s, err := made.Open(ctx, xds.Cluster)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := s.Recv(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := made.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := made.Open(t.Context(), xds.Cluster); !errors.Is(err, errClosed) {
		t.Error(err)
	}
}
