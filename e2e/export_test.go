package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/chancery-xds/chancery/e2e/harness"
)

// Envoy runs from exported files without a server, and follows their changes: routes, endpoints and
// certificates.
func TestExport(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"yaml", "json", "pb_text", "pb"} {
		t.Run("FILE-4 FILE-5 routes move, endpoints move, certificates rotate: "+format, func(t *testing.T) {
			t.Parallel()
			servers, clients := newAuthority(t, "servers"), newAuthority(t, "clients")
			x := newExport(t, func(w world) {
				secure(w["Listener/ingress"].(*listener.Listener))
				w.set(certificate("server", servers.issue(t, "certificate 1")), trust("clients", clients))
			}, "--format", format)
			anew := clients.caller(t, x.ingressPort, false, servers)
			x.once()
			x.boot()
			eventually(t, soon, "ingress serves", anew.gets(answer{"a", "certificate 1"}))
			eventually(t, soon, "side serves", x.side.gets(answer{"b", "1"}))

			x.watch()
			l, l2 := loadedAt(t, 50, x.side, nil), loadedAt(t, 10, anew, nil)
			x.commit(func(w world) { w.set(routes("side", "2", "backend")) })
			eventually(t, soon, "the route leads to the other cluster", x.side.gets(answer{"a", "2"}))
			x.commit(func(w world) { w.set(assignment("backend", x.b.port)) })
			eventually(t, soon, "the endpoint has moved", x.side.gets(answer{"b", "2"}))
			x.commit(func(w world) { w.set(certificate("server", servers.issue(t, "certificate 2"))) })
			eventually(t, soon, "new connections see the certificate", anew.gets(answer{"b", "certificate 2"}))
			l.Unharmed(t)
			l2.Unharmed(t)
			x.accepted()
		})
	}

	t.Run("FILE-4 FILE-5 a mistake is not exported", func(t *testing.T) {
		t.Parallel()
		x := newExport(t, nil)
		x.watch()
		x.boot()
		eventually(t, soon, "it serves", x.ingress.gets(answer{"a", "1"}))
		bad := filepath.Join(x.dir, "bad.yaml")
		if err := os.WriteFile(bad, []byte("nonsense"), 0o600); err != nil {
			t.Fatal(err)
		}
		x.commit(func(w world) { w.set(routes("ingress", "2", "other")) })
		x.logged("reload rejected")
		if err := x.ingress.gets(answer{"a", "1"})(); err != nil {
			t.Error(err)
		}
		if err := os.Remove(bad); err != nil {
			t.Fatal(err)
		}
		eventually(t, soon, "corrected", x.ingress.gets(answer{"b", "2"}))
		x.accepted()
	})
}

// Envoy cannot report that it is ready, so order and pauses must be enough. No request fails,
// although routes move to new clusters again and again, and the old clusters are deleted in the
// same change.
func TestExportMakesBeforeItBreaks(t *testing.T) {
	t.Parallel()
	t.Run("FILE-5 ADS-3 clusters come and go under load", func(t *testing.T) {
		t.Parallel()
		x := newExport(t, func(w world) {
			w.drop(edsCluster("other", 0), assignment("other"), httpListener("side", 0, ""), routes("side", "", ""))
		}, "--settle", "500ms")
		x.watch()
		x.boot()
		eventually(t, soon, "it serves", x.ingress.gets(answer{"a", "1"}))
		l := loaded(t, x.ingress, nil)
		for range 5 {
			x.commit(func(w world) {
				w.drop(edsCluster("backend", 0), assignment("backend"))
				w.set(edsCluster("other", time.Second), assignment("other", x.b.port), routes("ingress", "2", "other"))
			})
			eventually(t, soon, "traffic moves", x.ingress.gets(answer{"b", "2"}))
			eventually(t, soon, "the cluster goes", x.envoy.hasClusters("other"))
			x.commit(func(w world) {
				w.drop(edsCluster("other", 0), assignment("other"))
				w.set(edsCluster("backend", time.Second), assignment("backend", x.a.port), routes("ingress", "1", "backend"))
			})
			eventually(t, soon, "traffic moves back", x.ingress.gets(answer{"a", "1"}))
			eventually(t, soon, "the cluster goes", x.envoy.hasClusters("backend"))
		}
		l.Unharmed(t)
		x.accepted()
		eventually(t, soon, "so does its file", func() error {
			if got := files(t, filepath.Join(x.out, "current", "eds")); !slices.Equal(got, []string{"backend.yaml"}) {
				return fmt.Errorf("there are %q", got)
			}
			return nil
		})
	})
}

