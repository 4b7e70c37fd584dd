package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/disk/lastgood"
)

// "chancery state" lists what servers have stored, and removes it only if no program uses it.
func TestStateCommands(t *testing.T) {
	root := filepath.Join(t.TempDir(), "state")
	state := func(code int, want string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), binary, append([]string{"state"}, args...)...)
		cmd.Env = append(os.Environ(), "CHANCERY_STATE_DIR="+root)
		out, _ := cmd.CombinedOutput() // the exit code reports errors
		if got := cmd.ProcessState.ExitCode(); got != code || !regexp.MustCompile(want).Match(out) {
			t.Errorf("chancery state %s: exit code %d, want %d, with %q in\n%s", strings.Join(args, " "), got, code, want, out)
		}
	}
	state(0, "^nothing is stored in ", "ls")
	state(0, "^removed: nothing\n$", "rm", "--older-than", "1d")
	state(2, "and not both", "rm")
	state(2, "a directory or folder is empty", "rm", "")
	state(2, "and not both", "rm", "x", "--older-than", "1d")
	for _, age := range []string{"0d", "-1h", "70000d", "1.5d", "d", "1w", "0x1d"} {
		state(2, "must be an age such as 90d or 12h", "rm", "--older-than="+age)
	}
	state(1, "--state-dir is empty", "ls", "--state-dir=")
	state(1, "not a directory", "ls", "--state-dir", "/dev/null")

	served, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	write(t, served, "a.yaml", cluster("a"))
	if err := os.Symlink(served, link); err != nil {
		t.Fatal(err)
	}
	d, other := serveDir(t, served, "--state-dir", root), serveDir(t, link, "--state-dir", root)
	folder, err := lastgood.Folder(root, served)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if files, _ := filepath.Glob(filepath.Join(root, "*", "last-good")); len(files) == 2 {
			break
		}
	}
	state(0, `(?m)^\S+-[0-9a-f]{12} +`+regexp.QuoteMeta(served)+` +IN_USE +\S+ B +\d+s$`, "ls")
	state(0, regexp.QuoteMeta(link), "ls", "-o", "yaml")
	state(5, "is in use by a running server", "rm", served)
	state(0, "^removed: nothing\n$", "rm", "--older-than", "1ns")
	d.signal(os.Interrupt)
	d.exits(0)
	state(0, "(?m)"+regexp.QuoteMeta(served)+" +IDLE ", "ls")
	state(0, "^removed: nothing\n$", "rm", "--older-than", "1h")

	// Of several folders, all are removed or none.
	state(5, "in use", "rm", served, link)
	state(4, "has no folder for /nowhere", "rm", served, "/nowhere")
	write(t, root, "store/head", "a store of revisions", filepath.Base(folder)+"/last-good", "damaged")
	state(1, "not a folder of Chancery: not a name that Chancery gives\nchancery: hint: if you do not need it, remove it with rm", "rm", served, "store")
	state(0, "(?m) +DAMAGED +.* the file ", "ls", "-o", "wide")
	state(0, "left alone: .*store: not a name", "rm", "--older-than", "1ns")
	if _, err := os.Stat(folder); err != nil {
		t.Error("a damaged folder was removed without its name:", err)
	}
	state(0, "^to be removed: "+filepath.Base(folder)+", of "+regexp.QuoteMeta(served)+", ", "rm", "--dry-run", filepath.Base(folder))
	state(0, "^removed: "+filepath.Base(folder)+", of "+regexp.QuoteMeta(served)+", ", "rm", served, filepath.Base(folder))
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	other.signal(os.Interrupt)
	other.exits(0)
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	state(0, regexp.QuoteMeta(link)+" +GONE ", "ls", "--no-headers")
	state(0, "(?m)^removed: link-", "rm", "--older-than", "1ns")
	if _, err := os.Stat(filepath.Join(root, "store", "head")); err != nil {
		t.Error(err)
	}
}

// Without a state directory, "chancery state" reports why there is none. Root always has one.
func TestStateWithoutHome(t *testing.T) {
	cmd := asOtherUser(t, "state", "ls")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "$HOME is not defined\nchancery: hint: --state-dir DIRECTORY chooses") {
		t.Errorf("%v: %s", err, out)
	}
}
