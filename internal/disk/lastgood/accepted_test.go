package lastgood

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/disk"
	"github.com/chancery-xds/chancery/xds"
)

// The evidence is a file of its own: the last good configuration does not depend on it.
func TestAccepted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	k, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.LoadAccepted(); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := k.SaveAccepted([]byte("evidence")); err != nil {
		t.Fatal(err)
	}
	if err := k.Save(Config{At: time.Unix(1, 0), Types: []Type{{Type: xds.Cluster}}}); err != nil {
		t.Fatal(err)
	}
	if got, err := k.LoadAccepted(); err != nil || string(got) != "evidence" {
		t.Errorf("%q, %v", got, err)
	}
	other, err := Open(dir) // another server of the same directory reads, and does not write
	if err != nil {
		t.Fatal(err)
	}
	if err := other.SaveAccepted([]byte("other")); !errors.Is(err, disk.ErrBusy) {
		t.Error(err)
	}
	if got, err := other.LoadAccepted(); err != nil || string(got) != "evidence" {
		t.Errorf("%q, %v", got, err)
	}
	path := filepath.Join(dir, acceptedName)
	for _, damage := range []string{"", "chancery accepted versions 2\n", acceptedHead, acceptedHead + "0123456789abcdef0123456789abcdefevidence"} {
		if err := os.WriteFile(path, []byte(damage), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := k.LoadAccepted(); err == nil || errors.Is(err, ErrNewer) != strings.Contains(damage, "versions 2") {
			t.Errorf("%q: %q, %v", damage, got, err)
		}
		if _, err := k.Load(); err != nil {
			t.Errorf("%q: %v", damage, err)
		}
	}
	k.WithoutSecrets = true
	if err := k.SaveAccepted([]byte("evidence")); err != nil {
		t.Error(err)
	}
	if _, err := k.LoadAccepted(); err == nil {
		t.Error("a body that may have a secret is stored")
	}
	if err := errors.Join(k.RemoveAccepted(), k.RemoveAccepted()); err != nil {
		t.Error(err)
	}
}

// Two goroutines replace files of the folder.
func TestAcceptedWhileTheConfigurationIsStored(t *testing.T) {
	k, err := Open(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	evidence := strings.Repeat("evidence", 1<<15)
	done := make(chan error, 1)
	go func() {
		var err error
		for range 50 {
			err = errors.Join(err, k.SaveAccepted([]byte(evidence)))
		}
		done <- err
	}()
	for i := range 50 {
		k.file = nil // write the whole file
		if err := k.Save(Config{At: time.Unix(int64(i), 0), Types: []Type{{Type: xds.Cluster}}}); err != nil {
			t.Error("HEAL-3", err)
		}
	}
	if err := <-done; err != nil {
		t.Error("HEAL-3", err)
	}
	if _, err := k.Load(); err != nil {
		t.Error("HEAL-3", err)
	}
	if got, err := k.LoadAccepted(); err != nil || string(got) != evidence {
		t.Errorf("HEAL-3 %d bytes, %v", len(got), err)
	}
}

func TestServerName(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	k, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	name, err := k.ServerName()
	if again, e := k.ServerName(); err != nil || e != nil || len(name) < 20 || again != name {
		t.Errorf("HEAL-3 %q, %q, %v, %v", name, again, err, e)
	}
	other, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if name, err := other.ServerName(); !errors.Is(err, disk.ErrBusy) {
		t.Errorf("HEAL-3 two running servers have the name %q, %v", name, err)
	}
	k.Release()
	next, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := next.ServerName(); err != nil || again != name {
		t.Errorf("HEAL-3 after a restart: %q, want %q, %v", again, name, err)
	}
	if err := os.WriteFile(filepath.Join(dir, serverName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if again, err := next.ServerName(); err != nil || len(again) < 20 || again == name {
		t.Errorf("HEAL-3 %q, %v", again, err)
	}
}
