package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/e2e/harness"
)

// comesBack is how long a client may take to a server that was away for some seconds.
const comesBack = 30 * time.Second

// A relay serves the resources of another server to an Envoy, and keeps serving them when that
// server is lost.
func TestRelay(t *testing.T) {
	t.Parallel()
	for _, up := range []variant{sotw, delta} {
		each(t, fmt.Sprintf("SAFE-10 DELTA-9 CLI-4 CLI-11 the upstream, asked by %s, is lost, and the relay starts without it; Envoy by", up), func(t *testing.T, v variant) {
			var upstream *daemon
			state := t.TempDir()
			s := siteOf(t, func(w world) *rig {
				upstream = newDaemon(t, w, renamed)
				r := relayed(t, w, upstream.addr(), up, "--state-dir", state)
				r.write = upstream.write
				return r
			})
			s.start(v)
			l := loaded(t, s.ingress, nil)
			s.commit("routes lead to other", func(w world) { w.set(routes("ingress", "second", "other")) })
			eventually(t, soon, "traffic moves", s.ingress.gets(answer{"b", "second"}))
			eventually(t, soon, "the change is on disk", onDisk(state, "second"))
			s.quiet()

			upstream.kill()
			eventually(t, soon, "the relay knows it", func() error {
				if len(s.daemon.logged("xDS server cannot be reached")) == 0 {
					return errors.New("not logged")
				}
				return nil
			})
			if err := s.daemon.serves("backend", "other")(); err != nil {
				t.Error("a client that comes now:", err)
			}
			s.kill()
			p := s.restart()
			s.back(p)
			s.quiet()
			if v == delta {
				exactly(t, 0, "response to a client with all resources", s.Since(p).Responses())
			}
			fresh := startEnvoy(t, "fresh", v, s.Addr().Port)
			eventually(t, prompt, "a fresh Envoy is live", fresh.Live)
			for _, has := range []func() error{
				fresh.hasClusters("backend", "other"), fresh.hasListeners("ingress", "side"),
				fresh.hasEndpoints("backend", 1), fresh.dumps("dynamic_route_configs", `"second"`),
			} {
				if err := has(); err != nil {
					t.Error("a fresh Envoy:", err)
				}
			}

			upstream.start()
			s.commit("routes lead back", func(w world) { w.set(routes("ingress", "third", "backend")) })
			eventually(t, comesBack, "traffic moves back", s.ingress.gets(answer{"a", "third"}))
			eventually(t, soon, "also in the fresh Envoy", fresh.dumps("dynamic_route_configs", `"third"`))
			s.quiet()
			l.Unharmed(t)
			exactly(t, 0, "NACK", s.Since(0).NACKs())
		})
	}
}

// go-control-plane sends a snapshot type by type, and does not wait: the relay makes before it breaks.
func TestRelayOfGoControlPlane(t *testing.T) {
	t.Parallel()
	for _, up := range []variant{sotw, delta} {
		each(t, fmt.Sprintf("CLI-1 CLI-2 clusters come and go, asked by %s; Envoy by", up), func(t *testing.T, v variant) {
			g, n := newGoControlPlane(t, true), 0
			s := siteOf(t, func(w world) *rig {
				r := relayed(t, w, g.addr, up, "--state-dir", t.TempDir())
				r.write = func(w world) { n++; g.set(t, "relay", fmt.Sprint(n), w) }
				r.write(w)
				return r
			})
			s.start(v)
			l := loaded(t, s.ingress, nil)
			s.commit("routes lead to a new cluster", func(w world) {
				w.set(edsCluster("third", time.Second), assignment("third", s.b.port), routes("ingress", "2", "third"))
			})
			eventually(t, soon, "traffic moves", s.ingress.gets(answer{"b", "2"}))
			s.commit("backend deleted", func(w world) { w.drop(edsCluster("backend", 0), assignment("backend")) })
			eventually(t, soon, "the cluster goes", s.envoy.hasClusters("other", "third"))
			s.commit("routes leave a cluster that is deleted", func(w world) {
				w.set(routes("ingress", "3", "other"))
				w.drop(edsCluster("third", time.Second), assignment("third"))
			})
			eventually(t, soon, "traffic moves again", s.ingress.gets(answer{"b", "3"}))
			eventually(t, soon, "the cluster goes", s.envoy.hasClusters("other"))
			s.quiet()
			l.Unharmed(t)
			exactly(t, 0, "NACK", s.Since(0).NACKs())
		})
	}
}

// An agent writes the resources of a server to files, from which an Envoy runs.
func TestAgent(t *testing.T) {
	t.Parallel()
	for _, up := range []variant{sotw, delta} {
		t.Run(fmt.Sprint("FILE-4 FILE-5 SAFE-10 Envoy runs from what a server gives, while that is away too: ", up), func(t *testing.T) {
			t.Parallel()
			x := newExport(t, nil)
			upstream := (&daemon{t: t, dir: x.dir, layout: renamed}).twin()
			agent := func() *exec.Cmd {
				cmd := exec.Command(binary, "agent", asks(upstream.addr(), up), x.out, "--admin", "127.0.0.1:0", "--settle", "200ms")
				harness.DieWithParent(cmd)
				return cmd
			}
			x.run(agent())
			x.boot()
			eventually(t, soon, "it serves", x.ingress.gets(answer{"a", "1"}))
			l := loadedAt(t, 50, x.ingress, nil)
			x.commit(func(w world) {
				w.drop(edsCluster("backend", 0), assignment("backend"))
				w.set(routes("ingress", "2", "other"))
			})
			eventually(t, soon, "traffic moves", x.ingress.gets(answer{"b", "2"}))
			eventually(t, soon, "the cluster goes", x.envoy.hasClusters("other"))

			upstream.kill()
			x.logged("xDS server cannot be reached")
			fresh := runEnvoy(t, filepath.Join(x.out, "bootstrap.json"))
			eventually(t, soon, "a fresh Envoy is live", fresh.Live)
			if err := fresh.dumps("dynamic_route_configs", `"2"`)(); err != nil {
				t.Error("a fresh Envoy:", err)
			}

			upstream.start()
			x.commit(func(w world) { w.set(routes("ingress", "3", "other")) })
			eventually(t, comesBack, "the next change arrives", x.ingress.gets(answer{"b", "3"}))
			l.Unharmed(t)
			x.accepted()
		})
	}
}

// asks is the URL of a server that is asked by a variant of ADS.
func asks(addr string, v variant) string {
	url := "xds://" + addr + "?node=relay"
	if v.delta() {
		url += "&delta"
	}
	return url
}

// relayed is a rig whose daemon is a relay of the server at an address.
func relayed(t *testing.T, w world, addr string, v variant, args ...string) *rig {
	t.Helper()
	d := (&daemon{t: t, dir: asks(addr, v)}).twin(args...)
	r := tapped(t, w, d.addr())
	r.daemon = d
	return r
}

// onDisk is a condition: a file below a directory contains the text.
func onDisk(dir, text string) func() error {
	return func() error {
		found := fmt.Errorf("no file has %q", text)
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			if bytes.Contains(b, []byte(text)) {
				found = nil
			}
			return err
		})
		return errors.Join(found, err)
	}
}
