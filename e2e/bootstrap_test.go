package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/e2e/harness"
)

// The output of "chancery bootstrap envoy" can be piped into Envoy, which then gets its
// configuration.
func TestBootstrapIsPiped(t *testing.T) {
	t.Parallel()
	harness.Needs(t, envoyPath)
	for name, flags := range map[string]string{"delta": "", "sotw": " --delta=false", "own streams": " --per-type", "own streams, sotw": " --per-type --delta=false"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDaemon(t, newWorld(edsCluster("a", time.Second), assignment("a", freePort(t))), renamed)
			dir := t.TempDir()
			e := &envoy{&harness.Envoy{Log: filepath.Join(dir, "envoy.Log")}}
			address := filepath.Join(dir, "admin")
			log, err := os.Create(e.Log)
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			sh := exec.Command("sh", "-c", fmt.Sprintf("%s bootstrap envoy --node piped --server %s --admin 127.0.0.1:0%s | exec %s -c /dev/fd/0 --admin-address-path %s --concurrency 1 --disable-hot-restart",
				binary, d.addr(), flags, envoyPath, address))
			sh.Stdout, sh.Stderr = log, log
			sh.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			if err := sh.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = syscall.Kill(-sh.Process.Pid, syscall.SIGKILL) // the shell and Envoy
				_ = sh.Wait()
				if t.Failed() {
					t.Logf("envoy's log:\n%s", harness.Tail(e.Log, 30))
				}
			})
			eventually(t, 30*time.Second, "envoy's admin address", func() error {
				b, err := os.ReadFile(address)
				if err == nil && len(b) == 0 {
					err = errors.New("empty")
				}
				e.Admin = string(b)
				return err
			})
			eventually(t, 20*time.Second, "the cluster that the server has", e.dumps("dynamic_active_clusters", `"a"`))
		})
	}
}
