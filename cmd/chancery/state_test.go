package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/chancery-xds/chancery/internal/daemon/reloadsocket"
	"github.com/chancery-xds/chancery/internal/disk/lastgood"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// many is a file of n clusters, from number from.
func many(from, n int) string {
	var out strings.Builder
	for i := range n {
		out.WriteString("---\n" + cluster(fmt.Sprintf("c%02d", from+i)))
	}
	return out.String()
}

func listed(from, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("c%02d", from+i))
	}
	return names
}

// kept waits until a server has kept a configuration of n resources.
func (d *daemon) kept(n int) {
	d.Helper()
	root, err := lastgood.Root()
	if err != nil {
		d.Fatal(err)
	}
	folder, err := lastgood.Folder(root, d.dir)
	if err != nil {
		d.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		k, err := lastgood.Open(folder) // whose lock the server has
		if err != nil {
			d.Fatal(err)
		}
		c, _ := k.Load() // or it is not there yet
		got := 0
		for _, t := range c.Types {
			got += len(t.Resources)
		}
		if got == n {
			return
		}
	}
	d.Fatalf("%d resources are not kept", n)
}

// killed ends the server as a lack of memory does.
func (d *daemon) killed() {
	d.Helper()
	d.signal(syscall.SIGKILL)
	_ = d.cmd.Wait()
}

// loads waits until the server says that it serves what its files say.
func (d *daemon) loads(port string) {
	d.Helper()
	d.tells(port, "/metrics", "xds_server_config_last_load_successful 1\n")
	d.tells(port, "/metrics", "xds_server_config_restored 0\n")
	d.tells(port, "/readyz?verbose", "[i]configuration: the files\n")
}

// tells waits until an answer has a part.
func (d *daemon) tells(port, path, part string) {
	d.Helper()
	var last string
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		resp, err := http.Get("http://127.0.0.1:" + port + path)
		if err != nil {
			d.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if last = string(body); resp.StatusCode == http.StatusOK && strings.Contains(last, part) {
			return
		}
	}
	d.Fatalf("%s: no %q in\n%s", path, part, last)
}

func chancery(t *testing.T, code int, want string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	out, _ := cmd.CombinedOutput() // the code tells
	if got := cmd.ProcessState.ExitCode(); got != code || !strings.Contains(string(out), want) {
		t.Errorf("chancery %s: exit code %d, want %d, with %q in\n%s", strings.Join(args, " "), got, code, want, out)
	}
}

