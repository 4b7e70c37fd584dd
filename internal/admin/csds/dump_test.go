package csds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/xds"
)

func get(h http.Handler, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	return w
}

// The dump is valid for readers of Envoy's config_dump: generated code decodes every field.
func TestConfigDump(t *testing.T) {
	w := get(service(edge(t, "one")).ConfigDump(), "/config_dump?node=one&include_eds")
	if w.Code != http.StatusOK || strings.Contains(w.Body.String(), "canary") {
		t.Fatal(w.Code, w.Body)
	}
	got := &adminv3.ConfigDump{}
	if err := protojson.Unmarshal(w.Body.Bytes(), got); err != nil {
		t.Fatalf("%v in\n%s", err, w.Body)
	}
	version := func(typ *xds.Type, m proto.Message) string { return resource(t, typ, m).Version }
	const acked, absent, requested = adminv3.ClientResourceStatus_ACKED, adminv3.ClientResourceStatus_DOES_NOT_EXIST, adminv3.ClientResourceStatus_REQUESTED
	clusters := &adminv3.ClustersConfigDump{
		VersionInfo:           "c1",
		DynamicActiveClusters: []*adminv3.ClustersConfigDump_DynamicCluster{{VersionInfo: version(xds.Cluster, cluster), Cluster: packed(t, cluster), ClientStatus: acked}},
		DynamicWarmingClusters: []*adminv3.ClustersConfigDump_DynamicCluster{{
			ClientStatus: adminv3.ClientResourceStatus_NACKED,
			ErrorState: &adminv3.UpdateFailureState{
				FailedConfiguration: packed(t, broken), LastUpdateAttempt: timestamppb.New(began), Details: "no such thing", VersionInfo: version(xds.Cluster, broken)},
		}},
	}
	endpoints := &adminv3.EndpointsConfigDump{DynamicEndpointConfigs: []*adminv3.EndpointsConfigDump_DynamicEndpointConfig{
		{VersionInfo: version(xds.Endpoint, eds), EndpointConfig: packed(t, eds), ClientStatus: acked}}}
	secrets := &adminv3.SecretsConfigDump{
		DynamicActiveSecrets:  []*adminv3.SecretsConfigDump_DynamicSecret{{Name: "cert", VersionInfo: version(xds.Secret, cert), Secret: packed(t, shown), ClientStatus: acked}},
		DynamicWarmingSecrets: []*adminv3.SecretsConfigDump_DynamicSecret{{Name: "none", ClientStatus: absent}},
	}
	filters := &adminv3.EcdsConfigDump{EcdsFilters: []*adminv3.EcdsConfigDump_EcdsFilterConfig{
		{VersionInfo: version(xds.ExtensionConfig, filter), EcdsFilter: packed(t, filter), ClientStatus: acked}}}
	listeners := &adminv3.ListenersConfigDump{VersionInfo: "l1", DynamicListeners: []*adminv3.ListenersConfigDump_DynamicListener{
		{Name: "http", ActiveState: &adminv3.ListenersConfigDump_DynamicListenerState{VersionInfo: version(xds.Listener, listener), Listener: packed(t, listener)}, ClientStatus: acked},
		{Name: "late", WarmingState: &adminv3.ListenersConfigDump_DynamicListenerState{VersionInfo: version(xds.Listener, late), Listener: packed(t, late), LastUpdated: timestamppb.New(began)}, ClientStatus: requested},
		{Name: "old", ActiveState: &adminv3.ListenersConfigDump_DynamicListenerState{VersionInfo: "7"}, ClientStatus: acked},
	}}
	scopes := &adminv3.ScopedRoutesConfigDump{DynamicScopedRouteConfigs: []*adminv3.ScopedRoutesConfigDump_DynamicScopedRouteConfigs{
		{Name: "scope", VersionInfo: version(xds.ScopedRoute, scope), ScopedRouteConfigs: []*anypb.Any{packed(t, scope)}}}}
	routes := &adminv3.RoutesConfigDump{DynamicRouteConfigs: []*adminv3.RoutesConfigDump_DynamicRouteConfig{
		{VersionInfo: version(xds.Route, route), RouteConfig: packed(t, route), ClientStatus: requested}}}
	want := &adminv3.ConfigDump{}
	for _, m := range []proto.Message{clusters, endpoints, secrets, filters, listeners, scopes, routes} {
		want.Configs = append(want.Configs, packed(t, m))
	}
	for i, c := range got.Configs { // the order of JSON fields is undefined
		m, err := c.UnmarshalNew()
		if err != nil {
			t.Fatal(err)
		}
		got.Configs[i] = packed(t, m)
	}
	same(t, got, want)
}

