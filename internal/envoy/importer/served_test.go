package importer_test

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/envoy/importer"
	"github.com/chancery-xds/chancery/source/dir"
)

// The serve command accepts every imported bootstrap, without warnings about spelling. A second import
// gives the same files.
func TestImportedBootstrapsAreServable(t *testing.T) {
	all, err := filepath.Glob("testdata/bootstraps/*")
	if err != nil || len(all) < 6 {
		t.Fatal(all, err)
	}
	for _, path := range all {
		for name, o := range map[string]importer.Options{
			"default options": {Types: envoy.Envoy()},
			"split":           {Types: envoy.Envoy(), SplitRoutes: true, EDS: true},
		} {
			t.Run("FILE-8 "+filepath.Base(path)+" "+name, func(t *testing.T) {
				f, err := importer.ReadFile(path, 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				im, problems := importer.Do([]importer.File{f}, o)
				again, _ := importer.Do([]importer.File{f}, o)
				if im == nil || again == nil {
					t.Fatal(problems)
				}
				out := filepath.Join(t.TempDir(), "config")
				if err := im.To(importer.Write{Dir: out}); err != nil {
					t.Fatal(err)
				}
				c := dir.Check(out, dir.Options{})
				for _, p := range append(c.Errors, c.Warnings...) {
					if !p.Warning || !strings.Contains(p.Message, "which no file has") {
						t.Error(p)
					}
				}
				if c.Files != len(im.Resources) {
					t.Errorf("%d files of %d resources", c.Files, len(im.Resources))
				}
				if !slices.EqualFunc(im.Files(), again.Files(), func(a, b importer.Output) bool { return a.Path == b.Path && bytes.Equal(a.Data, b.Data) }) {
					t.Error("the second import gives another result")
				}
			})
		}
	}
}
