package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/chancery-xds/chancery/e2e/harness"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/cluster/etcdkv"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/testkit/tlstest"
	"github.com/chancery-xds/chancery/xds"
)

// A shown is a server of the store whose admin API asks for certificates.
type shown struct {
	*program
	xds, admin string
}

// A show is servers of a store, and a command that asks them.
type show struct {
	t       *testing.T
	bin     string
	tls     []string // flags of commands
	servers []*shown
	repo    *revisions.Repository
}

func startShow(t *testing.T, n int, flags ...string) *show {
	t.Helper()
	_, endpoint := start(t, nil)
	return startShowAt(t, endpoint, n, flags...)
}

// startShowAt starts servers of a store in an etcd.
func startShowAt(t *testing.T, endpoint string, n int, flags ...string) *show {
	t.Helper()
	dir := t.TempDir()
	s := &show{t: t, bin: filepath.Join(dir, "chancery")}
	if err := harness.Build("../..", s.bin); err != nil {
		t.Fatal(err)
	}
	ca := tlstest.NewAuthority(t, "ca")
	pair := ca.Issue("server", "127.0.0.1")
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	caFile, cert, key := file("ca.crt", ca.PEM), file("tls.crt", pair.Cert), file("tls.key", pair.Key)
	s.tls = []string{"--admin-ca", caFile, "--admin-cert", cert, "--admin-key", key}
	s.repo = revisions.Open(open(t, etcdkv.Options{Endpoints: []string{endpoint}, Prefix: "show"}), revisions.Options{})
	for i := range n {
		r := &shown{xds: free(t), admin: free(t)}
		r.program = &program{name: fmt.Sprint("server ", i), log: filepath.Join(dir, fmt.Sprint("log", i)), make: func() *exec.Cmd {
			return exec.Command(s.bin, append([]string{"serve", "--store", "etcd://" + endpoint + "/show", "--listen", r.xds, "--state-dir", filepath.Join(dir, fmt.Sprint("state", i)),
				"--admin-listen", r.admin, "--admin-tls-cert", cert, "--admin-tls-key", key, "--admin-client-ca", caFile}, flags...)...)
		}}
		r.start(t)
		t.Cleanup(r.kill)
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("%s:\n%s", r.name, harness.Tail(r.log, 15))
			}
		})
		s.servers = append(s.servers, r)
	}
	return s
}

// commit makes a revision, whose cluster has a number in it.
func (s *show) commit(ctx context.Context, n int) {
	s.t.Helper()
	base, err := s.repo.Head(ctx)
	if err == nil {
		_, err = s.repo.Commit(ctx, base, revisions.Edit{Set: []*revisions.Item{resource(xds.Cluster, "c", n)}}, revisions.Note{})
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// command asks a server.
func (s *show) command(server int, args ...string) (stdout, stderr string, code int) {
	args = append(append(args, "--admin", "https://"+s.servers[server].admin), s.tls...)
	cmd := exec.Command(s.bin, args...)
	var out, said strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		code = -1
		if e, ok := errors.AsType[*exec.ExitError](err); ok {
			code = e.ExitCode()
		}
	}
	return out.String(), said.String(), code
}

// status returns the status of all servers, from one of them.
func (s *show) status(server int) (st api.Status, code int, err error) {
	out, said, code := s.command(server, "status", "-o", "json")
	if err := json.Unmarshal([]byte(out), &st); err != nil {
		return st, code, fmt.Errorf("%w: %s%s", err, out, said)
	}
	return st, code, nil
}

// client starts a client of a server. It accepts all clusters, or answers nothing if deaf is true.
func (s *show) client(ctx context.Context, server int, id string, deaf bool) {
	s.t.Helper()
	c, err := grpc.NewClient(s.servers[server].xds, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(c).DeltaAggregatedResources(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	f := &fleetClient{}
	node := f.node()
	node.Id = id
	if err := stream.Send(&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: xds.Cluster.URL}); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			if !deaf {
				_ = stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce})
			}
		}
	}()
}

