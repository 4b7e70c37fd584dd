package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A program is up to date until one of its sources changes.
func TestCurrent(t *testing.T) {
	root := t.TempDir()
	begin := time.Now().Add(-time.Hour)
	put := func(name string, after time.Duration) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, begin.Add(after), begin.Add(after)); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(root, "bin", "chancery")
	put("server/a.go", 0)
	if current(program, root) {
		t.Error("a missing program is current")
	}
	put("bin/chancery", time.Minute)
	put("bin/other", time.Hour)
	put(".cache/x.go", time.Hour)
	put("docs/a.md", time.Hour)
	put("README.md", time.Hour)
	put("server/a_test.go", time.Hour)
	put("tools/demo/main.go", time.Hour)
	put("server/testdata/a.txt", time.Hour)
	if !current(program, root) {
		t.Error("the program is not current after changes of files that are not its sources")
	}
	for _, name := range []string{"server/a.go", "internal/envoy/set.gz", "go.sum"} {
		put(name, 2*time.Minute)
		if current(program, root) {
			t.Errorf("the program is current after a change of %s", name)
		}
		put(name, 0)
	}
	if !current(program, root) {
		t.Error("the program is not current, but all its sources are older")
	}
}
