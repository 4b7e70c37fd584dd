package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// A server of a store waits for the first revision, and serves each revision when it is committed. If it
// starts while the store cannot be read, it serves the last good revision.
func TestServeStore(t *testing.T) {
	t.Parallel()
	at, state := filepath.Join(t.TempDir(), "store"), t.TempDir()
	admin := "unix://" + filepath.Join(t.TempDir(), "admin.sock")
	apply := func(want string, flags []string, files ...string) {
		t.Helper()
		config := t.TempDir()
		write(t, config, files...)
		chancery(t, 0, want, append([]string{"apply", config, "--store", "file:" + at, "--author", "ana", "-m", "why"}, flags...)...)
	}
	start := func(flags ...string) (d *runningServer, port string) {
		t.Helper()
		d = serveDir(t, "--store=file:"+at, append([]string{"--state-dir", state, "--metrics-listen", "127.0.0.1:0", "--admin-listen", admin}, flags...)...)
		_, port, _ = net.SplitHostPort(d.http)
		return d, port
	}
	d, port := start()
	resp, err := http.Get("http://127.0.0.1:" + port + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	const why = ": the store has no revision yet: chancery apply commits one"
	if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), "the store file:"+at+why) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	chancery(t, 1, "STORE    file:"+at+": nothing yet", "status", "--admin", admin)
	chancery(t, 1, "the store has no revision yet: chancery apply commits one", "status", "--admin", admin)
	chancery(t, 4, "the store has no revision yet", "wait", "--for=synced", "--admin", admin)
	chancery(t, 0, "The store has no revision yet.", "history", "--store", "file:"+at)
	chancery(t, 0, "There are no rollouts.", "rollout", "status", "--store", "file:"+at)
	chancery(t, 4, "revision r1: not found: the store has no revision yet", "diff", "rev:r1", "rev:r1", "--store", "file:"+at)
	apply("r1: 1 set, 0 removed", nil, "a.yaml", cluster("a"))
	s := d.clusters()
	s.gets("a")
	apply("r2: 1 set, 0 removed", nil, "b.yaml", cluster("b"))
	s.gets("a", "b")
	d.tells(port, "/readyz?verbose", "revision r2 of file:"+at)
	chancery(t, 0, "STORE    file:"+at+": r2 by ana: why", "status", "--admin", admin)
	chancery(t, 1, "a server of a store has no files to reload", "reload", "--admin", admin)
	chancery(t, 0, "ok: ", "wait", "--for=synced", "--revision", "r2", "--admin", admin)
	chancery(t, 4, "revision r9: not found yet: the newest is r2", "wait", "--for=synced", "--revision", "r9", "--timeout", "200ms", "--admin", admin)
	chancery(t, 2, "want a number, or a revision of a store such as r412", "wait", "--for=synced", "--revision", "rx", "--admin", admin)
	keeps := func(mark string) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			files, err := filepath.Glob(filepath.Join(state, "*", "last-good"))
			if err != nil || len(files) != 1 {
				t.Fatal(files, err)
			}
			if kept, err := os.ReadFile(files[0]); err != nil || time.Now().After(end) {
				t.Fatal("the revision is not kept: ", mark, err)
			} else if bytes.Contains(kept, []byte(mark)) {
				return
			}
		}
	}
	keeps("revision/0000000000000002-")
	d.tells(port, "/metrics", "xds_server_config_kept 1\n")
	d.killed()

	head := filepath.Join(at, "head")
	good, err := os.ReadFile(head)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(head, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, port = start()
	d.clusters().gets("a", "b")
	d.tells(port, "/readyz?verbose", "revision r2 of file:"+at+" from disk (last good), of ")
	chancery(t, 1, "r2 from disk (last good), of ", "status", "--admin", admin)
	if err := os.WriteFile(head, good, 0o600); err != nil {
		t.Fatal(err)
	}
	d.tells(port, "/readyz?verbose", "revision r2 of file:"+at)
	second := good
	apply("r3: 0 set, 1 removed", []string{"--prune"}, "a.yaml", cluster("a"))
	d.tells(port, "/readyz?verbose", "revision r3 of file:"+at)
	d.clusters().gets("a")
	if good, err = os.ReadFile(head); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(head, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.tells(port, "/readyz?verbose", "revision r3 of file:"+at+"; the newest revision is not served since ")
	if err := os.WriteFile(head, good, 0o600); err != nil {
		t.Fatal(err)
	}
	d.tells(port, "/readyz?verbose", "revision r3 of file:"+at+"\n")

	// The store is replaced by a backup while the server is down: its last revision is served.
	keeps("revision/0000000000000003-")
	d.killed()
	if err := os.WriteFile(head, second, 0o600); err != nil {
		t.Fatal(err)
	}
	d, port = start()
	d.clusters().gets("a")
	d.tells(port, "/readyz?verbose", "revision r3 of file:"+at+" from disk (last good), of ")
	d.tells(port, "/readyz?verbose", "the repository was replaced by an older or different one: from r3 to another r2")
	if err := os.WriteFile(head, good, 0o600); err != nil {
		t.Fatal(err)
	}
	d.tells(port, "/readyz?verbose", "revision r3 of file:"+at+"\n")
	chancery(t, 0, "STORE    file:"+at+": r3 by ana: why", "status", "--admin", admin)
}

// A server of a store warns about references to missing resources, as a server of files does.
func TestServeStoreDangling(t *testing.T) {
	t.Parallel()
	at, admin, config := "file:"+filepath.Join(t.TempDir(), "store"), "unix://"+filepath.Join(t.TempDir(), "admin.sock"), t.TempDir()
	write(t, config, "a.yaml", strings.Replace(cluster("a"), "name: a", "name: a\ntype: EDS\neds_cluster_config: {eds_config: {ads: {}, resource_api_version: V3}}", 1))
	apply := []string{"apply", config, "--store", at, "-m", "why"}
	chancery(t, 0, `CDS "a" refers to EDS "a"`, append(apply, "--dry-run")...)
	chancery(t, 0, `CDS "a" refers to EDS "a"`, apply...)
	d := serveDir(t, "--store="+at, "--state-dir", "", "--admin-listen", admin, "--store-write")
	d.meanwhile("configuration warning")
	d.clusters().gets("a")
	chancery(t, 1, `CDS "a" refers to EDS "a"`, "status", "--admin", admin)
	write(t, config, "b.yaml", cluster("b"))
	chancery(t, 0, `CDS "a" refers to EDS "a"`, "apply", config, "--admin", admin, "--dry-run")
	chancery(t, 0, `CDS "a" refers to EDS "a"`, "apply", config, "--admin", admin, "-m", "why")
}

// Wait --revision fails for a group that is served at an earlier revision: frozen, in a rollout, or after
// an aborted one.
func TestWaitRevisionFailsForFrozenGroup(t *testing.T) {
	t.Parallel()
	at, admin, config := "file:"+filepath.Join(t.TempDir(), "store"), "unix://"+filepath.Join(t.TempDir(), "admin.sock"), t.TempDir()
	write(t, config, "a.yaml", cluster("a"))
	chancery(t, 0, "r1: ", "apply", config, "--store", at, "-m", "why")
	d := serveDir(t, "--store="+at, "--state-dir", "", "--metrics-listen", "127.0.0.1:0", "--admin-listen", admin)
	_, port, _ := net.SplitHostPort(d.http)
	s := d.clusters()
	s.gets("a")
	wait := func(code int, want string) {
		t.Helper()
		for _, local := range []string{"--local=false", "--local"} {
			chancery(t, code, want, "wait", "--for=synced", "--revision", "r2", "--timeout", "300ms", local, "--admin", admin)
		}
	}
	wait(4, "revision r2: not found yet: the newest is r1")
	chancery(t, 0, "", "freeze", "default", "--store", at, "-m", "why")
	write(t, config, "b.yaml", cluster("b"))
	chancery(t, 0, "r2: ", "apply", config, "--store", at, "-m", "why")
	d.tells(port, "/readyz?verbose", "revision r2 of "+at+"; frozen: default at r1")
	wait(1, "not synced: r2 is not served: group default is frozen at r1 since 20")
	for revision, code := range map[string]int{"r2": 1, "r9": 4} {
		for _, want := range []string{`"done": false`, `"why": "`} {
			chancery(t, code, want, "wait", "--for=synced", "--revision", revision, "-o", "json", "--admin", admin)
		}
	}
	chancery(t, 124, `"store_revision": "r2"`, "wait", "--for=synced", "--revision", "1", "--node", "none", "--timeout", "100ms", "-o", "json", "--admin", admin)
	chancery(t, 1, `revision r2 has it, but group "default" is frozen at r1`, "explain", "edge", "cluster/b", "--admin", admin)
	chancery(t, 1, "chancery rollout start r2 --of default serves it step by step", "explain", "edge", "cluster/b", "--admin", admin)
	chancery(t, 1, "no revision that is served has CDS \"c\"", "explain", "edge", "cluster/c", "--admin", admin)
	chancery(t, 0, "warning: no connected client is picked", "rollout", "start", "r2", "--steps", "0.001%", "--bake", "1h", "--store", at, "-m", "why")
	chancery(t, 0, "waits: no connected client is picked", "rollout", "status", "--store", at)
	d.tells(port, "/readyz?verbose", " to r2)")
	chancery(t, 1, " has not picked this node yet (step 1 of 2)\n", "explain", "edge", "cluster/b", "--admin", admin)
	chancery(t, 1, `CDS "b" is of group "default", in the revision of its rollout`, "explain", "edge", "cluster/b", "--admin", admin)
	wait(124, "of group default to r2 is under way")
	chancery(t, 0, "", "rollout", "abort", "--store", at, "-m", "why")
	d.tells(port, "/readyz?verbose", "revision r2 of "+at+"; frozen: default at r1\n")
	chancery(t, 1, " to r2 was aborted ", "explain", "edge", "cluster/b", "--admin", admin)
	chancery(t, 1, "start a rollout of the new revision; chancery rollout status r2-", "explain", "edge", "cluster/b", "--admin", admin)
	wait(1, "not synced: r2 is not served: group default is frozen at r1, because rollout r2-")
	wait(1, ": why\nchancery: hint: correct the cause, commit the correction (chancery apply), and start a rollout of the new revision")
	chancery(t, 0, "", "unfreeze", "default", "--store", at)
	d.tells(port, "/readyz?verbose", "revision r2 of "+at+"\n")
	s.gets("a", "b")
	chancery(t, 0, "ok: ", "wait", "--for=synced", "--revision", "r2", "--admin", admin)
}

// Rollback needs no message. Its first lines name the frozen groups, for which nothing changes, and the
// command that serves the revision to their clients.
func TestRollbackOfFrozenGroups(t *testing.T) {
	t.Parallel()
	at, config := "file:"+filepath.Join(t.TempDir(), "store"), t.TempDir()
	run := func(want string, args ...string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), binary, append(args, "--store", at)...).CombinedOutput()
		if err != nil || !regexp.MustCompile("^"+want+"$").Match(out) {
			t.Errorf("%q: %v\n%s\nwant\n%s", args, err, out, want)
		}
	}
	commit := func(name string) {
		write(t, config, "a/group.yaml", "match: {id: a}\n", "b/group.yaml", "match: {id: b}\n", "a/x.yaml", cluster(name), "b/x.yaml", cluster(name), "c.yaml", cluster(name))
		chancery(t, 0, "", "apply", config, "--store", at, "--prune", "-m", "why")
	}
	commit("one")
	commit("two")
	run("group a .*\n", "freeze", "a", "-m", "sale", "--author", "ana")
	run("group b .*\n", "freeze", "b", "--at", "r1", "-m", "sale", "--author", "ana")
	const held = `nothing changes for clients of group a, which is frozen at r2 by ana: sale. To serve the rollback: chancery freeze a --at r3 -m MESSAGE\n`
	run(held+"r3: 3 set, 3 removed\n", "rollback", "r1")
	run(held+"nothing differs from r3\n", "rollback", "r1")
	chancery(t, 0, "rollback to r1 (content of r1)", "history", "--store", at)
	run("group a is frozen at r3.*\n", "freeze", "a", "--at", "r3", "-m", "as rollback says")
	run("nothing differs from r3\n", "rollback", "r1")
}

