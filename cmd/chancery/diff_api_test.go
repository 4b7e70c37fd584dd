package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// The admin API compares the files with the served configuration, and revisions with each other.
func TestDiffOverAPI(t *testing.T) {
	t.Parallel()
	t.Run("files that are not served", func(t *testing.T) {
		t.Parallel()
		port := freePort(t)
		d := serve(t, []string{"--admin-listen", "127.0.0.1:" + port}, "a.yaml", cluster("a"), "b.yaml", cluster("b")+"---\n"+cluster("c")+"---\n"+cluster("d"))
		d.tells(port, "/api/v1/diff?to=files", `"total":0`)
		write(t, d.dir, "a.yaml", cluster("a")+"connect_timeout: 7s\n", "b.yaml", "") // a mass deletion
		d.tells(port, "/api/v1/diff?to=files", `"added":0,"removed":3,"changed":1`)
		d.tells(port, "/api/v1/diff?to=files&type=CDS&name=a", `"fields":[{"path":"connect_timeout","from":"","to":"7s"}]`)
		d.tells(port, "/api/v1/diff?from=files&to=served", `"added":3,"removed":0,"changed":1`)
	})
	t.Run("a group whose files are rejected", func(t *testing.T) {
		t.Parallel()
		port := freePort(t)
		d := serve(t, []string{"--admin-listen", "127.0.0.1:" + port}, "a.yaml", cluster("a"), "edge/group.yaml", "match: {id: edge}\non_error: alone\n", "edge/b.yaml", cluster("b"))
		write(t, d.dir, "a.yaml", cluster("c"), "edge/b.yaml", "no resource")
		d.tells(port, "/api/v1/diff?to=files", `"note":"the files have errors in edge: compared as served"},"added":1,"removed":1,"changed":0`)
	})
	t.Run("revisions", func(t *testing.T) {
		t.Parallel()
		at, port, config := "file:"+filepath.Join(t.TempDir(), "store"), freePort(t), t.TempDir()
		d := serveDir(t, "--store="+at, "--state-dir", "", "--admin-listen", "127.0.0.1:"+port)
		write(t, config, "a.yaml", cluster("a"), "s.yaml", withSecret("s"))
		chancery(t, 0, "r1: 2 set", "apply", config, "-m", "first", "--store", at)
		write(t, config, "a.yaml", cluster("a")+"connect_timeout: 7s\n", "s.yaml", strings.ReplaceAll(withSecret("s"), "Quokkas", "Wombats"))
		chancery(t, 0, "r2: 2 set", "apply", config, "-m", "second", "--store", at)
		d.tells(port, "/api/v1/diff?to=rev:head", `"total":0`)
		d.tells(port, "/api/v1/diff?from=rev:r1&to=rev:r2", `{"of":"rev:r2","resources":2,"note":"second"},"added":0,"removed":0,"changed":2`)
		d.tells(port, "/api/v1/diff?from=rev:r1&to=rev:r2", `"name":"s","group":"default","place":"s.yaml:1:1","secret":true`)
		d.tells(port, "/api/v1/diff?from=served&to=rev:r1&type=CDS&name=a", `"impact":{`)
	})
}
