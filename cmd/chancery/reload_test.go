package main

import (
	"os"
	"path/filepath"
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
