package importer

import (
	"os"
	"path/filepath"
	"testing"
)

// No input causes a panic, and every input has either problems or files.
func FuzzDo(f *testing.F) {
	paths, err := filepath.Glob("testdata/*/*")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		if b, err := os.ReadFile(path); err == nil {
			f.Add(filepath.Ext(path), b)
		}
	}
	f.Add(".json", []byte(dumped))
	f.Add(".yaml", []byte("resources: [&a {<<: *a}]"))
	f.Add(".pb_text", []byte(`static_resources { clusters { name: "a" } }`))
	f.Fuzz(func(t *testing.T, ext string, data []byte) {
		o := options()
		o.SplitRoutes, o.EDS, o.WithoutRedacted = true, true, true
		im, problems := Do([]File{{Name: "f" + ext, Data: data}}, o)
		if (im == nil) != (len(problems) > 0) {
			t.Errorf("%v, %v", im, problems)
		}
		if im == nil {
			return
		}
		seen := map[string]bool{}
		for _, o := range im.Files() {
			if seen[o.Path] || !filepath.IsLocal(o.Path) {
				t.Errorf("%s", o.Path)
			}
			seen[o.Path] = true
		}
	})
}
