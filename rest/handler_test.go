package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3" // a type that the tests serve
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

func TestPoll(t *testing.T) {
	within(t, "REST-1 REST-2 an answer, then what is new", func(t *testing.T) {
		w := newWorld(t)
		c := w.client()
		w.set("a")
		r := c.poll("")
		m := r.gets(t, 0, "a")
		if m.VersionInfo == "" || m.Nonce != m.VersionInfo || m.TypeUrl != xds.Cluster.URL || m.ControlPlane.GetIdentifier() != "replica <1>" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%v %v", m, r.Header)
		}
		if !strings.HasPrefix(string(r.body), `{"versionInfo":"`) { // "The JSON canonical transform of proto3"
			t.Errorf("%s", r.body)
		}
		c.poll(m.VersionInfo).unchanged(t, 30*time.Second)
		time.AfterFunc(10*time.Second, func() { w.set("b") })
		m = c.poll(m.VersionInfo).gets(t, 10*time.Second, "a", "b")
		w.delete("a")
		m = c.poll(m.VersionInfo).gets(t, 0, "b")
		time.AfterFunc(10*time.Second, func() { w.delete("b") })
		c.poll(m.VersionInfo).gets(t, 10*time.Second)
		if n := w.lis.count(); n != 1 {
			t.Errorf("the polls took %d connections", n)
		}
	})
	within(t, "REST-2 the client says when it gives up", func(t *testing.T) {
		w := newWorld(t)
		c := w.client()
		version := c.poll("").gets(t, 0).VersionInfo
		for ms, want := range map[string]time.Duration{"5000": 4900 * time.Millisecond, "50": 0, "90000": 30 * time.Second} {
			r, err := c.do(t.Context(), http.MethodPost, xds.Cluster.REST, http.Header{"X-Envoy-Expected-Rq-Timeout-Ms": {ms}}, fmt.Sprintf(`{"version_info":%q}`, version))
			if err != nil {
				t.Fatal(err)
			}
			r.unchanged(t, want)
		}
	})
	within(t, "REST-3 a client that polls on with the old version", func(t *testing.T) {
		w := newWorld(t)
		c := w.client()
		w.set("a")
		old := c.poll("").gets(t, 0, "a").VersionInfo
		time.AfterFunc(10*time.Second, func() { w.set("bad") })
		c.poll(old).gets(t, 10*time.Second, "a", "bad")
		c.poll(old).unchanged(t, 30*time.Second)
		c.poll(old).unchanged(t, 30*time.Second)
		if n := strings.Count(w.log.String(), "client refused a response (NACK)"); n != 1 || !strings.Contains(w.log.String(), "not applied") {
			t.Errorf("%d lines in the log:\n%s", n, w.log)
		}
		time.AfterFunc(10*time.Second, func() { w.delete("bad") })
		c.poll(old).gets(t, 10*time.Second, "a")
	})
	within(t, "REST-3 over HTTP/2 polls are not in turn: an answer may be lost", func(t *testing.T) {
		w := newWorld(t)
		w.set("a")
		h := New(w.Server)
		poll := func(version string) *reply { // a stream of one connection, like any other
			r := httptest.NewRequest(http.MethodPost, xds.Cluster.REST, strings.NewReader(fmt.Sprintf(`{"node":{"id":"n"},"version_info":%q}`, version)))
			r.ProtoMajor, r.RemoteAddr = 2, "10.0.0.1:1001"
			rec, start := httptest.NewRecorder(), time.Now()
			h.ServeHTTP(rec, r)
			return &reply{rec.Result(), rec.Body.Bytes(), time.Since(start)}
		}
		old := poll("").gets(t, 0, "a").VersionInfo
		w.set("b")
		poll(old).gets(t, 0, "a", "b")
		poll(old).unchanged(t, 30*time.Second) // it may have refused that
		poll(old).gets(t, 0, "a", "b")         // or never have got it
	})
	within(t, "REST-3 error_detail", func(t *testing.T) {
		w := newWorld(t)
		c := w.client()
		w.set("bad")
		m := c.poll("").gets(t, 0, "bad")
		c.post(xds.Cluster.REST, fmt.Sprintf(`{"node":{"id":"n"},"responseNonce":%q,"errorDetail":{"code":3,"message":"it is bad"}}`, m.Nonce)).unchanged(t, 30*time.Second)
		if !strings.Contains(w.log.String(), "it is bad") {
			t.Errorf("the log:\n%s", w.log)
		}
	})
	within(t, "REST-7 what is asked for", func(t *testing.T) {
		w := newWorld(t)
		c := w.client()
		w.set("a")
		w.set("b")
		w.set("c")
		m := c.post(xds.Cluster.REST, `{"resource_names":["b","none"]}`).gets(t, 0, "b")
		time.AfterFunc(10*time.Second, func() { w.set("d"); w.delete("a") })
		c.post(xds.Cluster.REST, fmt.Sprintf(`{"resource_names":["none","b"],"version_info":%q}`, m.VersionInfo)).unchanged(t, 30*time.Second)
		c.post(xds.Cluster.REST, fmt.Sprintf(`{"resource_names":["none","b","c"],"version_info":%q}`, m.VersionInfo)).gets(t, 0, "b", "c")
	})
}

