package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/chancery-xds/chancery/internal/disk/lastgood"
	"github.com/chancery-xds/chancery/xds"
)

const inlineKey = `"@type": type.googleapis.com/envoy.config.listener.v3.Listener
name: edge
filter_chains:
- transport_socket:
    name: tls
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
      common_tls_context: {tls_certificates: [{password: {inline_string: hunter2Quokkas}}]}
`

const inlinePassword = `"@type": type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig
name: redis
typed_config:
  "@type": type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProxy
  stat_prefix: r
  downstream_auth_passwords: [{inline_string: hunter2Quokkas}]
`

// The operator chooses whether the last good configuration on disk has secrets.
func TestStateWithoutSecrets(t *testing.T) {
	// onDisk reports whether the secret is on disk, after n resources are stored.
	onDisk := func(d *runningServer, n int) bool {
		d.Helper()
		d.kept(n)
		root, err := lastgood.Root()
		if err != nil {
			d.Fatal(err)
		}
		folder, err := lastgood.Folder(root, d.dir)
		if err != nil {
			d.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(folder, "last-good"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			d.Fatal(err)
		}
		return bytes.Contains(data, []byte("hunter2Quokkas"))
	}
	restart := func(d *runningServer, flags ...string) *runningServer {
		d.Helper()
		d.killed()
		write(d.T, d.dir, "b.yaml", "a: [")
		return serveDir(d.T, d.dir, flags...)
	}
	const without = "--state-without-secrets"
	t.Run("SAFE-10 secrets are kept without the flag", func(t *testing.T) {
		t.Parallel()
		d := serve(t, nil, "a.yaml", cluster("a"), "l.yaml", inlineKey, "e.yaml", inlinePassword)
		if !onDisk(d, 3) {
			t.Error("the key is not kept")
		}
		d = restart(d)
		d.clusters().gets("a")
		d.subscribe(xds.Listener).gets("edge")
	})
	t.Run("SAFE-6 SAFE-10 a password in an extension is not on disk, and does not count as removed", func(t *testing.T) {
		t.Parallel()
		d := serve(t, []string{without}, "a.yaml", cluster("a"), "e.yaml", inlinePassword)
		if onDisk(d, 1) {
			t.Error("SAFE-6 the password is on disk")
		}
		d = restart(d, without)
		d.clusters().gets("a")
		s := d.subscribe(xds.Cluster)
		s.send(&discoveryv3.DiscoveryRequest{TypeUrl: xds.ExtensionConfig.URL, ResourceNames: []string{"redis"}})
		s.gets("a")
		d.signal(os.Interrupt) // a waiting client gets no response until the end
		if r, err := s.stream.Recv(); err == nil {
			t.Errorf("told %v", r)
		}
	})
	t.Run("SAFE-6 with a key in a listener nothing is stored, and the earlier file is removed", func(t *testing.T) {
		t.Parallel()
		d := serve(t, nil, "a.yaml", cluster("a"), "l.yaml", inlineKey)
		if !onDisk(d, 2) {
			t.Error("the key is not kept")
		}
		d.killed()
		d = serveDir(t, d.dir, without)
		line := d.loggedAround("the last good configuration is not stored: a restart with invalid files would serve an older one, or nothing")
		if line["error"] != `LDS "edge" contains a secret, and cannot be left out as a Secret (SDS) can` {
			t.Error(line)
		}
		if onDisk(d, 0) {
			t.Error("SAFE-6 the key is on disk")
		}
	})
}

// A state directory that cannot be written is a fault in the status, until it can. A folder in place of the file is an
// error of the system, like a full disk.
func TestStatusOfFullStateDir(t *testing.T) {
	t.Parallel()
	socket := "unix://" + filepath.Join(t.TempDir(), "admin.sock")
	d := serve(t, []string{"--admin-listen", socket}, "a.yaml", cluster("a"))
	d.kept(1)
	root, err := lastgood.Root()
	if err != nil {
		t.Fatal(err)
	}
	folder, err := lastgood.Folder(root, d.dir)
	if err != nil {
		t.Fatal(err)
	}
	chancery(t, 0, "1 resource in 1 file", "status", "--admin", socket)
	file := filepath.Join(folder, "last-good")
	if err := errors.Join(os.Remove(file), os.MkdirAll(filepath.Join(file, "full"), 0o700)); err != nil {
		t.Fatal(err)
	}
	write(t, d.dir, "a.yaml", cluster("a"), "b.yaml", cluster("b"))
	d.logged("the last good configuration is not stored: a restart with invalid files would serve an older one, or nothing")
	chancery(t, 1, "not-stored ", "status", "--admin", socket)
	if err := os.RemoveAll(file); err != nil {
		t.Fatal(err)
	}
	for exec.CommandContext(d.ctx, binary, "status", "--admin", socket).Run() != nil {
		if d.ctx.Err() != nil {
			t.Fatal("the fault does not end")
		}
	}
	d.kept(2)
}

func TestFollowLinksOutside(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	write(t, outside, "c.yaml", cluster("outside"))
	write(t, dir, "a.yaml", cluster("a"))
	if err := os.Symlink(filepath.Join(outside, "c.yaml"), filepath.Join(dir, "c.yaml")); err != nil {
		t.Fatal(err)
	}
	const says = "c.yaml: a symbolic link that points outside the directory, to "
	chancery(t, 1, says, "check", dir)
	chancery(t, 1, says, "serve", dir, "--listen", "127.0.0.1:0", "--state-dir", "")
	chancery(t, 1, says, "export", dir, "--out", filepath.Join(t.TempDir(), "out"))
	chancery(t, 0, "ok: 2 resources in 2 files", "check", dir, "--follow-links-outside")
	chancery(t, 0, "ok: 2 resources", "export", dir, "--follow-links-outside", "--out", filepath.Join(t.TempDir(), "out"))
	serveDir(t, dir, "--follow-links-outside").clusters().gets("a", "outside")
}
