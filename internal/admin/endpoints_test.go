package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/endpoints"
	"github.com/chancery-xds/chancery/store"
)

// registering returns a server that accepts endpoints for the groups default and edge.
func registering(t *testing.T) *Server {
	t.Helper()
	engine, err := endpoints.Open("", nil)
	if err != nil {
		t.Fatal(err)
	}
	return registeringAt(t, engine)
}

// registeringAt is registering with a given engine.
func registeringAt(t *testing.T, engine endpoints.Engine) *Server {
	t.Helper()
	s := newServer(newFleet())
	s.Endpoints = endpoints.New(engine, store.New(store.WithOverlays()), endpoints.Options{Log: s.Log, PerCluster: 3, Known: func(g string) bool { return g == "default" || g == "edge" }})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.Endpoints.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	<-s.Endpoints.Loaded()
	return s
}

// Endpoints are registered, renewed, listed and removed; errors name the field.
func TestEndpoints(t *testing.T) {
	s := registering(t)
	s.Token = func() (string, error) { return "secret", nil }
	h := s.Handler(loopback)
	for _, q := range []question{
		{"GET /api/v1/endpoints", "", 200, `"items":[]`},
		{"PUT /api/v1/endpoints/a%2Fb/i", `{"address":"10.0.0.1","port":80,"ttl":30}`, 400, `"field":"ttl","message":"must be text such as \"30s\", not a JSON number"`},
		{"PUT /api/v1/endpoints/a%2Fb/i", `{"address":"10.0.0.1","port":80,"ttl":"30s","metadata":{"envoy.lb":{"x":[1]}},"locality":{"zone":"z"}}`, 200, `"set":1,"unchanged":0`},
		{"PUT /api/v1/endpoints/a%2Fb/i", `{"address":"10.0.0.1","port":80,"ttl":"30s","metadata":{"envoy.lb":{"x":[1]}},"locality":{"zone":"z"}}`, 200, `"set":0,"unchanged":1`},
		{"PUT /api/v1/endpoints/a%2Fb/10.0.0.2:80?group=edge", `{"address":"10.0.0.2","port":80}`, 200, `"set":1`},
		{"GET /api/v1/endpoints", "", 200, `"items":[{"cluster":"a/b","group":"default","total":1},{"cluster":"a/b","group":"edge","total":1}]`},
		{"GET /api/v1/endpoints/a%2Fb?group=default", "", 200, `"endpoints":[{"id":"i","address":"10.0.0.1","port":80,"locality":{"zone":"z"},"metadata":{"envoy.lb":{"x":[1]}},"ttl":"30s","expires":"`},
		{"GET /api/v1/endpoints/a%2Fb/i", "", 200, `"id":"i"`},
		{"GET /api/v1/endpoints/a%2Fb/j", "", 404, `no endpoint \"j\" of cluster \"a/b\" is registered`},
		{"GET /api/v1/endpoints/x", "", 404, `no endpoints of cluster \"x\" are registered`},
		{"PUT /api/v1/endpoints/a%2Fb", `{"endpoints":[{"address":"10.0.0.3","port":1},{"address":"10.0.0.4","port":1}],"ttl":"1m"}`, 200, `"set":2,"unchanged":0,"removed":1,"warning":"no cluster uses a/b"}`},
		{"PUT /api/v1/endpoints/a%2Fb/10.0.0.3:1", `{"address":"10.0.0.3","port":1,"ttl":"1m"}`, 200, `"set":1`},
		{"PUT /api/v1/endpoints/a%2Fb/10.0.0.3:1", `{"address":"10.0.0.3","port":1,"ttl":"1m"}`, 200, `"set":0,"unchanged":1,"removed":0}`},
		{"PUT /api/v1/endpoints/a%2Fb", `{}`, 400, `"field":"endpoints","message":"is missing"`},
		{"PUT /api/v1/endpoints/a%2Fb", ``, 400, `"field":"endpoints"`},
		{"PUT /api/v1/endpoints/a%2Fb", `{"endpoints":[{"address":"10.0.0.3","port":1},{"address":"x","port":1}]}`, 200, `"set":1,"unchanged":1,"removed":0,"errors":[{"field":"endpoints[1].address","message":"\"x\" is not an IP address"}]`},
		{"PUT /api/v1/endpoints/a%2Fb", `{"endpoints":[{"address":"10.0.0.3","port":1},{"address":"10.0.0.4","port":"80"},null,7,{"address":"10.0.0.4","port":1,"host":"h"}]}`, 409, `at most 3`},
		{"PUT /api/v1/endpoints/a%2Fb", `{"endpoints":[{"address":"10.0.0.3","port":1},{"address":"10.0.0.4","port":"80"},7]}`, 200, `"errors":[{"field":"endpoints[1].port","message":"must be of another type, not a JSON string"},{"field":"endpoints[2]","message":"must be an object, not a JSON number"}]`},
		{"PUT /api/v1/endpoints/a%2Fb", `{"endpoints":[{"address":"10.0.0.3","port":1},{"id":"x","address":"10.0.0.4","port":1,"host":"h"},{"address":"10.0.0.4","port":1,"ttl":"3s"}]}`, 200, `"errors":[{"field":"endpoints[1]","message":"unknown field \"host\""},{"field":"endpoints[2].ttl","message":"must be empty`},
		{"PUT /api/v1/endpoints/a%2Fb", `{"endpoints":[{"port":1},{"address":"x","port":1}]}`, 400, `"field":"endpoints[0].address"`},
		{"PUT /api/v1/endpoints/a%2Fb", `{"endpoints":[{"address":"10.0.0.3","port":1,"ttl":"3s"}]}`, 400, `"field":"endpoints[0].ttl"`},
		{"PUT /api/v1/endpoints/a%2Fb", `{"endpoints":[{},{},{},{}]}`, 409, `too many endpoints of a cluster: at most 3`},
		{"PUT /api/v1/endpoints/a%2Fb/i", `{"address":"10.0.0.1"}`, 400, `"field":"port"`},
		{"PUT /api/v1/endpoints/a%2Fb/i", `{"host":"10.0.0.1"}`, 400, `unknown field`},
		{"PUT /api/v1/endpoints/a%2Fb/i", `{"address":"10.0.0.1","port":"80"}`, 400, `"field":"port"`},
		{"PUT /api/v1/endpoints/a%2Fb/i", `{"address":"10.0.0.1","port":80,"ttl":"1ms"}`, 400, `"field":"ttl"`},
		{"PUT /api/v1/endpoints/a%2Fb/i", `{"id":"j","address":"10.0.0.1","port":80}`, 400, `"field":"id"`},
		{"PUT /api/v1/endpoints/a%2Fb/i?group=nobody", `{"address":"10.0.0.1","port":80}`, 404, `"field":"group"`},
		{"PUT /api/v1/endpoints/a%2Fb/i?grupo=x", `{}`, 400, "unknown parameter"},
		{"DELETE /api/v1/endpoints/a%2Fb/i", "", 404, `no endpoint \"i\" of cluster \"a/b\" is registered`},
		{"DELETE /api/v1/endpoints/a%2Fb/10.0.0.3:1", "", 200, `"removed":1`},
		{"DELETE /api/v1/endpoints/a%2Fb", "", 200, `"removed":1`},
		{"GET /api/v1/endpoints/a%2Fb?group=default", "", 200, `"total":0`},
		{"GET /api/v1/status", "", 200, `"emptied":[{"cluster":"a/b","group":"default"}]`},
		{"GET /api/v1/status?group=edge", "", 200, `"turned_away":[]}`},
		{"DELETE /api/v1/endpoints/a%2Fb?release=1", "", 200, `"removed":0`},
		{"GET /api/v1/endpoints/a%2Fb?group=default", "", 404, ""},
		{"POST /api/v1/endpoints?ttl=5", "", 400, `"field":"ttl"`},
	} {
		w := ask(h, q.what, q.body, "Authorization", "Bearer secret")
		if w.Code != q.code || !strings.Contains(w.Body.String(), q.answer) {
			t.Errorf("%s %s: %d %s, want %d %s", q.what, q.body, w.Code, w.Body, q.code, q.answer)
		}
	}
}

