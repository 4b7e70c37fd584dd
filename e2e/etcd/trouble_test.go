package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/chancery-xds/chancery/internal/cluster/etcdkv"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/cluster/revisions/etcd"
	"github.com/chancery-xds/chancery/xds"
)

func item(name string, size int) *revisions.Item {
	body := make([]byte, size)
	for i := range body {
		body[i] = byte(i * 7)
	}
	return &revisions.Item{Group: "default", Resource: xds.NewResource(xds.Cluster, name, body)}
}

func commit(ctx context.Context, e revisions.Engine, items ...*revisions.Item) error {
	repo := revisions.Open(e, revisions.Options{})
	s, err := repo.Head(ctx)
	if err == nil {
		_, err = repo.Commit(ctx, s, revisions.Edit{Set: items}, revisions.Note{})
	}
	return err
}

func wants(t *testing.T, err, want error, say string) {
	t.Helper()
	if !errors.Is(err, want) || !strings.Contains(err.Error(), say) || errors.Is(err, revisions.ErrUnknown) {
		t.Errorf("%v, want %v with %q", err, want, say)
	}
}

func admin(t *testing.T, endpoint string) *clientv3.Client {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestTLS(t *testing.T) {
	t.Parallel()
	ctx := background(t)
	info, err := transport.SelfCert(zap.NewNop(), t.TempDir(), []string{"127.0.0.1:0"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	_, endpoint := start(t, func(c *embed.Config) {
		c.ListenClientUrls[0].Scheme = "https"
		c.ClientTLSInfo = info
	})
	pem, err := os.ReadFile(info.CertFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	o := etcdkv.Options{Endpoints: []string{endpoint}, Prefix: "p", TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	if err := commit(ctx, open(t, o), item("a", 10)); err != nil {
		t.Error(err)
	}
	o.TLS, o.Timeout = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}, time.Second
	wants(t, commit(ctx, open(t, o), item("b", 10)), revisions.ErrUnavailable, "certificate signed by unknown authority")
	o.TLS = nil
	wants(t, commit(ctx, open(t, o), item("b", 10)), revisions.ErrUnavailable, "p/head")
}

func TestPermissions(t *testing.T) {
	t.Parallel()
	ctx := background(t)
	_, endpoint := start(t, nil)
	a := admin(t, endpoint)
	do := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(a.UserAdd(ctx, "root", "root"))
	do(a.UserGrantRole(ctx, "root", "root"))
	for name, kind := range map[string]int32{"writer": int32(clientv3.PermReadWrite), "reader": int32(clientv3.PermRead)} {
		do(a.UserAdd(ctx, name, name))
		do(a.RoleAdd(ctx, name))
		do(a.RoleGrantPermission(ctx, name, "prod/", clientv3.GetPrefixRangeEnd("prod/"), clientv3.PermissionType(kind)))
		do(a.UserGrantRole(ctx, name, name))
	}
	do(a.AuthEnable(ctx))
	as := func(user, prefix string) *etcd.Engine {
		return open(t, etcdkv.Options{Endpoints: []string{endpoint}, Prefix: prefix, Username: user, Password: user})
	}
	if err := commit(ctx, as("writer", "prod"), item("a", 10)); err != nil {
		t.Error(err)
	}
	wants(t, commit(ctx, as("writer", "test"), item("a", 10)), revisions.ErrDenied, "test/head")
	reader := as("reader", "prod")
	if s, err := revisions.Open(reader, revisions.Options{}).Head(ctx); err != nil || s.Len() != 1 {
		t.Error(err)
	}
	wants(t, commit(ctx, reader, item("b", 10)), revisions.ErrDenied, "prod/")
	_, err := revisions.Open(reader, revisions.Options{}).Sweep(ctx, 1)
	wants(t, err, revisions.ErrDenied, "prod/lease/sweep")
	wants(t, commit(ctx, as("", "prod"), item("b", 10)), revisions.ErrDenied, "prod/head")
	stranger := open(t, etcdkv.Options{Endpoints: []string{endpoint}, Prefix: "prod", Username: "reader", Password: "wrong"})
	wants(t, commit(ctx, stranger, item("b", 10)), revisions.ErrDenied, "prod/head")

	// Permissions are revoked and granted during a watch: the watched content stays.
	do(admin2(ctx, t, endpoint).RoleRevokePermission(ctx, "reader", "prod/", clientv3.GetPrefixRangeEnd("prod/")))
	_, err = revisions.Open(reader, revisions.Options{}).Head(ctx)
	wants(t, err, revisions.ErrDenied, "prod/head")
}

func admin2(_ context.Context, t *testing.T, endpoint string) *clientv3.Client {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop(), Username: "root", Password: "root"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// A full etcd refuses writes with a clear error, and reads still work.
func TestQuota(t *testing.T) {
	t.Parallel()
	ctx := background(t)
	_, endpoint := start(t, func(c *embed.Config) { c.QuotaBackendBytes = 4 << 20 })
	e := open(t, etcdkv.Options{Endpoints: []string{endpoint}, Prefix: "p"})
	repo := revisions.Open(e, revisions.Options{})
	last := 0
	for i := 0; ; i++ {
		if i == 100 {
			t.Fatal("it is never full")
		}
		err := commit(ctx, e, item(fmt.Sprint(i), 300_000))
		if err != nil {
			wants(t, err, revisions.ErrFull, "p/")
			break
		}
		last++
	}
	if s, err := repo.Head(ctx); err != nil || s.Len() != last || last == 0 {
		t.Errorf("%v, %d of %d", err, s.Len(), last)
	}
}

func TestTooLarge(t *testing.T) {
	t.Parallel()
	ctx := background(t)
	_, endpoint := start(t, func(c *embed.Config) { c.MaxRequestBytes = 100 << 10 })
	e := open(t, etcdkv.Options{Endpoints: []string{endpoint}, Prefix: "p"})
	wants(t, commit(ctx, e, item("a", 300_000)), revisions.ErrTooLarge, "p/pack/")
	if err := commit(ctx, e, item("a", 50_000)); err != nil {
		t.Error(err)
	}
	wants(t, e.PutIfAbsent(ctx, "x", make([]byte, 3<<20)), revisions.ErrTooLarge, "x")
}

// A watch survives a cut connection and a compaction of the missed revisions.
func TestWatchAfterCompaction(t *testing.T) {
	t.Parallel()
	ctx := background(t)
	_, endpoint := start(t, nil)
	p := newProxy(t, endpoint)
	direct := open(t, etcdkv.Options{Endpoints: []string{endpoint}, Prefix: "p"})
	through := open(t, etcdkv.Options{Endpoints: []string{p.Addr().String()}, Prefix: "p", Timeout: time.Second})
	// Only the watch reports changes, because polls are rare.
	repo := revisions.Open(through, revisions.Options{Poll: time.Hour, Retry: 10 * time.Millisecond})
	told := make(chan revisions.Number)
	troubles := make(chan error, 10)
	watching, stop := context.WithCancel(ctx)
	var over sync.WaitGroup
	over.Go(func() {
		for s, err := range repo.Watch(watching, nil) {
			if err != nil {
				troubles <- err
				continue
			}
			select {
			case told <- s.Revision.Number:
			case <-watching.Done():
			}
		}
	})
	defer over.Wait()
	defer stop()
	hears := func(n revisions.Number) {
		t.Helper()
		select {
		case got := <-told:
			if got != n {
				t.Fatalf("%s, want %s", got, n)
			}
		case <-ctx.Done():
			t.Fatal("heard nothing")
		}
	}
	a := admin(t, endpoint)
	put := func(name string) {
		t.Helper()
		if err := commit(ctx, direct, item(name, 10)); err != nil {
			t.Fatal(err)
		}
	}
	put("a")
	hears(1)
	put("b")
	hears(2)
	p.set(true)
	put("c")
	put("d")
	now, err := a.Get(ctx, "p/head")
	if err == nil {
		_, err = a.Compact(ctx, now.Header.Revision)
	}
	if err != nil {
		t.Fatal(err)
	}
	wants(t, commit(ctx, through, item("x", 10)), revisions.ErrUnavailable, "p/head")
	p.set(false)
	hears(4)
	put("e")
	hears(5)
	for len(troubles) > 0 {
		wants(t, <-troubles, revisions.ErrUnavailable, "p/")
	}
}

// TestHeadToReplicas measures the time of a revision from its commit to the watchers.
func TestHeadToReplicas(t *testing.T) {
	if !*floors {
		t.Skip("make floors-store measures it")
	}
	ctx := background(t)
	_, endpoint := start(t, nil)
	const replicas, commits = 3, 200
	var over sync.WaitGroup
	heard := make([]map[revisions.Number]time.Time, replicas)
	watching, stop := context.WithCancel(ctx)
	for i := range replicas {
		heard[i] = map[revisions.Number]time.Time{}
		repo := revisions.Open(open(t, etcdkv.Options{Endpoints: []string{endpoint}, Prefix: "p"}), revisions.Options{})
		over.Go(func() {
			for s, err := range repo.Watch(watching, nil) {
				if err != nil {
					t.Error(err)
					return
				}
				if heard[i][s.Revision.Number] = time.Now(); s.Revision.Number == commits {
					return
				}
			}
		})
	}
	repo := revisions.Open(open(t, etcdkv.Options{Endpoints: []string{endpoint}, Prefix: "p"}), revisions.Options{})
	s, err := repo.Head(ctx)
	done := map[revisions.Number]time.Time{}
	for i := 0; i < commits && err == nil; i++ {
		if s, err = repo.Commit(ctx, s, revisions.Edit{Set: []*revisions.Item{item(fmt.Sprint("n", i%10), 100+i)}}, revisions.Note{}); err == nil {
			done[s.Revision.Number] = time.Now()
		}
	}
	if err != nil {
		stop()
	}
	over.Wait()
	stop()
	var took []time.Duration
	for _, at := range heard {
		for n, when := range at {
			took = append(took, max(0, when.Sub(done[n]))) // the watcher may get the revision before the writer gets the answer
		}
	}
	slices.Sort(took)
	if err != nil || len(took) < replicas {
		t.Fatal(err, len(took))
	}
	t.Logf("%d commits, %d replicas: heard %d times, p50 %s, p99 %s, at most %s after the commit", commits, replicas, len(took), took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
}
