package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A mistyped directory leaves nothing in --state-dir.
func TestServeOfMissingDirectoryLeavesNoState(t *testing.T) {
	root := t.TempDir()
	chancery(t, 1, "none", "serve", filepath.Join(t.TempDir(), "none"), "--state-dir", root)
	if left, err := os.ReadDir(root); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestReloadOfMissingDirectory(t *testing.T) {
	dir := t.TempDir()
	state := []string{"--state-dir", t.TempDir()}
	chancery(t, 1, "no running server serves "+dir+"/chancry: the directory does not exist", append([]string{"reload", dir + "/chancry"}, state...)...)
	chancery(t, 1, "no running server serves "+dir, append([]string{"reload", dir}, state...)...)
	chancery(t, 2, "--timeout: must be more than 0", append([]string{"reload", dir, "--timeout", "0"}, state...)...)
}

// SAFE-6: the user of a server approves a removal also if only the open local port of the admin API answers. The
// port itself does not take the approval, and the command finds the control socket.
func TestReloadApprovesRemovalThroughControlSocket(t *testing.T) {
	t.Parallel()
	d := serve(t, []string{"--admin-listen", "127.0.0.1:0"}, "a.yaml", cluster("a"))
	admin, _ := d.loggedAround("admin API")["http"].(string)
	asks := d.asks("http://" + admin)
	s := d.clusters()
	s.gets("a")
	if err := os.Remove(filepath.Join(d.dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	asks("reload", 1, "reload rejected")
	asks("reload --allow-mass-delete", 0, "1 removed")
	s.gets()
	out, err := exec.CommandContext(t.Context(), "env", "CHANCERY_ADMIN=http://"+admin, binary, "reload", d.dir, "--allow-mass-delete", "--state-dir", t.TempDir()).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "ok: 0 resources") {
		t.Errorf("with another --state-dir: %v: %s", err, out)
	}
}
