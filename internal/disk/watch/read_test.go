package watch

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A slowFile is a file that another program writes to during the read: at its end, before the reader
// checks its stamp again.
type slowFile struct {
	*os.File
	write func()
}

func (f *slowFile) Read(b []byte) (int, error) {
	n, err := f.File.Read(b)
	if err == io.EOF && f.write != nil {
		f.write()
		f.write = nil
	}
	return n, err
}

// A file that is written during the read may be half old and half new.
func TestReadDetectsConcurrentWrite(t *testing.T) {
	later := time.Now().Add(time.Second) // because clocks of file systems tick slowly
	for name, write := range map[string]func(path string) error{
		"it grows":                             func(path string) error { return os.WriteFile(path, []byte("name: a\nmore: b"), 0o600) },
		"it shrinks":                           func(path string) error { return os.Truncate(path, 3) },
		"it is emptied":                        func(path string) error { return os.Truncate(path, 0) },
		"a file of the same length":            func(path string) error { return os.WriteFile(path, []byte("name: b"), 0o600) },
		"permissions that are still to be set": func(path string) error { return os.Chmod(path, 0o640) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.yaml")
			if err := os.WriteFile(path, []byte("name: a"), 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			_, _, err = ReadOpen(&slowFile{File: f, write: func() {
				if err := write(path); err != nil {
					t.Error(err)
				}
				if err := os.Chtimes(path, later, later); err != nil {
					t.Error(err)
				}
			}}, 100)
			if err == nil || !strings.Contains(err.Error(), "is being written") {
				t.Errorf("error %v", err)
			}
		})
	}
}
