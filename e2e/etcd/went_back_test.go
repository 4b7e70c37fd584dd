package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/chancery-xds/chancery/e2e/harness"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/cluster/etcdkv"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/cluster/revisions/etcd"
	"github.com/chancery-xds/chancery/internal/cluster/revsource"
	"github.com/chancery-xds/chancery/internal/cluster/rollout"
	"github.com/chancery-xds/chancery/internal/endpoints"
	"github.com/chancery-xds/chancery/internal/testkit/logtest"
	"github.com/chancery-xds/chancery/xds"
)

// A restorable is an etcd whose data can be put back to a backup.
type restorable struct {
	t        *testing.T
	endpoint string
	dir      string
	server   *member
}

func startRestorable(t *testing.T) *restorable {
	r := &restorable{t: t, endpoint: free(t), dir: filepath.Join(t.TempDir(), "etcd")}
	r.start()
	t.Cleanup(func() { r.server.end() })
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
	r.server = &member{Etcd: e}
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(30 * time.Second):
		r.t.Fatal("the etcd is not ready")
	}
}

// backup copies the data of the etcd.
func (r *restorable) backup() (dir string) {
	r.t.Helper()
	r.server.end()
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
	r.server.end()
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
	stored := 0
	for i, at := range all {
		said := at.log.String()
		stored += strings.Count(said, "stored again")
		if strings.Contains(said, "watch failed, serving the last known endpoints\" error=\"p/endpoints/: the etcd went back") {
			t.Error(i, said)
		}
	}
	if stored != 1 {
		t.Errorf("%d servers have stored the registrations again", stored)
	}
}