// A resource without a JSON form is shown without its body; an unknown resource is left out.
func TestDumpWithoutJSONForm(t *testing.T) {
	own := &xds.Type{URL: "type.googleapis.com/acme.Own", Short: "Own"}
	bad := xds.NewResource(xds.Cluster, "bad", []byte("\x0a\xff"))
	c := edge(t, "one")
	c.Config = func(context.Context) ([]TypeConfig, error) {
		return []TypeConfig{
			{own, "\xff", []Resource{{Name: "x", State: Synced, Body: xds.NewResource(own, "x", []byte("canary"))}}},
			{xds.Cluster, "\xff\"", []Resource{{Name: "bad\xff", State: Synced, Body: bad}}},
		}, nil
	}
	w := get(service(c).ConfigDump(), "/config_dump")
	got := &adminv3.ConfigDump{}
	if err := protojson.Unmarshal(w.Body.Bytes(), got); err != nil || strings.Contains(w.Body.String(), "canary") {
		t.Fatalf("%v in\n%s", err, w.Body)
	}
	if len(got.Configs) != 1 || !strings.Contains(w.Body.String(), "TypedStruct") {
		t.Error(w.Body)
	}
}

func TestDumpSelectsNode(t *testing.T) {
	old, young := edge(t, "same"), edge(t, "same")
	young.Since = began
	young.Config = func(context.Context) ([]TypeConfig, error) { return nil, nil }
	gone := edge(t, "gone")
	gone.Config = func(context.Context) ([]TypeConfig, error) { return nil, errors.New("the stream has ended") }
	strange := "a/b c?&\"é\x01"
	h := service(young, old, gone, edge(t, strange)).ConfigDump()
	for target, tt := range map[string]struct {
		code        int
		field, text string
	}{
		"/config_dump":                                              {400, "node", "required, because 3 nodes are connected"},
		"/config_dump?node=nobody":                                  {404, "node", `no node "nobody" is connected`},
		"/config_dump?node=a&node=b":                                {400, "node", "more than once"},
		"/config_dump?node=same&mask=x":                             {400, "mask", "unknown parameter"},
		"/config_dump?node=" + strings.Repeat("x", 1000):            {404, "node", "…"},
		"/config_dump?node=gone":                                    {503, "", "the stream has ended"},
		"/config_dump?node=same":                                    {200, "", ""},
		"/config_dump?node=a%2Fb%20c%3F%26%22%C3%A9%01":             {200, "", ""},
		"/config_dump?node=%zz":                                     {400, "node", "required, because"},
		"/config_dump?" + strings.Repeat("y", 1000) + "=1&node=one": {400, strings.Repeat("y", 256) + "…", "unknown parameter"},
	} {
		w := get(h, target)
		var e api.Error
		if w.Code != 200 {
			if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil {
				t.Error(err)
			}
		} else if err := protojson.Unmarshal(w.Body.Bytes(), &adminv3.ConfigDump{}); err != nil {
			t.Error(target, err)
		}
		if w.Code != tt.code || e.Field != tt.field || !strings.Contains(e.Message, tt.text) {
			t.Errorf("%.60s: %d %+v", target, w.Code, e)
		}
	}
	if w := get(h, "/config_dump?node=same"); strings.Contains(w.Body.String(), "backend") {
		t.Error("want the newest of two clients with this node ID:", w.Body)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/config_dump", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Error(w.Code)
	}
}

// A failing writer imitates a disconnected caller.
type failing struct {
	http.ResponseWriter
	after int
	tried int
}

func (f *failing) Write(b []byte) (int, error) {
	if f.tried++; f.tried > f.after {
		return 0, errors.New("gone")
	}
	return len(b), nil
}

func TestDumpStopsOnDisconnect(t *testing.T) {
	h := service(fleet(t, 1)...).ConfigDump()
	for after := range 20 {
		w := &failing{ResponseWriter: httptest.NewRecorder(), after: after}
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/config_dump?node=edge-0", nil))
		if w.tried != after+1 {
			t.Errorf("written %d times after %d", w.tried, after)
		}
	}
}

// large has n clusters.
func large(t testing.TB, n int) Client {
	all := make([]Resource, n)
	for i := range all {
		c := proto.CloneOf(cluster)
		c.Name, c.AltStatName = fmt.Sprint("cluster-", i), strings.Repeat("x", 300)
		r := resource(t, xds.Cluster, c)
		all[i] = Resource{Name: r.Name, State: Synced, Has: true, Body: r}
	}
	return Client{Node: &xds.Node{ID: "large"}, Config: func(context.Context) ([]TypeConfig, error) { return []TypeConfig{{xds.Cluster, "v", all}}, nil }}
}

// The cost of a dump is proportional to its size, and the dump is never in memory as a whole.
func TestLargeDump(t *testing.T) {
	h := service(large(t, 10_000)).ConfigDump()
	w := &counting{header: http.Header{}}
	begin := time.Now()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/config_dump", nil))
	t.Logf("%.1f MB in %d writes, the largest %d bytes, %v", float64(w.n)/1e6, w.writes, w.most, time.Since(begin))
	if w.n < 3_000_000 || w.most > 4096 || time.Since(begin) > 10*time.Second {
		t.Error(w.n, w.most)
	}
}

type counting struct {
	header          http.Header
	n, most, writes int
}

func (c *counting) Header() http.Header { return c.header }
func (c *counting) WriteHeader(int)     {}
func (c *counting) Write(b []byte) (int, error) {
	c.n, c.most, c.writes = c.n+len(b), max(c.most, len(b)), c.writes+1
	return len(b), nil
}