// A revision with a secret that would be sent in plain text is not served; the previous one stays.
func TestServeStoreSecrets(t *testing.T) {
	t.Parallel()
	t.Run("SAFE-6 a secret in a revision is not sent in plain text", testStoreSecrets)
}

func testStoreSecrets(t *testing.T) {
	t.Parallel()
	at := filepath.Join(t.TempDir(), "store")
	admin := "unix://" + filepath.Join(t.TempDir(), "admin.sock")
	config := t.TempDir()
	write(t, config, "a.yaml", cluster("a"))
	apply := []string{"apply", config, "--store", "file:" + at, "-m", "why"}
	chancery(t, 0, "r1: ", apply...)
	d := serveDir(t, "--store=file:"+at, "--listen", "0.0.0.0:0", "--state-dir", "", "--admin-listen", admin)
	d.clusters().gets("a")
	write(t, config, "s.yaml", withSecret("s"))
	chancery(t, 0, "r2: ", apply...)
	d.logged("the newest revision is not served")
	d.clusters().gets("a")
	chancery(t, 1, "revision r2 is not served: s.yaml:", "status", "--admin", admin)
}

// Each command of a store works through a server of it. Reading is open to all callers. Commits need
// --store-write and an authenticated caller. No answer contains a secret.
func TestStoreThroughServer(t *testing.T) {
	t.Parallel()
	t.Run("SAFE-6 the store through a server shows no secret", testThroughServer)
}