// Each type with a path is served at it. A handler without a server knows the paths, too.
func TestPaths(t *testing.T) {
	w := newWorld(t)
	n := 0
	for _, typ := range xds.Types() {
		if typ.REST == "" {
			continue
		}
		n++
		t.Run("REST-1 "+typ.REST, func(t *testing.T) {
			// The body is empty, so any message will do.
			resolver := WithResolver(anyMessage{protoregistry.GlobalTypes})
			w.update(func(tx *store.Tx) { tx.Set(xds.NewResource(typ, "a", nil)) })
			rec := httptest.NewRecorder()
			New(w.Server, resolver).ServeHTTP(rec, httptest.NewRequest(http.MethodPost, typ.REST, strings.NewReader(`{"resource_names":["a"],"type_url":"`+typ.URL+`"}`)))
			var m map[string]any
			if err := json.Unmarshal(rec.Body.Bytes(), &m); err != nil || rec.Code != http.StatusOK {
				t.Fatalf("%v, %d %s", err, rec.Code, rec.Body)
			}
			if m["typeUrl"] != typ.URL || fmt.Sprint(m["resources"]) != fmt.Sprintf("[map[@type:%s]]", typ.URL) {
				t.Errorf("got %v", m)
			}
		})
	}
	if n != 8 {
		t.Errorf("%d types have a path", n)
	}
}

// anyMessage finds a message for every URL.
type anyMessage struct{ Resolver }

func (r anyMessage) FindMessageByURL(string) (protoreflect.MessageType, error) {
	return (&clusterv3.Cluster{}).ProtoReflect().Type(), nil
}

func TestErrors(t *testing.T) {
	big := `{"version_info":"` + strings.Repeat("x", 1000) + `"}`
	for _, tt := range []struct {
		name, method, path, body string
		header                   http.Header
		status, code             int
		want                     string
	}{
		{"no such path", "POST", "/v3/discovery:virtual_hosts", "{}", nil, 404, 5, `unknown path "/v3/discovery:virtual_hosts": the paths are /v3/discovery:clusters, `},
		{"ADS", "POST", "/v3/discovery:ads", "{}", nil, 404, 5, "REST supports neither the aggregated service (ADS) nor delta xDS"},
		{"v2", "POST", "/v2/discovery:clusters", "{}", nil, 404, 5, "unknown path"},
		{"GET", "GET", "/v3/discovery:clusters", "", nil, 405, 12, "/v3/discovery:clusters needs POST, not GET"},
		{"delta", "POST", "/v3/discovery:clusters", `{"resourceNamesSubscribe":["a"]}`, nil, 400, 3, "REST does not support delta xDS"},
		{"malformed", "POST", "/v3/discovery:clusters", `{"version_info":`, nil, 400, 3, "malformed JSON"},
		{"wrong type", "POST", "/v3/discovery:clusters", `{"version_info":3}`, nil, 400, 3, "version_info: want a string, not 3"},
		{"another type", "POST", "/v3/discovery:clusters", `{"type_url":"` + xds.Route.URL + `"}`, nil, 400, 3, "type_url: /v3/discovery:clusters serves " + xds.Cluster.URL + `, not "` + xds.Route.URL + `"`},
		{"oversize", "POST", "/v3/discovery:clusters", big, nil, 413, 8, "more than 1000 bytes"},
		{"timeout", "POST", "/v3/discovery:clusters", "{}", http.Header{"X-Envoy-Expected-Rq-Timeout-Ms": {"1s"}}, 400, 3, `x-envoy-expected-rq-timeout-ms: "1s" is not a number of milliseconds`},
	} {
		within(t, "REST-5 "+tt.name, func(t *testing.T) {
			r, err := newWorld(t, WithMaxBody(1000)).client().do(t.Context(), tt.method, tt.path, tt.header, tt.body)
			if err != nil {
				t.Fatal(err)
			}
			refused(t, r, tt.status, tt.code, tt.want)
			time.Sleep(time.Second) // net/http gives clients time to read the response
		})
	}
	within(t, "REST-5 a name that is too long", func(t *testing.T) {
		refused(t, newWorld(t).client().post(xds.Cluster.REST, `{"resource_names":["`+strings.Repeat("x", 5000)+`"]}`), 413, 8, "a name of 5000 bytes, of type CDS")
	})
	within(t, "REST-5 unknown fields are ignored", func(t *testing.T) {
		if r := newWorld(t).client().post(xds.Cluster.REST, `{"new":{"a":[1]},"resource_locators":[{"name":"x"}]}`); r.StatusCode != http.StatusOK {
			t.Errorf("%d %s", r.StatusCode, r.body)
		}
	})
}

