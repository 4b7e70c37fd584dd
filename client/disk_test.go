package client_test

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/internal/testkit/logtest"
	"github.com/chancery-xds/chancery/xds"
)

// The last good resources on disk (CLI-11).
func TestDisk(t *testing.T) {
	fill := func(t *testing.T, v xds.Variant, dir string) {
		f := newFake(t, "xds://a", v)
		c := begin(t, client.Config{Dir: dir}, f)
		named, wild := watch(t, c, xds.Endpoint, "e", "gone"), watch(t, c, xds.Cluster, "*")
		s := f.stream()
		s.respond(xds.Endpoint, "v1", "e=1", "gone=1")
		s.respond(xds.Cluster, "v1", "a=1", "b=1")
		s.respond(xds.Endpoint, "v2", "e=bad", "other=1")
		s.respond(xds.Endpoint, "v3", "?gone")
		if v == xds.SotW {
			s.respond(xds.Cluster, "v2", "a=1", "b=1", "c=1")
		} else {
			s.respond(xds.Cluster, "v2", "c=1")
		}
		_, _ = named, wild
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}

	both(t, "CLI-11 a start without a server uses the resources of the last run, and marks them as stale", func(t *testing.T, v xds.Variant) {
		dir := t.TempDir()
		fill(t, v, dir)
		f := newFake(t, "xds://b", v)
		f.fail(errDown)
		c := begin(t, client.Config{Dir: dir, Timeout: -1}, f)
		f.idle()
		events := make(chan client.Event, 10)
		go func() {
			for ev := range c.Watch(t.Context(), xds.Endpoint, "e") {
				events <- ev
			}
		}()
		synctest.Wait()
		if ev := <-events; tellEvent(ev, nil) != "e updated=1" || ev.Server != client.FromDisk {
			t.Errorf("%+v", ev)
		}
		if ev := <-events; ev.Kind != client.Stale || textOf(ev.Resource) != "1" {
			t.Errorf("%+v", ev)
		}
		if d := c.Dump(); d[0].State != client.Requested || d[0].Server != client.FromDisk || d[0].Resource == nil {
			t.Errorf("%+v", d)
		}
		wild := watch(t, c, xds.Cluster, "*")
		wild.want("a updated=1", "b updated=1", "c updated=1", "* stale: xds…")
		watch(t, c, xds.Cluster, "a").want("a updated=1", "a stale=1: xds…")
		// The server connects. The client states names to it, but no versions. The server reports the
		// removed names.
		f.fail(nil)
		s := <-f.opened
		s.want("CDS node=n names=[* a]\nEDS names=[e]", "CDS node=n sub=[* a] initial=[{a } {b } {c }]\nEDS sub=[e] initial=[{e }]")
		s.respond(xds.Endpoint, "v1", "e=1")
		if ev := <-events; tellEvent(ev, nil) != "e updated=1" || ev.Server != "xds://b" {
			t.Errorf("%+v", ev)
		}
		s.respond(xds.Cluster, "v1", "a=2", "b=1")
		time.Sleep(time.Minute)
		got := wild.take()
		if len(got) != 4 {
			t.Errorf("%q", got) // a, b, complete, and c is removed
		}
	})

	both(t, "a fallback server is asked, though the disk has all", func(t *testing.T, v xds.Variant) {
		dir := t.TempDir()
		fill(t, v, dir)
		f, g := newFake(t, "xds://b", v), newFake(t, "xds://c", v)
		f.fail(errDown)
		c := begin(t, client.Config{Dir: dir}, f, g)
		w := watch(t, c, xds.Endpoint, "e")
		g.stream().respond(xds.Endpoint, "v1", "e=2")
		w.want("e updated=1", "e updated=2")
	})

	both(t, "CLI-11 a failed write is repeated later, even without a change", func(t *testing.T, v xds.Variant) {
		dir := filepath.Join(t.TempDir(), "state")
		f := newFake(t, "xds://a", v)
		c := begin(t, client.Config{Dir: dir}, f)
		watch(t, c, xds.Endpoint, "e")
		in := filepath.Join(dir, "last-good", "x") // a directory at the file's path prevents the write
		if err := os.MkdirAll(in, 0o700); err != nil {
			t.Fatal(err)
		}
		f.stream().respond(xds.Endpoint, "v1", "e=1")
		time.Sleep(10 * time.Second)
		if err := os.RemoveAll(filepath.Dir(in)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		c.Close()
		f = newFake(t, "xds://a", v)
		f.fail(errDown)
		watch(t, begin(t, client.Config{Dir: dir}, f), xds.Endpoint, "e").want("e updated=1", "e stale=1: xds…")
	})

	both(t, "CLI-11 a directory locked by another program is used when that program has ended, and created again if it is missing", func(t *testing.T, v xds.Variant) {
		dir := filepath.Join(t.TempDir(), "state")
		other := begin(t, client.Config{Dir: dir}, newFake(t, "xds://a", v))
		var log logtest.Log
		f := newFake(t, "xds://a", v)
		c := begin(t, client.Config{Dir: dir, Log: slog.New(slog.NewTextHandler(&log, nil))}, f)
		watch(t, c, xds.Endpoint, "e")
		s := f.stream()
		s.respond(xds.Endpoint, "v1", "e=1")
		file := filepath.Join(dir, "last-good")
		stored := func(want bool) {
			t.Helper()
			if _, err := os.Stat(file); (err == nil) != want {
				t.Errorf("stored: %v, want %v", err == nil, want)
			}
		}
		time.Sleep(time.Minute)
		stored(false)
		if err := other.Close(); err != nil { // the other client has no resources, so it removes the directory
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		stored(true)
		if len(log.Lines("resource directory is unlocked")) != 1 || len(log.Lines("cannot store")) != 0 {
			t.Error("the log does not report the unlocked directory")
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		s.respond(xds.Endpoint, "v2", "e=2")
		time.Sleep(5 * time.Second)
		stored(true)
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 || len(log.Lines("cannot store")) != 0 {
			t.Error(info.Mode(), err)
		}
		f = newFake(t, "xds://a", v)
		f.fail(errDown)
		w := watch(t, begin(t, client.Config{Dir: dir, Log: slog.New(slog.NewTextHandler(&log, nil))}, f), xds.Endpoint, "e")
		w.want("e updated=2", "e stale=2: xds…")
		if len(log.Lines("resource directory is locked")) != 2 {
			t.Error("the directory that was made again is not locked")
		}
	})

	both(t, "resources without a watch stay on disk", func(t *testing.T, v xds.Variant) {
		dir := t.TempDir()
		fill(t, v, dir)
		for range 2 {
			f := newFake(t, "xds://a", v)
			c := begin(t, client.Config{Dir: dir}, f)
			w := watch(t, c, xds.Endpoint, "new", "e")
			f.stream().respond(xds.Endpoint, "v1", "new=1")
			w.cancel()
			synctest.Wait()
			time.Sleep(time.Minute)
			c.Close()
		}
		f := newFake(t, "xds://a", v)
		f.fail(errDown)
		c := begin(t, client.Config{Dir: dir}, f)
		wild := watch(t, c, xds.Endpoint, "*")
		wild.want("* unavailable: xds…") // the stored resources are watched by name only
		wild.cancel()
		synctest.Wait()
		watch(t, c, xds.Endpoint, "e", "new").wantAll("e updated=1", "e stale=1: xds…", "new updated=1", "new stale=1: xds…")
	})

	t.Run("only the user can read the file; it is replaced as a whole, and a damaged file is logged and ignored", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			fill(t, xds.SotW, dir)
			var files []string
			err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				info, _ := d.Info()
				if mode := info.Mode().Perm(); mode&0o077 != 0 {
					t.Errorf("%s has mode %o", path, mode)
				}
				if !d.IsDir() {
					files = append(files, path)
				}
				return err
			})
			if err != nil || len(files) != 1 {
				t.Fatal(files, err)
			}
			data, err := os.ReadFile(files[0])
			if err != nil {
				t.Fatal(err)
			}
			for name, damaged := range map[string][]byte{"cut": data[:len(data)/2], "empty": {}, "flipped": append(append([]byte{}, data[:40]...), append([]byte{data[40] ^ 1}, data[41:]...)...)} {
				if err := os.WriteFile(files[0], damaged, 0o600); err != nil {
					t.Fatal(err)
				}
				var log logtest.Log
				f := newFake(t, "xds://a", xds.SotW)
				c := begin(t, client.Config{Dir: dir, Log: slog.New(slog.NewTextHandler(&log, nil))}, f)
				w := watch(t, c, xds.Endpoint, "e")
				w.want()
				if len(log.Lines("cannot read the stored resources")) != 1 {
					t.Errorf("%s: no line", name)
				}
				f.stream().respond(xds.Endpoint, "v1", "e=2")
				w.want("e updated=2")
				c.Close()
			}
		})
	})

	t.Run("the file is written at most once a second, not for each change", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			f := newFake(t, "xds://a", xds.Delta)
			c := begin(t, client.Config{Dir: dir}, f)
			watch(t, c, xds.Endpoint, "e")
			s := f.stream()
			written := map[time.Time]bool{}
			for i := range 100 {
				s.respond(xds.Endpoint, "v", fmt.Sprint("e=", i))
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
				info, err := os.Stat(filepath.Join(dir, "last-good"))
				if err != nil {
					t.Fatal(err)
				}
				written[info.ModTime()] = true
			}
			if n := len(written); n > 12 {
				t.Errorf("the file was written %d times in ten seconds", n)
			}
		})
	})

	t.Run("a failed write is tried again after a while", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			var log logtest.Log
			f := newFake(t, "xds://a", xds.Delta)
			c := begin(t, client.Config{Dir: dir, Log: slog.New(slog.NewTextHandler(&log, nil))}, f)
			if err := os.MkdirAll(filepath.Join(dir, "last-good", "x"), 0o700); err != nil {
				t.Fatal(err)
			}
			watch(t, c, xds.Endpoint, "e")
			s := f.stream()
			for i := range 45 {
				s.respond(xds.Endpoint, "v", fmt.Sprint("e=", i))
				time.Sleep(time.Second)
			}
			if n := len(log.Lines("cannot store")); n != 2 {
				t.Errorf("the write was tried %d times in 45 s", n)
			}
		})
	})

	t.Run("stored resources that now fail the check are not used", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			fill(t, xds.SotW, dir)
			f := newFake(t, "xds://a", xds.SotW)
			c := begin(t, client.Config{Dir: dir, Check: func(r *xds.Resource) error { return fmt.Errorf("no") }}, f)
			watch(t, c, xds.Endpoint, "e").want()
			f.stream()
		})
	})

	// A program with other rules stored the resources.
	both(t, "CLI-15 stored resources without a usable name in their message are not used", func(t *testing.T, v xds.Variant) {
		dir := t.TempDir()
		f := newFake(t, "xds://a", v)
		c := begin(t, client.Config{Dir: dir}, f)
		watch(t, c, xds.Cluster, "*")
		f.stream().send(&xds.Response{Type: xds.Cluster, Nonce: "1", Version: "1", Changes: &xds.Changes{Upserts: []*xds.Resource{
			resource(xds.Cluster, "good", "1"),
			xds.NewResource(xds.Cluster, "none", nil),
			xds.NewResource(xds.Cluster, "other", resource(xds.Cluster, "good", "2").Body),
			xds.NewResource(xds.Cluster, "cut", []byte("\n\x09cut")),
		}}})
		c.Close()
		var log logtest.Log
		f = newFake(t, "xds://a", v)
		f.fail(errDown)
		c = begin(t, client.Config{Dir: dir, Log: slog.New(slog.NewTextHandler(&log, nil))}, f)
		watch(t, c, xds.Cluster, "*").want("good updated=1", "* stale: xds…")
		if n := len(log.Lines("stored resource is not usable")); n != 2 {
			t.Errorf("%d lines in the log", n)
		}
	})

	t.Run("each start has all resources of the last run, whatever their size", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			dir, large := t.TempDir(), strings.Repeat("x", 23<<20)
			for run := range 3 {
				f := newFake(t, "xds://a", xds.SotW)
				if run > 0 {
					f.fail(errDown)
				}
				c := begin(t, client.Config{Dir: dir}, f)
				w := watch(t, c, xds.Cluster, "small")
				if run == 0 {
					f.stream() // the stream ends with its watch
				}
				w.cancel()
				synctest.Wait()
				w = watch(t, c, xds.Cluster, "*")
				if run == 0 {
					f.stream().respond(xds.Cluster, "v1", "a="+large, "b="+large, "c="+large)
				}
				if got := w.take(); len(got) != 4 {
					t.Errorf("run %d: %d events", run, len(got))
				}
				c.Close()
			}
		})
	})

	t.Run("a directory that cannot be had is an error", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := client.New(client.Config{Dir: path}); err == nil {
			t.Error("no error")
		}
	})
}