// A local port is not enough to register endpoints, and the server must be configured to accept
// endpoints.
func TestEndpointsNeedProof(t *testing.T) {
	s := registering(t)
	for _, what := range []string{"PUT /api/v1/endpoints/a/i", "PUT /api/v1/endpoints/a", "DELETE /api/v1/endpoints/a", "DELETE /api/v1/endpoints/a/i", "POST /api/v1/endpoints"} {
		if w := ask(s.Handler(loopback), what, ""); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "needs a unix socket, a token or a client certificate") {
			t.Errorf("%s: %d %s", what, w.Code, w.Body)
		}
		if w := ask(newServer(newFleet()).Handler(loopback), what, ""); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "serve --endpoints") {
			t.Errorf("%s: %d %s", what, w.Code, w.Body)
		}
	}
	if w := ask(s.Handler(loopback), "GET /api/v1/endpoints", ""); w.Code != http.StatusOK {
		t.Error(w.Code)
	}
}

// The number of endpoints of a cluster is limited, and only a few large requests are unpacked at the same
// time.
func TestFewEndpointsAreUnpacked(t *testing.T) {
	s := registering(t)
	s.Token = func() (string, error) { return "secret", nil }
	h := s.Handler(loopback)
	withToken(t, h, question{"PUT /api/v1/endpoints/x", `{"endpoints":[{}` + strings.Repeat(",{}", maxValues/2) + `]}`, http.StatusBadRequest, "has more than 300000 values"})
	for range maxUnpacked {
		s.unpacking <- struct{}{}
	}
	withToken(t, h, question{"PUT /api/v1/endpoints/x", `{"endpoints":[{"address":"10.0.0.1","port":80}]}`, http.StatusOK, `"set":1`})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(ctx, http.MethodPut, "/api/v1/endpoints/x", strings.NewReader(`{"endpoints":[{}`+strings.Repeat(",{}", fewParts)+`]}`))
	r.Host = "localhost"
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer secret")
	if h.ServeHTTP(w, r); w.Code != http.StatusServiceUnavailable {
		t.Errorf("%d %.200s", w.Code, w.Body)
	}
}

