package lastgood

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"go.uber.org/goleak"

	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func some(t *testing.T, n int) Config {
	t.Helper()
	c := Config{At: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)}
	all := Type{Type: xds.Cluster, Version: "v7"}
	for i := range n {
		name := strings.Repeat("c", i+1)
		r, err := wire.NewResource(xds.Cluster, "", &clusterv3.Cluster{
			Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
			EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: "of-" + name},
		})
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			r.Aliases, r.TTL, r.OnDemand = []string{"b"}, 5*time.Second, true
			r.Seal("mine")
		}
		all.Resources = append(all.Resources, Resource{Resource: r, File: "a.yaml", Line: i + 1, Col: 3, Path: "resources[0]"})
	}
	c.Types = []Type{all, {Type: xds.Secret, Resources: []Resource{{Resource: xds.NewResource(xds.Secret, "s", nil), File: "s.yaml", Line: 1, Col: 1}}}}
	return c
}

// open returns a keeper whose Run lasts until the test ends.
func open(t *testing.T, dir string) (*Keeper, *bytes.Buffer, func()) {
	t.Helper()
	k, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	log := &bytes.Buffer{}
	k.Log = slog.New(slog.NewTextHandler(log, nil))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); k.Run(ctx) }()
	stop := func() { cancel(); <-done }
	t.Cleanup(stop)
	return k, log, stop
}

// A configuration is restored as it was stored: each resource with all its fields, and with its
// references. (SAFE-10)
func TestKeepRoundTrip(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	k, _, stop := open(t, dir)
	want := some(t, 2*chunk+1)
	want.Peaks = []Peak{{xds.Cluster.URL, 700, want.At}, {xds.Cluster.URL, 600, want.At.Add(time.Second)}}
	k.Keep(some(t, 1))
	k.Keep(want)
	stop()

	got, err := k.Load()
	if err != nil {
		t.Fatal(err)
	}
	if !got.At.Equal(want.At) || len(got.Types) != 2 {
		t.Fatalf("at %v, %d types", got.At, len(got.Types))
	}
	if !slices.Equal(got.Peaks, want.Peaks) {
		t.Errorf("peaks %v, want %v", got.Peaks, want.Peaks)
	}
	for i, w := range want.Types {
		g := got.Types[i]
		if g.Type != w.Type || g.Version != w.Version || len(g.Resources) != len(w.Resources) {
			t.Fatalf("%s %q with %d resources, want %s %q with %d", g.Type, g.Version, len(g.Resources), w.Type, w.Version, len(w.Resources))
		}
		for j, w := range w.Resources {
			g := g.Resources[j]
			if g.Name != w.Name || g.Sum != w.Sum || g.Version != w.Version || g.OnDemand != w.OnDemand || g.File != w.File || g.Line != w.Line || g.Col != w.Col || g.Path != w.Path {
				t.Errorf("got %+v, want %+v", g, w)
			}
		}
	}
	for path, mode := range map[string]fs.FileMode{dir: 0o700 | fs.ModeDir, filepath.Join(dir, name): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

// A file name may have any bytes. That does not prevent storing. (SAFE-10)
func TestKeepFileNameNotUTF8(t *testing.T) {
	k, _, stop := open(t, t.TempDir())
	want := some(t, 1)
	want.Types[0].Resources[0].File = "caf\xe9.yaml"
	k.Keep(want)
	stop()
	got, err := k.Load()
	if err != nil {
		t.Fatal(err)
	}
	if file := got.Types[0].Resources[0].File; file != "caf\uFFFD.yaml" {
		t.Errorf("the resource was in %q", file)
	}
}

// Of several configurations Run writes the newest, and writing takes at most half of the time.
func TestRunWritesNewest(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		k, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		for n := range 4 { // before it runs
			k.Keep(some(t, n))
		}
		done := make(chan struct{})
		go func() { defer close(done); k.Run(ctx) }()
		written := map[int]bool{}
		for n := 3; n < 23; n++ { // a configuration every 10 ms
			k.Keep(some(t, n))
			synctest.Wait()
			if c, err := k.Load(); err == nil {
				written[len(c.Types[0].Resources)] = true
			}
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
		<-done
		if !written[3] || len(written) > 3 {
			t.Errorf("in 0.2 s these were written: %v", written)
		}
		if c, err := k.Load(); err != nil || len(c.Types[0].Resources) != 22 {
			t.Error("the last is not stored:", len(c.Types[0].Resources), err)
		}
	})
}

// The last configuration is written when the program ends, whether Run sees the configuration or the
// end first. The order is random, so the test repeats it.
func TestRunWritesBeforeItReturns(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		k, err := Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		k.Keep(some(t, 1))
		k.Run(ended)
		if _, err := k.Load(); err != nil {
			t.Fatal("the last configuration is not stored:", err)
		}
	}
}

