package main

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/testkit/treetest"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// agentOf starts an agent.
func agentOf(t *testing.T, url, out, state string, flags ...string) *runningServer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	d := &runningServer{T: t, ctx: ctx, log: make(chan map[string]any, 1000)}
	d.cmd = exec.CommandContext(ctx, binary, append([]string{"agent", url, out, "--settle", "0", "--node", "n", "--state-dir", state}, flags...)...)
	stderr, err := d.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go d.read(stderr)
	t.Cleanup(func() {
		cancel() // kills it if it runs
		_ = d.cmd.Wait()
	})
	return d
}

// An agent warns if other users can read the secrets, and stores the last good resources on disk.
func TestAgent(t *testing.T) {
	l, err := wire.NewResource(xds.Listener, "", &listenerv3.Listener{Name: "l"})
	if err != nil {
		t.Fatal(err)
	}
	st := store.New()
	if _, err := st.Update(func(tx *store.Tx) error { tx.Set(keyed(t, "a", "a key")); tx.Set(l); return nil }); err != nil {
		t.Fatal(err)
	}
	url, out, state := storeXDS(t, st), t.TempDir(), t.TempDir()
	if err := os.Chmod(out, 0o755); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(t.TempDir(), "none")
	chancery(t, 2, "--admin: ", "agent", url, none, "--admin", "nonsense", "--state-dir", "")
	if _, err := os.Lstat(none); err == nil {
		t.Error("OUT is made for a wrong flag")
	}
	d := agentOf(t, url, out, state)
	d.logged("exported")
	if l := d.logged("export warning"); !strings.Contains(l["problem"].(string), "every user of this machine can read the secrets in "+out) {
		t.Error("SAFE-6 no warning about readable secrets:", l)
	}
	kept := filepath.Join(state, "*", "last-good")
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if found, _ := filepath.Glob(kept); len(found) == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("CLI-11 no resource is stored")
		}
	}
	d.signal(syscall.SIGTERM)
	d.exits(0) // releases its locks
	was := treetest.Tree(t, out)
	if err := os.RemoveAll(filepath.Join(out, "current")); err != nil {
		t.Fatal(err)
	}
	// The server does not speak TLS, so this agent gets no resources from it.
	d = agentOf(t, url, out, state, "--tls")
	d.logged("exported")
	if now := treetest.Tree(t, out); !maps.Equal(was, now) {
		t.Errorf("CLI-11 a start without the server wrote %v, want %v", now, was)
	}
}
