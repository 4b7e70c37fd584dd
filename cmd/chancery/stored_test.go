package main

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A server of a store serves each revision as it is committed, waits for the first, and serves the last good when
// it starts while the store cannot be read.
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
	start := func(flags ...string) (d *daemon, port string) {
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
	const why = " has given nothing yet, and nothing of it is stored here: the repository has no revision yet"
	if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), "the store file:"+at+why) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	chancery(t, 0, "STORE    file:"+at+": nothing yet", "status", "--admin", admin)
	apply("r1: 1 set, 0 removed", nil, "a.yaml", cluster("a"))
	s := d.clusters()
	s.gets("a")
	apply("r2: 1 set, 0 removed", nil, "b.yaml", cluster("b"))
	s.gets("a", "b")
	d.tells(port, "/readyz?verbose", "revision r2 of file:"+at)
	chancery(t, 0, "STORE    file:"+at+": r2 by ana: why", "status", "--admin", admin)
	chancery(t, 1, "a server of a store has no files", "reload", "--admin", admin)
	chancery(t, 0, "ok: ", "wait", "--for=synced", "--revision", "r2", "--admin", admin)
	chancery(t, 124, "revision r9 is not served yet: r2 is", "wait", "--for=synced", "--revision", "r9", "--timeout", "200ms", "--admin", admin)
	chancery(t, 2, "want a number, or a revision of a store such as r412", "wait", "--for=synced", "--revision", "rx", "--admin", admin)
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
	d.tells(port, "/readyz?verbose", "from disk (last good)")
	chancery(t, 0, "from disk (last good), of ", "status", "--admin", admin)
	if err := os.WriteFile(head, good, 0o600); err != nil {
		t.Fatal(err)
	}
	d.tells(port, "/readyz?verbose", "revision r2 of file:"+at)
	apply("r3: 0 set, 1 removed", []string{"--prune"}, "a.yaml", cluster("a"))
	d.tells(port, "/readyz?verbose", "revision r3 of file:"+at)
	d.clusters().gets("a")
	if good, err = os.ReadFile(head); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(head, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.tells(port, "/readyz?verbose", "revision r3 of file:"+at+"; the newest is not served since ")
	if err := os.WriteFile(head, good, 0o600); err != nil {
		t.Fatal(err)
	}
	d.tells(port, "/readyz?verbose", "revision r3 of file:"+at+"\n")
}

// A revision with a secret that would be sent in plain text is not served, and what was stays.
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