// SAFE-17: an etcd went back, and another server has stored the lost registrations again, with one that this server has
// removed meanwhile. This server removes it again.
func TestRemovalsFromAnEtcdThatWentBack(t *testing.T) {
	t.Parallel()
	ctx := background(t)
	r := startRestorable(t)
	all, client := registries(t, 1, r.endpoint)
	c := endpoints.Cluster{Name: "backend"}
	put := func(some ...endpoints.Registered) {
		t.Helper()
		if _, err := all[0].Put(ctx, c, some, 0); err != nil {
			t.Fatal(err)
		}
	}
	put(one(0), one(1))
	backup := r.backup()
	other := startRestorable(t)
	other.putBack(backup)
	counter := []byte("1") // the key and the value of restoredKey in internal/endpoints/etcd
	if err := etcd.New(connect(t, etcdkv.Options{Endpoints: []string{other.endpoint}, Prefix: "p"})).CompareAndSwap(ctx, "endpoints/.restored", nil, counter); err != nil {
		t.Fatal(err)
	}
	stored := other.backup()
	harness.Eventually(t, 20*time.Second, "the etcd answers", func() error {
		_, err := client.Get(ctx, "p/x")
		return err
	})
	for i := range 20 {
		put(one(2 + i))
	}
	r.server.end()
	if _, err := all[0].Remove(ctx, c, "10.0.0.1:80"); !errors.Is(err, revisions.ErrUnavailable) {
		t.Fatal(err)
	}
	r.putBack(stored)
	agree(t, all, c.Name, 1)
	later, _ := registries(t, 1, r.endpoint)
	agree(t, later, c.Name, 1)
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

// SAFE-17: an etcd goes back to the first step of a rollout that had reached the second, or to before the rollout. The
// servers keep what they serve and say why, and neither they nor a new server go on with the rollout. When the rollout
// has vanished, and when its servers have ended, all servers agree again.
func TestRolloutOfAnEtcdThatWentBack(t *testing.T) {
	for _, vanishes := range []bool{false, true} {
		t.Run(fmt.Sprint("vanishes=", vanishes), func(t *testing.T) {
			r := startRestorable(t)
			w := &rolling{t: t, endpoint: r.endpoint}
			engine := open(t, w.options())
			repo := revisions.Open(engine, revisions.Options{})
			commitHeld(t, repo)
			backup := ""
			if vanishes {
				backup = r.backup()
			}
			s := &rollout.State{Number: 2, Steps: []revisions.Pick{{Percent: 1}, {Percent: 50}, {Percent: 60}}, Bake: time.Second, Began: time.Now()}
			w.until(func() error { return rollout.Start(t.Context(), engine, repo, s, nil) })
			if !vanishes {
				backup = r.backup()
			}
			w.until(func() error {
				_, err := rollout.Change(t.Context(), engine, repo, s.ID, func(s *rollout.State) error {
					if s.Step == 0 {
						s.Go(time.Now(), "test")
						s.Turn(s.Since, rollout.Paused, s.Step, "")
					}
					return nil
				})
				return err
			})
			all := []*rollingServer{w.server("a"), w.server("b")}
			for _, one := range all {
				w.until(func() error { return one.is(1) })
			}
			r.putBack(backup)
			for _, one := range all {
				w.until(func() error { return one.trouble(revisions.ErrBackwards) })
			}
			w.until(func() error { // the servers announce themselves again
				found, _, err := engine.Announced(t.Context(), revisions.ServerPrefix, 9)
				if err == nil && len(found) != 2 {
					err = fmt.Errorf("%w: %d servers", revisions.ErrUnavailable, len(found))
				}
				return err
			})
			w.until(func() error { // a command does not show the record of the backup
				_, err := rollout.Steering{Engine: engine, Repo: revisions.Open(engine, revisions.Options{})}.Rollouts(t.Context(), "")
				if errors.Is(err, revisions.ErrBackwards) {
					return nil
				}
				return fmt.Errorf("%w: %w", revisions.ErrUnavailable, err)
			})
			late := w.server("late")
			time.Sleep(3 * time.Second) // longer than the bake time
			step := 0
			if vanishes {
				step = -1
			}
			w.until(func() error { return late.is(step) })
			if is, err := rollout.Read(t.Context(), engine, s.ID); (is == nil) != vanishes || is != nil && is.Step != 0 {
				t.Error("the rollout goes on", is, err)
			}
			if said := late.log.String(); strings.Contains(said, "rollout waits") == vanishes {
				t.Error(said)
			}
			for _, one := range all {
				if err := errors.Join(one.is(1), one.trouble(revisions.ErrBackwards)); err != nil {
					t.Error(err)
				}
				one.stop()
			}
		})
	}
}

// SAFE-17: status shows that the etcd went back, and the log of the server has it once.
func TestStatusOfAnEtcdThatWentBack(t *testing.T) {
	r := startRestorable(t)
	s := startShowAt(t, r.endpoint, 1)
	w := &rolling{t: t, endpoint: r.endpoint}
	// Each status reads the state of the servers in the etcd.
	until := func(reached func(api.Store) bool) {
		t.Helper()
		w.until(func() error {
			st, code, err := s.status(0)
			if err == nil && (st.Config.Store == nil || !reached(*st.Config.Store)) {
				err = fmt.Errorf("%+v, exit code %d", st.Config.Store, code)
			}
			return err
		})
	}
	s.commit(t.Context(), 1)
	until(func(s api.Store) bool { return s.Revision == "r1" && s.WentBack == nil })
	backup := r.backup()
	other := open(t, w.options())
	for i := range 20 { // more revisions of the etcd than the server makes when it announces itself again
		w.until(func() error { return other.PutIfAbsent(t.Context(), fmt.Sprint("x/", i), []byte("x")) })
	}
	w.until(func() error { // the server sees it, and so a later revision of the etcd
		base, err := s.repo.Head(t.Context())
		if err == nil && base.Revision.Number == 1 {
			_, err = s.repo.Commit(t.Context(), base, revisions.Edit{Set: []*revisions.Item{resource(xds.Cluster, "c", 2)}}, revisions.Note{})
		}
		return err
	})
	until(func(s api.Store) bool { return s.Revision == "r2" && s.WentBack == nil })
	r.putBack(backup)
	until(func(s api.Store) bool { return s.WentBack != nil && s.WentBack.To < s.WentBack.From })
	log, err := os.ReadFile(s.servers[0].log)
	if n := strings.Count(string(log), "etcd went back to an earlier revision"); err != nil || n != 1 {
		t.Errorf("%v, %d lines:\n%s", err, n, log)
	}
}

// SAFE-17: a lease that had ended returns with the backup, and ends again. Meanwhile and afterwards no other endpoint is
// removed, and the servers agree.
func TestEndedLeaseOfAnEtcdThatWentBack(t *testing.T) {
	ctx := background(t)
	r := startRestorable(t)
	all, _ := registries(t, 2, r.endpoint)
	c := endpoints.Cluster{Name: "backend"}
	put := func(n int, ttl time.Duration) {
		t.Helper()
		if _, err := all[0].Put(ctx, c, []endpoints.Registered{one(n)}, ttl); err != nil {
			t.Fatal(err)
		}
	}
	put(0, 0)
	put(1, 5*time.Second)
	backup := r.backup()
	agree(t, all, c.Name, 1)
	put(2, time.Hour)
	agree(t, all, c.Name, 2)
	r.putBack(backup)
	healthy := func() (n int) {
		for _, at := range all {
			for _, e := range at.List("", c.Name)[0].Endpoints {
				if e.Address == one(0).Address || e.Address == one(2).Address {
					n++
				}
			}
		}
		return n
	}
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if n := healthy(); n != 4 {
			t.Fatal(n)
		}
	}
	agree(t, all, c.Name, 2)
}