// "A start on nothing, on mistakes or on half a configuration tells no client that
// anything is gone: the last good is served, or nothing is answered. Removals beyond a
// share, at once or little by little, wait for a word." (SAFE-10)
func TestSafeStart(t *testing.T) {
	for _, tt := range []struct {
		name string
		harm func(dir string) error
		why  string
	}{
		{"a mistake", func(dir string) error { return os.WriteFile(dir+"/b.yaml", []byte("a: ["), 0o666) }, "configuration error"},
		{"half of the files", func(dir string) error { return os.Remove(dir + "/a.yaml") }, ""},
		{"no files", func(dir string) error { return os.RemoveAll(dir + "/a.yaml") }, ""},
		{"no directory", func(dir string) error { return os.Rename(dir, dir+".gone") }, "configuration error"},
	} {
		t.Run("SAFE-10 a start on "+tt.name, func(t *testing.T) {
			t.Parallel()
			d := serve(t, nil, "a.yaml", many(0, 30), "z.yaml", cluster("z"))
			want := append(listed(0, 30), "z")
			if tt.name == "no files" {
				want = want[:30]
				if err := os.Remove(d.dir + "/z.yaml"); err != nil {
					t.Fatal(err)
				}
			}
			d.kept(len(want))
			d.killed()
			if err := tt.harm(d.dir); err != nil {
				t.Fatal(err)
			}
			port := freePort(t)
			d = serveDir(t, d.dir, "--metrics-listen", "127.0.0.1:"+port)
			d.clusters().gets(want...)
			d.tells(port, "/readyz", "ok")
			d.tells(port, "/readyz?verbose", "[i]configuration: the last good configuration, of 20")
			d.tells(port, "/metrics", "xds_server_config_restored 1\n")
			if err := errors.Join(os.MkdirAll(d.dir, 0o777), os.WriteFile(d.dir+"/a.yaml", []byte(many(0, 30)), 0o666), os.RemoveAll(d.dir+"/b.yaml")); err != nil {
				t.Fatal(err)
			}
			if tt.name == "no directory" {
				if err := os.WriteFile(d.dir+"/z.yaml", []byte(cluster("z")), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			d.loads(port) // what was there before, so that nothing is set
		})
	}
	t.Run("SAFE-10 a restart, and a mistake that is undone, leave no alarm", func(t *testing.T) {
		t.Parallel()
		d := serve(t, nil, "a.yaml", many(0, 3))
		d.kept(3)
		d.killed()
		port := freePort(t)
		d = serveDir(t, d.dir, "--metrics-listen", "127.0.0.1:"+port)
		d.loads(port)
		write(t, d.dir, "a.yaml", "a: [")
		d.tells(port, "/metrics", "xds_server_config_last_load_successful 0\n")
		d.tells(port, "/readyz?verbose", "[i]configuration: the last good configuration: the files have been rejected since 20")
		write(t, d.dir, "a.yaml", many(0, 3))
		d.loads(port)
	})
	t.Run("SAFE-10 a start on nothing answers nobody, until there is something", func(t *testing.T) {
		t.Parallel()
		port := freePort(t)
		d := serve(t, []string{"--metrics-listen", "127.0.0.1:" + port})
		d.clusters() // which waits
		d.logged("client waits: nothing is configured for its node yet")
		s := d.clusters()
		resp, err := http.Get("http://127.0.0.1:" + port + "/readyz?verbose")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), "[i]configuration: none\n") {
			t.Errorf("ready: %s, %s", resp.Status, body)
		}
		d.healthy(healthgrpc.HealthCheckResponse_NOT_SERVING)
		write(t, d.dir, "a.yaml", cluster("a"))
		s.gets("a")
		d.healthy(healthgrpc.HealthCheckResponse_SERVING)
		if resp, err := http.Get("http://127.0.0.1:" + port + "/readyz"); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("not ready: %v, %v", resp, err)
		}
	})
	t.Run("ADS-9 a client further behind than the last commit keeps what its routes may lead to", func(t *testing.T) {
		t.Parallel()
		d := serve(t, nil, "a.yaml", many(0, 3))
		d.kept(3)
		write(t, d.dir, "a.yaml", many(1, 4)) // without c00
		d.kept(4)
		d.killed()
		d = serveDir(t, d.dir, "--removal-grace", "5s")
		s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(d.conn).StreamAggregatedResources(d.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: xds.Cluster.URL, VersionInfo: "of before"}); err != nil {
			t.Fatal(err)
		}
		if r, err := s.Recv(); err != nil || len(r.Resources) != 5 {
			t.Errorf("%d clusters, want 5; %v", len(r.GetResources()), err)
		}
		d.clusters().gets(listed(1, 4)...)
	})
	t.Run("SAFE-10 what was kept is of no use", func(t *testing.T) {
		t.Parallel()
		d := serve(t, nil, "a.yaml", many(0, 30))
		d.kept(30)
		d.killed()
		root, _ := lastgood.Root()
		folder, err := lastgood.Folder(root, d.dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(folder+"/last-good", []byte("chancery last good 1\n?"), 0o600); err != nil {
			t.Fatal(err)
		}
		d = serveDir(t, d.dir)
		d.clusters().gets(listed(0, 30)...)
	})
	for what, state := range map[string]string{"": "--state-dir=" + t.TempDir(), ", though nothing is kept": "--state-dir="} {
		t.Run("SAFE-10 a refused removal is approved while the server runs"+what, func(t *testing.T) {
			t.Parallel()
			d := serve(t, []string{state}, "a.yaml", many(0, 30))
			s := d.clusters()
			s.gets(listed(0, 30)...)
			write(t, d.dir, "a.yaml", many(0, 10))
			why := fmt.Sprint(d.logged("reload rejected, keeping the previous configuration")["error"])
			_, how, _ := strings.Cut(why, "chancery reload ")
			if !strings.HasPrefix(how, "--allow-mass-delete ") {
				t.Error(why)
			}
			chancery(t, 1, "this would remove 20 of 30 CDS resources", "reload", state, d.dir)
			typed := []string{"reload"} // as it says
			for word := range strings.FieldsSeq(how) {
				typed = append(typed, strings.Trim(word, "'"))
			}
			chancery(t, 0, "ok: 10 resources in 1 file, 0 set, 20 removed\n", typed...)
			for line := d.logged("loaded"); ; line = d.logged("loaded") {
				if approved := line["removals"] == "approved"; approved != (line["removed"] == 20.0) {
					t.Errorf("approved: %v of %v", approved, line)
				} else if approved {
					break
				}
			}
			s.gets(listed(0, 10)...)
			chancery(t, 1, "no running server serves "+d.dir+"x", "reload", d.dir+"x")
		})
	}
	t.Run("SAFE-10 a removal of more than a tenth waits for a second look", func(t *testing.T) {
		t.Parallel()
		d := serve(t, []string{"--confirm-removals", "2s"}, "a.yaml", many(0, 30))
		s := d.clusters()
		s.gets(listed(0, 30)...)
		begin := time.Now()
		write(t, d.dir, "a.yaml", many(5, 26)) // c30 is new
		s.gets(listed(0, 31)...)
		line := d.logged("removals delayed: many resources are missing from the files")
		if got := fmt.Sprint(line["resources"], line["first"]); got != "5 [c00 c01 c02]" {
			t.Error(got)
		}
		s.gets(listed(5, 26)...)
		if took := time.Since(begin); took < 2*time.Second {
			t.Errorf("removed after %v", took)
		}
	})
	t.Run("two servers of one directory", func(t *testing.T) {
		t.Parallel()
		d := serve(t, nil, "a.yaml", many(0, 30))
		d.kept(30)
		other := serveDir(t, d.dir)
		other.meanwhile("another server of the same directory stores the last good configuration: until it ends, this one stores none")
		d.killed()
		other.logged("the other server has ended: this one now stores the last good configuration")
	})
}

