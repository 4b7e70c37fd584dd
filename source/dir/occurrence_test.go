package dir

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

const badCluster = `resources:
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: good
  connect_timeout: 1s
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: bad
  type: STATIC
  connect_timeout: -1s
`

// A resource is found in the served configuration, and in files of a rejected load. If a file
// with errors contains the name, ErrorsMentioning returns these errors.
func TestOccurrences(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := func(s Occurrence) string {
		served := " served"
		if !s.Served {
			served = " not served"
		}
		return strings.TrimPrefix(s.Pos.String(), root+"/") + " " + s.Group + served
	}
	write("c.yaml", badCluster)
	write("edge/group.yaml", "match: {id: edge}\n")
	write("edge/c.yaml", clusters("bad"))
	s := New(root, store.New(), Options{})
	standings := func(name string) (all []string) {
		for _, one := range s.Occurrences(xds.Cluster, name) {
			all = append(all, at(one))
		}
		return all
	}
	expect := func(name string, want ...string) {
		t.Helper()
		if got := standings(name); !slices.Equal(got, want) {
			t.Errorf("%s: %q, not %q", name, got, want)
		}
	}
	expect("bad")
	if _, err := s.Load(); err != nil {
		t.Fatal(err)
	}
	expect("bad", "c.yaml:5:3 default served", "edge/c.yaml:2:3 edge served")
	expect("none")
	if near := s.Nearest(xds.Cluster, "goode"); near != "good" {
		t.Errorf("near goode is %q", near)
	}
	if _, err := s.LoadError(); err != nil {
		t.Error(err)
	}

	write("c.yaml", badCluster+`- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: new
`)
	write("edge/c.yaml", clusters("bad")+"  typo: 1\n")
	if _, err := s.Load(); err == nil {
		t.Fatal("loaded")
	}
	expect("new", "c.yaml:9:3 default not served")
	if since, err := s.LoadError(); err == nil || since.IsZero() {
		t.Errorf("LoadError: since %v: %v", since, err)
	}
	if all := s.ErrorsMentioning("bad"); len(all) != 1 || !strings.HasSuffix(all[0].File, "edge/c.yaml") {
		t.Errorf("suspects: %v", all)
	}
	if all := s.ErrorsMentioning("elsewhere"); len(all) != 0 {
		t.Errorf("suspects of a name that no file has: %v", all)
	}
	write("edge/c.yaml", clusters("bad"))
	if _, err := s.Load(); err != nil {
		t.Fatal(err)
	}
	if since, err := s.LoadError(); err != nil || !since.IsZero() {
		t.Errorf("LoadError: since %v: %v", since, err)
	}
}

// Reasons for Envoy to refuse a resource are found with the line of the field, also if the load did
// not validate. They are still found when the file has changed.
func TestExamine(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "c.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(badCluster)
	s := New(root, store.New(), Options{})
	if _, err := s.Load(); err != nil {
		t.Fatal(err)
	}
	examine := func(name string) []findings.Problem { return s.Examine(s.Occurrences(xds.Cluster, name)[0].Loaded) }
	if found := examine("good"); len(found) != 0 {
		t.Errorf("good: %v", found)
	}
	found := examine("bad")
	if len(found) != 1 || found[0].Code != findings.InvalidValue || found[0].Pos != (findings.Pos{Line: 8, Column: 20}) || found[0].Path != "resources[1].connect_timeout" {
		t.Errorf("bad: %+v", found)
	}
	bad := s.Occurrences(xds.Cluster, "bad")[0].Loaded
	if at := s.FieldAt(bad, "type"); at != path+":7:9" {
		t.Errorf("type is at %s", at)
	}
	if at := s.FieldAt(bad, "lb_policy"); at != path+":5:3" {
		t.Errorf("a field that is not there is at %s", at)
	}

	write(strings.Replace(badCluster, "-1s", "2s", 1)) // not loaded yet
	found = examine("bad")
	if len(found) != 1 || found[0].Code != findings.InvalidValue || found[0].Pos != (findings.Pos{Line: 5, Column: 3}) || found[0].Path != "connect_timeout" {
		t.Errorf("bad, of a file that has changed: %+v", found)
	}
	if at := s.FieldAt(bad, "type"); at != path+":5:3" {
		t.Errorf("type of a file that has changed is at %s", at)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if found = examine("bad"); len(found) != 1 || found[0].Pos.Line != 5 {
		t.Errorf("resource bad, after its file was removed: %+v", found)
	}
}
