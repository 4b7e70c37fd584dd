package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A large removal that is delayed has not arrived: status and explain show it, and wait waits for it.
func TestDelayedRemovalsAreShown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		flags  []string
		loaded string // log line of the first load; "": the server starts with it
	}{
		{"files", nil, ""},
		{"a store", []string{"--store", "file:" + t.TempDir() + "/revisions"}, "revision is served"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			admin, config := "unix://"+filepath.Join(t.TempDir(), "admin.sock"), t.TempDir()
			for i := range 30 {
				name := fmt.Sprint("c", i)
				write(t, config, name+".yaml", cluster(name))
			}
			d := serveDir(t, config, append([]string{"--state-dir", "", "--confirm-removals", "8s", "--admin-listen", admin}, c.flags...)...)
			if c.loaded != "" {
				d.logged(c.loaded)
			}
			for i := range 5 {
				if err := os.Remove(filepath.Join(config, fmt.Sprint("c", i, ".yaml"))); err != nil {
					t.Fatal(err)
				}
			}
			chancery(t, 0, "5 resources missing from the files", "reload", "--admin", admin)
			chancery(t, 0, "5 removals wait until 20", "status", "--admin", admin)
			chancery(t, 0, `"removals": {`, "status", "-o", "json", "--admin", admin)
			chancery(t, 124, "not synced after 100ms: 5 removals wait until 20", "wait", "--timeout", "100ms", "--admin", admin)
			if c.flags == nil {
				chancery(t, 1, "the files do not have it any more; because many are missing, it is served until 20", "explain", "none", "cluster/c0", "--admin", admin)
			}
			chancery(t, 0, "ok: none connected", "wait", "--timeout", "30s", "--admin", admin)
			chancery(t, 0, " 25 resources", "status", "--admin", admin)
		})
	}
}
