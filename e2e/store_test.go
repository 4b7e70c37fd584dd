package e2e

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/chancery-xds/chancery/e2e/harness"
)

// Servers of an etcd serve its commits to an Envoy. A server continues when another has ended, and all
// servers continue when the etcd has ended, also after a restart.
func TestStore(t *testing.T) {
	t.Parallel()
	each(t, "SAFE-10 SOTW-6 DELTA-9 a server of an etcd starts while that is away; Envoy by", func(t *testing.T, v variant) {
		e := newEtcd(t)
		state := t.TempDir()
		s := siteOf(t, func(w world) *rig {
			write := applies(t, e.store())
			write(w)
			d := (&daemon{t: t, dir: "--store=" + e.store()}).twin("--state-dir", state)
			r := tapped(t, w, d.addr())
			r.daemon, r.write = d, write
			return r
		})
		s.start(v)
		l := loaded(t, s.ingress, nil)
		s.commit("routes lead to other", func(w world) { w.set(routes("ingress", "second", "other")) })
		eventually(t, soon, "traffic moves", s.ingress.gets(answer{"b", "second"}))
		eventually(t, soon, "the change is on disk", onDisk(state, "second"))
		s.quiet()

		e.Close()
		s.kill()
		p := s.restart()
		s.back(p)
		s.quiet()
		if v == delta {
			exactly(t, 0, "response to a client with all resources", s.Since(p).Responses())
		}
		if len(s.daemon.logged("serving the last good configuration, not the newest revision")) == 0 {
			t.Error("it does not say that the etcd is away")
		}
		if err := s.daemon.serves("backend", "other")(); err != nil {
			t.Error("a client that comes now:", err)
		}

		e.start()
		s.commit("routes lead back", func(w world) { w.set(routes("ingress", "third", "backend")) })
		eventually(t, comesBack, "traffic moves back", s.ingress.gets(answer{"a", "third"}))
		s.quiet()
		l.Unharmed(t)
		exactly(t, 0, "NACK", s.Since(0).NACKs())
	})
}

// applies returns what commits a world to a store.
func applies(t *testing.T, store string) func(world) {
	t.Helper()
	dir, n := filepath.Join(t.TempDir(), "config"), 0
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return func(w world) {
		t.Helper()
		if n++; renamed(dir, n, w) != nil {
			t.Fatal("not written")
		}
		eventually(t, comesBack, "it is committed", func() error {
			out, err := exec.Command(binary, "apply", dir, "--store", store, "--prune", "-m", fmt.Sprint("world ", n)).CombinedOutput()
			if err != nil {
				return errors.New(string(out))
			}
			return nil
		})
	}
}

// An etcdServer is an etcd of one member, which keeps its address and its data when it ends.
type etcdServer struct {
	t    *testing.T
	dir  string
	port int
	*embed.Etcd
}

func newEtcd(t *testing.T) *etcdServer {
	t.Helper()
	e := &etcdServer{t: t, dir: t.TempDir(), port: harness.FreePort(t)}
	e.start()
	t.Cleanup(func() { e.Close() })
	return e
}

// store is the URL of revisions in it.
func (e *etcdServer) store() string { return fmt.Sprintf("etcd://127.0.0.1:%d/prod", e.port) }

func (e *etcdServer) start() {
	e.t.Helper()
	c := embed.NewConfig()
	c.Dir, c.LogLevel, c.LogOutputs = filepath.Join(e.dir, "data"), "panic", []string{filepath.Join(e.dir, "log")}
	at, peer := url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", e.port)}, url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{at}, []url.URL{at}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	var err error
	if e.Etcd, err = embed.StartEtcd(c); err != nil {
		e.t.Fatal(err)
	}
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(30 * time.Second):
		e.t.Fatal("the etcd is not ready")
	}
}