func testThroughServer(t *testing.T) {
	t.Parallel()
	at := "file:" + filepath.Join(t.TempDir(), "store")
	socket, config, out := "unix://"+filepath.Join(t.TempDir(), "admin.sock"), t.TempDir(), filepath.Join(t.TempDir(), "out")
	port := "127.0.0.1:" + freePort(t)
	write(t, config, "a.yaml", cluster("a"), "s.yaml", withSecret("s"))
	on := func(admin string, args ...string) []string { return append(args, "--admin", admin) }
	d := serveDir(t, "--store="+at, "--state-dir", "", "--admin-listen", socket, "--admin-listen", port)
	chancery(t, 3, "this server does not accept commits", on(socket, "apply", config, "-m", "why")...)
	d.killed()

	d = serveDir(t, "--store="+at, "--state-dir", "", "--admin-listen", socket, "--admin-listen", port, "--store-write")
	chancery(t, 3, "needs a unix socket, a token or a client certificate", on("http://"+port, "apply", config, "-m", "why")...)
	chancery(t, 0, "would be committed after r0: 2 set, 0 removed", on(socket, "apply", config, "--dry-run")...)
	chancery(t, 0, "r1: 2 set, 0 removed", on(socket, "apply", config, "-m", "first", "--author", "ana")...)
	chancery(t, 0, "nothing differs from r1", "apply", config, "-m", "again", "--store", at)
	d.clusters().gets("a", "s")
	write(t, config, "b.yaml", cluster("b"), "s.yaml", strings.ReplaceAll(withSecret("s"), "Quokkas", "Wombats"))
	chancery(t, 0, "would be committed after r1: 2 set, 0 removed", on(socket, "apply", config, "--dry-run")...)
	chancery(t, 0, "CONFIG   2 resources", on(socket, "status")...) // the examined revision does not affect the served one
	chancery(t, 0, "r2: 2 set, 0 removed", on(socket, "apply", config, "-m", "second", "--author", "ben")...)
	d.clusters().gets("a", "b", "s")
	chancery(t, 5, "revision r1 is no longer the newest: r2 is", on(socket, "apply", config, "-m", "late", "--if-head", "r1")...)
	d.logged("change of the store was refused")
	chancery(t, 0, "unix socket (says ben)", on("http://"+port, "history")...)
	chancery(t, 0, "r2", on("http://"+port, "history", "cluster/b", "-o", "name")...)
	chancery(t, 4, "no kept revision has changed cluster/x", on(socket, "history", "cluster/x")...)
	chancery(t, 0, "a.yaml:1:1", on("http://"+port, "blame", "cluster/a")...)
	chancery(t, 4, "the newest revision does not contain cluster/x", on(socket, "blame", "cluster/x")...)
	chancery(t, 1, "(secrets, or content that cannot be shown): [redacted] → [redacted]", on("http://"+port, "diff", "rev:r1", "rev:r2")...)
	chancery(t, 0, "no difference", on("http://"+port, "diff", "rev:head", config)...)
	chancery(t, 4, "the newest is r2", on(socket, "diff", "rev:r9", config)...)
	chancery(t, 1, "rev:r2 has secrets in 1 resource, which a server does not show", "export", "rev:r2", "--out", out, "--server", socket)
	less := t.TempDir()
	write(t, less, "a.yaml", cluster("a"))
	chancery(t, 0, "r3: 0 set, 2 removed", on(socket, "apply", less, "-m", "no secret", "--prune")...)
	chancery(t, 0, "ok: 1 resource", "export", "rev:head", "--out", out, "--server", socket)
	chancery(t, 0, "r4: 2 set, 0 removed", on(socket, "rollback", "r2", "-m", "back")...)
	d.clusters().gets("a", "b", "s")
	chancery(t, 4, "the newest is r4", on(socket, "rollback", "r9", "-m", "back")...)
	for _, admin := range [][]string{{"--admin", socket}, {"--store", at}} {
		chancery(t, 0, "2 resources of the store are not in "+less+": --prune removes them", append([]string{"apply", less, "-m", "less"}, admin...)...)
		chancery(t, 5, "revision r99 does not exist yet: the newest is r4", append([]string{"apply", less, "-m", "less", "--if-head", "r99"}, admin...)...)
	}
	write(t, less, "b.yaml", "x: b\n")
	chancery(t, 1, "b.yaml:1:1", on(socket, "apply", less, "-m", "bad")...)

	chancery(t, 3, "needs a unix socket, a token or a client certificate", on("http://"+port, "freeze", "default", "-m", "why")...)
	chancery(t, 4, "the groups are default", on(socket, "freeze", "x", "-m", "why")...)
	chancery(t, 0, "group default is frozen at r3", on(socket, "freeze", "default", "--at", "r3", "-m", "sale", "--author", "ana")...)
	d.clusters().gets("a")
	chancery(t, 0, "frozen here by unix socket (says ana): sale", on("http://"+port, "history")...)
	for _, admin := range [][]string{{"--admin", socket}, {"--store", at}} {
		chancery(t, 5, "group default is frozen already, at r3 since 20", append([]string{"freeze", "default", "-m", "other"}, admin...)...)
		chancery(t, 5, " by unix socket (says ana): sale", append([]string{"freeze", "default", "-m", "other"}, admin...)...)
		chancery(t, 5, "--at r3 keeps it as it is, --at head serves the newest revision", append([]string{"freeze", "default", "-m", "other"}, admin...)...)
	}
	chancery(t, 0, "group default is frozen at r4, which is served now: it was frozen at r3 since 20", on(socket, "freeze", "default", "--at", "head", "-m", "all", "--author", "ben")...)
	chancery(t, 0, " by unix socket (says ben): all", "freeze", "default", "--at", "r3", "-m", "sale", "--store", at)
	chancery(t, 0, "group default stays frozen at r3: it was frozen at r3 since 20", on(socket, "freeze", "default", "--at", "r3", "-m", "sale", "--author", "ana")...)
	chancery(t, 4, "no rollout is active", on(socket, "rollout", "pause")...)
	chancery(t, 1, "no frozen group differs in r3", on(socket, "rollout", "start", "r3", "--steps", "1%", "-m", "why")...)
	chancery(t, 4, "the groups are default", on(socket, "rollout", "start", "r4", "--group", "canray", "-m", "why")...)
	chancery(t, 2, "a step of 1 % after one of 10 %", on(socket, "rollout", "start", "r4", "--steps", "10%,1%", "-m", "why")...)
	chancery(t, 0, "is running, step 1 of 2: 0.001 %", on(socket, "rollout", "start", "r4", "--steps", "0.001%", "--bake", "1h", "-m", "back again")...)
	for format, want := range map[string]string{"table": "step 1 of 2 (0.001 %)", "json": `"nodes": "0.001 %"`, "yaml": "nodes: 0.001 %"} { // the same content
		chancery(t, 0, want, on(socket, "status", "-o", format)...)
	}
	chancery(t, 5, "of group default is under way", on(socket, "unfreeze", "default")...)
	chancery(t, 3, "needs a unix socket, a token or a client certificate", on("http://"+port, "rollout", "abort")...)
	chancery(t, 0, "is paused, step 1 of 2", on(socket, "rollout", "pause", "--author", "ben", "-m", "a look at it")...)
	chancery(t, 0, ", step 1 of 2 (0.001 %): it is paused by unix socket (says ben): a look at it\n", on(socket, "status")...)
	chancery(t, 0, "waits: it is paused by unix socket (says ben): a look at it", on("http://"+port, "rollout", "status")...)
	chancery(t, 4, `no rollout has the ID "r9-123456"`, on(socket, "rollout", "promote", "r9-123456", "-m", "why")...)
	chancery(t, 0, "is running, step 2 of 2: 100 %", on(socket, "rollout", "promote", "-m", "all")...)
	chancery(t, 0, "is done: all nodes get it", on(socket, "rollout", "promote", "-m", "for good")...)
	d.clusters().gets("a", "b", "s")
	chancery(t, 0, "served as in r4, and was frozen at r4 since 20", on(socket, "unfreeze", "default", "-m", "over")...)
	_, port, _ = net.SplitHostPort(port)
	for _, want := range []string{" by unix socket (says ben)", "group default is no longer frozen by unix socket (says ", `"message":"over"`, `"author":"unix socket (says ben)"`, "refused: promote of rollout r9-123456 by "} {
		d.tells(port, "/api/v1/events?kind=store&stop=1", want)
	}
}

