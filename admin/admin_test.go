package admin

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"github.com/spf13/cobra"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/inspect"
	"github.com/chancery-xds/chancery/lazy"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/source/dir"
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

// HEAL-1: a program's clients get the other resources of a response in which they refuse one.
func TestQuarantine(t *testing.T) {
	for _, without := range []bool{false, true} {
		st := store.New()
		a := New(st, Options{WithoutQuarantine: without, Log: slog.New(slog.DiscardHandler)})
		url := run(t, a)
		set(t, st, store.DefaultGroup, resource(t, xds.Cluster, &clusterv3.Cluster{Name: "good"}), resource(t, xds.Cluster, &clusterv3.Cluster{Name: "bad"}))
		c := xdstest.Delta(t, xdstest.Serve(t, server.New(a, a.ServerOptions()...)), xdstest.WithNode(xds.Node{ID: "edge-1"}))
		c.Subscribe(xds.Cluster, "*")
		c.NACK(c.Expect(xds.Cluster, "good", "bad"), "cluster 'bad' is bad")
		if without {
			c.ExpectNothing()
			continue
		}
		c.ACK(c.Expect(xds.Cluster, "good"))
		for command, want := range map[string]string{
			"explain edge-1 CDS/bad": "→ correct it; if the cause was outside of the configuration, and is gone: chancery resync edge-1 CDS/bad",
			"explain edge-1":         "→ correct CDS \"bad\"\n",
			"status edge-1":          "in quarantine: bad",
			"get nacks":              "cluster 'bad' is bad",
		} {
			if out, _ := chancery(url, strings.Fields(command)...); !strings.Contains(out, want) {
				t.Errorf("HEAL-1 %s: no %q in\n%s", command, want, out)
			}
		}
	}
}