// Who asks for nothing to be kept knows it. Who has no place for it, such as a user
// without a home directory, may not.
func TestNoStateIsSaid(t *testing.T) {
	for _, tt := range []struct {
		chosen bool
		want   string
	}{{true, "level=INFO"}, {false, "level=WARN"}} {
		var out bytes.Buffer
		if err := (&state{chosen: tt.chosen}).open(slog.New(slog.NewTextHandler(&out, nil)), "dir"); err != nil {
			t.Error(err)
		}
		if got := out.String(); !strings.Contains(got, tt.want) || strings.Contains(got, "hint=--state-dir") == tt.chosen {
			t.Errorf("chosen %v: %s", tt.chosen, got)
		}
	}
}

// What nobody asked for may be impossible, such as on a file system that is read-only: the
// server serves. What somebody asked for is done, or the server ends.
func TestStateOfNoUse(t *testing.T) {
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, chosen := range []bool{true, false} {
		var out bytes.Buffer
		s := &state{root: file + "/state", chosen: chosen}
		err := s.open(slog.New(slog.NewTextHandler(&out, nil)), "dir")
		if (err != nil) != chosen || s.keeper != nil {
			t.Errorf("chosen %v: %v, kept: %v", chosen, err, s.keeper != nil)
		}
		if kept := s.kept(); kept == nil || kept() {
			t.Errorf("chosen %v: it is said to be kept", chosen)
		}
		if (&state{chosen: true}).kept() != nil {
			t.Error("nothing is to be kept, and there is a series that says so")
		}
		if strings.Contains(out.String(), "is not stored") == chosen {
			t.Errorf("chosen %v: %s", chosen, out.String())
		}
	}
}

// Of a directory whose name was a mistake no folder stays.
func TestStateLeavesNoFolder(t *testing.T) {
	root := t.TempDir()
	chancery(t, failed, "no such file", "serve", root+"/none", "--listen", "127.0.0.1:0", "--state-dir", root+"/state")
	left, err := os.ReadDir(root + "/state")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range left {
		if f.IsDir() {
			t.Error(f.Name())
		}
	}
}

// SAFE-6: who wants no secrets on disk has none there.
func TestStateWithoutSecretsFlag(t *testing.T) {
	for _, without := range []bool{false, true} {
		s := &state{root: t.TempDir(), withoutSecrets: without}
		if err := s.open(slog.New(slog.DiscardHandler), "dir"); err != nil {
			t.Fatal(err)
		}
		if s.keeper.WithoutSecrets != without {
			t.Errorf("--state-without-secrets %v: it keeps none: %v", without, s.keeper.WithoutSecrets)
		}
	}
}

// Since when the files cannot be loaded is not moved by the next try, and ends with one that
// succeeds.
func TestStateFailingSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s state
		wants := func(want string) {
			t.Helper()
			if got := s.note(); !strings.Contains(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		}
		wants("the files")
		since := time.Now().UTC().Format(time.RFC3339)
		for range 3 {
			s.loaded(errors.New("a mistake"))
			time.Sleep(time.Hour)
			wants("have been rejected since " + since)
		}
		s.loaded(nil)
		if got := s.note(); got != "the files" {
			t.Error(got)
		}
	})
}

