package e2e

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// The servers of a store roll out a revision: the deciding server ends, and another one continues. The next revision
// has a cluster that Envoy refuses and no check finds. The canary refuses it and gets its earlier cluster again, and no
// other client gets the refused cluster.
func TestRollout(t *testing.T) {
	t.Parallel()
	each(t, "SOTW-14 DELTA-1 a bad cluster reaches the canary alone; Envoy by", func(t *testing.T, v variant) {
		store, ends := "file:"+filepath.Join(t.TempDir(), "store"), (*daemon).kill
		if v == delta { // in an etcd the lease of who is killed ends after 15 s, and at once if it is told to end
			store, ends = newEtcd(t).store(), func(d *daemon) { d.stop(); d.cmd = nil }
		}
		config := t.TempDir()
		commit := func(files map[string]string) {
			t.Helper()
			for name, text := range files {
				(team{&daemon{t: t, dir: config}, "."}).has(name+".yaml", []byte("resources:"+text+"\n"))
			}
			chancery(t, "apply", config, "--store", store, "--validate", "-m", "files")
		}
		server := func() *daemon {
			d := &daemon{t: t, dir: "--store=" + store, port: freePort(t), log: filepath.Join(t.TempDir(), "chancery.log"), args: []string{"--admin-listen", "unix://" + filepath.Join(t.TempDir(), "admin.sock"), "--store-write", "--state-dir", t.TempDir(), "--drain", "200ms"}}
			d.start()
			t.Cleanup(d.stop)
			return d
		}
		commit(map[string]string{"one": goodCluster("one")})
		chancery(t, "freeze", "default", "--store", store, "-m", "goes by rollouts")
		commit(map[string]string{"two": goodCluster("two")})
		first := server()
		chancery(t, "rollout", "start", "r2", "--label", "canary=true", "--bake", "4s", "--min-acked", "100%", "--store", store, "-m", "good")
		chancery(t, "rollout", "pause", "--store", store, "-m", "until all are there")
		eventually(t, soon, "it decides", func() error {
			if len(first.logged("this server drives rollouts")) == 0 {
				return errors.New("it does not")
			}
			return nil
		})
		second, third := server(), server()
		canary := startEnvoy(t, "canary", v, second.port, func(b bootstrap) {
			b["node"].(map[string]any)["metadata"] = map[string]any{"canary": true}
		})
		other := startEnvoy(t, "other", v, third.port)
		told := watchers(t, first, second, third)
		eventually(t, soon, "the canary has the new revision", canary.hasClusters("one", "two"))
		eventually(t, soon, "the other has the old one", other.hasClusters("one"))
		if got := told.all(); strings.Contains(got, "two") || !strings.Contains(got, "one") {
			t.Error("clients that are not picked were told", got)
		}
		ends(first)
		chancery(t, "rollout", "resume", "--admin", third.args[1]) // any server does it
		eventually(t, soon, "another server goes on", other.hasClusters("one", "two"))
		eventually(t, soon, "it is done", rolledOut(t, "--admin", second.args[1], "done"))

		commit(map[string]string{"bad": "\n- " + yamlCluster + "\n  name: bad\n  cluster_type: {name: no.such.cluster}\n"})
		// The canary refuses it while start still waits for it, or a moment later.
		out, err := exec.Command(binary, "rollout", "start", "r3", "--label", "canary=true", "--steps", "50%", "--bake", "1m", "--admin", second.args[1], "-m", "bad").CombinedOutput()
		if err != nil && !strings.Contains(string(out), "was rolled back at once: node canary refuses CDS bad") {
			t.Fatalf("start: %v\n%s", err, out)
		}
		eventually(t, soon, "the canary refuses it, and it is taken back", rolledOut(t, "--store", store, "rolled back: node canary refuses CDS bad"))
		if n, err := canary.stat("cluster_manager.cds.update_rejected"); err != nil || n == 0 {
			t.Error("the canary has refused nothing:", n, err)
		}
		eventually(t, soon, "the canary keeps its clusters", canary.hasClusters("one", "two"))
		eventually(t, soon, "nothing is refused any more", func() error {
			out, err := exec.Command(binary, "status", "--admin", second.args[1]).CombinedOutput()
			if !strings.Contains(string(out), "4 connected: 4 synced") || !regexp.MustCompile(`rollout r3-\w+ of default to r3 was rolled back \S+ ago: node canary refuses CDS bad`).Match(out) { // it may be an error that the others cannot be asked
				return fmt.Errorf("%w: %s", errors.Join(err, errors.New("status")), out)
			}
			return nil
		})
		if out, _ := exec.Command(binary, "explain", "other", "cluster/bad", "--admin", second.args[1]).CombinedOutput(); !regexp.MustCompile(`rollout r3-\w+ to r3 was rolled back \S+ ago: node canary refuses CDS bad`).Match(out) || strings.Contains(string(out), "unfreeze") {
			t.Errorf("explain does not name the rollback, or advises to undo it:\n%s", out)
		}
		for name, want := range map[string]int{"cluster_manager.cds.update_rejected": 0, "cluster_manager.cluster_added": 3} {
			if err := other.is(name, want)(); err != nil { // its own, and two
				t.Error("the other Envoy:", err)
			}
		}
		if err := other.dumps("dynamic_active_clusters", "bad")(); err == nil {
			t.Error("the other Envoy has the bad cluster")
		}
		if got := told.all(); strings.Contains(got, "bad") || !strings.Contains(got, "two") {
			t.Error("other clients were told", got)
		}
	})
}

// chancery runs a command.
func chancery(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(binary, args...).CombinedOutput(); err != nil {
		t.Fatalf("chancery %v: %v\n%s", args, err, out)
	}
}

// rolledOut is a condition: the newest rollout is so far, and why.
func rolledOut(t *testing.T, flag, url, phase string) func() error {
	t.Helper()
	return func() error {
		out, err := exec.Command(binary, "rollout", "status", flag, url, "--no-headers").CombinedOutput()
		line, _, _ := strings.Cut(string(out), "\n")
		is, why, _ := strings.Cut(phase, ": ")
		if err != nil || !strings.Contains(line, " "+is+" ") || !strings.Contains(line, why) {
			return fmt.Errorf("%w: %s", errors.Join(err, errors.New("status")), out)
		}
		return nil
	}
}

// Watching clients take all clusters of some servers, and note what they were told.
type watching struct {
	mu    sync.Mutex
	names []string
}

func (w *watching) all() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.names, " ")
}

// watchers starts three clients at each server. They reconnect when the server ends.
func watchers(t *testing.T, servers ...*daemon) *watching {
	t.Helper()
	w := &watching{}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	for i, d := range servers {
		for n := range 3 {
			running.Go(func() {
				for ctx.Err() == nil {
					w.watch(ctx, fmt.Sprintf("client-%d-%d", i, n), d.addr())
					select {
					case <-time.After(100 * time.Millisecond):
					case <-ctx.Done():
					}
				}
			})
		}
	}
	return w
}

// watch is one stream: it accepts all.
func (w *watching) watch(ctx context.Context, id, addr string) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return
	}
	defer conn.Close()
	stream, err := clusterservice.NewClusterDiscoveryServiceClient(conn).DeltaClusters(ctx)
	if err != nil || stream.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: id}}) != nil {
		return
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			return
		}
		w.mu.Lock()
		for _, x := range r.GetResources() {
			w.names = append(w.names, x.GetName())
		}
		w.mu.Unlock()
		if stream.Send(&discovery.DeltaDiscoveryRequest{ResponseNonce: r.GetNonce()}) != nil {
			return
		}
	}
}
