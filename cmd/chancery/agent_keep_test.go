package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/envoy/export"
	"github.com/chancery-xds/chancery/internal/relay"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A saying is a server that says what a test has it say, and can be away.
type saying struct {
	responses chan *xds.Response
	nonce     int

	mu    sync.Mutex
	away  error
	asked map[string]bool // by type and name; false: not any more
}

func newSaying() *saying {
	return &saying{responses: make(chan *xds.Response), asked: map[string]bool{}}
}

func (*saying) Variant() xds.Variant { return xds.Delta }
func (*saying) Aggregated() bool     { return true }
func (*saying) String() string       { return "xds://up" }
func (*saying) Close() error         { return nil }

func (u *saying) Open(ctx context.Context, _ *xds.Type) (client.Stream, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return sayingStream{u, ctx}, u.away
}

// say has the server send resources of one type: those that are there, and nothing else.
func (u *saying) say(typ *xds.Type, of ...*xds.Resource) {
	u.nonce++
	u.responses <- &xds.Response{Type: typ, Nonce: fmt.Sprint(u.nonce), Changes: &xds.Changes{Upserts: of}}
	synctest.Wait()
}

// wants reports whether a name is asked for.
func (u *saying) wants(typ *xds.Type, name string) bool {
	synctest.Wait()
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.asked[typ.Short+" "+name]
}

type sayingStream struct {
	*saying
	ctx context.Context
}

func (s sayingStream) Send(r *xds.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range r.Subscribe {
		s.asked[r.Type.Short+" "+n] = true
	}
	for _, n := range r.Unsubscribe {
		s.asked[r.Type.Short+" "+n] = false
	}
	return nil
}

func (s sayingStream) Recv() (*xds.Response, error) {
	select {
	case r := <-s.responses:
		return r, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

// follows is a source of what the server says.
func (u *saying) follows(t *testing.T) (*client.Client, *relay.Source, *store.Store) {
	t.Helper()
	types := envoy.Envoy()
	c, err := client.New(client.Config{Node: &xds.Node{ID: "n"}, Servers: []client.Server{{Transport: u}}, Check: readable(types)})
	if err != nil {
		t.Fatal(err)
	}
	st := store.New()
	src := relay.New(st, c, relay.Options{Refs: references(types)})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); src.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done; c.Close() })
	return c, src, st
}

func made(t *testing.T, typ *xds.Type, name string, m proto.Message) *xds.Resource {
	t.Helper()
	body, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return xds.NewResource(typ, name, body)
}

func clusterOf(t *testing.T, name string) *xds.Resource {
	return made(t, xds.Cluster, name, &clusterv3.Cluster{Name: name})
}

// routing is a listener that has its routes by name.
func routing(t *testing.T, name, routes string) *xds.Resource {
	t.Helper()
	hcm, err := anypb.New(&hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{
		RouteConfigName: routes,
		ConfigSource:    &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return made(t, xds.Listener, name, &listenerv3.Listener{Name: name, FilterChains: []*listenerv3.FilterChain{{
		Filters: []*listenerv3.Filter{{Name: "http", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: hcm}}},
	}}})
}

func routesTo(t *testing.T, name, cluster string) *xds.Resource {
	return made(t, xds.Route, name, &routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{
		Name: "all", Domains: []string{"*"}, Routes: []*routev3.Route{{
			Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
			Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}}},
		}},
	}}})
}

