package admin

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"github.com/spf13/cobra"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/inspect"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run starts a Server and returns the URL of its admin API.
func run(t *testing.T, s *Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { s.Run(ctx); ended <- nil }()
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return "http://" + l.Addr().String()
}

func resource(t *testing.T, typ *xds.Type, m proto.Message) *xds.Resource {
	t.Helper()
	r, err := wire.NewResource(typ, "", m)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func set(t *testing.T, st *store.Store, group string, all ...*xds.Resource) {
	t.Helper()
	if _, err := st.Update(func(tx *store.Tx) error { tx.Group(group).Set(all...); return nil }); err != nil {
		t.Fatal(err)
	}
}

// chancery runs a command of the program chancery and returns its output and exit code.
func chancery(url string, args ...string) (string, int) {
	root := &cobra.Command{Use: "chancery"}
	root.AddCommand(inspect.Status(), inspect.Explain(), inspect.Get(), inspect.Wait(), inspect.Watch(), inspect.Diff(), inspect.Resync(), inspect.Disconnect())
	var out bytes.Buffer
	code := cli.Run(root, append(args, "--admin", url), &out, &out)
	return out.String(), code
}

// The commands work with a program that has only a store with groups and a server.
func TestCommandsWorkWithProgram(t *testing.T) {
	st := store.New(store.WithGroups(func(_ context.Context, n *xds.Node) ([]string, error) { return []string{n.Cluster}, nil }))
	a := New(st, Options{Name: "shop"})
	url := run(t, a)
	says := func(code int, command string, wants ...string) {
		t.Helper()
		out, got := chancery(url, strings.Fields(command)...)
		if got != code {
			t.Errorf("%s: exit code %d, want %d\n%s", command, got, code, out)
		}
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", command, want, out)
			}
		}
	}
	says(0, "status", "SERVER   shop, up", "CONFIG   0 resources, revision 0", "CLIENTS  none connected")
	set(t, st, "edge", resource(t, xds.Cluster, &clusterv3.Cluster{Name: "backend"}))
	set(t, st, "core", resource(t, xds.Cluster, &clusterv3.Cluster{Name: "ledger"}))
	c := xdstest.Delta(t, xdstest.Serve(t, server.New(a, a.ServerOptions()...)), xdstest.WithNode(xds.Node{ID: "edge-1", Cluster: "edge"}))
	c.Subscribe(xds.Cluster, "*")
	r := c.Expect(xds.Cluster, "backend")
	says(124, "wait --timeout 1ms", "not yet: edge-1")
	c.ACK(r)
	says(0, "wait --timeout 10s")
	says(0, "status", "CONFIG   2 resources of 2 groups, revision 2", "1 connected")
	says(0, "status edge-1", "edge-1", "CDS", "edge")
	says(0, "explain edge-1 CDS/backend", "the program has filled its store (revision 2)", `CDS "backend" is of group "edge"`)
	says(1, "explain edge-1 CDS/ledger", `is of group "core"`)
	says(1, "explain edge-1 CDS/backened", "no group of the store has", `did you mean "backend"?`)
	says(0, "get CDS --node edge-1", "backend", "SYNCED")
	says(0, "get groups", "core", "edge")
	says(0, "explain edge-1", "the program has filled its store")
}