// refused expects an error.
func refused(t *testing.T, r *reply, status, code int, text string) {
	t.Helper()
	var e struct {
		Code    int
		Message string
	}
	if err := json.Unmarshal(r.body, &e); err != nil || r.StatusCode != status || e.Code != code || !strings.Contains(e.Message, text) || r.Header.Get("Content-Type") != "application/json" {
		t.Errorf("got %d %s, want %d, code %d: %s (%v)", r.StatusCode, r.body, status, code, text, err)
	}
	if allow := r.Header.Get("Allow"); (allow == "POST") != (status == http.StatusMethodNotAllowed) {
		t.Errorf("Allow: %s", allow)
	}
	if again := r.Header.Get("Retry-After"); (again == "5") != (status == http.StatusServiceUnavailable) {
		t.Errorf("Retry-After: %s", again)
	}
}

// SAFE-9: an encoding that no poll uses any more is freed.
func TestUnusedEncodingsAreFreed(t *testing.T) {
	var c encodings
	for i := range 1000 {
		c.get(&xds.Response{Type: xds.Cluster, Version: fmt.Sprint(i), Changes: &xds.Changes{}})
	}
	if n := len(c.byVersion); n > 65 {
		t.Errorf("%d answers are remembered", n)
	}
}

func TestEncodingsAreShared(t *testing.T) {
	within(t, "REST-4 who is told the same shares its encoding", func(t *testing.T) {
		count := &counting{Resolver: protoregistry.GlobalTypes}
		w := newWorld(t, WithResolver(count))
		w.set("a")
		version := w.client().poll("").gets(t, 0, "a").VersionInfo
		before := count.n.Load()
		got := make(chan *reply)
		for i := range 3 {
			c := w.client()
			c.node = fmt.Sprint(i)
			go func() { got <- c.poll(version) }()
		}
		time.AfterFunc(10*time.Second, func() { w.set("b") })
		for range 3 {
			(<-got).gets(t, 10*time.Second, "a", "b")
		}
		if n := count.n.Load() - before; n != 2 {
			t.Errorf("2 resources were encoded %d times", n)
		}
	})
	t.Run("REST-7 two that only happen to have one version do not", func(t *testing.T) {
		a, b := xds.NewResource(xds.Cluster, "a", []byte("a")), xds.NewResource(xds.Cluster, "b", []byte("b"))
		of := func(r *xds.Resource) *xds.Response {
			return &xds.Response{Type: xds.Cluster, Version: "v", Changes: &xds.Changes{Upserts: []*xds.Resource{r}}}
		}
		var c encodings
		first := c.get(of(a))
		if first != c.get(of(a)) || first == c.get(of(b)) || c.get(of(b)).resources[0] != b {
			t.Error("an answer for another")
		}
	})
	within(t, "REST-1 a message that is not linked", func(t *testing.T) {
		w := newWorld(t)
		c := w.client()
		w.update(func(tx *store.Tx) { tx.Set(xds.NewResource(xds.Secret, "s", []byte("x"))) })
		for range 2 {
			r := c.post(xds.Secret.REST, `{"node":{"id":"n"},"resource_names":["s"]}`)
			refused(t, r, 500, 13, `SDS resource "s": `)
		}
		if !strings.Contains(w.log.String(), "cannot encode a resource as JSON") {
			t.Errorf("the log:\n%s", w.log)
		}
	})
	within(t, "REST-1 messages within messages", func(t *testing.T) {
		w := newWorld(t)
		layer, err := structpb.NewStruct(map[string]any{"a": []any{1.0, "x", nil}})
		if err != nil {
			t.Fatal(err)
		}
		r, err := wire.NewResource(xds.Runtime, "", &runtimev3.Runtime{Name: "rt", Layer: layer})
		if err != nil {
			t.Fatal(err)
		}
		w.update(func(tx *store.Tx) { tx.Set(of(xds.Runtime, r)...) })
		var m discovery.DiscoveryResponse
		var got runtimev3.Runtime
		if err := protojson.Unmarshal(w.client().post(xds.Runtime.REST, `{"resource_names":["rt"]}`).body, &m); err != nil {
			t.Fatal(err)
		}
		if err := m.Resources[0].UnmarshalTo(&got); err != nil || got.Layer.Fields["a"].GetListValue().Values[1].GetStringValue() != "x" {
			t.Error(&got, err)
		}
	})
}

type counting struct {
	Resolver
	n atomic.Int64
}

func (c *counting) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	c.n.Add(1)
	return c.Resolver.FindMessageByURL(url)
}

// A handler without a server, or with a server without a source, answers with the reason.
func TestHandlerWithoutServer(t *testing.T) {
	for want, s := range map[string]*server.Server{"a nil server": nil, "a nil source": server.New[*store.Watch](nil)} {
		var log bytes.Buffer
		h := New(s, nil, WithResolver(nil), WithLogger(nil), WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v3/discovery:clusters", strings.NewReader(`{"node":{"id":"n"}}`)))
		if w.Code < 400 || !strings.Contains(w.Body.String(), want) || strings.Contains(log.String(), "panic") {
			t.Errorf("%s: %d %s; %s", want, w.Code, w.Body, log.String())
		}
	}
}