// The number of concurrent streams is limited; one stream more gets an error.
func TestFewStreamsOfEndpoints(t *testing.T) {
	s := registering(t)
	s.Token = func() (string, error) { return "secret", nil }
	h := s.Handler(loopback)
	for range maxReaders {
		if _, _, err := s.streams.enter(httptest.NewRequest(http.MethodPost, "/", nil)); err != nil {
			t.Fatal(err)
		}
	}
	withToken(t, h, question{"POST /api/v1/endpoints", "", http.StatusTooManyRequests, "too many requests that register endpoints at once"})
}

// An invalid line gets an error. A line that is too long also ends the stream.
func TestBadLines(t *testing.T) {
	s := registering(t)
	s.Token = func() (string, error) { return "secret", nil }
	h := s.Handler(loopback)
	for text, want := range map[string]string{
		`{"cluster":"x","put":{"address":"10.0.0.1","port":80,"ttl":"30s"}}`:     `"field":"put.ttl"`,
		`{"cluster":"x","put":{"address":"10.0.0.1","port":80},"remove":"a"}`:    "must have exactly one of put, remove, replace and release",
		`{"cluster":"x","remove":"a"} {}`:                                        `"field":"body","message":"more data after the object"`,
		`{"cluster":"x","put":{"address":"10.0.0.1","port":80}}}`:                "after the object",
		`{"cluster":"x","put":{"address":"10.0.0.1","port":80}}] {}`:             "after the object",
		`{"cluster":"x","put":{"address":"10.0.0.1","port":80}},`:                "after the object",
		"{\"cluster\":\"x\xff\",\"put\":{\"address\":\"10.0.0.1\",\"port\":80}}": `"field":"body","message":"is not valid UTF-8"`,
		`{"cluster":"x","add":{}}`:                                               "unknown field",
	} {
		withToken(t, h, question{"POST /api/v1/endpoints", text + "\n", http.StatusOK, want})
	}
	for _, text := range []string{"PUT /api/v1/endpoints/x/i", "PUT /api/v1/endpoints/x"} {
		for body, want := range map[string]string{
			"{\"address\":\"10.0.0.1\",\"port\":80,\"hostname\":\"\xff\"}": "is not valid UTF-8",
			`{"ttl":"30s"}}`: "after the object",
		} {
			withToken(t, h, question{text, body, http.StatusBadRequest, want})
		}
	}
	if all := registrations(s); all != "" {
		t.Error(all, "is registered")
	}
	long := `{"cluster":"x","put":{"address":"10.0.0.1","port":80,"hostname":"` + strings.Repeat(" ", maxLine) + `"}}`
	after := `{"cluster":"x","put":{"address":"10.0.0.2","port":80}}`
	w := ask(h, "POST /api/v1/endpoints", "\n"+long+"\n"+after+"\n", "Authorization", "Bearer secret")
	if got := w.Body.String(); !strings.HasSuffix(got, `{"line":2,"errors":[{"line":2,"message":"must have at most 16384 bytes: the stream ends"}]}`+"\n") {
		t.Error(got)
	}
	if n, _, _ := s.Endpoints.Counts(endpoints.Cluster{Group: "default", Name: "x"}); n != 0 {
		t.Errorf("%d are registered after the end", n)
	}
}

