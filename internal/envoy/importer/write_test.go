package importer

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tree returns the contents of the files below a directory, by path.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		if d.IsDir() {
			all[rel] = "directory"
			return nil
		}
		b, err := os.ReadFile(path)
		all[rel] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func same(a, b map[string]string) bool {
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return len(a) == len(b)
}

// clusterA is the file of cluster a in written imports.
const clusterA = "\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: a\n"

// written returns an import with two clusters, a listener and a bootstrap.
func written(t *testing.T) *Import {
	t.Helper()
	return do(t, options(), File{Name: "e.yaml", Data: []byte("{node: {id: n}, static_resources: {clusters: [{name: a}, {name: b}], listeners: [{name: l}]}}")})
}

func TestWriteImport(t *testing.T) {
	im := written(t)
	t.Run("FILE-8 a new directory with missing parents", func(t *testing.T) {
		root := t.TempDir()
		out := filepath.Join(root, "x", "y")
		if err := im.To(Write{Dir: out}); err != nil {
			t.Fatal(err)
		}
		if got := tree(t, root); got["x/y/clusters/a.yaml"] != clusterA || len(got) != 8 {
			t.Error(got)
		}
	})
	t.Run("FILE-8 an empty directory, such as a mounted one", func(t *testing.T) {
		out := t.TempDir()
		if err := im.To(Write{Dir: out}); err != nil {
			t.Fatal(err)
		}
		if got := tree(t, out); got["clusters/a.yaml"] != clusterA || len(got) != 6 {
			t.Error(got)
		}
	})
	t.Run("FILE-8 existing files are not replaced without force", func(t *testing.T) {
		out := t.TempDir()
		if err := os.WriteFile(filepath.Join(out, "mine"), []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		before := tree(t, out)
		if err := im.To(Write{Dir: out}); !errors.Is(err, ErrNotEmpty) {
			t.Error(err)
		}
		if got := tree(t, out); !same(got, before) {
			t.Error(got)
		}
		if err := os.MkdirAll(filepath.Join(out, "clusters"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(out, "clusters", "a.yaml"), []byte("was"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := im.To(Write{Dir: out, Force: true}); err != nil {
			t.Fatal(err)
		}
		if got := tree(t, out); got["clusters/a.yaml"] != clusterA || got["mine"] != "mine" || len(got) != 7 {
			t.Error(got)
		}
	})
}

func TestFailedWriteChangesNothing(t *testing.T) {
	im := written(t)
	t.Run("FILE-8 a failure leaves existing files", func(t *testing.T) {
		out := t.TempDir()
		for path, content := range map[string]string{"clusters/a.yaml": "was", "listeners/l.yaml/in the way": ""} {
			if err := os.MkdirAll(filepath.Join(out, filepath.Dir(path)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(out, path), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		before := tree(t, out)
		if err := im.To(Write{Dir: out, Force: true}); err == nil || !strings.Contains(err.Error(), "is a directory") {
			t.Error(err)
		}
		if got := tree(t, out); !same(got, before) {
			t.Error(got)
		}
	})
	t.Run("FILE-8 a failure leaves no folder", func(t *testing.T) {
		out := t.TempDir()
		if err := os.MkdirAll(filepath.Join(out, "listeners/l.yaml"), 0o755); err != nil {
			t.Fatal(err)
		}
		before := tree(t, out)
		if err := im.To(Write{Dir: out, Force: true}); err == nil || !strings.Contains(err.Error(), "is a directory") {
			t.Error(err)
		}
		if got := tree(t, out); !same(got, before) {
			t.Error(got)
		}
	})
	t.Run("FILE-8 a failed check stops the write", func(t *testing.T) {
		root := t.TempDir()
		bad := errors.New("bad")
		var saw []string
		for _, out := range []string{root, filepath.Join(root, "new")} {
			if err := im.To(Write{Dir: out, Check: func(dir string) error {
				for path := range tree(t, dir) {
					saw = append(saw, path)
				}
				return bad
			}}); !errors.Is(err, bad) {
				t.Error(err)
			}
			if got := tree(t, root); len(got) != 0 {
				t.Error(got)
			}
		}
		if !slices.Contains(saw, "clusters/b.yaml") {
			t.Error(saw)
		}
	})
}

func TestCheckedWrite(t *testing.T) {
	im := written(t)
	t.Run("FILE-8 the check sees existing files together with new ones", func(t *testing.T) {
		out := t.TempDir()
		for path, content := range map[string]string{"old.yaml": "old", "clusters/a.yaml": "was", "clusters/c.yaml": "c", ".git/x": ""} {
			if err := os.MkdirAll(filepath.Join(out, filepath.Dir(path)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(out, path), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var saw map[string]string
		if err := im.To(Write{Dir: out, Force: true, Check: func(dir string) error { saw = tree(t, dir); return nil }}); err != nil {
			t.Fatal(err)
		}
		if saw["old.yaml"] != "old" || saw["clusters/a.yaml"] != clusterA || saw["clusters/c.yaml"] != "c" || saw["listeners/l.yaml"] == "" || len(saw) != 8 {
			t.Error(saw)
		}
		if got := tree(t, out); got["old.yaml"] != "old" || got["clusters/a.yaml"] != clusterA || len(got) != 10 {
			t.Error(got)
		}
	})
}

func TestWriteMode(t *testing.T) {
	im := written(t)
	t.Run("SAFE-6 written files are as private as the source", func(t *testing.T) {
		out := t.TempDir()
		if err := im.To(Write{Dir: out, Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(filepath.Join(out, "clusters", "a.yaml")); err != nil || info.Mode() != 0o600 {
			t.Error(info.Mode(), err)
		}
	})
}

// The setgid bit lets the group of a directory read the files, also below a directory that import makes in it.
func TestGroupOfSetgidDirectoryReadsFiles(t *testing.T) {
	for mode, want := range map[os.FileMode]bool{0o755: false, 0o750 | os.ModeSetgid: true} {
		t.Run("FILE-8 "+mode.String(), func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Chmod(dir, mode); err != nil {
				t.Fatal(err)
			}
			for _, out := range []string{dir, filepath.Join(dir, "new"), filepath.Join(dir, "new") + "/"} {
				if got := (Write{Dir: out}).Shared(); got != want {
					t.Errorf("%s: %v", out, got)
				}
			}
		})
	}
}