// Some types share one file, other resources have their own file, and some cannot come from files.
func TestExportOfOtherTypes(t *testing.T) {
	t.Parallel()
	t.Run("FILE-4 scopes, virtual hosts and filters", func(t *testing.T) {
		t.Parallel()
		x := newExport(t, func(w world) {
			scoped(w, "ingress")
			w.set(scope("first", "blue", "ingress"), scope("second", "green", "Third/Routes"), routes("Third/Routes", "3", "other"))
			w.set(emptyRoutes("side"), virtualHost("side", "a.example", "1", "backend"))
			marked(w, "side")
			w.set(marker("marker", "first"))
		})
		in := func(color string) caller {
			return asking(t, x.ingressPort, func(r *http.Request) { r.Header.Set("x-scope", color) })
		}
		at := func(host string) caller { return asking(t, x.sidePort, func(r *http.Request) { r.Host = host }) }
		x.watch()
		x.boot()
		eventually(t, soon, "a scope", in("blue").gets(answer{"a", "1"}))
		eventually(t, soon, "another", in("green").gets(answer{"b", "3"}))
		eventually(t, soon, "none", in("red").fails("404"))
		eventually(t, soon, "a virtual host, and the filter", at("a.example").gets(answer{"a", "first"}))
		eventually(t, soon, "none", at("b.example").fails("404"))

		x.commit(func(w world) { w.set(scope("third", "red", "ingress")) })
		eventually(t, soon, "a scope comes", in("red").gets(answer{"a", "1"}))
		x.commit(func(w world) { w.set(routes("Third/Routes", "4", "backend")) })
		eventually(t, soon, "routes of a scope change", in("green").gets(answer{"a", "4"}))
		x.commit(func(w world) { w.drop(scope("third", "", "")) })
		eventually(t, soon, "a scope goes", in("red").fails("404"))
		x.commit(func(w world) { w.set(virtualHost("side", "b.example", "1", "other")) })
		eventually(t, soon, "a virtual host comes", at("b.example").gets(answer{"b", "first"}))
		x.commit(func(w world) { w.set(marker("marker", "second")) })
		eventually(t, soon, "the filter changes", at("b.example").gets(answer{"b", "second"}))
		x.accepted()
	})

	t.Run("FILE-4 what is missing comes later, and does not hold Envoy's start", func(t *testing.T) {
		t.Parallel()
		servers, clients := newAuthority(t, "servers"), newAuthority(t, "clients")
		name := "Näme/of a “cluster” " + strings.Repeat("that is long ", 20)
		x := newExport(t, func(w world) {
			secure(w["Listener/ingress"].(*listener.Listener))
			w.set(edsCluster(name, time.Second), routes("side", "2", name))
			w.drop(routes("ingress", "", ""))
		})
		x.watch()
		x.boot()
		call := clients.caller(t, x.ingressPort, false, servers)
		eventually(t, soon, "no endpoint", x.side.fails("503"))
		x.commit(func(w world) { w.set(assignment(name, x.a.port)) })
		eventually(t, soon, "an endpoint", x.side.gets(answer{"a", "2"}))
		x.commit(func(w world) {
			w.set(certificate("server", servers.issue(t, "certificate 1")), trust("clients", clients))
		})
		eventually(t, soon, "no routes", call.fails("404"))
		x.commit(func(w world) { w.set(routes("ingress", "1", "other")) })
		eventually(t, soon, "all is there", call.gets(answer{"b", "certificate 1"}))
	})

	t.Run("FILE-4 OUT mounted elsewhere", func(t *testing.T) {
		t.Parallel()
		// A link replaces the mount: Envoy sees another path.
		elsewhere := filepath.Join(t.TempDir(), "elsewhere")
		x := newExport(t, nil, "--path-prefix", elsewhere)
		x.watch()
		if err := os.Symlink(x.out, elsewhere); err != nil {
			t.Fatal(err)
		}
		x.envoy = runEnvoy(t, filepath.Join(elsewhere, "bootstrap.json"))
		eventually(t, soon, "it serves", x.ingress.gets(answer{"a", "1"}))
		x.commit(func(w world) { w.set(routes("ingress", "2", "other")) })
		eventually(t, soon, "it follows", x.ingress.gets(answer{"b", "2"}))
		x.accepted()
	})
}