// SAFE-6: no answer has a secret of the store, although the client's error text quotes it.
func TestSAFE6NoAnswerHasSecret(t *testing.T) {
	const key = "hunter2Quokkas"
	for _, changed := range []bool{false, true} { // whether the program replaces the resource before the client refuses it
		st := store.New()
		a := New(st, Options{Log: slog.New(slog.DiscardHandler)})
		url := run(t, a)
		set(t, st, store.DefaultGroup, keyed(t, "tls", key))
		c := xdstest.Delta(t, xdstest.Serve(t, server.New(a, a.ServerOptions()...)), xdstest.WithNode(xds.Node{ID: "edge-1"}))
		c.Subscribe(xds.Cluster, "*")
		r := c.Expect(xds.Cluster, "tls")
		if changed {
			set(t, st, store.DefaultGroup, resource(t, xds.Cluster, &clusterv3.Cluster{Name: "tls"}))
		}
		c.NACK(r, "cannot use the key "+key+" of cluster tls")
		events := ""
		for !strings.Contains(events, " nack ") {
			events, _ = chancery(url, "get", "events")
		}
		if strings.Contains(events, key) || !strings.Contains(events, "withheld") && !strings.Contains(events, "cannot use the key …") {
			t.Errorf("SAFE-6 changed=%v:\n%s", changed, events)
		}
		for _, path := range []string{"status", "clients?all=1", "clients/edge-1", "clients/edge-1/resources", "clients/edge-1/explain?type=CDS&name=tls", "resources/CDS/tls", "refusals", "/config_dump?node=edge-1"} {
			if !strings.HasPrefix(path, "/") {
				path = "/api/v1/" + path
			}
			body := get(t, url+path)
			if strings.Contains(body, key) || !strings.Contains(body, "tls") && !strings.Contains(body, "CDS") && !strings.Contains(body, "edge-1") {
				t.Errorf("SAFE-6 %s: %s", path, body)
			}
		}
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Paths about a thing that the program does not have name the thing.
func TestMissingParts(t *testing.T) {
	url := run(t, New(store.New(), Options{}))
	for path, want := range map[string]string{
		"log": "the log level of this server", "revisions": "no store of revisions", "rollouts": "no store of revisions", "endpoints": "takes no endpoints",
	} {
		if got := get(t, url+"/api/v1/"+path); !strings.Contains(got, want) {
			t.Errorf("%s: %s", path, got)
		}
	}
	r, err := http.Post(url+"/api/v1/reload", "application/json", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if b, _ := io.ReadAll(r.Body); !strings.Contains(string(b), "no files to load") {
		t.Errorf("reload: %s", b)
	}
}

// A program with a directory shows its places, its rejected loads, and loads it again on request.
func TestFiles(t *testing.T) {
	root := t.TempDir()
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, "c.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: backend\nconnect_timeout: 1s\n")
	st, log := store.New(), slog.New(slog.DiscardHandler)
	src := dir.New(root, st, dir.Options{Log: log})
	if _, err := src.Load(); err != nil {
		t.Fatal(err)
	}
	a := New(st, Options{Files: src, Log: log, Level: new(slog.LevelVar)})
	url := run(t, a)
	set(t, st, store.DefaultGroup, resource(t, xds.Cluster, &clusterv3.Cluster{Name: "own"}))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { src.Run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	c := xdstest.Delta(t, xdstest.Serve(t, server.New(a, a.ServerOptions()...)), xdstest.WithNode(xds.Node{ID: "edge-1"}))
	c.Subscribe(xds.Cluster, "*")
	c.ACK(c.Expect(xds.Cluster, "backend", "own"))
	says := func(command, want string) {
		t.Helper()
		if out, _ := chancery(url, strings.Fields(command)...); !strings.Contains(out, want) {
			t.Errorf("%s: no %q in\n%s", command, want, out)
		}
	}
	says("status", "CONFIG   2 resources, and 1 file, revision 2")
	says("get CDS", "c.yaml:1:1")
	says("explain edge-1 CDS/backend", "the files are loaded")
	says("explain edge-1 CDS/own", `CDS "own" is of group "default"`)
	write("\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: backend\nconnect_timeout: soon\n")
	r, err := http.Post(url+"/api/v1/reload", "application/json", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if b, _ := io.ReadAll(r.Body); !strings.Contains(string(b), "c.yaml:3:18") {
		t.Errorf("reload: %s", b)
	}
	says("status", "was rejected; the previous configuration is served")
	says("explain edge-1 CDS/backend", "c.yaml:3:18")
}

// The selector of the store sees the connection of the stream when it decides for an explanation.
func TestSelectorSeesConnection(t *testing.T) {
	st := store.New(store.WithGroups(func(ctx context.Context, _ *xds.Node) ([]string, error) {
		if _, ok := peer.FromContext(ctx); !ok {
			return nil, errors.New("no connection")
		}
		return []string{"edge"}, nil
	}))
	a := New(st, Options{Place: func(_ *xds.Node, _ *xds.Type, name string) string { return "customers/" + name }})
	url := run(t, a)
	set(t, st, "edge", resource(t, xds.Cluster, &clusterv3.Cluster{Name: "backend"}))
	c := xdstest.SotW(t, xdstest.Serve(t, server.New(a, a.ServerOptions()...)), xdstest.WithNode(xds.Node{ID: "edge-1"}))
	c.Subscribe(xds.Cluster, "*")
	c.ACK(c.Expect(xds.Cluster, "backend"))
	for command, want := range map[string]string{
		"explain edge-1 CDS/backend": "the node gets group edge",
		"explain edge-2 CDS/backend": "the program gives a node with id \"edge-2\" no group; no connection",
		"get CDS":                    "customers/backend",
		"status edge-1":              "GROUPS   edge",
	} {
		if out, _ := chancery(url, strings.Fields(command)...); !strings.Contains(out, want) {
			t.Errorf("%s: no %q in\n%s", command, want, out)
		}
	}
}

// A program may serve a source that wraps its store.
func TestSourceOf(t *testing.T) {
	st := store.New(store.WithEmptyGroups())
	cluster := resource(t, xds.Cluster, &clusterv3.Cluster{Name: "backend"})
	src, err := lazy.New(st, func(context.Context, lazy.Query) (*xds.Resource, error) { return cluster, nil }, []*xds.Type{xds.Cluster})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { src.Run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	a := New(st, Options{Source: SourceOf(src)})
	url := run(t, a)
	c := xdstest.Delta(t, xdstest.Serve(t, server.New(a, a.ServerOptions()...)), xdstest.WithNode(xds.Node{ID: "edge-1"}))
	c.Subscribe(xds.Cluster, "backend")
	c.ACK(c.Expect(xds.Cluster, "backend"))
	if out, code := chancery(url, "wait", "--timeout", "10s"); code != 0 {
		t.Error(out)
	}
	if out, code := chancery(url, "explain", "edge-1", "CDS/backend"); code != 0 || !strings.Contains(out, `defined     CDS "backend" is served`+"\n") {
		t.Error(out)
	}
}

// A gRPC client of CSDS gets the state of the clients at the same address.
func TestCSDS(t *testing.T) {
	st := store.New()
	a := New(st, Options{})
	url := run(t, a)
	set(t, st, store.DefaultGroup, resource(t, xds.Cluster, &clusterv3.Cluster{Name: "backend"}))
	c := xdstest.SotW(t, xdstest.Serve(t, server.New(a, a.ServerOptions()...)), xdstest.WithNode(xds.Node{ID: "edge-1"}))
	c.Subscribe(xds.Cluster, "*")
	c.ACK(c.Expect(xds.Cluster, "backend"))
	conn, err := grpc.NewClient(strings.TrimPrefix(url, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	got, err := statusv3.NewClientStatusDiscoveryServiceClient(conn).FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{})
	if err != nil || len(got.Config) != 1 || got.Config[0].Node.Id != "edge-1" || len(got.Config[0].GenericXdsConfigs) != 1 || got.Config[0].GenericXdsConfigs[0].Name != "backend" {
		t.Errorf("%v, %v", got, err)
	}
}

// A transaction that chooses other groups changes the groups of clients in status.
func TestGroupsChosenAgain(t *testing.T) {
	st := store.New()
	a := New(st, Options{})
	set(t, st, store.DefaultGroup, resource(t, xds.Cluster, &clusterv3.Cluster{Name: "backend"}))
	set(t, st, "edge", resource(t, xds.Cluster, &clusterv3.Cluster{Name: "backend"}))
	c := xdstest.Delta(t, xdstest.Serve(t, server.New(a, a.ServerOptions()...)), xdstest.WithNode(xds.Node{ID: "edge-1"}))
	c.Subscribe(xds.Cluster, "*")
	c.ACK(c.Expect(xds.Cluster, "backend"))
	now := time.Now()
	groups := func(want string) {
		t.Helper()
		now = now.Add(regroupEvery)
		a.look(now)
		if all := a.parts.Tracker.Client("edge-1"); len(all) != 1 || strings.Join(all[0].Groups, " ") != want {
			t.Errorf("%v, want %s", all, want)
		}
	}
	groups("default")
	if _, err := st.Update(func(tx *store.Tx) error {
		tx.Select(func(context.Context, *xds.Node) ([]string, error) { return []string{"edge"}, nil })
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	groups("edge")
}
