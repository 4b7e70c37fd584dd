package real

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/credentials/insecure"

	"github.com/chancery-xds/chancery/client"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/xds"
)

// A mesh is a Chancery server with a client of one of its clusters.
type mesh struct {
	*testing.T
	url     string // of its admin API
	admin   *adminclient.Client
	cluster string

	mu  sync.Mutex
	has string
}

// startMesh starts a server, and a client that watches the endpoints of a cluster.
func startMesh(t *testing.T, cluster string) *mesh {
	t.Helper()
	dir, listen := t.TempDir(), free(t)
	config := filepath.Join(dir, "config")
	file := fmt.Sprintf(`{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": %q, "type": "EDS", "eds_cluster_config": {"eds_config": {"ads": {}, "resource_api_version": "V3"}}}`, cluster)
	if err := os.Mkdir(config, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(config, "cluster.json"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	m := &mesh{T: t, url: "unix://" + filepath.Join(dir, "admin.sock"), cluster: cluster}
	launch(t, "chancery", "serve", config, "--endpoints", "--state-dir", filepath.Join(dir, "state"), "--listen", listen, "--admin-listen", m.url)
	var err error
	if m.admin, err = adminclient.Dial(adminclient.Target{URL: m.url}); err != nil {
		t.Fatal(err)
	}
	transport, err := client.GRPC(listen, client.GRPCOptions{Credentials: insecure.NewCredentials(), Delta: true})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{Node: &xds.Node{ID: "edge"}, Servers: []client.Server{{Transport: transport}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { m.watch(ctx, c) })
	t.Cleanup(func() { cancel(); watching.Wait(); c.Close() })
	return m
}

var address = regexp.MustCompile(`10\.\d+\.\d+\.\d+`)

// watch records which addresses of 10.0.0.0/8 the client has.
func (m *mesh) watch(ctx context.Context, c *client.Client) {
	for ev, err := range c.Watch(ctx, xds.Endpoint, m.cluster) {
		if err != nil {
			return // the stream has ended
		}
		if ev.Resource != nil {
			found := address.FindAllString(string(ev.Resource.Body), -1)
			slices.Sort(found)
			m.mu.Lock()
			m.has = strings.Join(found, " ")
			m.mu.Unlock()
		}
	}
}

// gets waits until the client has addresses, in order.
func (m *mesh) gets(want ...string) {
	m.Helper()
	took := eventually(m.T, func() error {
		if got := m.now(); got != strings.Join(want, " ") {
			return fmt.Errorf("the client has %s, want %s", got, want)
		}
		return nil
	})
	m.Logf("the client has %d endpoints after %v", len(want), took)
}

func (m *mesh) now() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.has
}

// health returns the health of an endpoint.
func (m *mesh) health(id string) string {
	m.Helper()
	l, err := m.admin.Endpoints(m.Context(), "", m.cluster)
	if err != nil {
		m.Fatal(err)
	}
	for _, e := range l.Items[0].Endpoints {
		if e.ID == id {
			return e.Health
		}
	}
	return "none"
}

// follow starts chancery-k8s with a kubeconfig.
func (m *mesh) follow(kubeconfig string, args ...string) *process {
	m.Helper()
	return launch(m.T, "chancery-k8s", append([]string{"--admin", m.url, "--kubeconfig", kubeconfig}, args...)...)
}