// Strings that some YAML readers read as another type.
func TestExportOfOddStrings(t *testing.T) {
	t.Parallel()
	odds := []string{
		" ", "y", "Yes", "no", "off", "TRUE", "null", "~", ".inf", "nan", "0", "007", "0x10", "0o7", "1e3", "1_000", "12:30:45", "2001-01-01", "-", "---", "...", "- a", "a: b", "a #b",
		"#", "&a", "*a", "!a", "!!str", "|", ">", "%T", "@a", "`a`", "{}", "[]", "'", `"`, `\`, `\n`, "<<", "=", "?", ":", "a:", "a\nb", "a\nb\n", "a\nb\n\n", "\na", "a\n\nb\n", " a\nb",
		"a\n b\n", "a \nb", "a\n\tb", "a\r\nb", "\t", "\x07", "\x1b", "\u00a0", "\u2028", "\ufeff", "ü", "日本", "👍🏽", "---\na: b\n...", "a\n# b\n",
	}
	for _, format := range []string{"yaml", "json", "pb_text", "pb"} {
		t.Run("FILE-4 Envoy reads what was meant: "+format, func(t *testing.T) {
			t.Parallel()
			x := newExport(t, func(w world) {
				r := routes("ingress", "1", "backend")
				r.VirtualHosts[0].Routes = nil
				for i, s := range odds {
					r.VirtualHosts[0].Routes = append(r.VirtualHosts[0].Routes, &route.Route{
						Match: &route.RouteMatch{PathSpecifier: &route.RouteMatch_Path{Path: fmt.Sprint("/", i)}},
						Action: &route.Route_DirectResponse{DirectResponse: &route.DirectResponseAction{Status: 200, Body: &core.DataSource{
							Specifier: &core.DataSource_InlineString{InlineString: s}}}},
					})
				}
				w.set(r)
			}, "--format", format)
			x.once()
			x.boot()
			for i, s := range odds {
				body, err := fetch(t.Context(), fmt.Sprintf("http://127.0.0.1:%d/%d", x.ingressPort, i))
				if err != nil || body != s {
					t.Errorf("%q: Envoy answers %q %v", s, body, err)
				}
			}
			x.accepted()
		})
	}
}

func fetch(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// An export is a site without a server: a directory, its exported files, and an Envoy that runs
// from them.
type export struct {
	*site
	world    world
	dir, out string
	log      string // path
	flags    []string
	written  int
}

// newExport writes the world of a site, with a change, into a directory. It does not export yet.
func newExport(t *testing.T, change func(world), flags ...string) *export {
	t.Helper()
	root := t.TempDir()
	x := &export{dir: filepath.Join(root, "config"), out: filepath.Join(root, "out"), log: filepath.Join(root, "chancery.log")}
	x.flags = append([]string{"--node", "e2e", "--admin", "127.0.0.1:0", "--settle", "200ms"}, flags...)
	x.site = siteOf(t, func(w world) *rig { x.world = w; return nil })
	if change != nil {
		change(x.world)
	}
	if err := os.Mkdir(x.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	x.commit(func(world) {})
	t.Cleanup(func() {
		if b, err := os.ReadFile(x.log); t.Failed() && err == nil {
			t.Logf("the exporter's log:\n%s", b)
		}
	})
	return x
}

// commit changes the world in one step.
func (x *export) commit(change func(world)) {
	x.t.Helper()
	change(x.world)
	x.written++
	if err := renamed(x.dir, x.written, x.world); err != nil {
		x.t.Fatal(err)
	}
}

func (x *export) command(more ...string) *exec.Cmd {
	cmd := exec.Command(binary, slices.Concat([]string{"export", x.dir, "--out", x.out}, x.flags, more)...)
	harness.DieWithParent(cmd)
	return cmd
}

// once exports, and leaves no process behind.
func (x *export) once() {
	x.t.Helper()
	if out, err := x.command().CombinedOutput(); err != nil {
		x.t.Fatalf("%v\n%s", err, out)
	}
}

// watch exports until the test ends.
func (x *export) watch() {
	x.t.Helper()
	x.run(x.command("--watch"))
}

// run runs an exporter until the test ends, and waits for its first export.
func (x *export) run(cmd *exec.Cmd) {
	x.t.Helper()
	log, err := os.OpenFile(x.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		x.t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		x.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	x.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-ended:
			if err != nil {
				x.t.Errorf("the exporter: %v", err)
			}
		case <-time.After(10 * time.Second):
			x.t.Error("the exporter does not end on SIGTERM")
			_ = cmd.Process.Kill()
			<-ended
		}
	})
	eventually(x.t, 20*time.Second, "the export is there", func() error {
		_, err := os.Stat(filepath.Join(x.out, "bootstrap.json"))
		return err
	})
}

// logged waits for a text in the exporter's log.
func (x *export) logged(text string) {
	x.t.Helper()
	eventually(x.t, soon, text, func() error {
		b, err := os.ReadFile(x.log)
		if err == nil && !bytes.Contains(b, []byte(text)) {
			err = errors.New("not logged")
		}
		return err
	})
}

// boot starts an Envoy and waits until it is initialised.
func (x *export) boot() {
	x.t.Helper()
	x.envoy = runEnvoy(x.t, filepath.Join(x.out, "bootstrap.json"))
	eventually(x.t, 10*time.Second, "envoy is live", x.envoy.Live)
}

// accepted fails the test if Envoy refused or missed a file. It also reads the log, because the
// counters of a removed cluster are lost.
func (x *export) accepted() {
	x.t.Helper()
	if n := x.count("update_rejected"); n != 0 {
		x.t.Errorf("Envoy refused %d files", n)
	}
	if x.count("update_success") == 0 {
		x.t.Error("Envoy read no file")
	}
	log, err := os.ReadFile(x.envoy.Log)
	if err != nil {
		x.t.Fatal(err)
	}
	for line := range bytes.Lines(log) {
		if bytes.Contains(line, []byte("Filesystem config update")) {
			x.t.Errorf("Envoy says: %.300s", line)
		}
	}
}

// count returns the sum of Envoy's counters whose names end with name.
func (x *export) count(name string) (n int) {
	x.t.Helper()
	b, err := x.envoy.Get("/stats?format=json&filter=" + name + "$")
	if err != nil {
		x.t.Fatal(err)
	}
	var s struct{ Stats []struct{ Value int } }
	if err := json.Unmarshal(b, &s); err != nil {
		x.t.Fatal(err)
	}
	for _, s := range s.Stats {
		n += s.Value
	}
	return n
}

// files returns the names of what is in a directory.
func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, e := range entries {
		names[e.Name()] = true
	}
	return slices.Sorted(maps.Keys(names))
}