// A server with a directory and a store commits the directory, and serves the store. Another server with
// the same directory is on standby.
func TestServeDirectoryToStore(t *testing.T) {
	t.Parallel()
	at, config := "file:"+filepath.Join(t.TempDir(), "store"), t.TempDir()
	write(t, config, "a.yaml", cluster("a"))
	start := func(flags ...string) (*runningServer, string) {
		admin := "127.0.0.1:" + freePort(t)
		return serveDir(t, config, append(flags, "--store", at, "--state-dir", "", "--admin-listen", admin)...), "http://" + admin
	}
	d, admin := start()
	d.clusters().gets("a")
	chancery(t, 0, "this server writes "+config+" to the store", "status", "--admin", admin)
	other, waits := start("--metrics-listen", "127.0.0.1:0")
	s := other.clusters()
	s.gets("a")
	write(t, config, "b.yaml", cluster("b"))
	s.gets("a", "b")
	chancery(t, 1, "ask that one, by --admin "+admin, "reload", "--admin", waits)
	chancery(t, 0, "ok: 2 resources", "reload", config, "--admin", admin)
	chancery(t, 1, "does not serve /nowhere", "reload", "/nowhere", "--admin", admin)
	chancery(t, 124, "not synced after", "wait", "--for=synced", config, "--timeout", "100ms", "--admin", waits)
	if out, _ := exec.CommandContext(t.Context(), binary, "reload", "--admin", waits).CombinedOutput(); strings.Contains(string(out), "rejected") {
		t.Errorf("nothing was rejected: %s", out)
	}
	api, err := adminclient.Dial(adminclient.Target{URL: admin})
	if err != nil {
		t.Fatal(err)
	}
	st, err := api.StatusOfAll(t.Context(), "")
	if err != nil || len(st.Replicas) != 2 {
		t.Fatal(st, err)
	}
	writer, standby := st.Replicas[0].ID, st.Replicas[1].ID
	chancery(t, 0, "another server writes its directory to the store: "+writer+"; this server is on standby", "status", "--admin", waits)
	_, port, _ := net.SplitHostPort(other.http)
	other.tells(port, "/readyz?verbose", "; "+writer+" commits its directory to it")

	// Explain asks the server that has the client, and reports how many servers do not have it.
	stream, err := clusterservice.NewClusterDiscoveryServiceClient(other.conn).StreamClusters(other.ctx)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := subscriber{other, stream}
	elsewhere.send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "elsewhere"}})
	elsewhere.gets("a", "b")
	if e, err := api.ExplainOfAll(t.Context(), "elsewhere", "CDS", "a"); err != nil || e.Replica != standby || e.Clients != 1 {
		t.Errorf("%+v %v", e, err)
	}
	chancery(t, 0, "SERVER "+standby+"\n✔ loaded", "explain", "elsewhere", "cluster/a", "--admin", admin)
	chancery(t, 1, `no client with node id "elsewhere" is connected, and none was lately`, "explain", "elsewhere", "cluster/a", "--local", "--admin", admin)
	chancery(t, 1, "it is at none of the 2 servers of the store", "explain", "nobody", "--admin", admin)
	for _, what := range []string{"nacks", "groups", "all --node elsewhere"} { // each server has clients of its own
		code := map[bool]int{true: 4}[strings.HasSuffix(what, "elsewhere")]
		args := append(append([]string{"get"}, strings.Fields(what)...), "--admin", admin)
		chancery(t, code, "only "+writer+" was asked, one of the 2 servers of the store", args...)
	}
	if out, _ := exec.CommandContext(t.Context(), binary, "get", "clients", "--admin", admin).CombinedOutput(); strings.Contains(string(out), "was asked") {
		t.Errorf("%s", out)
	}
	chancery(t, 0, "content of "+config, "history", "--store", at)
	write(t, config, "b.yaml", "x: y\n")
	chancery(t, 1, "b.yaml:1:1: ", "reload", "--admin", admin)
	chancery(t, 1, config+" is not committed: ", "status", "--admin", admin)
	chancery(t, 1, "does not commit its directory: ", "status", "--admin", waits)
	for _, at := range [][]string{{"--admin", admin}, {"--admin", admin, "--local"}, {"--admin", waits}} {
		chancery(t, 1, writer+" does not commit its directory: "+config, append([]string{"wait", "--for=synced"}, at...)...)
	}
	chancery(t, 1, `"done": false`, "wait", "--for=synced", "-o", "json", "--admin", admin)
	chancery(t, 124, "not synced after", "wait", "--for=synced", "--revision", "r2", "--timeout", "100ms", "--admin", admin)
}