// FILE-4 SAFE-10: an agent writes nothing before it knows all that there is and what that refers to, gives up what is not
// referred to any more, and tries again what could not be written.
func TestAgentKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newSaying()
		_, src, st := up.follows(t)
		out := filepath.Join(t.TempDir(), "out")
		a := agent{wants: map[xds.Ref]bool{}}
		a.log, a.watch, a.options.Types = slog.New(slog.DiscardHandler), true, envoy.Envoy()
		var err error
		if a.to, err = export.Open(out, export.Options{}); err != nil {
			t.Fatal(err)
		}
		defer a.to.Close()
		w, err := src.Watch(t.Context(), &xds.Node{ID: "n"})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); a.keep(ctx, w, st) }()
		defer func() { cancel(); <-done }()
		synctest.Wait()
		writes := func(want bool, text string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			if got := written(t, out, text); got != want {
				t.Errorf("%q is written: %v", text, got)
			}
		}

		up.say(xds.Cluster, clusterOf(t, "first"))
		writes(false, "first")
		up.say(xds.Listener, routing(t, "in", "r"))
		writes(false, "first")
		if !up.wants(xds.Route, "r") {
			t.Fatal("the routes are not asked for")
		}
		up.say(xds.Route, routesTo(t, "r", "first"))
		writes(true, "prefix: /")
		writes(true, "first")

		time.Sleep(2 * time.Minute)
		up.say(xds.Cluster, clusterOf(t, "second")) // all are asked for still, though a route refers to one
		writes(true, "second")

		up.say(xds.Listener, routing(t, "in", "other"))
		up.say(xds.Route, routesTo(t, "other", "second"))
		time.Sleep(2 * time.Minute)
		if up.wants(xds.Route, "r") || !up.wants(xds.Route, "other") {
			t.Error("what is not referred to any more is asked for")
		}

		away := out + ".away"
		if err := errors.Join(os.Rename(out, away), os.WriteFile(out, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		up.say(xds.Cluster, clusterOf(t, "third"))
		writes(false, "third")
		if err := errors.Join(os.Remove(out), os.Rename(away, out)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(again)
		writes(true, "third")

		for what, harm := range map[string]func() error{
			"OUT":                func() error { return os.RemoveAll(out) },
			"the link":           func() error { return os.Remove(filepath.Join(out, "current")) },
			"what it leads to":   func() error { return os.RemoveAll(filepath.Join(out, ".generations")) },
			"a file":             func() error { return os.Remove(filepath.Join(out, "current", "cds.yaml")) },
			"the text of a file": func() error { return os.Truncate(filepath.Join(out, "current", "cds.yaml"), 3) },
		} {
			synctest.Wait() // the agent is not looking just now
			before := tree(t, filepath.Join(out, "current"))
			if err := harm(); err != nil {
				t.Fatal(what, err)
			}
			time.Sleep(again + time.Second)
			synctest.Wait()
			if now := tree(t, filepath.Join(out, "current")); !maps.Equal(before, now) {
				t.Errorf("%s is away: %v, want %v", what, now, before)
			}
		}
	})
}

// written reports whether a text is in a file of a directory.
func written(t *testing.T, dir, text string) (is bool) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		is = is || strings.Contains(string(b), text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return is
}

// A relay is ready when the upstream has answered, and says until then why it is not.
func TestRelayReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newSaying()
		up.away = errors.New("connection refused")
		r := &relaying{upstream: &xdsServer{text: "xds://up"}}
		r.client, r.source, _ = up.follows(t)
		synctest.Wait()
		if err := r.ready(); err == nil || err.Error() != "the upstream xds://up has not answered yet, and nothing of it is stored: connection refused" {
			t.Error(err)
		}
		if got := r.note(); got != "xds://up, which has not answered yet" {
			t.Error(got)
		}
		up.mu.Lock()
		up.away = nil
		up.mu.Unlock()
		time.Sleep(3 * time.Minute) // it tries again
		up.say(xds.Cluster, clusterOf(t, "a"))
		if err := r.ready(); err != nil {
			t.Error(err)
		}
		if got := r.note(); !strings.HasPrefix(got, "xds://up, connected since ") {
			t.Error(got)
		}
	})
}

// Flags about files are errors, each of them, and so is --pass-refusals where nothing could come of it.
func TestRelayOf(t *testing.T) {
	for _, tt := range []struct {
		url        string
		pass, find bool // --pass-refusals and --quarantine
		want       string
	}{
		{"xds://up?delta", true, true, ""},
		{"xds://up", false, true, ""},
		{"xds://up", true, true, "--pass-refusals needs an upstream that is asked by delta"},
		{"xds://up?delta", true, false, "--pass-refusals needs --quarantine"},
		{"DIR", true, true, "--pass-refusals is of a relay"},
	} {
		if _, err := sourceOfServe(serveCommand(), &serving{dir: tt.url, passRefusals: tt.pass, quarantine: tt.find}); err == nil != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.url, err, tt.want)
		}
	}
	for _, flag := range notOfRelay {
		cmd := serveCommand()
		f := cmd.Flags().Lookup(flag)
		if f == nil {
			t.Errorf("serve has no --%s", flag)
			continue
		}
		if err := cmd.Flags().Set(flag, f.DefValue); err != nil {
			t.Error(err)
		}
		if _, err := relayOf(cmd, "xds://up", &serving{}); err == nil || !strings.Contains(err.Error(), "--"+flag+" is about files") {
			t.Errorf("--%s: %v", flag, err)
		}
	}
}
