// Package treetest reads the files of a directory in tests.
package treetest

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Tree returns all files and links below a directory, by path.
func Tree(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	fsys := os.DirFS(root)
	err := fs.WalkDir(fsys, ".", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil || e.IsDir():
			return err
		case e.Type() == fs.ModeSymlink:
			to, err := os.Readlink(filepath.Join(root, path))
			all[path] = "-> " + to
			return err
		}
		b, err := fs.ReadFile(fsys, path)
		all[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
