package etcd

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/chancery-xds/chancery/internal/cluster/etcdkv"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/cluster/revisions/etcd"
	"github.com/chancery-xds/chancery/internal/cluster/revsource"
	"github.com/chancery-xds/chancery/internal/endpoints"
	"github.com/chancery-xds/chancery/internal/testkit/logtest"
)

// A restorable is an etcd whose data can be put back to a backup.
type restorable struct {
	t        *testing.T
	endpoint string
	dir      string
	server   *embed.Etcd
}

func startRestorable(t *testing.T) *restorable {
	r := &restorable{t: t, endpoint: free(t), dir: filepath.Join(t.TempDir(), "etcd")}
	r.start()
	t.Cleanup(func() { r.server.Close() })
	return r
}

func (r *restorable) start() {
	r.t.Helper()
	c := embed.NewConfig()
	c.Dir, c.LogLevel, c.Logger, c.LogOutputs = r.dir, "panic", "zap", []string{filepath.Join(r.t.TempDir(), "log")}
	c.ListenClientUrls = []url.URL{{Scheme: "http", Host: r.endpoint}}
	c.AdvertiseClientUrls = c.ListenClientUrls
	c.ListenPeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	c.AdvertisePeerUrls = c.ListenPeerUrls
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	e, err := embed.StartEtcd(c)
	if err != nil {
		r.t.Fatal(err)
	}
	r.server = e
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(30 * time.Second):
		r.t.Fatal("the etcd is not ready")
	}
}

// backup copies the data of the etcd.
func (r *restorable) backup() (dir string) {
	r.t.Helper()
	r.server.Close()
	dir = filepath.Join(r.t.TempDir(), "backup")
	if err := os.CopyFS(dir, os.DirFS(r.dir)); err != nil {
		r.t.Fatal(err)
	}
	r.start()
	return dir
}

// putBack replaces the data of the etcd by a backup.
func (r *restorable) putBack(backup string) {
	r.t.Helper()
	r.server.Close()
	if err := os.RemoveAll(r.dir); err != nil {
		r.t.Fatal(err)
	}
	if err := os.CopyFS(r.dir, os.DirFS(backup)); err != nil {
		r.t.Fatal(err)
	}
	r.start()
}

// SAFE-17: an etcd goes back to a backup while servers run. They store the registrations again that it has lost. New
// registrations and removals count, at all servers.
func TestEndpointsOfAnEtcdThatWentBack(t *testing.T) {
	ctx := background(t)
	r := startRestorable(t)
	all, client := registries(t, 2, r.endpoint)
	c := endpoints.Cluster{Name: "backend"}
	put := func(at *registry, ttl time.Duration, some ...endpoints.Registered) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			_, err := at.Put(ctx, c, some, ttl)
			if err == nil {
				return
			}
			if !errors.Is(err, revisions.ErrUnavailable) || time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
	put(all[0], 0, one(0), one(1))
	backup := r.backup()
	for i := range 28 {
		put(all[i%2], 0, one(2+i))
	}
	put(all[0], time.Hour, one(40))
	agree(t, all, c.Name, 31)
	r.putBack(backup)
	remove := func(id string) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			res, err := all[0].Remove(ctx, c, id)
			if err == nil && res.Removed == 1 {
				return
			}
			if !errors.Is(err, revisions.ErrUnavailable) || time.Now().After(end) {
				t.Fatal(res, err)
			}
		}
	}
	remove("10.0.0.9:80") // the backup does not have it. The server notices by this answer that the etcd went back
	put(all[0], 0, one(50))
	remove("10.0.0.1:80")
	agree(t, all[:1], c.Name, 30)
	agree(t, all, c.Name, 30) // the other server notices it without a request
	put(all[1], 0, one(51))
	agree(t, all, c.Name, 31)
	later, _ := registries(t, 1, r.endpoint)
	agree(t, append(all, later...), c.Name, 31)
	keys, err := client.Get(ctx, "p/endpoints/default/backend/10.0.0.41:80")
	if err != nil || len(keys.Kvs) != 1 {
		t.Fatal(keys, err)
	}
	if lease, err := client.TimeToLive(ctx, clientv3.LeaseID(keys.Kvs[0].Lease)); err != nil || lease.GrantedTTL != 3600 {
		t.Error(lease, err)
	}
	for i, at := range all {
		if said := at.log.String(); strings.Count(said, "stored again") != 1-i || strings.Contains(said, "watch failed, serving the last known endpoints\" error=\"p/endpoints/: the etcd went back") {
			t.Error(i, said)
		}
	}
}

// SAFE-17: the connection notices by the next answer that an etcd went back, logs it once, and starts its watches again.
func TestConnectionNoticesThatTheEtcdWentBack(t *testing.T) {
	ctx := background(t)
	r := startRestorable(t)
	var log logtest.Log
	conn := connect(t, etcdkv.Options{Endpoints: []string{r.endpoint}, Prefix: "p", Log: slog.New(slog.NewTextHandler(&log, nil))})
	e := etcd.New(conn)
	var was []byte
	swap := func(value string) {
		t.Helper()
		if err := e.CompareAndSwap(ctx, "head", was, []byte(value)); err != nil {
			t.Fatal(err)
		}
		was = []byte(value)
	}
	answers := func() (value string) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			b, err := e.Get(ctx, "head")
			if err == nil {
				return string(b)
			}
			if !errors.Is(err, revisions.ErrUnavailable) || time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
	swap("1")
	backup := r.backup()
	answers()
	swap("2")
	swap("3")
	watching, stop := context.WithCancel(ctx)
	bell := e.Watch(watching, "head")
	<-bell
	if conn.TimesBack() != 0 || conn.LastBack() != nil {
		t.Error(conn.LastBack())
	}
	r.putBack(backup)
	if is := answers(); is != "1" {
		t.Error(is)
	}
	<-bell // the watch starts again
	if back := conn.LastBack(); conn.TimesBack() != 1 || back == nil || back.To >= back.From {
		t.Error(conn.TimesBack(), back)
	}
	was = []byte("1")
	swap("2x")
	<-bell
	answers()
	stop()
	for range bell {
	}
	if n := strings.Count(log.String(), "etcd went back to an earlier revision"); n != 1 {
		t.Error(n, log.String())
	}
}

// SAFE-17: refusals stay when the etcd goes back.
func TestRefusalsOfAnEtcdThatWentBack(t *testing.T) {
	ctx := background(t)
	r := startRestorable(t)
	backup := r.backup()
	e := open(t, etcdkv.Options{Endpoints: []string{r.endpoint}, Prefix: "p"})
	all := revsource.NewRefusals(e, nil)
	running, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); all.Run(running) }()
	all.Refused("n", "t")
	stored := func() {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			b, err := e.Get(ctx, "refused")
			if err == nil && strings.Contains(string(b), "refused") {
				return
			}
			if time.Now().After(end) {
				t.Fatal(string(b), err)
			}
		}
	}
	stored()
	r.putBack(backup)
	stored()
	if !all.Has("n", "t") {
		t.Error("forgotten")
	}
	stop()
	<-ended
}