// Each of three servers shows the clients of all servers. A killed server is shown at once as not answering.
func TestStatusOfAll(t *testing.T) {
	t.Parallel()
	ctx := background(t)
	s := startShow(t, 3)
	s.commit(ctx, 1)
	for i := range s.servers {
		harness.Eventually(t, 20*time.Second, "a server with three", func() error {
			if st, code, err := s.status(i); err != nil || code != 0 || len(st.Replicas) != 3 || st.Config.Store.Revision != "r1" {
				return fmt.Errorf("%w: exit code %d, %+v", err, code, st.Replicas)
			}
			return nil
		})
	}
	for i := range s.servers {
		s.client(ctx, i, fmt.Sprint("edge-", i), false)
	}
	for i := range s.servers {
		harness.Eventually(t, 10*time.Second, "a status of three clients", func() error {
			if st, code, err := s.status(i); err != nil || code != 0 || st.Clients.By[api.Synced] != 3 {
				return fmt.Errorf("%w: exit code %d, %+v, %+v", err, code, st.Clients, st.Replicas)
			}
			return nil
		})
	}
	out, _, code := s.command(0, "status", "edge-2")
	if code != 0 || !strings.Contains(out, "SERVER   ") {
		t.Errorf("%d: %s", code, out)
	}
	if _, _, code := s.command(0, "status", "edge-2", "--local"); code != 4 {
		t.Errorf("a client of another server: %d", code)
	}
	there, _, code := s.command(0, "explain", "edge-2", "cluster/c")
	if server := regexp.MustCompile(`(?m)^SERVER +(\S+)$`); code != 0 || !strings.Contains(there, "✔ accepted") || server.FindString(there) == "" || server.FindStringSubmatch(there)[1] != server.FindStringSubmatch(out)[1] {
		t.Errorf("%d: %s, and its status %s", code, there, out)
	}
	out, _, _ = s.command(0, "get", "clients")
	if strings.Count(out, "edge-") != 3 || !strings.Contains(out, "SERVER") {
		t.Error(out)
	}

	s.commit(ctx, 2)
	if out, said, code := s.command(1, "wait", "--for=synced", "--revision", "r2", "--timeout", "20s"); code != 0 || !strings.Contains(out, "ok: 3 connected: 3 synced") ||
		!strings.Contains(said, "r2: 3 acked, 0 refused, 0 waiting; served by 3 of 3 servers") {
		t.Errorf("%d: %s%s", code, out, said)
	}
	s.client(ctx, 2, "deaf", true)
	if out, said, code := s.command(0, "wait", "--for=synced", "--timeout", "2s"); code != 124 || !strings.Contains(said, "4 connected: 3 synced, 1 being sent to; not yet: deaf") {
		t.Errorf("%d: %s%s", code, out, said)
	}

	s.servers[2].kill()
	if out, said, code := s.command(0, "wait", "--for=synced", "--timeout", "1s"); code != 124 || !strings.Contains(said, "does not answer") {
		t.Errorf("%d: %s%s", code, out, said)
	}
	st, code, err := s.status(0)
	if err != nil || code != 1 || st.Clients.Connected != 2 || len(st.Replicas) != 3 {
		t.Errorf("%v, exit code %d: %+v", err, code, st)
	}
	if out, _, code := s.command(0, "explain", "edge-2", "cluster/c"); code != 1 || !strings.Contains(out, "it is at none of the 2 servers of the store that answered, and may be at one of the 1 that did not") || !strings.Contains(out, "does not answer, but did ") {
		t.Errorf("%d: %s", code, out)
	}
	silent := 0
	for _, r := range st.Replicas {
		if r.Error != "" {
			silent++
			if r.Seen == nil || r.Clients != nil {
				t.Errorf("%+v", r)
			}
		}
	}
	out, _, _ = s.command(0, "status")
	if silent != 1 || !strings.Contains(out, "; 1 does not answer") {
		t.Errorf("%d do not answer: %s", silent, out)
	}
	t.Log(out)
}
