package dircommit

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/cluster/revisions/file"
	"github.com/chancery-xds/chancery/internal/cluster/revsource"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
)

func writeFiles(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const cluster = "\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: NAME\nconnect_timeout: 1s\n"

func named(name string) string { return strings.ReplaceAll(cluster, "NAME", name) }

// versions returns the versions of all types and resources in all groups.
func versions(st *store.Store) map[string]string {
	all := map[string]string{}
	s := st.Snapshot()
	for _, group := range s.Groups() {
		for url, table := range s.View(group) {
			all[group+" "+url] = table.Version()
			for r := range table.All() {
				all[group+" "+url+" "+r.Name] = r.Version + strings.Join(r.Aliases, ",") + r.TTL.String()
			}
		}
	}
	return all
}

// A committed directory is served like the directory itself: the same resources with the same versions.
func TestServedAsTheDirectory(t *testing.T) {
	root := filepath.Join(t.TempDir(), "config")
	writeFiles(t, root, map[string]string{
		"clusters.yaml":      named("a") + "---\n" + named("b"),
		"edge/group.yaml":    "match: {cluster: edge}\ninclude: [default]\n",
		"edge/c.yaml":        named("c"),
		"pay/group.yaml":     "name: teams/pay\nmatch: {cluster: pay}\n",
		"empty/group.yaml":   "match: {cluster: none}\n",
		"pay/response.yaml":  "version_info: \"7\"\nresources:\n- \"@type\": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment\n  cluster_name: orders\n",
		"edge/wrapped.yaml":  "\"@type\": type.googleapis.com/envoy.service.discovery.v3.Resource\nname: w\naliases: [x]\nttl: 5s\nresource:\n  \"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\n  name: w\n",
		"edge/listener.json": `{"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "l"}`,
	})
	e, err := file.Open(filepath.Join(t.TempDir(), "store"), nil)
	if err != nil {
		t.Fatal(err)
	}
	repo := revisions.Open(e, revisions.Options{})
	apply := func() *revisions.Snapshot {
		t.Helper()
		items, _, err := Read(root, dir.Options{})
		if err != nil {
			t.Fatal(err)
		}
		base, err := repo.Head(t.Context())
		if err == nil {
			base, err = repo.Commit(t.Context(), base, base.To(items), revisions.Note{})
		}
		if err != nil {
			t.Fatal(err)
		}
		return base
	}
	same := func() {
		t.Helper()
		direct, indirect := store.New(), store.New()
		if _, err := dir.New(root, direct, dir.Options{}).Load(); err != nil {
			t.Fatal(err)
		}
		if _, err := revsource.New(e, indirect, revsource.Options{}).Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		want, got := versions(direct), versions(indirect)
		if !maps.Equal(got, want) {
			t.Errorf("%v\nwant\n%v", got, want)
		}
		if a, b := direct.Snapshot().Groups(), indirect.Snapshot().Groups(); !slices.Equal(a, b) {
			t.Errorf("groups %q, want %q", b, a)
		}
		if len(want) < 10 {
			t.Error("too few versions to compare:", want)
		}
	}
	one := apply()
	same()
	if it := one.Get(revisions.Key{Group: "edge", Type: "type.googleapis.com/envoy.config.cluster.v3.Cluster", Name: "c"}); it == nil || it.Place.File != "edge/c.yaml" || it.Place.Line != 1 {
		t.Errorf("%+v", it)
	}
	// A new first line moves each resource, but changes no resource.
	writeFiles(t, root, map[string]string{"clusters.yaml": "# of the shop\n" + named("a") + "---\n" + named("b")})
	if s := apply(); s.Revision.Number != 1 {
		t.Error("a comment caused a revision")
	}
	writeFiles(t, root, map[string]string{"clusters.yaml": named("a"), "edge/b.yaml": named("b")})
	if s := apply(); s.Revision.Number != 2 || s.Revision.Set != 1 || s.Revision.Removed != 1 {
		t.Errorf("%+v", s.Revision)
	}
	same()
	writeFiles(t, root, map[string]string{"clusters.yaml": "name: ["})
	if _, _, err := Read(root, dir.Options{}); err == nil || !strings.Contains(err.Error(), "clusters.yaml:1") {
		t.Error(err)
	}
}
