// Package etcd tests the revision engine for etcd with real servers.
package etcd

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/goleak"

	"github.com/chancery-xds/chancery/internal/cluster/etcdkv"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/cluster/revisions/enginetest"
	"github.com/chancery-xds/chancery/internal/cluster/revisions/etcd"
)

func TestMain(m *testing.M) {
	if config := os.Getenv(memberEnv); config != "" {
		beMember(config)
	}
	flag.Parse()
	code := m.Run()
	// Members of an etcd in this process notice that others have ended when they have read nothing of them for 5 s.
	var left error
	for until := time.Now().Add(10 * time.Second); ; {
		if left = goleak.Find(); left == nil || time.Now().After(until) {
			break
		}
	}
	if code == 0 && left != nil {
		fmt.Fprintln(os.Stderr, left)
		code = 1
	}
	os.Exit(code)
}

// start starts an etcd of one member, which ends with the test.
func start(t testing.TB, configure func(*embed.Config)) (server *embed.Etcd, endpoint string) {
	t.Helper()
	c := embed.NewConfig()
	c.Dir = filepath.Join(t.TempDir(), "etcd")
	c.LogLevel, c.Logger, c.LogOutputs = "panic", "zap", []string{filepath.Join(t.TempDir(), "log")}
	for _, urls := range []*[]url.URL{&c.ListenClientUrls, &c.AdvertiseClientUrls, &c.ListenPeerUrls, &c.AdvertisePeerUrls} {
		*urls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	if configure != nil {
		configure(c)
	}
	e, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(30 * time.Second):
		t.Fatal("the etcd is not ready")
	}
	return e, e.Clients[0].Addr().String()
}

func open(t testing.TB, o etcdkv.Options) *etcd.Engine {
	t.Helper()
	return etcd.New(connect(t, o))
}

func connect(t testing.TB, o etcdkv.Options) *etcdkv.Conn {
	t.Helper()
	c, err := etcdkv.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestEngine(t *testing.T) {
	t.Parallel()
	_, endpoint := start(t, nil)
	enginetest.Test(t, func(t *testing.T) func(*testing.T) revisions.Engine {
		return func(inner *testing.T) revisions.Engine {
			return open(t, etcdkv.Options{Endpoints: []string{endpoint}, Prefix: "test/" + strings.ToLower(t.Name())})
		}
	})
}

func background(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

var floors = flag.Bool("store-floors", false, "also measure what takes long: make floors-store")

func TestFloors(t *testing.T) {
	sizes := []int{10_000}
	if *floors {
		sizes = append(sizes, 100_000)
	}
	for _, n := range sizes {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			_, endpoint := start(t, nil)
			enginetest.Floors(t, n, func(t *testing.T) revisions.Engine {
				return open(t, etcdkv.Options{Endpoints: []string{endpoint}, Prefix: "floors"})
			})
		})
	}
}