// streamOfLines opens a stream of lines over HTTP/1.1 or HTTP/2.
func streamOfLines(t *testing.T, h2 bool, ttl string, dial func(context.Context) (net.Conn, error)) (out *io.PipeWriter, in *bufio.Reader, end func()) {
	t.Helper()
	p := &http.Protocols{}
	p.SetHTTP1(!h2)
	p.SetUnencryptedHTTP2(h2)
	tr := &http.Transport{Protocols: p, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}
	body, out := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/api/v1/endpoints?ttl="+ttl, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", linesOfJSON)
	resp, err := (&http.Client{Transport: tr}).Do(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	return out, bufio.NewReader(resp.Body), func() {
		_ = resp.Body.Close()
		tr.CloseIdleConnections()
	}
}

// The server answers while it still reads the stream, over HTTP/1.1 and HTTP/2. An invalid line does not
// affect other lines. When lines stop, the endpoints of the stream are removed.
func TestEndpointLines(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprint("h2=", h2), func(t *testing.T) {
			s := registering(t)
			l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- s.Serve(ctx, l) }()
			defer func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}()
			out, in, end := streamOfLines(t, h2, "1s", func(context.Context) (net.Conn, error) { return net.Dial("unix", l.Addr().String()) })
			defer end()
			says := func(send string, want string) {
				t.Helper()
				if _, err := io.WriteString(out, send); err != nil {
					t.Fatal(err)
				}
				var all []api.LineError
				var a api.EndpointLines
				for last := strings.Count(send, "\n"); a.Line < last; {
					line, err := in.ReadBytes('\n')
					a = api.EndpointLines{}
					if err != nil || json.Unmarshal(line, &a) != nil {
						t.Fatalf("%s %v", line, err)
					}
					all = append(all, a.Errors...)
					if want == "" && len(a.Errors) == 0 {
						return
					}
				}
				if got := fmt.Sprint(all); !strings.Contains(got, want) {
					t.Errorf("%s, want %s", got, want)
				}
			}
			counts := func(want int) bool {
				n, _, _ := s.Endpoints.Counts(endpoints.Cluster{Group: "default", Name: "x"})
				return n == want
			}
			says(`{"cluster":"x","put":{"address":"10.0.0.1","port":80}}
{"cluster":"x","put":{"address":"10.0.0.2","port":0}}
nonsense
{"cluster":"x"}
{"cluster":"x","put":{"id":"b","address":"10.0.0.2","port":80}}
{"cluster":"x","remove":"10.0.0.1:80"}
`, "[{2 port must be 1 to 65535} {3 body ")
			if !counts(1) {
				t.Error("not one")
			}
			for range 4 { // longer than the lease
				time.Sleep(400 * time.Millisecond)
				says("\n", "")
			}
			if !counts(1) {
				t.Error("the lease has ended")
			}
			until := time.Now().Add(20 * time.Second)
			for !counts(0) && time.Now().Before(until) {
				time.Sleep(20 * time.Millisecond)
			}
			if !counts(0) {
				t.Error("the lease has not ended")
			}
			if _, err := io.ReadAll(in); err != nil && !h2 {
				t.Log(err) // the stream has ended
			}
			_ = out.Close()
		})
	}
}
