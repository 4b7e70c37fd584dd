package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// otherUser is a user without an account, and otherGroup its group, as those of a service.
const otherUser, otherGroup = 64321, 64322

// publicDir returns a new directory below which other users can reach files.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "chancery-public-*")
	if err == nil {
		t.Cleanup(func() { os.RemoveAll(dir) })
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// asOtherUser returns a command that runs the program under test as [otherUser], if the test is root. Otherwise the
// command runs as the user of the test, who is no more privileged.
func asOtherUser(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	if os.Geteuid() != 0 {
		return cmd
	}
	cmd.Path = filepath.Join(publicDir(t), "chancery") // only root can reach the one in binary
	from, err := os.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(cmd.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err == nil {
		_, err = io.Copy(to, from)
	}
	if err == nil {
		err = to.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: otherUser, Gid: otherGroup}}
	return cmd
}
