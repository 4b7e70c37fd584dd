package etcd

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/chancery-xds/chancery/e2e/harness"
	"github.com/chancery-xds/chancery/internal/cluster/etcdkv"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/cluster/revisions/enginetest"
)

// free returns an unused address: members must know the addresses of each other before they start.
func free(t testing.TB) string {
	t.Helper()
	return fmt.Sprint("127.0.0.1:", harness.FreePort(t))
}

// A member of an etcd, which ends once even if it is stopped several times.
type member struct {
	*embed.Etcd
	once sync.Once
}

func (m *member) end() { m.once.Do(m.Close) }

// startThree starts an etcd of three members that sync to disk, as the default is.
func startThree(t *testing.T) (members []*member, endpoints []string) {
	t.Helper()
	var all []*embed.Config
	var cluster []string
	for i := range 3 {
		c := embed.NewConfig()
		c.Name = fmt.Sprint("m", i)
		c.Dir = filepath.Join(t.TempDir(), c.Name)
		c.LogLevel, c.LogOutputs = "panic", []string{filepath.Join(t.TempDir(), "log")}
		peer := url.URL{Scheme: "http", Host: free(t)}
		client := url.URL{Scheme: "http", Host: free(t)}
		c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
		c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
		cluster = append(cluster, c.Name+"="+peer.String())
		all, endpoints = append(all, c), append(endpoints, client.Host)
	}
	members = make([]*member, 3)
	errs := make([]error, 3)
	var starting sync.WaitGroup
	for i, c := range all {
		c.InitialCluster = strings.Join(cluster, ",")
		starting.Go(func() {
			e, err := embed.StartEtcd(c)
			members[i], errs[i] = &member{Etcd: e}, err
		})
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		t.Cleanup(m.end)
		select {
		case <-m.Server.ReadyNotify():
		case <-time.After(time.Minute):
			t.Fatal("a member is not ready")
		}
	}
	return members, endpoints
}

func TestFloorsOfThree(t *testing.T) {
	if !*floors {
		t.Skip("make floors-store measures it")
	}
	_, endpoints := startThree(t)
	enginetest.Floors(t, 10_000, func(t *testing.T) revisions.Engine {
		return open(t, etcdkv.Options{Endpoints: endpoints, Prefix: "floors"})
	})
}

// The leader of three members ends during commits: no commit is lost or made twice, and commits with a lost
// answer are recognized.
func TestLeaderEnds(t *testing.T) {
	t.Parallel()
	ctx := background(t)
	members, endpoints := startThree(t)
	repo := revisions.Open(open(t, etcdkv.Options{Endpoints: endpoints, Prefix: "p"}), revisions.Options{})
	var done []revisions.Number
	unknown := 0
	for i := range 60 {
		if i == 20 {
			for _, m := range members {
				if m.Server.Leader() == m.Server.MemberID() {
					go m.end()
					break
				}
			}
		}
		for ctx.Err() == nil {
			s, err := repo.Head(ctx)
			if err == nil {
				if s.Len() > len(done)+unknown {
					t.Fatalf("%d items after %d commits", s.Len(), len(done))
				}
				s, err = repo.Commit(ctx, s, revisions.Edit{Set: []*revisions.Item{item(fmt.Sprint(i), 100)}}, revisions.Note{})
			}
			if err == nil {
				done = append(done, s.Revision.Number)
				break
			}
			if errors.Is(err, revisions.ErrUnknown) { // the next try finds out: if the commit was made, the same item changes nothing
				unknown++
			} else if !errors.Is(err, revisions.ErrUnavailable) {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond) // a real etcd elects a leader meanwhile
		}
	}
	s, err := repo.Head(ctx)
	if err != nil || s.Len() != 60 || s.Revision.Number != 60 || len(done) != 60 {
		t.Fatalf("%v: %s with %d items, %d known", err, s.Revision.Number, s.Len(), len(done))
	}
	for i, n := range done {
		if n != revisions.Number(i+1) {
			t.Errorf("commit %d is %s", i+1, n)
		}
	}
	t.Log(unknown, "were unknown for a while")
}
