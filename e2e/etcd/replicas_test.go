package etcd

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/e2e/etcd/history"
	"github.com/chancery-xds/chancery/e2e/harness"
	"github.com/chancery-xds/chancery/internal/cluster/etcdkv"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/xds"
)

var (
	chaosFor    = flag.Duration("store-for", 0, "how long faults come at random; 0: each once")
	chaosSeed   = flag.Uint64("store-seed", 0, "of them; 0: any")
	chaosFleet  = flag.Int("store-clients", 300, "how many clients move")
	chaosCommit = flag.Duration("store-commits", 80*time.Millisecond, "how often somebody commits")
)

func nameOf(a *anypb.Any) (string, error) {
	m, err := a.UnmarshalNew()
	switch m := m.(type) {
	case *cluster.Cluster:
		return m.Name, err
	case *endpoint.ClusterLoadAssignment:
		return m.ClusterName, err
	}
	return "", fmt.Errorf("%s: %w", a.TypeUrl, err)
}

// resource returns a resource whose content has a unique number.
func resource(t *xds.Type, name string, n int) *revisions.Item {
	var m proto.Message
	if t == xds.Cluster {
		m = &cluster.Cluster{Name: name, AltStatName: fmt.Sprint(n)}
	} else {
		m = harness.Assignment(name, 1+n%65535, 1+n/65535)
	}
	body, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return &revisions.Item{Group: "default", Resource: xds.NewResource(t, name, body)}
}

func resourceOf(k revisions.Key) string { return fleetTypes[k.Type] + k.Name }

// A writer commits one random change after the other, and records the acknowledged commits.
type writer struct {
	repo *revisions.Repository
	r    *rand.Rand
	told map[int]history.Commit
	made int

	unknown, unavailable int
}

const clustersOfFleet, endpointsOfFleet = 20, 10

// next returns a change of some endpoints and a cluster, or sometimes a removal of the cluster.
func (w *writer) next(base *revisions.Snapshot) (e revisions.Edit, c history.Commit) {
	c.Set = map[string]string{}
	set := func(t *xds.Type, name string) {
		w.made++
		it := resource(t, name, w.made)
		e.Set = append(e.Set, it)
		c.Set[resourceOf(it.Key())] = it.Resource.Version
	}
	if base.Revision.Number == 0 {
		for i := range clustersOfFleet {
			set(xds.Cluster, fmt.Sprint("c", i))
		}
		for i := range endpointsOfFleet {
			set(xds.Endpoint, fmt.Sprint("e", i))
		}
		return e, c
	}
	for i := range 1 + w.r.IntN(2) {
		set(xds.Endpoint, fmt.Sprint("e", (2*w.r.IntN(endpointsOfFleet/2)+i)%endpointsOfFleet))
	}
	k := resource(xds.Cluster, fmt.Sprint("c", w.r.IntN(clustersOfFleet)), 0).Key()
	if w.r.IntN(8) == 0 && base.Get(k) != nil {
		e.Remove = append(e.Remove, k)
		c.Removed = append(c.Removed, resourceOf(k))
	} else {
		set(xds.Cluster, k.Name)
	}
	return e, c
}

