package rest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/chancery-xds/chancery/client"
	serverrest "github.com/chancery-xds/chancery/rest"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// within runs a test in a synctest bubble.
func within(t *testing.T, name string, f func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// A peer is the server: the test reads each poll and answers it.
type peer struct{ polls chan *poll }

type poll struct {
	req    *http.Request
	body   discovery.DiscoveryRequest
	raw    string
	answer chan *http.Response
}

func (p *peer) RoundTrip(r *http.Request) (*http.Response, error) {
	b, _ := io.ReadAll(r.Body)
	got := &poll{req: r, raw: string(b), answer: make(chan *http.Response, 1)}
	if err := protojson.Unmarshal(b, &got.body); err != nil {
		return nil, err
	}
	select {
	case p.polls <- got:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	select {
	case a := <-got.answer:
		return a, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

func (p *poll) say(code int, body string) {
	p.answer <- &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(body)), Header: http.Header{}}
}

// A talk is a stream with its server.
type talk struct {
	*testing.T
	peer *peer
	client.Stream
	heard chan any // responses and the error
}

func begin(t *testing.T, o Options) *talk {
	p := &peer{make(chan *poll)}
	o.Client = &http.Client{Transport: p}
	tr, err := New("http://user:secret@server/base/", o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := tr.Open(t.Context(), xds.Cluster)
	if err != nil {
		t.Fatal(err)
	}
	k := &talk{t, p, s, make(chan any, 100)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			r, err := s.Recv()
			if err != nil {
				k.heard <- err
				return
			}
			k.heard <- r
		}
	}()
	t.Cleanup(func() { tr.Close(); <-done })
	return k
}

func (k *talk) send(r *xds.Request) {
	k.Helper()
	if err := k.Send(r); err != nil {
		k.Fatal(err)
	}
}

// next returns the next poll, which must come after this time.
func (k *talk) next(after time.Duration) *poll {
	k.Helper()
	start := time.Now()
	p := <-k.peer.polls
	if d := time.Since(start); d < after || d > after+after/10+1 {
		k.Fatalf("the poll comes after %s, want %s", d, after)
	}
	return p
}

func (k *talk) hears(version string) {
	k.Helper()
	synctest.Wait()
	select {
	case is := <-k.heard:
		if r, ok := is.(*xds.Response); !ok || r.Version != version {
			k.Fatalf("heard %v", is)
		}
	default:
		k.Fatal("heard nothing")
	}
}

func (k *talk) hearsNothing() {
	k.Helper()
	synctest.Wait()
	select {
	case is := <-k.heard:
		k.Fatalf("heard %v", is)
	default:
	}
}

func (k *talk) fails(want string) error {
	k.Helper()
	err, ok := (<-k.heard).(error)
	if !ok || err.Error() != want {
		k.Fatalf("got  %v\nwant %s", err, want)
	}
	return err
}

func response(version string) string { return `{"version_info":"` + version + `","resources":[]}` }

func TestPolls(t *testing.T) {
	const refresh = 5 * time.Second
	within(t, "REST-1 REST-2 CLI-1 the content of a poll", func(t *testing.T) {
		metadata, _ := proto.Marshal(&structpb.Struct{Fields: map[string]*structpb.Value{"role": structpb.NewStringValue("edge")}})
		k := begin(t, Options{})
		k.send(&xds.Request{Type: xds.Cluster, Names: []string{"b", "a"}, Node: &xds.Node{ID: "n", Cluster: "c", Region: "r", UserAgentName: "u", UserAgentVersion: "1", ClientFeatures: []string{"f"}, Metadata: metadata}})
		p := k.next(0)
		if got := p.req.Method + " " + p.req.URL.String(); got != "POST http://user:secret@server/base/v3/discovery:clusters" {
			t.Error(got)
		}
		if h := p.req.Header; h.Get("Content-Type") != "application/json" || h.Get("X-Envoy-Expected-Rq-Timeout-Ms") != "30000" {
			t.Error(h)
		}
		if n := p.body.Node; n.Id != "n" || n.Cluster != "c" || n.Locality.Region != "r" || n.GetUserAgentVersion() != "1" || n.Metadata.Fields["role"].GetStringValue() != "edge" || !slices.Equal(p.body.ResourceNames, []string{"a", "b"}) || p.body.TypeUrl != xds.Cluster.URL {
			t.Error(p.raw)
		}
		if !strings.Contains(p.raw, `"resource_names"`) {
			t.Error("the request is not in snake_case, which some servers need:", p.raw)
		}
		p.say(200, response("1"))
		k.hears("1")
		k.send(&xds.Request{Type: xds.Cluster, Names: []string{"a", "b"}, Version: "1", Nonce: "x"})
		if p = k.next(refresh); p.body.VersionInfo != "1" || p.body.ResponseNonce != "x" || p.body.Node.GetId() != "n" || p.body.ErrorDetail != nil {
			t.Error("the ACK is", p.raw)
		}
		p.say(304, "")
		k.hearsNothing()
		k.next(refresh).say(200, response("1")) // a server that does not hold polls answers at once
		k.hearsNothing()
		k.next(refresh).say(200, response("2"))
		k.hears("2")
	})
	within(t, "REST-3 CLI-2 a NACK is sent once, and a repeated response is not passed on", func(t *testing.T) {
		k := begin(t, Options{Refresh: time.Minute})
		k.send(&xds.Request{Type: xds.Cluster, Version: "1"})
		k.next(0).say(200, response("2"))
		k.hears("2")
		k.send(&xds.Request{Type: xds.Cluster, Version: "1", Nonce: "2", Error: &xds.Status{Code: 3, Message: "no"}})
		p := k.next(time.Minute)
		if p.body.VersionInfo != "1" || p.body.ErrorDetail.GetMessage() != "no" || p.body.ErrorDetail.GetCode() != 3 {
			t.Error(p.raw)
		}
		p.say(200, response("2"))
		k.hearsNothing()
		if p = k.next(time.Minute); p.body.ErrorDetail != nil || p.body.VersionInfo != "1" {
			t.Error(p.raw)
		}
		p.say(200, response("3"))
		k.hears("3")
	})
	within(t, "REST-2 CLI-4 a request with other names ends the held poll, and has no version", func(t *testing.T) {
		k := begin(t, Options{})
		k.send(&xds.Request{Type: xds.Cluster, Names: []string{"a"}})
		k.next(0).say(200, response("1"))
		k.hears("1")
		k.send(&xds.Request{Type: xds.Cluster, Names: []string{"a"}, Version: "1", Nonce: "1"})
		held := k.next(refresh)
		k.send(&xds.Request{Type: xds.Cluster, Names: []string{"a", "b"}, Version: "1", Nonce: "1"})
		p := k.next(0)
		if held.req.Context().Err() == nil {
			t.Error("the poll is held")
		}
		if p.body.VersionInfo != "" || len(p.body.ResourceNames) != 2 {
			t.Error(p.raw)
		}
		p.say(200, response("1"))
		k.hears("1") // the same version, for other names
		k.send(&xds.Request{Type: xds.Cluster, Version: "1", Nonce: "1"})
		select {
		case p := <-k.peer.polls:
			t.Error("a request without names asks for all resources:", p.raw)
		case <-time.After(time.Hour):
		}
		k.send(&xds.Request{Type: xds.Cluster, Names: []string{"c"}, Version: "1"})
		k.next(0)
	})
	within(t, "REST-2 name changes during a poll cause one poll, and the next poll waits for its time", func(t *testing.T) {
		k := begin(t, Options{})
		for i := range 20 { // which of two signals is taken first is random
			k.send(&xds.Request{Type: xds.Cluster, Names: []string{"a"}})
			k.next(0)
			k.send(&xds.Request{Type: xds.Cluster, Names: []string{"a", "b"}})
			k.next(0).say(200, response(fmt.Sprint(i)))
			k.hears(fmt.Sprint(i))
			k.next(refresh)
		}
	})
	within(t, "REST-2 a NACK given while the previous NACK is being sent is sent, too", func(t *testing.T) {
		k := begin(t, Options{})
		k.send(&xds.Request{Type: xds.Cluster, Nonce: "1", Error: &xds.Status{Code: 3, Message: "first"}})
		p := k.next(0)
		k.send(&xds.Request{Type: xds.Cluster, Nonce: "2", Error: &xds.Status{Code: 3, Message: "second"}})
		p.say(304, "")
		for i, want := range []string{"second", ""} {
			p := k.next(refresh)
			if got := p.body.GetErrorDetail().GetMessage(); got != want {
				t.Errorf("poll %d has the error %q, want %q", i+1, got, want)
			}
			p.say(304, "")
		}
	})
	within(t, "CLI-1 no poll starts before the first request", func(t *testing.T) {
		k := begin(t, Options{})
		select {
		case p := <-k.peer.polls:
			t.Error(p.raw)
		case <-time.After(time.Hour):
		}
		k.send(&xds.Request{Type: xds.Cluster})
		k.next(0)
	})
}

func TestErrors(t *testing.T) {
	const at = "http://server/base: "
	for name, tt := range map[string]struct {
		code       int
		body, want string
	}{
		"REST-5 no such path":        {404, "", "404 Not Found: the server does not have this path: it may not support REST"},
		"REST-5 a status":            {503, `{"code":8,"message":"too many polls"}`, "503 Service Unavailable: too many polls"},
		"REST-5 a page":              {500, "<html>\n<b>\x1b</b>" + strings.Repeat("é", 1000), "500 Internal Server Error: <html>\\n<b>\\x1b</b>" + strings.Repeat("é", 242) + "…"},
		"REST-5 nothing":             {400, "", "400 Bad Request: the server gave no reason"},
		"REST-5 an oversize answer":  {200, strings.Repeat(" ", 1001), "the response has too many bytes, more than the limit of 1000 bytes (MaxMessage)"},
		"REST-5 no JSON":             {200, "{\n \"nonce\": nothing}", "POST /v3/discovery:clusters: malformed JSON at line 2:12: want null, not 'o'"},
		"REST-5 half of it":          {200, `{"nonce": "x`, "POST /v3/discovery:clusters: malformed JSON at line 1:13: it ends where the end of a string is missing"},
		"REST-5 a list":              {200, `[]`, "POST /v3/discovery:clusters: line 1:1: want an object"},
		"REST-5 a number for a text": {200, `{"nonce": 5}`, "POST /v3/discovery:clusters: line 1:11: want a string"},
		"REST-5 more follows":        {200, `{} {}`, "POST /v3/discovery:clusters: malformed JSON at line 1:4: want the end, not '{'"},
	} {
		within(t, name, func(t *testing.T) {
			k := begin(t, Options{MaxMessage: 1000})
			k.send(&xds.Request{Type: xds.Cluster})
			k.next(0).say(tt.code, tt.body)
			err := k.fails(at + tt.want)
			if e, ok := errors.AsType[*StatusError](err); ok != (tt.code != 200) || ok && e.Code != tt.code {
				t.Error(err)
			}
			if k.Send(&xds.Request{}) == nil {
				t.Error("the stream continues after an error")
			}
		})
	}
	for _, code := range []int{301, 302, 307, 308} {
		within(t, fmt.Sprint("REST-5 a redirect is not followed, ", code), func(t *testing.T) {
			k := begin(t, Options{})
			k.send(&xds.Request{Type: xds.Cluster})
			p := k.next(0)
			p.answer <- &http.Response{StatusCode: code, Request: p.req, Body: http.NoBody, Header: http.Header{"Location": {"http://u:p@elsewhere:80/x"}}}
			k.fails(at + fmt.Sprintf("%d %s: a redirect to elsewhere:80, which is not followed", code, http.StatusText(code)))
		})
	}
	within(t, "REST-4 no answer in time", func(t *testing.T) {
		k := begin(t, Options{Timeout: 7 * time.Second})
		k.send(&xds.Request{Type: xds.Cluster})
		start := time.Now()
		k.next(0)
		k.fails(at + "the server did not answer in time: 7s")
		if d := time.Since(start); d != 7*time.Second {
			t.Error(d)
		}
	})
	within(t, "REST-4 Close ends a held poll", func(t *testing.T) {
		k := begin(t, Options{})
		k.send(&xds.Request{Type: xds.Cluster})
		k.next(0)
		k.Stream.(*stream).transport.Close()
		k.fails(at + "the transport is closed")
	})
	t.Run("CLI-1 types without a poll", func(t *testing.T) {
		for _, base := range []string{"", "server:80", "ftp://x", "http://", "http://x?y", "http://x#y", "http://u:p@x/%zz"} {
			if _, err := New(base, Options{}); err == nil || strings.Contains(err.Error(), "u:p") {
				t.Errorf("%q: %v", base, err)
			}
		}
		tr, err := New("http://x", Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		for _, typ := range []*xds.Type{nil, xds.VirtualHost} {
			if _, err := tr.Open(t.Context(), typ); err == nil {
				t.Errorf("%s is polled", typ)
			}
		}
	})
	t.Run("CLI-1 nobody listens", func(t *testing.T) {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		lis.Close()
		tr, err := New("http://"+lis.Addr().String(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		s, _ := tr.Open(t.Context(), xds.Cluster)
		s.Send(&xds.Request{})
		if _, err := s.Recv(); err == nil || !strings.HasPrefix(err.Error(), tr.String()+": no server listens there: ") {
			t.Error(err)
		}
	})
}

// Resources and errors in a response.
func TestDecode(t *testing.T) {
	tr, err := New("http://x", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	decode := func(typ *xds.Type, s string) *xds.Response {
		t.Helper()
		r, err := tr.(*transport).decode(t.Context(), typ, []byte(s))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	t.Run("REST-5 an unreadable resource is malformed, with its position, and the others are used", func(t *testing.T) {
		r := decode(xds.Cluster, `{"resources": [
			{"@type": "`+xds.Cluster.URL+`", "name": "a", "connectTimeout": "1s", "unknown": {}},
			{"@type": "`+xds.Cluster.URL+`", "name": "b",
			 "connect_timeout": 5},
			{"@type": "x/unheard.Of"}, {"@type": "`+xds.Listener.URL+`", "name": "l"}]}`)
		var got []string
		for _, err := range r.Malformed {
			got = append(got, err.Error())
		}
		slices.Sort(got)
		want := []string{
			`resources[1]: syntax error (line 4:24): unexpected token 5`,
			`resources[2]: (line 5:14): unable to resolve "x/unheard.Of": "not found"`,
			`resources[3]: line 5:31: is a ` + xds.Listener.URL + ` called "l", want a ` + xds.Cluster.URL,
		}
		if len(r.Upserts) != 1 || r.Upserts[0].Name != "a" || !slices.Equal(got, want) {
			t.Errorf("%v\n%s", r.Upserts, strings.Join(got, "\n"))
		}
		var c clusterv3.Cluster
		if err := proto.Unmarshal(r.Upserts[0].Body, &c); err != nil || c.ConnectTimeout.GetSeconds() != 1 {
			t.Error(&c, err)
		}
	})
	t.Run("REST-5 only malformed resources", func(t *testing.T) {
		r := decode(xds.Cluster, `{"resources":[`+strings.Repeat("[],", 9_999)+`5]}`)
		if n := len(r.Malformed); n == 0 || n > 202 {
			t.Errorf("%d are malformed", n)
		}
		// 20 million such items fit in 58 KB of gzip.
		for _, item := range []string{"[]", "{}", `{"@type":"a/envoy.config.cluster.v3.Cluster"}`} {
			many := `{"resources":[` + strings.Repeat(item+",", 20_000) + item + `]}`
			if _, err := tr.(*transport).decode(t.Context(), xds.Cluster, []byte(many)); err == nil || err.Error() != "more than 10000 malformed resources" {
				t.Errorf("20,001 of %s: %v", item, err)
			}
		}
	})
	t.Run("REST-5 decoding a long response ends with its context", func(t *testing.T) {
		nested := func(n int) string {
			return strings.Repeat(`{"value":`, n) + `{"@type":"` + xds.Cluster.URL + `"}` + strings.Repeat(`,"@type":"type.googleapis.com/google.protobuf.Any"}`, n)
		}
		for name, body := range map[string]string{
			"resources":       `{"resources":[` + strings.Repeat(`{"@type":"`+xds.Cluster.URL+`","name":"c"},`, 1000) + `]}`,
			"an Any in Any":   `{"resources":[` + nested(30) + `]}`,
			"resource errors": `{"resource_errors":[` + strings.Repeat(`{"resource_name":{"name":"c"}},`, 1000) + `]}`,
			"something else":  `{"x":"` + strings.Repeat("x", 1<<20) + `"}`,
		} {
			// The context ends while the response is decoded.
			ctx := &countdown{Context: t.Context(), left: 10}
			if _, err := tr.(*transport).decode(ctx, xds.Cluster, []byte(body)); !errors.Is(err, context.Canceled) || ctx.left < -10 {
				t.Errorf("%s: %v, and the context was checked %d times more", name, err, -ctx.left)
			}
		}
		r := decode(xds.Cluster, `{"resources":[`+nested(1500)+`,{"@type":"`+xds.Cluster.URL+`","name":"c"}]}`)
		if len(r.Upserts) != 1 || len(r.Malformed) != 1 || !strings.Contains(r.Malformed[0].Error(), "exceeded max recursion depth") {
			t.Errorf("Any in Any, 1,500 deep: %v %v", r.Upserts, r.Malformed)
		}
	})
	t.Run("TTL-4 CLI-8 resources in a wrapper", func(t *testing.T) {
		r := decode(xds.Cluster, `{"versionInfo":"1","resources":[{"@type":"type.googleapis.com/envoy.service.discovery.v3.Resource","name":"a","version":"1","ttl":"2s","resource":{"@type":"`+xds.Cluster.URL+`","name":"a"}},
			{"@type":"type.googleapis.com/envoy.service.discovery.v3.Resource","name":"b","version":"1","ttl":"2s"}]}`)
		if len(r.Upserts) != 1 || r.Upserts[0].TTL != 2*time.Second || len(r.Beats) != 1 || r.Beats[0].Name != "b" || len(r.Malformed) > 0 {
			t.Errorf("%+v %v", r.Changes, r.Malformed)
		}
	})
	t.Run("CLI-11 resource_errors", func(t *testing.T) {
		r := decode(xds.Cluster, `{"resource_errors":[{"resource_name":{"name":"a"},"error_detail":{"code":5}},{"resourceName":{"name":"b"},"errorDetail":{"code":7,"message":"no"}},{}], "resources":null}`)
		if !slices.Equal(r.Missing, []string{"a"}) || len(r.Errors) != 1 || r.Errors[0] != (xds.ResourceError{Name: "b", Status: xds.Status{Code: 7, Message: "no"}}) || len(r.Malformed) != 1 {
			t.Errorf("%+v %v", r, r.Malformed)
		}
	})
}

// A resource that takes a hundred times its size while it is decoded is refused before that.
func TestLimitOfValues(t *testing.T) {
	for filters, exceeds := range map[int]bool{50: false, 51: true} { // 104 and 106 values
		within(t, fmt.Sprintf("SAFE-14 %d filters", filters), func(t *testing.T) {
			k := begin(t, Options{Limit: xds.MemoryLimit{Bytes: 104 * valueCost, Hint: "raise it"}})
			k.send(&xds.Request{Type: xds.Cluster})
			k.next(0).say(200, `{"version_info":"1","resources":[{"@type":"`+xds.Cluster.URL+`","name":"c","filters":[{}`+strings.Repeat(",{}", filters-1)+`]}]}`)
			if !exceeds {
				k.hears("1")
				return
			}
			err := k.fails("http://server/base: line 1:34: a resource of 106 values counts as 13568 bytes, more than the limit of 13312 bytes (raise it)")
			if _, is := errors.AsType[*xds.LimitError](err); !is {
				t.Error(err)
			}
		})
	}
}

// A countdown is a context that ends after a number of calls of Err.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

func FuzzDecode(f *testing.F) {
	t, err := New("http://x", Options{})
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{`{}`, response("1"), `{"resources":[{"@type":"` + xds.Cluster.URL + `","name":"a"}],"type_url":"` + xds.Cluster.URL + `","nonce":"1"}`, `{"resourceErrors":[{"resourceName":{"name":"b"},"errorDetail":{"code":7,"message":"no"}}]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(test *testing.T, b []byte) {
		r, err := t.(*transport).decode(test.Context(), xds.Cluster, b)
		// Any response that protojson accepts is accepted.
		var m discovery.DiscoveryResponse
		if protojson.Unmarshal(b, &m) == nil && err != nil {
			test.Fatal(err)
		}
		if err != nil {
			return
		}
		for _, u := range r.Upserts {
			if err := u.CheckType(xds.Cluster); err != nil {
				test.Fatal(err)
			}
		}
	})
}

// The client with the server of this repository, for each type with a path.
func TestServer(t *testing.T) {
	st := store.New(store.WithEmptyGroups())
	s := server.New(st)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{Handler: serverrest.New(s)}
	done := make(chan struct{})
	go func() { defer close(done); web.Serve(lis) }()
	defer func() { s.Drain(context.Background()); web.Close(); <-done }()
	tr, err := New("http://"+lis.Addr().String(), Options{Refresh: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	for typ, m := range map[*xds.Type][2]proto.Message{
		xds.Cluster:         {&clusterv3.Cluster{Name: "a"}, &clusterv3.Cluster{Name: "a", AltStatName: "b"}},
		xds.Endpoint:        {&endpointv3.ClusterLoadAssignment{ClusterName: "a"}, &endpointv3.ClusterLoadAssignment{ClusterName: "a", Policy: &endpointv3.ClusterLoadAssignment_Policy{}}},
		xds.Listener:        {&listenerv3.Listener{Name: "a"}, &listenerv3.Listener{Name: "a", StatPrefix: "b"}},
		xds.Route:           {&routev3.RouteConfiguration{Name: "a"}, &routev3.RouteConfiguration{Name: "a", RequestHeadersToRemove: []string{"b"}}},
		xds.ScopedRoute:     {&routev3.ScopedRouteConfiguration{Name: "a"}, &routev3.ScopedRouteConfiguration{Name: "a", RouteConfigurationName: "b"}},
		xds.Secret:          {&tlsv3.Secret{Name: "a"}, &tlsv3.Secret{Name: "a", Type: &tlsv3.Secret_GenericSecret{}}},
		xds.ExtensionConfig: {&corev3.TypedExtensionConfig{Name: "a"}, &corev3.TypedExtensionConfig{Name: "a", TypedConfig: nil}},
		xds.Runtime:         {&runtimev3.Runtime{Name: "a"}, &runtimev3.Runtime{Name: "a", Layer: &structpb.Struct{}}},
	} {
		t.Run("REST-1 REST-7 CLI-1 "+typ.Short, func(t *testing.T) {
			set := func(m proto.Message) *xds.Resource {
				r, err := wire.NewResource(typ, "", m)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := st.Update(func(tx *store.Tx) error { tx.Set(r); return nil }); err != nil {
					t.Fatal(err)
				}
				return r
			}
			hears := func(s client.Stream, want *xds.Resource) *xds.Response {
				t.Helper()
				r, err := s.Recv()
				if err != nil || len(r.Upserts) != 1 || len(r.Malformed) > 0 || !bytes.Equal(r.Upserts[0].Body, want.Body) || !r.Type.Is(typ) {
					t.Fatalf("%+v %v", r, err)
				}
				return r
			}
			first := set(m[0])
			s, err := tr.Open(t.Context(), typ)
			if err != nil {
				t.Fatal(err)
			}
			s.Send(&xds.Request{Type: typ, Names: []string{"a"}, Node: &xds.Node{ID: "n"}})
			r := hears(s, first)
			s.Send(&xds.Request{Type: typ, Names: []string{"a"}, Version: r.Version, Nonce: r.Nonce})
			if second := set(m[1]); second.Sum != first.Sum {
				hears(s, second)
			}
		})
	}
}