// "Bad input of every kind: clear error, nothing lost."
func TestDamagedFile(t *testing.T) {
	dir := t.TempDir()
	k, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer k.lock.Unlock()
	if _, err := k.Load(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing was stored: %v", err)
	}
	if err := k.Save(some(t, 3)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range good {
		for _, bad := range [][]byte{good[:i], append(append(bytes.Clone(good[:i]), good[i]^1), good[i+1:]...)} {
			if _, err := parse(bad); err == nil {
				t.Fatalf("a file damaged at byte %d of %d is accepted", i, len(good))
			}
		}
	}
	other := func(what string) {
		t.Helper()
		if _, err := k.Load(); err == nil || !strings.Contains(err.Error(), "Chancery did not write this file") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := os.Truncate(path, MaxBytes+1); err != nil {
		t.Fatal(err)
	}
	other("too large")
	if err := errors.Join(os.Remove(path), os.WriteFile(path+"2", good, 0o600), os.Symlink(path+"2", path)); err != nil {
		t.Fatal(err)
	}
	other("a link")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "resources: []\n", formatMark} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := k.Load(); err == nil || !strings.Contains(err.Error(), path+": the file ") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// With WithoutSecrets, no secret is on disk, wherever it is, and the types with secrets do not look
// removed.
func TestWithoutSecretsLeavesOutTypes(t *testing.T) {
	k, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer k.lock.Unlock()
	k.WithoutSecrets = true
	all := some(t, 1)
	all.Types = append(all.Types, Type{Type: xds.Secret.Legacy(), Resources: all.Types[1].Resources})
	all.Gone = slices.Clone(all.Types)
	plain, key := Resource{Resource: xds.NewResource(xds.Secret, "plain", nil)}, Resource{Resource: xds.NewResource(xds.Secret, "key", nil), Secret: true}
	all.Types = append(all.Types, Type{Type: xds.ExtensionConfig, Resources: []Resource{plain, key}})
	all.Gone = append(all.Gone, Type{Type: xds.ExtensionConfig, Resources: []Resource{plain}}, Type{Type: xds.Route, Resources: []Resource{key, plain}})
	if err := k.Save(all); err != nil {
		t.Fatal(err)
	}
	c, err := k.Load()
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range c.Types {
		if want := i > 0; s.URL != all.Types[i].URL || (len(s.Resources) == 0) != want || s.Withheld != want {
			t.Errorf("got %+v", s)
		}
	}
	if len(c.Gone) != 2 || !c.Gone[0].Is(xds.Cluster) || len(c.Gone[0].Resources) != 1 || !c.Gone[1].Is(xds.Route) || len(c.Gone[1].Resources) != 1 || c.Gone[1].Resources[0].Name != "plain" {
		t.Errorf("gone: %+v", c.Gone)
	}
	// Otherwise a subscription to all listeners would lose one.
	all.Types = append(all.Types, Type{Type: xds.Listener, Resources: []Resource{plain, key}})
	for range 2 {
		if err := k.Save(all); fmt.Sprint(err) != `LDS "key" contains a secret, and cannot be left out as a Secret (SDS) can` {
			t.Error(err)
		}
		if _, err := k.Load(); !errors.Is(err, fs.ErrNotExist) {
			t.Error("an older configuration stays:", err)
		}
	}
	if k.save(all, new(string)); k.Faults() != nil {
		t.Errorf("SAFE-15 not a fault of the disk: %v", k.Faults())
	}
}

// Files of older versions can be read.
func TestOldFormat(t *testing.T) {
	var file bytes.Buffer
	if _, err := some(t, 2).write(&file); err != nil {
		t.Fatal(err)
	}
	old := bytes.Replace(file.Bytes(), []byte(formatMark), []byte(formatNoGroups), 1)
	old = old[:len(old)-sha256.Size]
	sum := sha256.Sum256(old)
	if c, err := parse(append(old, sum[:]...)); err != nil || len(c.Types) != 2 || len(c.Types[0].Resources) != 2 {
		t.Error(c, err)
	}
}

// "Two processes do not spoil each other's": the second writes when the first has ended.
func TestSecondKeeperTakesOver(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		first, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		second, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); second.Run(ctx) }()
		second.Keep(some(t, 2))
		time.Sleep(time.Minute)
		if _, err := second.Load(); !errors.Is(err, fs.ErrNotExist) {
			t.Error("both write:", err)
		}
		first.lock.Unlock()
		time.Sleep(2 * retry)
		if c, err := second.Load(); err != nil || len(c.Types[0].Resources) != 2 {
			t.Error("nobody writes:", err)
		}
		cancel()
		<-done
		third, err := Open(dir)
		if err != nil || third.lock == nil {
			t.Fatal("an ended keeper still locks the folder:", err)
		}
		third.lock.Unlock()
	})
}

