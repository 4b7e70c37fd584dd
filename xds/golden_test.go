package xds_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/testkit/tabletest"
	"github.com/chancery-xds/chancery/xds"
)

var with = tabletest.With

var update = flag.Bool("update", false, "rewrite testdata/versions.golden: every client will be sent everything anew")

// A client gets a version, sends it after a reconnect, and must get the same version from every replica of
// any release: "the version for a resource type is not a property of an individual xDS stream but
// rather a property of the resources themselves". So the hashes are in a golden file. A release
// that changes them makes clients reload everything while replicas of both releases run.
func TestVersions(t *testing.T) {
	t.Run("SOTW-13 golden", func(t *testing.T) {
		var out bytes.Buffer
		table := &xds.Table{}
		fmt.Fprintf(&out, "%-60s %s\n", "nothing", table.Version())
		for _, r := range golden() {
			fmt.Fprintf(&out, "%-60s %s %s\n", describe(r), r.Version, r.Sum)
			table = with(table, []*xds.Resource{r})
		}
		fmt.Fprintf(&out, "%-60s %s\n", fmt.Sprintf("all %d", table.Len()), table.Version())
		const file = "testdata/versions.golden"
		if *update {
			if err := os.MkdirAll("testdata", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out.Bytes(), want) {
			t.Errorf("versions have changed; got:\n%swant:\n%s", out.Bytes(), want)
		}
	})
	t.Run("SOTW-13 equal after any order of changes", func(t *testing.T) {
		rs := golden()
		a, b := &xds.Table{}, &xds.Table{}
		a = with(a, rs)
		for i := range rs {
			b = with(b, []*xds.Resource{rs[len(rs)-1-i], xds.NewResource(xds.Cluster, fmt.Sprint("gone", i), nil)})
			b = with(b, nil, fmt.Sprint("gone", i))
		}
		if a.Version() != b.Version() {
			t.Errorf("version %s after one order, %s after another", a.Version(), b.Version())
		}
	})
	t.Run("SOTW-13 changes with content", func(t *testing.T) {
		seen := map[string]string{}
		note := func(what, version string) {
			if seen[version] != "" {
				t.Errorf("%s and %s have the version %s", seen[version], what, version)
			}
			seen[version] = what
		}
		note("nothing", (&xds.Table{}).Version())
		for _, r := range golden() {
			note(describe(r), with((&xds.Table{}), []*xds.Resource{r}).Version())
		}
		// Swapping the bodies of two resources changes the hash.
		two := func(a, b *xds.Resource) string { return with((&xds.Table{}), []*xds.Resource{a, b}).Version() }
		note("bodies", two(xds.NewResource(xds.Cluster, "p", []byte("1")), xds.NewResource(xds.Cluster, "q", []byte("2"))))
		note("bodies swapped", two(xds.NewResource(xds.Cluster, "p", []byte("2")), xds.NewResource(xds.Cluster, "q", []byte("1"))))
		note("nobody", two(xds.NewResource(xds.Cluster, "p", nil), xds.NewResource(xds.Cluster, "q", nil)))
	})
	t.Run("SOTW-13 references do not count", func(t *testing.T) {
		r := xds.NewResource(xds.Cluster, "a", []byte("body"))
		r.Refs = []xds.Ref{{Type: xds.Endpoint, Name: "a"}}
		r.Seal("")
		if bare := xds.NewResource(xds.Cluster, "a", []byte("body")); r.Sum != bare.Sum || r.Version != bare.Version {
			t.Errorf("%s with a reference, %s without", r.Version, bare.Version)
		}
	})
	t.Run("SOTW-13 supplied", func(t *testing.T) {
		table := with((&xds.Table{}), golden())
		supplied := table.WithVersion("release-7")
		if supplied.Version() != "release-7" || supplied.Hashed() {
			t.Errorf("version %q, hashed %t", supplied.Version(), supplied.Hashed())
		}
		if back := supplied.WithVersion(""); back.Version() != table.Version() || !back.Hashed() {
			t.Errorf("version %q instead of %q, hashed %t", back.Version(), table.Version(), back.Hashed())
		}
	})
}

func golden() []*xds.Resource {
	var rs []*xds.Resource
	add := func(name, body, version string, ttl time.Duration, aliases ...string) {
		r := &xds.Resource{Stamp: &xds.Stamp{Name: name}, Type: xds.Cluster, Body: []byte(body), TTL: ttl, Aliases: aliases}
		r.Seal(version)
		rs = append(rs, r)
	}
	add("empty", "", "", 0)
	add("a", "", "", 0)
	add("a2", "body", "", 0)
	add("a2b", "ody", "", 0)
	add("a3", "other body", "", 0)
	add("supplied", "body", "r7", 0)
	add("ttl", "body", "", 5*time.Second)
	add("ttl2", "body", "", 5*time.Second+1)
	add("alias", "body", "", 0, "x", "y")
	add("alias2", "body", "", 0, "xy")
	add("both", "body", "", time.Minute, "x")
	add("世界/*?ctx=1", "\x00\xff", "", 0)
	add("long", strings.Repeat("x", 100_000), "", 0)
	return rs
}

func describe(r *xds.Resource) string {
	body := fmt.Sprintf("%q", r.Body)
	if len(body) > 20 {
		body = fmt.Sprint(len(r.Body), " bytes")
	}
	return fmt.Sprintf("%q %s ttl=%v aliases=%q", r.Name, body, r.TTL, r.Aliases)
}
