package metrics

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/internal/promx"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const prefix = promx.Prefix

// made returns metrics in their own registry.
func made(o Options) *Metrics {
	o.Registry = prometheus.NewRegistry()
	return New(o)
}

func gatherer(m *Metrics) prometheus.Gatherer { return m.registry.(*prometheus.Registry) }

// scrape returns the project's series as Prometheus gets them.
func scrape(t *testing.T, m *Metrics) map[string]string {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(gatherer(m), promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	series := map[string]string{}
	for line := range strings.Lines(w.Body.String()) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "} "); ok && strings.HasPrefix(line, prefix) {
			series[name+"}"] = value
		} else if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.HasPrefix(line, prefix) {
			series[name] = value
		}
	}
	return series
}

// moved returns the series that f changes, with their new values. It leaves out buckets and the hash of the
// configuration.
func moved(t *testing.T, m *Metrics, f func()) []string {
	t.Helper()
	before := scrape(t, m)
	f()
	after := scrape(t, m)
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if before[name] != after[name] && !strings.Contains(name, "_bucket{") && name != prefix+"config_hash" {
			lines = append(lines, strings.TrimPrefix(name, prefix)+" "+after[name])
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			lines = append(lines, name+" is gone")
		}
	}
	return lines
}

func expect(t *testing.T, m *Metrics, f func(), want ...string) {
	t.Helper()
	slices.Sort(want)
	got := moved(t, m, f)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("series moved (-want +got):\n%s", diff)
	}
}

func stream(id uint64, v xds.Variant, node string) *server.Stream {
	return &server.Stream{ID: id, Variant: v, Node: &xds.Node{ID: node, Cluster: "edge"}}
}

func TestStreamStory(t *testing.T) {
	m := made(Options{})
	s := stream(1, xds.Delta, "a")
	e := func(e protocol.Event) func() { return func() { m.Event(s, e) } }

	expect(t, m, func() { m.Opened(s) },
		`streams{variant="delta"} 1`,
		`streams_opened_total{variant="delta"} 1`)
	expect(t, m, e(protocol.Event{Kind: protocol.Opened, Type: xds.Cluster}),
		`requests_total{kind="initial",type="cds",variant="delta"} 1`)
	expect(t, m, e(protocol.Event{Kind: protocol.Subscribed, Type: xds.Cluster, Wildcard: true}),
		`requests_total{kind="subscribe",type="cds",variant="delta"} 1`)
	expect(t, m, e(protocol.Event{Kind: protocol.Sent, Type: xds.Cluster, Count: 3, Removed: 2}),
		`responses_total{type="cds",variant="delta"} 1`,
		`resources_sent_total{type="cds"} 3`,
		`response_bytes_count{type="cds"} 1`,
		`resources_removed_total{type="cds"} 2`)
	expect(t, m, e(protocol.Event{Kind: protocol.Acked, Type: xds.Cluster, Settled: true, Took: 1500 * time.Millisecond}),
		`requests_total{kind="ack",type="cds",variant="delta"} 1`,
		`response_ack_seconds_count{type="cds"} 1`,
		`response_ack_seconds_sum{type="cds"} 1.5`)
	expect(t, m, e(protocol.Event{Kind: protocol.Stale, Type: xds.Cluster}),
		`requests_total{kind="stale_nonce",type="cds",variant="delta"} 1`)
	expect(t, m, e(protocol.Event{Kind: protocol.Departed, Type: xds.Cluster, Name: "x"}))
	expect(t, m, e(protocol.Event{Kind: protocol.Waived, Type: xds.Cluster, Name: "x"}))
	expect(t, m, func() { m.Closed(s, nil) },
		`streams{variant="delta"} 0`,
		`streams_closed_total{reason="ended"} 1`)
}

func TestReasons(t *testing.T) {
	m := made(Options{})
	for code, want := range map[codes.Code]string{
		codes.Canceled: "canceled", codes.DeadlineExceeded: "deadline", codes.Unavailable: "drained", codes.InvalidArgument: "malformed",
		codes.ResourceExhausted: "limit", codes.Unauthenticated: "denied", codes.Internal: "other", codes.Code(99): "other",
	} {
		s := stream(1, xds.SotW, "")
		m.Opened(s)
		before := scrape(t, m)[prefix+`streams_closed_total{reason="`+want+`"}`]
		m.Closed(s, status.Error(code, "x"))
		if after := scrape(t, m)[prefix+`streams_closed_total{reason="`+want+`"}`]; before == after {
			t.Errorf("%v is not counted as %q", code, want)
		}
	}
}

