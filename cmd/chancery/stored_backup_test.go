package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A directory of a store was replaced by a backup of it, in the middle of a rollout. The running server announces itself
// in the new directory, and keeps its step. Status shows this step, the revision and the reason. No command shows the
// record of the backup as the state of the rollout, and none changes the backup.
func TestStatusOfStoreFromBackup(t *testing.T) {
	t.Parallel()
	for name, vanishes := range map[string]bool{"an earlier step": false, "before the rollout": true} {
		t.Run("SAFE-17 "+name, func(t *testing.T) {
			t.Parallel()
			dir, config, socket := t.TempDir(), t.TempDir(), "unix://"+filepath.Join(t.TempDir(), "admin.sock")
			path := func(name string) string { return filepath.Join(dir, name) }
			at := "file:" + path("store")
			copied := func(from, to string) {
				t.Helper()
				if err := os.CopyFS(path(to), os.DirFS(path(from))); err != nil {
					t.Fatal(err)
				}
			}
			moved := func(from, to string) {
				t.Helper()
				if err := os.Rename(path(from), path(to)); err != nil {
					t.Fatal(err)
				}
			}
			write(t, config, "a.yaml", cluster("a"))
			chancery(t, 0, "r1: ", "apply", config, "--store", at, "-m", "first", "--author", "ana")
			chancery(t, 0, "", "freeze", "default", "--store", at, "-m", "sale", "--author", "ana")
			write(t, config, "b.yaml", cluster("b"))
			chancery(t, 0, "r2: ", "apply", config, "--store", at, "-m", "second", "--author", "ana")
			d := serveDir(t, "--store="+at, "--state-dir", "", "--admin-listen", socket)
			if vanishes {
				copied("store", "backup")
			}
			chancery(t, 0, "is running, step 1 of 3", "rollout", "start", "r2", "--steps", "0.001%,0.002%", "--bake", "1h", "-m", "go", "--store", at)
			if !vanishes {
				copied("store", "backup")
			}
			chancery(t, 0, "is running, step 2 of 3", "rollout", "promote", "-m", "further", "--store", at)
			d.eventually("status --admin "+socket, ", step 2 of 3 (0.002 %): no connected client")

			moved("store", "newer")
			copied("backup", "store")
			const replaced = "the repository was replaced by an older or different one: "
			d.eventually("status --admin "+socket, "STORE "+at+": r2 by ana: second", "group default is frozen at r1 by ana: sale", "takes it to r2, step 2 ", "the newest state of the store is not served for ", replaced+"its freezes have changed ", "chancery store restore --help")
			for hint := ""; !strings.Contains(hint, "chancery store restore --help"); { // the first line may be about the moved directory
				hint, _ = d.logged("the newest revision is not served")["hint"].(string)
			}
			d.eventually("rollout status --admin "+socket, replaced+"its freezes have changed ")
			d.eventually("rollout status --store "+at, replaced+"a running server (replica/", " serves freezes that have changed ")
			write(t, config, "c.yaml", cluster("c"))
			for _, change := range []string{"unfreeze default", "rollout start r2 --steps 1% -m why", "rollout abort", "apply " + config + " --prune -m why", "sweep --keep 1"} {
				if code, out := d.says(strings.Fields(change + " --store " + at)...); code == 0 || !strings.Contains(out, replaced) {
					t.Errorf("%s: exit code %d: %s", change, code, out)
				}
			}

			for _, key := range []string{"head", "revision", "pack"} {
				if err := os.RemoveAll(path("store/" + key)); err != nil {
					t.Fatal(err)
				}
			}
			for _, command := range []string{"history", "store restore"} { // SAFE-15
				chancery(t, 1, "serves r2, and the repository has no revision", append(strings.Fields(command), "--store", at)...)
			}

			moved("store", "older")
			moved("newer", "store")
			d.eventually("status --admin "+socket, ", step 2 of 3 (0.002 %): no connected client")
			d.eventually("rollout status --store "+at, "running 2/3")
		})
	}
}
