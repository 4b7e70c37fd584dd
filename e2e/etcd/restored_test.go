package etcd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/chancery-xds/chancery/e2e/harness"
	"github.com/chancery-xds/chancery/internal/cluster/etcdkv"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/xds"
)

// An assignmentClient is a client that knows the endpoints of the cluster "backend".
type assignmentClient struct {
	mu  sync.Mutex
	has string // the last numbers of the addresses, in order; "-": it has no assignment
}

// assignment starts a client of a server.
func (s *show) assignment(ctx context.Context, server int) *assignmentClient {
	s.t.Helper()
	conn, err := grpc.NewClient(s.servers[server].xds, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.t.Fatal(err)
	}
	c := &assignmentClient{has: "-"}
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	running.Go(func() {
		for ctx.Err() == nil {
			_ = c.stream(ctx, conn)
			pause(ctx, 50*time.Millisecond)
		}
	})
	s.t.Cleanup(func() { cancel(); running.Wait(); conn.Close() })
	return c
}

func (c *assignmentClient) stream(ctx context.Context, conn *grpc.ClientConn) error {
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	node := (&fleetClient{}).node()
	node.Id = "watcher"
	_ = stream.Send(&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: xds.Endpoint.URL, ResourceNamesSubscribe: []string{"backend"}})
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		has := "-"
		for _, r := range m.Resources {
			var a endpoint.ClusterLoadAssignment
			if err := r.GetResource().UnmarshalTo(&a); err != nil {
				return err
			}
			var all []string
			for _, l := range a.Endpoints {
				for _, e := range l.LbEndpoints {
					address := e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress()
					all = append(all, address[strings.LastIndex(address, ".")+1:])
				}
			}
			slices.Sort(all)
			has = strings.Join(all, " ")
		}
		c.mu.Lock()
		c.has = has
		c.mu.Unlock()
		_ = stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce})
	}
}

// SAFE-17: the etcd of two programs is put back to a backup. No client loses an endpoint, also none with a lease, and no
// program goes back to an earlier revision. Both programs serve later registrations and removals, know each other
// again, and report what happened.
func TestProgramsOfAnEtcdThatWentBack(t *testing.T) {
	ctx := background(t)
	r := startRestorable(t)
	s := startShowAt(t, r.endpoint, 2, "--endpoints")
	do := func(server int, args ...string) {
		t.Helper()
		harness.Eventually(t, 20*time.Second, strings.Join(args, " "), func() error {
			if out, said, code := s.command(server, args...); code != 0 {
				return fmt.Errorf("exit code %d: %s%s", code, out, said)
			}
			return nil
		})
	}
	put := func(server, n int, flags ...string) {
		t.Helper()
		do(server, append([]string{"endpoints", "put", "backend", fmt.Sprintf("10.0.0.%d:80", n)}, flags...)...)
	}
	clients := []*assignmentClient{s.assignment(ctx, 0), s.assignment(ctx, 1)}
	serve := func(want string) {
		t.Helper()
		for i, c := range clients {
			harness.Eventually(t, 12*time.Second, "the endpoints "+want, func() error {
				c.mu.Lock()
				defer c.mu.Unlock()
				if c.has != want {
					return fmt.Errorf("the client of server %d has %s", i, c.has)
				}
				return nil
			})
		}
	}
	see := func(revision string, back bool) {
		t.Helper()
		for i := range s.servers {
			harness.Eventually(t, 20*time.Second, "two servers at "+revision, func() error {
				st, _, err := s.status(i)
				if err != nil || st.Config.Store == nil || st.Config.Store.Revision != revision || (st.Config.Store.WentBack != nil) != back {
					return fmt.Errorf("server %d: %w: %+v", i, err, st.Config.Store)
				}
				answer := 0 // the killed process may still be listed
				for _, x := range st.Replicas {
					if x.Error == "" && x.Revision == revision {
						answer++
					}
				}
				if answer != 2 {
					return fmt.Errorf("server %d: %+v", i, st.Replicas)
				}
				return nil
			})
		}
	}

	s.commit(ctx, 1)
	put(0, 11)
	see("r1", false)
	backup := r.backup()
	s.servers[1].kill() // its new process is not in the backup
	s.servers[1].start(t)
	harness.Eventually(t, 20*time.Second, "revision 2", func() error {
		base, err := s.repo.Head(ctx)
		if err == nil && base.Revision.Number == 1 {
			_, err = s.repo.Commit(ctx, base, revisions.Edit{Set: []*revisions.Item{resource(xds.Cluster, "c", 2)}}, revisions.Note{})
		}
		return err
	})
	other := open(t, etcdkv.Options{Endpoints: []string{r.endpoint}, Prefix: "show"})
	for i := range 30 { // the revision of the etcd becomes later than the writes after the backup make it
		if err := other.PutIfAbsent(ctx, fmt.Sprint("x/", i), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	put(0, 12)
	put(1, 13, "--ttl", "1h")
	serve("11 12 13")
	see("r2", false)

	r.putBack(backup)
	do(0, "endpoints", "rm", "backend", "10.0.0.11:80")
	put(1, 14)
	serve("12 13 14")
	see("r2", true)
	for i, server := range s.servers {
		if log := string(harness.Tail(server.log, 1000)); !strings.Contains(log, "etcd went back to an earlier revision") {
			t.Errorf("server %d:\n%s", i, log)
		}
	}
}