// The gauge shows the clients that refuse now. A client with several streams counts once.
func TestClientsNacked(t *testing.T) {
	m := made(Options{Group: func(n *xds.Node) string { return n.Cluster }})
	a1, a2, b := stream(1, xds.SotW, "a"), stream(2, xds.SotW, "a"), stream(3, xds.Delta, "b")
	step := func(s *server.Stream, k protocol.EventKind, typ *xds.Type, refuses bool) {
		m.Event(s, protocol.Event{Kind: k, Type: typ, Settled: true, Refuses: refuses, Took: time.Second})
	}
	gauge := func(typ string) string {
		return scrape(t, m)[prefix+`clients_nacked{group="edge",type="`+typ+`"}`]
	}
	check := func(when, typ, want string) {
		t.Helper()
		if got := gauge(typ); got != want {
			t.Errorf("HEAL-5 %s: %q clients refuse %s, want %s", when, got, typ, want)
		}
	}

	step(b, protocol.Nacked, xds.Secret, false)
	check("a NACK after the ACK of a later response", "sds", "0")
	expect(t, m, func() { step(a1, protocol.Nacked, xds.Route, true) },
		`requests_total{kind="nack",type="rds",variant="sotw"} 1`,
		`response_ack_seconds_count{type="rds"} 1`,
		`response_ack_seconds_sum{type="rds"} 1`,
		`nacks_total{group="edge",type="rds"} 1`,
		`clients_nacked{group="edge",type="rds"} 1`)
	step(a1, protocol.Nacked, xds.Route, true)
	check("again", "rds", "1")
	step(a2, protocol.Nacked, xds.Route, true)
	check("on another stream", "rds", "1")
	step(b, protocol.Nacked, xds.Route, true)
	step(b, protocol.Nacked, xds.Route, true)
	check("another client, twice", "rds", "2")
	step(b, protocol.Nacked, xds.Listener, true)
	check("another type", "lds", "1")

	step(b, protocol.Acked, xds.Route, false)
	check("an ACK alone ends nothing", "rds", "2")
	step(b, protocol.Recovered, xds.Cluster, false)
	check("another type has recovered", "rds", "2")
	step(b, protocol.Recovered, xds.Route, false)
	check("recovered", "rds", "1")
	check("the other type has not", "lds", "1")
	b.Node.Cluster = "core"
	check("the group of the node has changed", "lds", "0")
	if got := scrape(t, m)[prefix+`clients_nacked{group="core",type="lds"}`]; got != "1" {
		t.Errorf("HEAL-5 the new group of the node: %q", got)
	}
	step(b, protocol.Recovered, xds.Listener, false)

	m.Opened(a1)
	m.Closed(a1, nil)
	check("one of two streams ends", "rds", "1")
	m.Opened(a2)
	m.Closed(a2, nil)
	check("both streams have ended", "rds", "0")

	m.streams.refusals.open.Range(func(any, any) bool {
		t.Error("a stream that refuses nothing is remembered")
		return true
	})

	// Without a node id each stream counts.
	step(stream(4, xds.SotW, ""), protocol.Nacked, xds.Route, true)
	step(stream(5, xds.SotW, ""), protocol.Nacked, xds.Route, true)
	check("two without node", "rds", "2")
}

