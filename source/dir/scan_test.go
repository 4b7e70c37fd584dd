package dir

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A root that is not a directory for a moment is still watched, because only the watch reports when it
// is one again.
func TestUnreadableRootIsWatched(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"missing":     func(string) error { return nil },
		"a file":      func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "root")
			if err := make(root); err != nil {
				t.Fatal(err)
			}
			var touched []string
			s := scanner{touch: func(path string) { touched = append(touched, path) }}
			s.scan(root)
			if !slices.Contains(touched, root) {
				t.Error(touched)
			}
		})
	}
}
