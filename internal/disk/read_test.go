package disk

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A secret is read only from a regular file of a bounded size, and never waits.
func TestReadSecret(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(in("token"), []byte("t"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("token", in("link")); err != nil { // as Kubernetes mounts a secret
		t.Fatal(err)
	}
	if err := os.WriteFile(in("large"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(in("large"), maxSecret+1); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(in("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		in("token"): "", in("link"): "", in("none"): "no such file", dir: "a directory, not a regular file", in("pipe"): "a named pipe, not a regular file",
		"/dev/zero": "a device, not a regular file", in("large"): "more than 4194304 bytes",
	} {
		b, err := ReadSecret(path)
		if want == "" && (err != nil || string(b) != "t") || want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path)) {
			t.Errorf("%s: %q, %v, want %q", path, b, err, want)
		}
	}
}
