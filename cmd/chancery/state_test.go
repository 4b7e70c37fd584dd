package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/disk/lastgood"
	"github.com/chancery-xds/chancery/xds"
)

// many returns a file of n clusters, numbered from `from`.
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

// kept waits until a server has stored a configuration of n resources.
func (d *runningServer) kept(n int) {
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
		k, err := lastgood.Open(folder) // works although the server holds the lock: this keeper only reads
		if err != nil {
			d.Fatal(err)
		}
		c, _ := k.Load() // an error means that the file does not exist yet
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

// killed kills the server, as the kernel does when memory runs out.
func (d *runningServer) killed() {
	d.Helper()
	d.signal(syscall.SIGKILL)
	_ = d.cmd.Wait()
}

// loads waits until the server reports that it serves its files.
func (d *runningServer) loads(port string) {
	d.Helper()
	d.tells(port, "/metrics", "xds_server_config_last_load_successful 1\n")
	d.tells(port, "/metrics", "xds_server_config_restored 0\n")
	d.tells(port, "/readyz?verbose", "[i]configuration: the files\n")
}

// tells waits until the answer of a path contains a text.
func (d *runningServer) tells(port, path, part string) {
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
	out, _ := cmd.CombinedOutput() // the exit code reports errors
	if got := cmd.ProcessState.ExitCode(); got != code || !strings.Contains(string(out), want) {
		t.Errorf("chancery %s: exit code %d, want %d, with %q in\n%s", strings.Join(args, " "), got, code, want, out)
	}
}

// A start on an empty, broken or half configuration removes nothing from a client. Large removals wait for
// a confirmation (SAFE-10).
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
			d.loads(port) // the earlier content, so the load changes nothing
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
	t.Run("SAFE-10 a start on an empty directory answers no client until it has content", func(t *testing.T) {
		t.Parallel()
		port := freePort(t)
		d := serve(t, []string{"--metrics-listen", "127.0.0.1:" + port})
		d.clusters() // this client waits
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
	t.Run("ADS-9 a client that is several commits behind keeps the clusters that its routes may refer to", func(t *testing.T) {
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
	t.Run("SAFE-10 a damaged last good configuration is not used", func(t *testing.T) {
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
	for what, state := range map[string]string{"": "--state-dir=" + t.TempDir(), ", although nothing is stored": "--state-dir="} {
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
			typed := []string{"reload"} // the command that the log line suggests
			for word := range strings.FieldsSeq(how) {
				typed = append(typed, strings.Trim(word, "'"))
			}
			chancery(t, 0, "ok: 10 resources in 1 file, 0 set, 20 removed\n", typed...)
			for line := d.logged("loaded"); ; line = d.logged("loaded") {
				if approved := line["removals"] == "approved"; approved != (line["removed"] == 20.0) {
					t.Errorf("approved is %v, but the line is %v", approved, line)
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

// A start with a directory that does not exist leaves no folder below --state-dir.
func TestStateLeavesNoFolder(t *testing.T) {
	root := t.TempDir()
	chancery(t, cli.Failed, "no such file", "serve", root+"/none", "--listen", "127.0.0.1:0", "--state-dir", root+"/state")
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