// HEAL-5: the series of refusals exist before the first NACK, for each group that is served.
func TestSeriesOfRefusalsExistFromTheStart(t *testing.T) {
	st := store.New()
	if _, err := st.Update(func(tx *store.Tx) error {
		tx.Group("edge").Set(xds.NewResource(xds.Cluster, "a", []byte("a")))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for group, m := range map[string]*Metrics{
		store.DefaultGroup: made(Options{Snapshot: st.Snapshot}),
		"edge":             made(Options{Snapshot: st.Snapshot, Group: func(n *xds.Node) string { return n.Cluster }}),
	} {
		got := scrape(t, m)
		for _, name := range []string{"clients_nacked", "nacks_total"} {
			for _, typ := range labels {
				if series := prefix + name + `{group="` + group + `",type="` + typ + `"}`; got[series] != "0" {
					t.Errorf("HEAL-5 %s: %q", series, got[series])
				}
			}
		}
	}
}

// Types that the table does not list share a label, even if they were not made with TypeOf.
func TestUnknownTypes(t *testing.T) {
	m := made(Options{})
	s := stream(1, xds.SotW, "a")
	expect(t, m, func() {
		m.Event(s, protocol.Event{Kind: protocol.Sent, Type: xds.TypeOf("type.googleapis.com/x.Y"), Count: 1})
		m.Event(s, protocol.Event{Kind: protocol.Sent, Type: &xds.Type{URL: "type.googleapis.com/x.Z"}, Count: 1})
	},
		`responses_total{type="other",variant="sotw"} 2`,
		`resources_sent_total{type="other"} 2`,
		`response_bytes_count{type="other"} 2`)
	for i, typ := range xds.Types() {
		if index(typ) != i || index(&xds.Type{URL: typ.URL}) != i {
			t.Errorf("%s: index %d, want %d", typ, index(typ), i)
		}
	}
}

func TestContent(t *testing.T) {
	st := store.New()
	m := made(Options{Snapshot: st.Snapshot})
	res := func(names ...string) (all []*xds.Resource) {
		for _, n := range names {
			all = append(all, xds.NewResource(xds.Cluster, n, []byte(n)))
		}
		return all
	}
	update := func(f func(*store.Tx)) func() {
		return func() {
			if _, err := st.Update(func(tx *store.Tx) error { f(tx); return nil }); err != nil {
				t.Fatal(err)
			}
		}
	}
	update(func(tx *store.Tx) { tx.Group("edge").Set(typed(xds.Listener, res("k")...)...) })()
	scrape(t, m) // the series of refusals in a new group begin with this scrape or with the next one
	expect(t, m, update(func(tx *store.Tx) {
		tx.Set(typed(xds.Cluster, res("a", "b")...)...)
		tx.Group("edge").Set(typed(xds.Listener, res("l")...)...)
		tx.Set(typed(xds.TypeOf("x/Y"), res("y")...)...)
		tx.Set(typed(xds.TypeOf("x/Z"), res("z")...)...)
	}),
		`resources{group="default",type="cds"} 2`,
		`resources{group="default",type="other"} 2`,
		`resources{group="edge",type="lds"} 2`)
	expect(t, m, update(func(tx *store.Tx) { tx.Delete(xds.Cluster, "a") }),
		`resources{group="default",type="cds"} 1`)
}

func TestGroupsAreBounded(t *testing.T) {
	m := made(Options{Group: func(n *xds.Node) string { return n.Cluster }})
	for i := range MaxGroups * 3 {
		s := stream(uint64(i), xds.SotW, fmt.Sprint(i))
		s.Node.Cluster = fmt.Sprint("\xff", i)
		m.Event(s, protocol.Event{Kind: protocol.Nacked, Type: xds.Cluster, Settled: true, Refuses: true})
	}
	n := 0
	for name := range scrape(t, m) {
		if strings.HasPrefix(name, prefix+"nacks_total") {
			n++
		}
	}
	if want := (MaxGroups + 1) * len(labels); n != want {
		t.Errorf("%d series, want %d", n, want)
	}
	if got := scrape(t, m)[prefix+`clients_nacked{group="other",type="cds"}`]; got != "200" {
		t.Errorf("other groups: %q, want 200", got)
	}
}

// source is a source of configuration for tests.
type source struct {
	held int
	deaf bool
	ends time.Time
}

func (s *source) Held() int              { return s.held }
func (s *source) MissesChanges() bool    { return s.deaf }
func (s *source) FirstExpiry() time.Time { return s.ends }

func TestLoads(t *testing.T) {
	m, src := made(Options{}), &source{}
	if _, is := scrape(t, m)[prefix+"config_last_load_successful"]; is {
		t.Error("a program that loads nothing has not failed to")
	}
	l := NewLoads(m.registry)
	l.Source(src)
	expect(t, m, func() { l.Loaded(time.UnixMilli(1_500), nil) },
		`config_loads_total{result="success"} 1`,
		`config_last_load_success_timestamp_seconds 1.5`, `config_last_load_successful 1`)
	expect(t, m, func() { l.Loaded(time.UnixMilli(9_500), errors.New("x")) },
		`config_loads_total{result="failure"} 1`, `config_last_load_successful 0`)
	if at, is := scrape(t, m)[prefix+"certificate_first_expiry_timestamp_seconds"]; is {
		t.Error("a certificate that there is not ends at", at)
	}
	expect(t, m, func() { src.held, src.ends = 7, time.Unix(1500, 0) },
		`config_removals_waiting 7`, `certificate_first_expiry_timestamp_seconds 1500`)
	expect(t, m, func() { src.deaf = true }, `watch_deaf 1`)

	// Each of two sources has its own series.
	m = made(Options{})
	edge, internal := NewLoads(prometheus.WrapRegistererWith(prometheus.Labels{"source": "edge"}, m.registry)), NewLoads(prometheus.WrapRegistererWith(prometheus.Labels{"source": "internal"}, m.registry))
	edge.Source(&source{held: 1})
	internal.Source(&source{})
	expect(t, m, func() { edge.Loaded(time.Unix(1, 0), errors.New("x")); internal.Loaded(time.Unix(1, 0), nil) },
		`config_loads_total{result="failure",source="edge"} 1`, `config_loads_total{result="success",source="internal"} 1`,
		`config_last_load_success_timestamp_seconds{source="internal"} 1`, `config_last_load_successful{source="internal"} 1`)
}

// Two servers with the same configuration have the same hash, after any sequence of changes. Servers with
// different configurations have different hashes.
func TestConfigHash(t *testing.T) {
	of := func(writes ...func(*store.Tx)) string {
		st := store.New()
		for _, w := range writes {
			if _, err := st.Update(func(tx *store.Tx) error { w(tx); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		got := scrape(t, made(Options{Snapshot: st.Snapshot}))[prefix+"config_hash"]
		if n, err := strconv.ParseFloat(got, 64); err != nil || n != math.Trunc(n) || n >= 1<<53 {
			t.Errorf("%q is no whole number of 53 bits", got)
		}
		return got
	}
	a, b, other := xds.NewResource(xds.Cluster, "a", []byte("1")), xds.NewResource(xds.Cluster, "b", []byte("1")), xds.NewResource(xds.Cluster, "a", []byte("2"))
	onDemand := xds.NewResource(xds.Cluster, "a", []byte("1"))
	onDemand.OnDemand = true
	set := func(typ *xds.Type, all ...*xds.Resource) func(*store.Tx) {
		return func(tx *store.Tx) { tx.Set(typed(typ, all...)...) }
	}
	if got := of(); got != "0" {
		t.Errorf("nothing has %s", got)
	}
	want := of(set(xds.Cluster, a, b), set(xds.Route, a))
	if got := of(set(xds.Route, other), set(xds.Route, a), set(xds.Cluster, b), set(xds.Cluster, a), set(xds.Endpoint, a), func(tx *store.Tx) { tx.Delete(xds.Endpoint, "a") }); got != want {
		t.Errorf("the same has %s and %s", got, want)
	}
	seen := map[string]string{want: "what there was"}
	for name, writes := range map[string][]func(*store.Tx){
		"one less":      {set(xds.Cluster, a), set(xds.Route, a)},
		"another type":  {set(xds.Cluster, a, b), set(xds.Endpoint, a)},
		"types changed": {set(xds.Route, a, b), set(xds.Cluster, a)},
		"other content": {set(xds.Cluster, other, b), set(xds.Route, a)},
		"on demand":     {set(xds.Cluster, onDemand, b), set(xds.Route, a)},
		"another group": {set(xds.Cluster, a, b), func(tx *store.Tx) { tx.Group("edge").Set(typed(xds.Route, a)...) }},
		"said version":  {set(xds.Cluster, a, b), set(xds.Route, a), func(tx *store.Tx) { tx.Version(xds.Route, "7") }},
	} {
		got := of(writes...)
		if as := seen[got]; as != "" {
			t.Errorf("%s: %s, as %s", name, got, as)
		}
		seen[got] = name
	}
}

func TestServer(t *testing.T) {
	m := made(Options{})
	stats := server.Stats{}
	m.Server(func() server.Stats { return stats })
	expect(t, m, func() {
		stats = server.Stats{Blocked: 3, NodeChanges: 2, Malformed: 4, Denied: 8, Waiting: 5, Throttled: map[string]uint64{"request": 6, "rate": 7}}
	},
		`blocked_writes_total 3`, `node_changes_total 2`, `malformed_requests_total 4`, `denied_total 8`, `first_answers_waiting 5`,
		`throttled_total{limit="request"} 6`, `throttled_total{limit="rate"} 7`)
}

// Names and units follow the conventions of Prometheus, and no label has the name of a node or a stream.
func TestConventions(t *testing.T) {
	m := made(Options{Snapshot: store.New().Snapshot})
	m.Server(func() server.Stats { return server.Stats{} })
	m.Event(stream(77, xds.SotW, "node-77"), protocol.Event{Kind: protocol.Nacked, Type: xds.Cluster, Nonce: "n77", Version: "v77"})
	families, err := gatherer(m).Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, prefix) {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	for name := range scrape(t, m) {
		if strings.Contains(name, "77") {
			t.Errorf("%s depends on a client", name)
		}
	}
}

func TestConcurrent(t *testing.T) {
	m := made(Options{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 200 {
				s := stream(uint64(i*1000+j), xds.SotW, fmt.Sprint(j%3))
				m.Opened(s)
				m.Event(s, protocol.Event{Kind: protocol.Nacked, Type: xds.Cluster, Settled: true, Refuses: true})
				if j%2 == 0 {
					m.Event(s, protocol.Event{Kind: protocol.Acked, Type: xds.Cluster, Settled: true})
					m.Event(s, protocol.Event{Kind: protocol.Recovered, Type: xds.Cluster})
				}
				m.Closed(s, nil)
			}
		})
	}
	wg.Go(func() {
		for range 20 {
			scrape(t, m)
		}
	})
	wg.Wait()
	got := scrape(t, m)
	for name, want := range map[string]string{
		`streams{variant="sotw"}`:                              "0",
		`streams_opened_total{variant="sotw"}`:                 "1600",
		`nacks_total{group="default",type="cds"}`:              "1600",
		`clients_nacked{group="default",type="cds"}`:           "0",
		`response_ack_seconds_count{type="cds"}`:               "2400",
		`streams_closed_total{reason="ended"}`:                 "1600",
		`requests_total{kind="ack",type="cds",variant="sotw"}`: "800",
	} {
		if got[prefix+name] != want {
			t.Errorf("%s is %q, want %s", name, got[prefix+name], want)
		}
	}
}

// usual are the events of a response, its answer and a change of the subscription.
func usual(typ *xds.Type) []protocol.Event {
	return []protocol.Event{
		{Kind: protocol.Sent, Type: typ, Nonce: "1", Version: "v", Count: 3},
		{Kind: protocol.Acked, Type: typ, Nonce: "1", Version: "v", Took: 3 * time.Millisecond, Settled: true},
		{Kind: protocol.Subscribed, Type: typ, Count: 3},
	}
}

func TestEventsCostNoMemory(t *testing.T) {
	m := made(Options{})
	s, bad := stream(1, xds.Delta, "a"), stream(2, xds.Delta, "b")
	m.Event(bad, protocol.Event{Kind: protocol.Nacked, Type: xds.Route, Settled: true}) // a refusal elsewhere costs the others nothing
	for _, typ := range []*xds.Type{xds.Cluster, xds.Runtime, xds.TypeOf("x/Y")} {
		events := usual(typ)
		if n := testing.AllocsPerRun(100, func() {
			for _, e := range events {
				m.Event(s, e)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations for %d events, want none", typ, n, len(events))
		}
	}
}

func BenchmarkEvent(b *testing.B) {
	m := made(Options{})
	s := stream(1, xds.Delta, "a")
	m.Event(stream(2, xds.Delta, "b"), protocol.Event{Kind: protocol.Nacked, Type: xds.Route, Settled: true})
	for _, e := range usual(xds.Runtime) {
		b.Run(e.Kind.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m.Event(s, e)
			}
		})
	}
	b.Run("acked in parallel", func(b *testing.B) {
		e := usual(xds.Runtime)[1]
		b.ReportAllocs()
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				m.Event(s, e)
			}
		})
	})
}

// typed sets the type of resources, if they have none.
func typed(t *xds.Type, rs ...*xds.Resource) (all []*xds.Resource) {
	for _, r := range rs {
		n := xds.NewResource(t, r.Name, r.Body)
		n.OnDemand = r.OnDemand
		all = append(all, n)
	}
	return all
}
