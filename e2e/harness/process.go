package harness

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// Build compiles the program of the module at root into a file, with flags of go build. If E2E_SERVER names
// another program, Build links to that program instead.
func Build(root, into string, flags ...string) error {
	if other := os.Getenv("E2E_SERVER"); other != "" {
		return os.Symlink(other, into)
	}
	build := exec.Command("go", append(append([]string{"build"}, flags...), "-o", into, "./cmd/chancery")...)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return nil
}

// Needs skips the test where a client is not installed. CI must have them all.
func Needs(t testing.TB, path string) {
	t.Helper()
	if _, err := os.Stat(path); err == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is not installed: run e2e/install.sh", path)
	}
	t.Skipf("%s is not installed: run e2e/install.sh", path)
}

// Tail returns the last lines of a file.
func Tail(path string, lines int) []byte {
	b, err := os.ReadFile(path)
	if err != nil {
		return []byte(err.Error())
	}
	all := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	for i, line := range all {
		if len(line) > 300 {
			all[i] = append(bytes.Clone(line[:300]), "…"...)
		}
	}
	return bytes.Join(all, []byte("\n"))
}
