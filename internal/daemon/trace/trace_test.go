package trace

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func set(t *testing.T, st *store.Store, name, body string) {
	t.Helper()
	if _, err := st.Update(func(tx *store.Tx) error { tx.Set(xds.NewResource(xds.Cluster, name, []byte(body))); return nil }); err != nil {
		t.Fatal(err)
	}
}

// A commit is a span. A response to the commit, with its answer, is a child span. Responses to a new
// client have no span.
func TestSpansOfCommitAndResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.New()
		set(t, st, "a", "1")
		all := tracetest.NewInMemoryExporter()
		tr := New(st.Newest, trace.WithSyncer(all))
		srv := server.New(st, server.WithObserver(tr), server.WithLogger(slog.New(slog.DiscardHandler)))
		c := xdstest.Delta(t, xdstest.Serve(t, srv), xdstest.WithNode(xds.Node{ID: "n"}))
		c.Subscribe(xds.Cluster, "*")
		time.Sleep(time.Second)
		c.ACK(c.Expect(xds.Cluster, "a"))
		synctest.Wait()
		if got := names(all); !slices.Equal(got, []string{"xds.commit"}) {
			t.Fatalf("spans of the first responses: %v", got)
		}
		all.Reset()
		time.Sleep(time.Second)
		set(t, st, "a", "2")
		r := c.Expect(xds.Cluster, "a")
		time.Sleep(3 * time.Second)
		c.ACK(r)
		set(t, st, "a", "3")
		c.NACK(c.Expect(xds.Cluster, "a"), "password is hunter2")
		set(t, st, "a", "4")
		c.Expect(xds.Cluster, "a")
		synctest.Wait()
		spans := all.GetSpans()
		if got := names(all); !slices.Equal(got, []string{"xds.commit", "xds.push", "xds.commit", "xds.push", "xds.commit"}) {
			t.Fatalf("spans %v", got)
		}
		commit, ack, nack := spans[0], spans[1], spans[3]
		if ack.Parent.SpanID() != commit.SpanContext.SpanID() || nack.Parent.SpanID() != spans[2].SpanContext.SpanID() {
			t.Error("a push is not below its commit")
		}
		if took := ack.EndTime.Sub(ack.StartTime); took != 3*time.Second {
			t.Errorf("a push took %v until it was answered, not 3s", took)
		}
		if ack.Status.Code != codes.Unset || ack.Events[0].Name != "xds.ack" || nack.Status.Code != codes.Error || nack.Events[0].Name != "xds.nack" {
			t.Errorf("ACK: %+v %+v, NACK: %+v %+v", ack.Status, ack.Events, nack.Status, nack.Events)
		}
		for _, s := range spans {
			for _, a := range s.Attributes {
				if strings.Contains(a.Value.String(), "hunter2") {
					t.Errorf("SAFE-6 a trace has the text of a client: %v", a)
				}
			}
		}
		tr.Close(t.Context(), slog.New(slog.DiscardHandler))
		if last := all.GetSpans(); len(last) > 0 && last[len(last)-1].Name != "xds.push" {
			t.Error("open spans are lost at the end")
		}
	})
}

func names(all *tracetest.InMemoryExporter) (names []string) {
	for _, s := range all.GetSpans() {
		names = append(names, s.Name)
	}
	return names
}

// With many clients, a commit has at most a hundred spans, and at most a thousand spans wait for
// answers.
func TestSpansAreLimited(t *testing.T) {
	all := tracetest.NewInMemoryExporter()
	commit := store.Commit{Seq: 1, Time: time.Now()}
	tr := New(func() (store.Commit, bool) { return commit, true }, trace.WithSyncer(all))
	defer tr.Close(t.Context(), slog.New(slog.DiscardHandler))
	send := func(id uint64) *server.Stream {
		s := &server.Stream{ID: id, Node: &xds.Node{ID: strings.Repeat("n", 1000)}, Since: commit.Time.Add(-time.Hour)}
		tr.Event(s, protocol.Event{Kind: protocol.Sent, Type: xds.Cluster, Nonce: "1"})
		return s
	}
	for id := range uint64(500) {
		send(id)
	}
	if len(tr.open) != maxPushes {
		t.Errorf("%d spans of a commit", len(tr.open))
	}
	for commit.Seq < 20 {
		commit.Seq++
		for id := range uint64(200) {
			send(commit.Seq*1000 + id)
		}
	}
	if len(tr.open) != maxOpen {
		t.Errorf("%d spans wait", len(tr.open))
	}
	tr.Closed(send(3), nil)
	if len(tr.open) != maxOpen-1 {
		t.Errorf("%d spans wait after a stream has ended", len(tr.open))
	}
	old := commit
	commit.Seq, commit.Time = 21, old.Time.Add(-2*recent)
	send(9999)
	if len(tr.open) != maxOpen-1 {
		t.Error("a late response counts as part of the commit")
	}
}

// The environment enables traces, as OpenTelemetry specifies.
func TestEnabled(t *testing.T) {
	for _, tt := range []struct {
		env  map[string]string
		want bool
	}{
		{nil, false},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, true},
		{map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1"}, true},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"}, false},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"}, false},
	} {
		for _, k := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER"} {
			t.Setenv(k, tt.env[k])
		}
		if got := Enabled(); got != tt.want {
			t.Errorf("%v: %v", tt.env, got)
		}
	}
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
	if _, err := Open(t.Context(), "v", nil); err == nil || !strings.Contains(err.Error(), `must be grpc or http/protobuf, not "http/json"`) {
		t.Error(err)
	}
}