// run commits until ctx is done.
func (w *writer) run(ctx context.Context, every time.Duration) error {
	for tick := time.NewTicker(every); ; {
		if err := w.commit(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// commit makes one change. If the result is unknown, a repetition of the same change finds it out.
func (w *writer) commit(ctx context.Context) error {
	var e revisions.Edit
	var c history.Commit
	for made := false; ctx.Err() == nil; {
		s, err := w.repo.Head(ctx)
		if err == nil {
			if !made {
				e, c = w.next(s)
				made = true
			}
			s, err = w.repo.Commit(ctx, s, e, revisions.Note{})
		}
		switch {
		case err == nil:
			w.told[int(s.Revision.Number)] = c
			return nil
		case ctx.Err() != nil: // the result does not matter any more
		case errors.Is(err, revisions.ErrUnknown):
			w.unknown++
		case errors.Is(err, revisions.ErrUnavailable):
			w.unavailable++
		default:
			return err
		}
		time.Sleep(50 * time.Millisecond) // a real etcd elects a leader meanwhile
	}
	return nil
}

// line returns the changes of each revision, and the content of the last one.
func line(ctx context.Context, repo *revisions.Repository) (all []history.Commit, last map[string]string, err error) {
	head, err := repo.Head(ctx)
	if err != nil {
		return nil, nil, err
	}
	was, last := &revisions.Snapshot{}, map[string]string{}
	for n := revisions.Number(1); n <= head.Revision.Number; n++ {
		is, err := repo.At(ctx, n)
		if err != nil {
			return nil, nil, err
		}
		c := history.Commit{Set: map[string]string{}}
		is.Since(was, func(a, b *revisions.Item) bool {
			if b != nil {
				c.Set[resourceOf(b.Key())] = b.Resource.Version
			} else {
				c.Removed = append(c.Removed, resourceOf(a.Key()))
			}
			return true
		})
		maps.Copy(last, c.Set)
		for _, resource := range c.Removed {
			delete(last, resource)
		}
		all, was = append(all, c), is
	}
	return all, last, nil
}

// A replica is a server of the store, with proxies between it and each member.
type replica struct {
	*program
	address string
	proxies []*proxy
}

func startReplicas(t testing.TB, n int, w *town) (all []*replica) {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "chancery")
	if err := harness.Build("../..", bin); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		r := &replica{address: free(t)}
		var through []string
		for _, e := range w.endpoints {
			p := newProxy(t, e)
			r.proxies, through = append(r.proxies, p), append(through, p.Addr().String())
		}
		state := t.TempDir()
		r.program = &program{name: fmt.Sprint("replica ", i), log: filepath.Join(t.TempDir(), "log"), make: func() *exec.Cmd {
			return exec.Command(bin, "serve", "--store", "etcd://"+strings.Join(through, ",")+"/fleet", "--listen", r.address, "--state-dir", state, "--admin-listen", "")
		}}
		r.start(t)
		t.Cleanup(r.kill)
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("%s: %s\n%s", r.name, r.log, harness.Tail(r.log, 15))
			}
		})
		all = append(all, r)
	}
	return all
}

// A scene has everything that a fault can affect.
type scene struct {
	t        testing.TB
	town     *town
	replicas []*replica
}

// A fault disturbs the scene for a time.
type fault struct {
	name string
	do   func(ctx context.Context, s *scene, r *rand.Rand)
}

var storeFaults = []fault{
	{"kill -9 of a replica", func(ctx context.Context, s *scene, r *rand.Rand) {
		p := s.replicas[r.IntN(len(s.replicas))]
		p.kill()
		pause(ctx, time.Second)
		p.start(s.t)
		pause(ctx, time.Second)
	}},
	{"kill -9 of the leader", func(ctx context.Context, s *scene, r *rand.Rand) {
		i, err := s.town.leader(ctx)
		if err != nil {
			return
		}
		s.town.members[i].kill()
		pause(ctx, 3*time.Second)
		s.town.members[i].start(s.t)
		pause(ctx, time.Second)
	}},
	{"a replica is cut off from the store", func(ctx context.Context, s *scene, r *rand.Rand) {
		s.each(r, func(p *proxy) { p.set(true) }, func() { pause(ctx, 3*time.Second) }, func(p *proxy) { p.set(false) })
		pause(ctx, time.Second)
	}},
	{"nothing passes between a replica and the store", func(ctx context.Context, s *scene, r *rand.Rand) {
		s.each(r, func(p *proxy) { p.hang(true) }, func() { pause(ctx, 3*time.Second) }, func(p *proxy) { p.hang(false) })
		pause(ctx, time.Second)
	}},
	{"a replica starts while it is cut off from the store", func(ctx context.Context, s *scene, r *rand.Rand) {
		i := r.IntN(len(s.replicas))
		s.replicas[i].kill()
		for _, p := range s.replicas[i].proxies {
			p.set(true)
		}
		s.replicas[i].start(s.t)
		pause(ctx, 7*time.Second)
		for _, p := range s.replicas[i].proxies {
			p.set(false)
		}
		pause(ctx, time.Second)
	}},
}