// How to allow a removal can be typed anywhere: where nobody can reach the server, a restart
// is the way.
func TestHowToAllow(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		chosen, kept, door bool
		want               string
	}{
		{false, false, false, "restart, with --allow-empty if nothing is left"},
		{true, false, false, "restart, with --allow-empty if nothing is left"},
		{false, true, false, "chancery reload --allow-mass-delete " + here + "/dir"},
		{true, true, false, "chancery reload --allow-mass-delete " + here + "/dir --state-dir " + here + "/state"},
		{true, false, true, "chancery reload --allow-mass-delete " + here + "/dir --state-dir ''"},
		{false, false, true, "chancery reload --allow-mass-delete " + here + "/dir --state-dir ''"},
	} {
		s := state{root: "state", chosen: tt.chosen}
		if tt.kept {
			s.keeper = &lastgood.Keeper{}
		}
		if tt.door {
			s.door = &lastgood.Keeper{}
		}
		if got := s.howToAllow("dir"); got != tt.want {
			t.Errorf("chosen %v, kept %v: %q, want %q", tt.chosen, tt.kept, got, tt.want)
		}
	}
	spaced := state{root: "/my state", chosen: true, keeper: &lastgood.Keeper{}}
	if got, want := spaced.howToAllow("/etc/it's $mine"), `chancery reload --allow-mass-delete '/etc/it'\''s $mine' --state-dir '/my state'`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// An operator is told what a reload did: each mistake, and what waits to be removed.
func TestOperator(t *testing.T) {
	folder := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(folder+"/"+name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a.yaml", many(0, 40))
	src := dir.New(folder, store.New(), dir.Options{Log: slog.New(slog.DiscardHandler), Confirm: time.Hour, Poll: time.Hour})
	if _, err := src.Load(); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer func() { cancel(); running.Wait() }()
	running.Go(func() { src.Run(ctx) })
	reload := func(approve bool, want string) {
		t.Helper()
		r := operator{src}.Reload(t.Context(), approve)
		if got := fmt.Sprint(r.Files, " ", r.Resources, " +", r.Set, " -", r.Removed, " held ", r.Held, " mistakes ", len(r.Errors)); got != want {
			t.Errorf("%s, want %s: %s", got, want, r.Errors)
		}
	}
	reload(false, "1 40 +0 -0 held 0 mistakes 0")
	write("a.yaml", many(6, 36))
	reload(false, "1 42 +2 -0 held 6 mistakes 0")
	write("b.yaml", "{")
	write("c.yaml", "- 1")
	reload(true, "0 0 +0 -0 held 0 mistakes 2")
	if err := errors.Join(os.Remove(folder+"/b.yaml"), os.Remove(folder+"/c.yaml")); err != nil {
		t.Fatal(err)
	}
	reload(true, "1 36 +0 -6 held 0 mistakes 0")
	write("a.yaml", many(6, 1))
	reload(false, "0 0 +0 -0 held 0 mistakes 1")
}

// Of two servers of one directory chancery reload reaches the first, until that one ends.
func TestOperatorOfTwo(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	begin := func(files int) (end func()) {
		served := t.TempDir()
		for i := range files {
			if err := os.WriteFile(fmt.Sprintf("%s/%d.yaml", served, i), []byte(cluster(fmt.Sprint("c", i))), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		log := slog.New(slog.DiscardHandler)
		s := &state{root: root}
		if err := s.open(log, "the same"); err != nil {
			t.Fatal(err)
		}
		src := dir.New(served, store.New(), dir.Options{Log: log})
		if _, err := src.Load(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { src.Run(ctx) })
		s.run(ctx, &running, log, src)
		return func() { cancel(); running.Wait() }
	}
	folder, err := lastgood.Folder(root, "the same")
	if err != nil {
		t.Fatal(err)
	}
	reaches := func(files int) {
		t.Helper()
		for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			r, err := reloadsocket.Ask(t.Context(), folder, false)
			switch {
			case err == nil && r.Files == files:
				return
			case err == nil:
				t.Fatalf("it reaches the one of %d files, want that of %d", r.Files, files)
			case time.Since(start) > 30*time.Second:
				t.Fatal(err)
			}
		}
	}
	first := begin(1)
	reaches(1)
	second := begin(2)
	defer second()
	for range 20 {
		reaches(1)
		time.Sleep(10 * time.Millisecond)
	}
	first()
	reaches(2)
}