// Allowing the removal of all resources of a directory also commits the removal.
func TestServeEmptiedDirectoryToStore(t *testing.T) {
	t.Parallel()
	at, config := "file:"+filepath.Join(t.TempDir(), "store"), t.TempDir()
	write(t, config, "a.yaml", cluster("a"))
	socket := "unix://" + filepath.Join(t.TempDir(), "s")
	d := serveDir(t, config, "--store", at, "--state-dir", "", "--admin-listen", socket)
	s := d.clusters()
	s.gets("a")
	if err := os.Remove(filepath.Join(config, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	chancery(t, 1, "no files any more", "reload", "--admin", socket)
	chancery(t, 1, "is not committed: ", "status", "--admin", socket)
	out, err := exec.CommandContext(t.Context(), "env", "CHANCERY_ADMIN="+socket, binary, "reload", config, "--allow-mass-delete").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "1 removed") {
		t.Errorf("%v: %s", err, out)
	}
	s.gets()
	chancery(t, 0, "0 resources", "status", "--admin", socket)
	chancery(t, 0, "r2", "history", "--store", at)
}

// SAFE-3: a rollback warns of values in the restored revision that Envoy refuses.
func TestRollbackWarnsOfRefusableRevision(t *testing.T) {
	t.Parallel()
	at, socket, config := "file:"+filepath.Join(t.TempDir(), "store"), "unix://"+filepath.Join(t.TempDir(), "admin.sock"), t.TempDir()
	const warning = `(?m)^a\.yaml:1:1: warning: connect_timeout: must be more than 0s, not 0s$`
	for _, timeout := range []string{"0s", "1s"} {
		write(t, config, "a.yaml", cluster("a")+"connect_timeout: "+timeout+"\n")
		chancery(t, 0, "1 set", "apply", config, "-m", timeout, "--store", at)
	}
	serveDir(t, "--store="+at, "--state-dir", "", "--admin-listen", socket, "--store-write")
	for _, to := range [][]string{{"--store", at}, {"--admin", socket}} {
		out, err := exec.Command(binary, append([]string{"rollback", "r1"}, to...)...).CombinedOutput()
		if err != nil || !regexp.MustCompile(warning).Match(out) {
			t.Errorf("SAFE-3 %s: %v: %s", to, err, out)
		}
		out, err = exec.Command(binary, append([]string{"rollback", "r2"}, to...)...).CombinedOutput()
		if err != nil || strings.Contains(string(out), "warning") {
			t.Errorf("SAFE-3 %s: %v: %s", to, err, out)
		}
	}
}

// SAFE-3: a rollback warns of content that connected clients refuse, with their reason.
func TestRollbackWarnsOfRefusedRevision(t *testing.T) {
	t.Parallel()
	at, socket, config := "file:"+filepath.Join(t.TempDir(), "store"), "unix://"+filepath.Join(t.TempDir(), "admin.sock"), t.TempDir()
	write(t, config, "a.yaml", cluster("a"), "b.yaml", cluster("b"))
	chancery(t, 0, "2 set", "apply", config, "-m", "b", "--store", at)
	write(t, config, "a.yaml", cluster("a")+"alt_stat_name: new\n")
	chancery(t, 0, "1 set", "apply", config, "-m", "a", "--store", at)
	d := serveDir(t, "--store="+at, "--state-dir", "", "--admin-listen", socket, "--store-write")
	c := xdstest.Delta(t, d.conn, xdstest.WithNode(xds.Node{ID: "edge-1"}))
	c.Subscribe(xds.Cluster)
	c.NACK(c.Expect(xds.Cluster, "a", "b"), "Error adding/updating cluster(s) b: no such extension")
	d.logged("resource in quarantine: the client refuses it, and gets the others")
	chancery(t, 0, "b.yaml:1:1: warning: connected clients refuse CDS b of this revision: Error adding/updating cluster(s) b: no such extension\nr3: ", "rollback", "r1", "--admin", socket)
}