// each does something to all proxies of a replica, waits, and undoes it.
func (s *scene) each(r *rand.Rand, do func(*proxy), wait func(), undo func(*proxy)) {
	proxies := s.replicas[r.IntN(len(s.replicas))].proxies
	for _, p := range proxies {
		do(p)
	}
	wait()
	for _, p := range proxies {
		undo(p)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Three replicas of an etcd of three members serve clients that move between them, while somebody commits and programs
// are killed, or cut off: no commit is lost, no client gets older content than it has, no delta client gets a resource
// that it has, and in the end all have the newest content.
func TestReplicas(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute+2**chaosFor)
	defer cancel()
	seed := *chaosSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	r := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d, %d clients", seed, *chaosFleet)
	began := time.Now()
	w := startTown(t)
	repo := revisions.Open(open(t, etcdkv.Options{Endpoints: w.endpoints, Prefix: "fleet"}), revisions.Options{})
	writes := &writer{repo: repo, r: rand.New(rand.NewPCG(seed, 1)), told: map[int]history.Commit{}}
	if err := writes.commit(ctx); err != nil {
		t.Fatal(err)
	}
	s := &scene{t, w, startReplicas(t, 3, w)}
	var addresses, names []string
	for _, r := range s.replicas {
		addresses = append(addresses, r.address)
	}
	for i := range endpointsOfFleet {
		names = append(names, fmt.Sprint("e", i))
	}
	f := newFleet(t, *chaosFleet, names, 1500*time.Millisecond, addresses...)
	visits, leave := context.WithCancel(ctx)
	defer leave()
	var visiting, writing sync.WaitGroup
	visiting.Go(func() { f.run(visits, seed) })
	defer visiting.Wait()
	defer leave()
	commits, enough := context.WithCancel(ctx)
	defer enough()
	writing.Go(func() {
		if err := writes.run(commits, *chaosCommit); err != nil {
			t.Error(err)
		}
	})
	defer writing.Wait()
	defer enough()
	pause(ctx, 2*time.Second)
	t.Logf("%.1f s: all runs", time.Since(began).Seconds())
	do := func(fault fault) {
		t.Logf("%.1f s: %s", time.Since(began).Seconds(), fault.name)
		fault.do(ctx, s, r)
	}
	if *chaosFor == 0 {
		for _, fault := range storeFaults[:4] {
			do(fault)
		}
	}
	for until := began.Add(*chaosFor); time.Now().Before(until) && ctx.Err() == nil; pause(ctx, time.Duration(r.IntN(2000))*time.Millisecond) {
		do(storeFaults[r.IntN(len(storeFaults))])
	}
	enough()
	writing.Wait()
	close(f.calm)
	heads, last, err := line(ctx, repo)
	if err != nil {
		t.Fatal(err)
	}
	took := harness.Eventually(t, 30*time.Second, "clients that have the newest", func() error { return f.settled(last) })
	leave()
	visiting.Wait()
	seen := 0
	record := history.Record{Heads: heads, Told: writes.told, Clients: f.record()}
	for _, c := range record.Clients {
		seen += len(c.Seen)
	}
	t.Logf("%.1f s: %d revisions, of which %d were known at once (%d tries unknown, %d without a store); %d streams, %d of them turned away, %d broken; %d resources told; %d answers to SotW clients of clusters had no news; the last had the newest %.1f s after the last commit",
		time.Since(began).Seconds(), len(heads), len(writes.told), writes.unknown, writes.unavailable, f.moves.Load(), f.turnedAway.Load(), f.broken.Load(), seen, f.needless.Load(), took.Seconds())
	wrong := history.Check(record)
	counts := map[history.Kind]int{}
	for _, v := range wrong {
		if counts[v.Kind]++; counts[v.Kind] <= 5 && v.Kind != history.Lingers {
			t.Error(v)
		}
	}
	t.Logf("%d times a SotW client got a removed resource for a while", counts[history.Lingers])
	if delete(counts, history.Lingers); len(counts) > 0 {
		t.Error("in all:", counts)
		if dir := os.Getenv("CHANCERY_TEST_KEEP"); dir != "" {
			for i, r := range s.replicas {
				if b, err := os.ReadFile(r.log); err == nil {
					_ = os.WriteFile(filepath.Join(dir, fmt.Sprint("replica-", i, ".log")), b, 0o600)
				}
			}
		}
	}
}