// SAFE-17: a leader of after the backup loses its lease, so another can lead. It commits nothing onto what it has read.
func TestLeaderOfAnEtcdThatWentBack(t *testing.T) {
	ctx := background(t)
	r := startRestorable(t)
	w := &rolling{t: t, endpoint: r.endpoint}
	leader := open(t, w.options())
	repo := revisions.Open(leader, revisions.Options{})
	commitHeld(t, repo)
	backup := r.backup()
	leases := make(chan context.Context, 1)
	w.until(func() error {
		lease, _, err := leader.Lease(ctx, "commit")
		if err == nil {
			leases <- lease
		}
		return err
	})
	held := <-leases
	change := func(n int) error {
		base, err := repo.Head(ctx)
		if err != nil {
			return err
		}
		_, err = repo.Commit(ctx, base, revisions.Edit{Set: []*revisions.Item{resource(xds.Cluster, "c", n)}}, revisions.Note{})
		return err
	}
	w.until(func() error { return change(3) })
	stale, err := repo.Head(ctx)
	if err != nil {
		t.Fatal(err)
	}
	r.putBack(backup)
	other := open(t, w.options())
	w.until(func() error { _, _, err := other.Lease(ctx, "commit"); return err })
	select {
	case <-held.Done():
	case <-time.After(30 * time.Second):
		t.Error("the leader of before has its lease")
	}
	w.until(func() error {
		if _, err := repo.Commit(ctx, stale, revisions.Edit{Set: []*revisions.Item{resource(xds.Cluster, "c", 4)}}, revisions.Note{}); !errors.Is(err, revisions.ErrBackwards) {
			return fmt.Errorf("a commit onto the revision of before: %w", err)
		}
		return nil
	})
	if now, err := revisions.Open(other, revisions.Options{}).Head(ctx); err != nil || now.Revision.Number != 2 {
		t.Error(now, err)
	}
}

// A rolling has servers that take part in rollouts.
type rolling struct {
	t        *testing.T
	endpoint string
}

func (w *rolling) options() etcdkv.Options {
	return etcdkv.Options{Endpoints: []string{w.endpoint}, Prefix: "p"}
}

// until repeats f until it succeeds.
func (w *rolling) until(f func() error) {
	w.t.Helper()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			w.t.Fatal(err)
		}
	}
}