func TestOnlyOneKeeperWrites(t *testing.T) {
	dir := t.TempDir()
	first, _, stop := open(t, dir)
	second, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-second.Locked():
		t.Error("both have the lock")
	case <-first.Locked():
	}
	if !first.Storing() || second.Storing() {
		t.Errorf("the first keeps: %v, the second: %v", first.Storing(), second.Storing())
	}
	first.Keep(some(t, 1))
	stop()
	if err := second.Lock(); err != nil {
		t.Fatal(err)
	}
	defer second.lock.Unlock()
	if c, err := second.Load(); err != nil || len(c.Types[0].Resources) != 1 {
		t.Errorf("%+v, %v", c, err)
	}
}

// A keeper that stores nothing leaves no folder behind, and does not remove the folder of another.
func TestRelease(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "folder")
	begin := func() *Keeper {
		k, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	there := func(want bool) {
		t.Helper()
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("the folder exists: %v, want %v", err == nil, want)
		}
	}
	first, second := begin(), begin()
	second.Release()
	there(true)
	first.Release()
	there(false)
	third := begin()
	if third.lock == nil {
		t.Fatal("it is locked")
	}
	if err := third.Save(some(t, 1)); err != nil {
		t.Fatal(err)
	}
	third.Release()
	there(true)
	if last := begin(); last.lock == nil {
		t.Error("it stays locked")
	} else {
		last.lock.Unlock()
	}
}

// block moves a folder away, and puts a file in its place, until free is called.
func block(t *testing.T, dir string) (free func()) {
	t.Helper()
	if err := errors.Join(os.Rename(dir, dir+"2"), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := errors.Join(os.Remove(dir), os.Rename(dir+"2", dir)); err != nil {
			t.Fatal(err)
		}
	}
}

// A failed write is logged once, and the previous file stays.
func TestFailedWriteIsLoggedOnce(t *testing.T) {
	dir := t.TempDir()
	k, log, stop := open(t, dir)
	if err := k.Save(some(t, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := (Config{}).write(&limitedWriter{&bytes.Buffer{}, 10}); !errors.Is(err, errLarge) {
		t.Errorf("too large: %v", err)
	}
	free := block(t, dir)
	k.Keep(some(t, 2))
	time.Sleep(300 * time.Millisecond)
	if k.Storing() {
		t.Error("the keeper counts as storing after a failed write")
	}
	k.Keep(some(t, 3))
	stop()
	if n := strings.Count(log.String(), "is not stored"); n != 1 {
		t.Errorf("logged %d times: %s", n, log)
	}
	free()
	said := "an error of before"
	if k.save(some(t, 1), &said); said != "" {
		t.Errorf("the next failure %q is not logged", said)
	}
	if !k.Storing() {
		t.Error("the keeper does not count as storing after a write")
	}
	if c, err := k.Load(); err != nil || len(c.Types[0].Resources) != 1 {
		t.Errorf("%+v, %v", c, err)
	}
}

// A failed write is retried without a change of the configuration: an operator only has to make room.
// (SAFE-10)
func TestFailedWriteIsRetried(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		k, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		k.Log = slog.New(slog.DiscardHandler)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); k.Run(ctx) }()
		kept := func(want int) {
			t.Helper()
			c, err := k.Load()
			if err != nil {
				t.Fatal(err)
			}
			if n := len(c.Types[0].Resources); n != want || !k.Storing() {
				t.Errorf("%d resources, want %d; kept: %v", n, want, k.Storing())
			}
		}
		free := block(t, dir)
		k.Keep(some(t, 2))
		time.Sleep(retry / 2)
		if k.Storing() {
			t.Fatal("the keeper counts as storing after a failed write")
		}
		if all := k.Faults(); len(all) != 1 || !strings.Contains(all[0].Text, "is not stored") {
			t.Errorf("SAFE-15 faults %v", all)
		}
		free()
		time.Sleep(retry)
		kept(2)
		if all := k.Faults(); all != nil {
			t.Errorf("SAFE-15 faults %v after a write", all)
		}

		free = block(t, dir)
		k.Keep(some(t, 3))
		time.Sleep(retry / 2)
		free()
		cancel() // and once more at the end
		<-done
		kept(3)
	})
}

func TestFolder(t *testing.T) {
	a, err := Folder("/state", "/etc/my config")
	if err != nil || !strings.HasPrefix(a, "/state/my_config-") {
		t.Errorf("%s, %v", a, err)
	}
	if b, _ := Folder("/state", "/srv/my config"); a == b {
		t.Error("two directories share a folder")
	}
	if c, _ := Folder("/state", "/etc/x/../my config/"); a != c {
		t.Error("a directory has two folders")
	}
	if long, _ := Folder("/state", "/"+strings.Repeat("x", 250)); len(filepath.Base(long)) > 60 {
		t.Error("no file system has room for", long)
	}
	t.Setenv("STATE_DIRECTORY", "/run/a:/run/b")
	if root, err := Root(); root != "/run/a" || err != nil {
		t.Errorf("%s, %v", root, err)
	}
}
