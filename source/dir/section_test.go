package dir

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A field of a resource is found at its place in every format, whether or not the lines of the
// resource can be parsed alone.
func TestFieldAt(t *testing.T) {
	const url = `"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster`
	for _, f := range []struct {
		name, file, text string
		alone            bool // its lines can be parsed alone
	}{
		{"a list", "c.yaml", "resources:\n- " + url + "\n  name: a\n- " + url + "\n  name: b\n  alt_stat_name: here\n- " + url + "\n  name: c\n", true},
		{"a list that is indented, with comments and empty lines", "c.yaml", "# first\nresources:\n\n    - " + url + "\n      name: a\n# not indented\n\n    -   name: b\n# not indented\n        " + url + "\n\n        alt_stat_name: here\n    - " + url + "\n      name: c\n", true},
		{"documents", "c.yaml", url + "\nname: a\n---\n" + url + "\nname: b\nalt_stat_name: here\n---\n" + url + "\nname: c\n", true},
		{"the last document", "c.yaml", url + "\nname: a\n---\n" + url + "\nname: b\nalt_stat_name: here", true},
		{"a text of several lines", "c.yaml", "resources:\n- " + url + "\n  name: b\n  metadata:\n    filter_metadata:\n      x:\n        y: |\n          - name: c\n\n          end\n  alt_stat_name: here\n", true},
		{"an anchor elsewhere", "c.yaml", "resources:\n- " + url + "\n  name: a\n  connect_timeout: &t 1s\n- " + url + "\n  name: b\n  connect_timeout: *t\n  alt_stat_name: here\n", false},
		{"one line", "c.yaml", "resources: [{" + url + ", name: a}, {" + url + ", name: b, alt_stat_name: here}]\n", false},
		{"one for a list", "c.yaml", "resources:\n  " + url + "\n  name: b\n  alt_stat_name: here\n", true},
		{"JSON", "c.json", "{\"resources\": [\n {" + strings.Replace(url, ": t", `: "t`, 1) + "\", \"name\": \"a\"},\n {" + strings.Replace(url, ": t", `: "t`, 1) + "\", \"name\": \"b\",\n  \"alt_stat_name\":\n   \"here\"}\n]}\n", false},
		{"tabs and carriage returns", "c.yaml", strings.ReplaceAll("resources:\n- "+url+"\n  name: b\t# a tab\n  alt_stat_name: here\n", "\n", "\r\n"), true},
	} {
		t.Run(f.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), f.file)
			if err := os.WriteFile(path, []byte(f.text), 0o600); err != nil {
				t.Fatal(err)
			}
			s := New(filepath.Dir(path), store.New(), Options{Log: slog.New(slog.DiscardHandler)})
			if _, err := s.Load(); err != nil {
				t.Fatal(err)
			}
			want := "not in the file"
			for i, line := range strings.Split(f.text, "\n") {
				if col := strings.Index(line, "here"); col >= 0 {
					want = fmt.Sprintf("%s:%d:%d", path, i+1, col+1-strings.Count(line[:col], `"`)%2)
				}
			}
			b := s.Occurrences(xds.Cluster, "b")[0].Loaded
			if got := s.FieldAt(b, "alt_stat_name"); got != want {
				t.Errorf("at %s, not %s", got, want)
			}
			if alone := section(b, []byte(f.text)) != nil; alone != f.alone {
				t.Errorf("the lines were parsed alone: %v", alone)
			}
		})
	}
}
