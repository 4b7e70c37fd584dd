package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/testkit/treetest"
)

// exporter runs chancery export --watch from dir to out, through another command (way).
func exporter(t *testing.T, way []string, dir, out string, flags ...string) *runningServer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	d := &runningServer{T: t, ctx: ctx, dir: dir, log: make(chan map[string]any, 1000)}
	args := append(append(way, binary, "export", dir, "--out", out, "--watch"), flags...)
	d.cmd = exec.CommandContext(ctx, args[0], args[1:]...)
	stderr, err := d.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go d.read(stderr)
	t.Cleanup(func() {
		cancel() // kills it, if it runs
		_ = d.cmd.Wait()
	})
	return d
}

func aSecret(name, content string) string {
	return fmt.Sprintf(`{"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret, name: %s, generic_secret: {secret: {inline_string: %s}}}`, name, content)
}

func TestExportWatch(t *testing.T) {
	t.Run("FILE-5 an edit is exported, a mistake is not, a signal ends the command", func(t *testing.T) {
		t.Parallel()
		dir, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
		write(t, dir, "a.yaml", cluster("a"), "s.yaml", aSecret("s", "one"))
		d := exporter(t, nil, dir, out)
		if l := d.logged("exported"); l["resources"] != 2.0 || l["written"] != 5.0 {
			t.Errorf("%v", l)
		}
		write(t, dir, "s.yaml", aSecret("s", "two"))
		if l := d.logged("exported"); l["written"] != 1.0 || !strings.Contains(treetest.Tree(t, out)[".generations/2/sds/s.yaml"], "two") {
			t.Errorf("%v", l)
		}
		was := treetest.Tree(t, out)
		write(t, dir, "s.yaml", aSecret("s", "[three]"))
		d.logged("reload rejected, keeping the previous configuration")
		if now := treetest.Tree(t, out); !maps.Equal(was, now) {
			t.Errorf("a mistake was exported: %v", now)
		}
		write(t, dir, "s.yaml", aSecret("s", "four"))
		d.logged("exported")
		d.signal(syscall.SIGTERM)
		d.logged("ended")
		d.exits(0)
	})

	t.Run("FILE-5 one directory, one exporter", func(t *testing.T) {
		t.Parallel()
		dir, out := t.TempDir(), t.TempDir()
		write(t, dir, "a.yaml", cluster("a"))
		exporter(t, nil, dir, out).logged("exported")
		second := exporter(t, nil, dir, out)
		second.logged("chancery: error: lock " + out + ": another program exports to this directory")
		second.exits(1)
	})

	t.Run("FILE-5 a full disk changes nothing, and the export continues when there is room again", func(t *testing.T) {
		t.Parallel()
		dir, out := t.TempDir(), t.TempDir()
		write(t, dir, "a.yaml", cluster("a"), "s.yaml", aSecret("s", "one"))
		way, why, seen := small(t, out)
		d := exporter(t, way, dir, out)
		d.logged("exported")
		out = seen(d.cmd.Process.Pid)
		was := treetest.Tree(t, out)
		write(t, dir, "large.yaml", aSecret("large", strings.Repeat("x", 2<<20)), "s.yaml", aSecret("s", "two"))
		l := d.logged("export failed, keeping the previous files")
		if err := l["error"]; !strings.Contains(err.(string), "/.generations/2/sds/large.yaml: "+why) {
			t.Errorf("%v", err)
		}
		if now := treetest.Tree(t, out); !maps.Equal(was, now) {
			t.Errorf("left %v", now)
		}
		// A second try with the same result is not logged again.
		d.signal(syscall.SIGHUP)
		d.logged("loaded")
		write(t, dir, "large.yaml", "# nothing\n")
		if l := d.logged("exported"); l["written"] != 1.0 || !strings.Contains(treetest.Tree(t, out)[".generations/2/sds/s.yaml"], "two") {
			t.Errorf("%v", l)
		}
	})

	t.Run("FILE-5 a failed write is tried again", func(t *testing.T) {
		t.Parallel()
		dir, out := t.TempDir(), t.TempDir()
		write(t, dir, "a.yaml", cluster("a"))
		d := exporter(t, nil, dir, out)
		d.logged("exported")
		// At the start the command exports once more, silently, and tidies up. An exported edit
		// shows that this has ended.
		write(t, dir, "also.yaml", cluster("also"))
		d.logged("exported")
		// An obstacle in the directory of the next generation is removed.
		write(t, dir, "../obstacle/cds.yaml/mine", "")
		if err := os.Rename(filepath.Join(dir, "../obstacle"), filepath.Join(out, ".generations/3")); err != nil {
			t.Fatal(err)
		}
		write(t, dir, "b.yaml", cluster("b"))
		d.logged("exported")
		if got := treetest.Tree(t, out)[".generations/3/cds.yaml"]; !strings.Contains(got, "name: b\n") {
			t.Errorf("%q", got)
		}
		if err := os.RemoveAll(filepath.Join(out, ".generations")); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Dir(out), filepath.Base(out)+"/.generations", "a file")
		write(t, dir, "c.yaml", cluster("c"))
		if l := d.logged("export failed, keeping the previous files"); !strings.Contains(l["error"].(string), out+"/.generations: not a directory") {
			t.Errorf("%v", l)
		}
		if err := os.Remove(filepath.Join(out, ".generations")); err != nil {
			t.Fatal(err)
		}
		d.signal(syscall.SIGHUP)
		d.logged("exported")
		if _, err := os.Stat(filepath.Join(out, "current", "cds.yaml")); err != nil {
			t.Error(err)
		}
	})
}

// small returns a command that runs a program with an out directory too small for 2 MiB, the error
// that the program gets, and the path of out for this test.
func small(t *testing.T, out string) (way []string, why string, seen func(pid int) string) {
	t.Helper()
	mount := []string{"unshare", "--user", "--map-root-user", "--mount", "sh", "-c", `mount -t tmpfs -o size=1m none "$0" && exec "$@"`, out}
	if exec.CommandContext(t.Context(), mount[0], append(mount[1:], "true")...).Run() == nil {
		return mount, "no space left on device", func(pid int) string { return fmt.Sprintf("/proc/%d/root%s", pid, out) }
	}
	return []string{"sh", "-c", `ulimit -f 1024; exec "$@"`, "sh"}, "file too large", func(int) string { return out }
}
