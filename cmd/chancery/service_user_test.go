package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A service reads a directory that root has imported with a strict umask, if its group owns the directory as in the
// packages.
func TestServiceReadsTheImportOfRoot(t *testing.T) {
	root := os.Geteuid() == 0
	if !root {
		t.Log("this user is not root: the server runs as the user of the import")
	}
	dir := filepath.Join(publicDir(t), "etc")
	state := filepath.Join(filepath.Dir(dir), "state")
	if err := errors.Join(os.Mkdir(dir, 0o750), os.Mkdir(state, 0o700)); err != nil {
		t.Fatal(err)
	}
	if root {
		if err := errors.Join(os.Chown(dir, 0, otherGroup), os.Chown(state, otherUser, otherGroup)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o750|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	from := t.TempDir()
	write(t, from, "envoy.yaml", staticEnvoy+`
  secrets:
  - name: token
    generic_secret: {secret: {inline_string: hidden}}
`)
	if err := os.Chmod(filepath.Join(from, "envoy.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `umask 077; exec "$0" "$@"`, binary, "import", filepath.Join(from, "envoy.yaml"), "--out", dir).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "1 file with secrets (mode 0640, readable by the group of the directory)") {
		t.Fatalf("%v: %s", err, out)
	}
	secret := filepath.Join(dir, "secrets", "token.yaml")
	for path, want := range map[string]os.FileMode{secret: 0o640, filepath.Dir(secret): 0o750, filepath.Join(dir, "_bootstrap.yaml"): 0o640} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}

	server := asOtherUser(t, "serve", dir, "--listen", "127.0.0.1:0", "--admin-listen", "", "--state-dir", state)
	server.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+state)
	log, err := server.StderrPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	serving, lines := false, bufio.NewScanner(log)
	var all []string
	for !serving && lines.Scan() {
		all = append(all, lines.Text())
		serving = strings.Contains(lines.Text(), `"msg":"serving"`)
	}
	_ = server.Process.Kill()
	_ = server.Wait() // it was killed
	if !serving {
		t.Error(strings.Join(all, "\n"))
	}

	if !root {
		return
	}
	for _, tt := range []struct {
		owner, group int
		want         string
	}{
		{0, otherGroup, "mode 0600, owner root and group 64322; this program is user 64321 of group 64322: chmod g+r " + secret + ")"},
		{0, 0, "mode 0600, owner root and group root; this program is user 64321 of group 64322: chgrp 64322 " + secret + " && chmod g+r " + secret + ")"},
	} {
		if err := errors.Join(os.Chown(secret, tt.owner, tt.group), os.Chmod(secret, 0o600)); err != nil {
			t.Fatal(err)
		}
		out, err := asOtherUser(t, "check", dir).CombinedOutput()
		if err == nil || !strings.Contains(string(out), secret+": permission denied ("+secret+" has "+tt.want) {
			t.Errorf("%v: %s", err, out)
		}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	out, err = asOtherUser(t, "check", dir).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "chmod g+rx "+dir+")") {
		t.Errorf("%v: %s", err, out)
	}
}