// commitHeld makes two revisions, and freezes group edge at the first.
func commitHeld(t *testing.T, repo *revisions.Repository) {
	t.Helper()
	for n := range 2 {
		base, err := repo.Head(t.Context())
		if err == nil {
			one := resource(xds.Cluster, "c", n)
			one.Group = "edge"
			_, err = repo.Commit(t.Context(), base, revisions.Edit{Set: []*revisions.Item{one}}, revisions.Note{})
		}
		if err == nil && n == 0 {
			err = repo.SetHolds(t.Context(), func(_ revisions.Number, holds map[string]revisions.Hold) error {
				holds["edge"] = revisions.Hold{Number: 1}
				return nil
			})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A rollingServer follows the store, announces what it has read, and runs rollouts.
type rollingServer struct {
	stop func()
	log  logtest.Log

	mu   sync.Mutex
	last *revisions.Snapshot
	err  error
}

func (w *rolling) server(name string) *rollingServer {
	w.t.Helper()
	s := &rollingServer{}
	engine := open(w.t, w.options())
	repo := revisions.Open(engine, revisions.Options{Retry: 50 * time.Millisecond, Poll: 200 * time.Millisecond})
	runner := rollout.New(engine, repo, name, slog.New(slog.NewTextHandler(&s.log, nil)), func([]string, time.Time) rollout.Look { return rollout.Look{Picked: 1, Acked: 1} })
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	values := make(chan []byte, 1)
	running.Go(func() { runner.Run(ctx) })
	running.Go(func() {
		for ctx.Err() == nil {
			_ = engine.Announce(ctx, revisions.ServerPrefix+name, values)
		}
	})
	running.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			s.mu.Lock()
			last := s.last
			s.mu.Unlock()
			if last != nil {
				select {
				case values <- fmt.Appendf(nil, `{"revision":%q,"turns":%d}`, last.State().Number, last.State().Turns):
				default:
				}
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	running.Go(func() {
		for next, err := range repo.Watch(ctx, nil) {
			s.mu.Lock()
			s.err = err
			if err == nil {
				s.last = next
				runner.Served(next.State(), next.Holds(), time.Now())
			}
			s.mu.Unlock()
		}
	})
	s.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	w.t.Cleanup(s.stop)
	return s
}

// is returns an error unless the server serves this step of a rollout; -1: none.
func (s *rollingServer) is(step int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := -2
	if s.last != nil {
		got = -1
		if next := s.last.Holds()["edge"].Next; next != nil {
			got = next.Step
		}
	}
	if got != step {
		return errors.Join(fmt.Errorf("step %d, want %d", got, step), s.err)
	}
	return nil
}

// trouble returns an error unless the server cannot read the store for a reason.
func (s *rollingServer) trouble(want error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !errors.Is(s.err, want) {
		return errors.Join(fmt.Errorf("want %w", want), s.err)
	}
	return nil
}

// SAFE-17: a server that was cut off while the etcd went back cannot notice it if the etcd has a later revision again. The
// counter of the server that stored the lost registrations makes it read everything.
func TestServerMissesThatTheEtcdWentBack(t *testing.T) {
	ctx := background(t)
	r := startRestorable(t)
	p := newProxy(t, r.endpoint)
	there, _ := registries(t, 1, r.endpoint)
	cut, _ := registries(t, 1, p.Addr().String())
	all := append(there, cut...)
	c := endpoints.Cluster{Name: "backend"}
	put := func(n int) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			_, err := there[0].Put(ctx, c, []endpoints.Registered{one(n)}, 0)
			if err == nil {
				return
			}
			if !errors.Is(err, revisions.ErrUnavailable) || time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
	put(0)
	backup := r.backup()
	for n := range 5 {
		put(1 + n)
	}
	agree(t, all, c.Name, 6)
	p.set(true)
	r.putBack(backup)
	for n := range 30 {
		put(6 + n)
	}
	agree(t, there, c.Name, 36)
	p.set(false)
	agree(t, all, c.Name, 36)
}
