package chaos

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/e2e/harness"
)

var diskRows = []row{
	{name: "SAFE-10 disk full", fast: true, fault: diskFull, setup: setup{server: onSmallDisk}},
	{name: "SAFE-10 permission lost", fast: true, fault: permissionLost, setup: setup{server: asNobody}},
	{name: "SAFE-10 source broken", fast: true, fault: sourceBroken},
	{name: "SAFE-10 more changes than the system tells", fast: true, fault: watchOverflow},
}

// refusals is how often the log says that a load was refused.
func (r *rig) refusals() int {
	return r.logged(`"reload rejected, keeping the previous configuration"`)
}

// ignored breaks the source, waits until the server has noticed, and checks that no client got a
// response.
func (r *rig) ignored(harm func() error) {
	r.t.Helper()
	was := r.refusals()
	r.must(harm())
	harness.Eventually(r.t, 10*time.Second, "the load is refused", func() error {
		if r.refusals() == was {
			return errors.New("the log does not say so")
		}
		return nil
	})
	r.served()
}

// had checks that the fleet still has exactly a generation.
func (r *rig) had(c content) {
	r.t.Helper()
	if err := r.fleet.have(c)(); err != nil {
		r.t.Error(err)
	}
}

// onSmallDisk gives the server a small disk for its state, with namespaces that need no privilege.
func onSmallDisk(t *testing.T, s *server) {
	attr := func(a *syscall.SysProcAttr) {
		a.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	s.shell, s.attr = "mount -t tmpfs -o size=512k tmpfs "+s.state, attr
}

// fill takes all room that the server's disk has, and returns how to give it back.
func (r *rig) fill() (free func() error) {
	r.t.Helper()
	path := filepath.Join(r.disk(), "filler")
	f, err := os.Create(path)
	r.must(err)
	defer f.Close()
	if _, err := io.Copy(f, zeros{}); !errors.Is(err, syscall.ENOSPC) {
		r.t.Fatalf("the disk does not get full: %v", err)
	}
	return func() error { return os.Remove(path) }
}

// disk returns the path of the server's private disk for the test.
func (r *rig) disk() string {
	return filepath.Join("/proc", strconv.Itoa(r.cmd.Process.Pid), "root", r.state)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// The server cannot store anything, while it runs and when it starts. It still serves.
func diskFull(r *rig) {
	const unkept = "the last good configuration is not stored: a restart with invalid files would serve an older one, or nothing"
	free := r.fill()
	took := r.notices(5*time.Second, nil)
	harness.Eventually(r.t, 10*time.Second, "the log says that nothing is kept", func() error {
		if r.logged(unkept) == 0 {
			return errors.New("it does not")
		}
		return nil
	})
	r.served()
	r.untouched()
	r.note("the clients had a change in %.1f s", took.Seconds())
	r.must(free())
	r.commit()
	kept := func() (time.Time, error) {
		found, err := filepath.Glob(filepath.Join(r.disk(), "*", "last-good"))
		if err != nil || len(found) != 1 {
			return time.Time{}, fmt.Errorf("%d files: %w", len(found), cmp.Or(err, fs.ErrNotExist))
		}
		info, err := os.Stat(found[0])
		if err != nil {
			return time.Time{}, err
		}
		return info.ModTime(), nil
	}
	since := time.Now()
	r.note("with room again it was kept within %.1f s", harness.Eventually(r.t, 10*time.Second, "it is kept again", func() error {
		if at, err := kept(); err != nil || at.Before(since) {
			return errors.Join(err, fmt.Errorf("it was kept at %v", at))
		}
		return nil
	}).Seconds())

	// Make before break after a kill needs the stored configuration, which this disk lacks. So
	// nothing changes during the kill.
	r.converges("with room again")
	r.must(r.kill())
	mount := r.shell
	r.shell += " && { head -c 1m /dev/zero >" + r.state + "/filler 2>/dev/null || true; }"
	r.must(r.start())
	r.shell = mount
	r.note("started on a full disk: %v", r.converges("after a start on a full disk"))
	r.must(os.Remove(filepath.Join(r.disk(), "filler")))
}

// asNobody runs the server as a user without permission to read all files, because the test itself
// may run as root.
func asNobody(t *testing.T, s *server) {
	if os.Geteuid() != 0 {
		return
	}
	const nobody = 65534
	s.as = &syscall.Credential{Uid: nobody, Gid: nobody}
	if err := os.Chown(s.state, nobody, nobody); err != nil {
		t.Fatal(err)
	}
}

// The server loses permission to read the files, the directory and its state, one after the other.
// Then it is killed and started without permission to read the files.
func permissionLost(r *rig) {
	file := filepath.Join(r.dir, "world.yaml")
	had := r.now
	forbid := func(path string) func() error { return func() error { return os.Chmod(path, 0) } }
	r.next()
	next := filepath.Join(filepath.Dir(r.dir), "next.yaml")
	r.must(os.WriteFile(next, r.now.files["world.yaml"], 0o644))
	r.must(os.Chmod(next, 0))
	r.ignored(func() error { return os.Rename(next, file) })
	r.had(had)
	r.must(os.Chmod(file, 0o644))
	r.note("readable again, converged: %v", r.converges("when the file is readable again"))
	r.ignored(forbid(r.dir))
	r.had(r.now)
	r.must(os.Chmod(r.dir, 0o755))
	r.note("and the directory: %v", r.converges("when the directory is readable again"))
	r.untouched()

	had = r.now
	r.must(os.Chmod(file, 0))
	r.must(r.kill())
	r.must(r.start())
	if r.logged("serving the last good configuration, not the files") == 0 {
		r.t.Error("the server does not say that it serves the last good configuration")
	}
	r.note("killed, and started on unreadable files: %v", r.converges("from the last good configuration"))
	r.had(had)
	r.next()
	r.must(put(r.dir, "world.yaml", r.now.files["world.yaml"]))
	r.converges("when the file is readable again")
}

// Mistakes, a third of a file, no file, no directory; and a start on mistakes.
func sourceBroken(r *rig) {
	world, broken := filepath.Join(r.dir, "world.yaml"), filepath.Join(r.dir, "broken.yaml")
	had := r.now
	moved := r.dir + "-moved"
	third := r.now.files["world.yaml"]
	third = third[:strings.LastIndex(string(third[:len(third)/3]), "---\n")] // whole documents, but not all
	for _, harm := range []struct {
		what         string
		harm, repair func() error
	}{
		{"a mistake", func() error { return os.WriteFile(broken, []byte("a: ["), 0o644) }, func() error { return os.Remove(broken) }},
		{"a third of a file", func() error { return put(r.dir, "world.yaml", third) }, func() error { return nil }},
		{"no file", func() error { return os.Remove(world) }, func() error { return nil }},
		{"no directory", func() error { return os.Rename(r.dir, moved) }, func() error { return os.Rename(moved, r.dir) }},
	} {
		r.ignored(harm.harm)
		r.had(had)
		r.must(harm.repair())
		r.commit()
		r.note("after %s: %v", harm.what, r.converges("after "+harm.what))
		had = r.now
	}
	r.untouched()
	r.must(os.WriteFile(broken, []byte("a: ["), 0o644))
	r.must(r.kill())
	r.must(r.start())
	r.note("killed, and started on a mistake: %v", r.converges("from the last good configuration"))
	r.must(os.Remove(broken))
}

// While the server is suspended, its directory has more events than the system queues. The
// important change comes last, and its event is lost.
func watchOverflow(r *rig) {
	b, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	r.must(err)
	room, err := strconv.Atoi(strings.TrimSpace(string(b)))
	r.must(err)
	r.must(r.signal(syscall.SIGSTOP))
	noise := []string{filepath.Join(r.dir, "_one"), filepath.Join(r.dir, "_two")}
	for _, path := range noise {
		r.must(os.WriteFile(path, nil, 0o644))
	}
	for i := range room + 1000 { // two of a kind in a row would be one
		r.must(os.Chmod(noise[i%2], 0o600+os.FileMode(i%3)))
	}
	r.commit()
	r.must(r.signal(syscall.SIGCONT))
	took := harness.Eventually(r.t, 10*time.Second, "the fleet gets the change whose event was lost", r.fleet.told(r.now, nil))
	r.note("%d events of which the system keeps %d: told within %.1f s", room+1000, room, took.Seconds())
	for _, path := range noise {
		r.must(os.Remove(path))
	}
	r.untouched()
}
