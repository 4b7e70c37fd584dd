// Package trace exports spans to OpenTelemetry that show how a commit reaches the clients. A commit
// is a span ("xds.commit"). Each of its first responses is a child span ("xds.push"), which ends with
// the answer of the client. A response to a stream that began after the commit has no span.
//
// Streams have no span: a span is exported when it ends, and streams last for days.
package trace

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

const (
	// maxPushes is the maximum number of spans for the responses to one commit. More would add
	// little, because the clients of a fleet behave alike.
	maxPushes = 100

	// maxOpen is the maximum number of spans that wait for an answer, over all commits.
	maxOpen = 1000

	// recent is the time after a commit in which a response counts as its result.
	recent = time.Minute
)

// A Traces exports spans of commits and of the responses that the commits cause. It is an observer of
// a server. Create it with [Open] or [New].
type Traces struct {
	provider *trace.TracerProvider
	tracer   api.Tracer
	newest   func() (store.Commit, bool)

	mu     sync.Mutex
	seq    uint64 // number of the last commit
	at     time.Time
	commit api.SpanContext
	pushes int               // number of child spans of commit
	open   map[push]api.Span // spans that wait for an answer
}

// A push identifies a sent response.
type push struct {
	stream uint64
	typ    *xds.Type
	nonce  string
}

// Enabled reports whether the environment names a collector for traces, as OpenTelemetry specifies.
func Enabled() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// Open returns traces that are exported as the environment configures (OTEL_*). The function newest
// returns the newest commit. Several goroutines call it, for each response.
func Open(ctx context.Context, version string, newest func() (store.Commit, bool)) (*Traces, error) {
	var client otlptrace.Client
	switch p := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"), "http/protobuf"); p {
	case "grpc":
		client = otlptracegrpc.NewClient()
	case "http/protobuf":
		client = otlptracehttp.NewClient()
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL: must be grpc or http/protobuf, not %q", p)
	}
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("traces (OTEL_*): %w", err)
	}
	of, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "chancery"), attribute.String("service.version", version)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("traces (OTEL_RESOURCE_ATTRIBUTES): %w", err)
	}
	return New(newest, trace.WithBatcher(exporter), trace.WithResource(of)), nil
}

// New returns traces that are exported as opts configure.
func New(newest func() (store.Commit, bool), opts ...trace.TracerProviderOption) *Traces {
	p := trace.NewTracerProvider(opts...)
	return &Traces{provider: p, tracer: p.Tracer("github.com/chancery-xds/chancery"), newest: newest, open: map[push]api.Span{}}
}

// Close exports the remaining spans. It returns at the latest when ctx is done.
func (t *Traces) Close(ctx context.Context, log *slog.Logger) {
	t.mu.Lock()
	for k, span := range t.open {
		span.End()
		delete(t.open, k)
	}
	t.mu.Unlock()
	if err := t.provider.Shutdown(ctx); err != nil {
		log.Warn("the last traces could not be sent", "error", err)
	}
}

// Committed exports the span of a new commit, if there is one. So a commit that causes no response
// has a span, too. A nil Traces does nothing.
func (t *Traces) Committed() {
	if t != nil {
		t.look()
	}
}

// look exports the span of a new commit. It returns the span and the time of the newest commit, and
// whether there is room for another child span.
func (t *Traces) look() (commit api.SpanContext, at time.Time, more bool) {
	c, ok := t.newest()
	t.mu.Lock()
	defer t.mu.Unlock()
	if ok && c.Seq > t.seq {
		set, removed, groups := 0, 0, map[string]bool{}
		for _, d := range c.Changes {
			set, removed = set+d.Set, removed+d.Removed
			groups[d.Group] = true
		}
		_, span := t.tracer.Start(context.Background(), "xds.commit", api.WithTimestamp(c.Time), api.WithNewRoot(), api.WithAttributes(
			attribute.Int64("xds.revision", int64(c.Seq)), attribute.Int("xds.resources.set", set),
			attribute.Int("xds.resources.removed", removed), attribute.Int("xds.groups", len(groups))))
		span.End(api.WithTimestamp(c.Time))
		t.seq, t.at, t.commit, t.pushes = c.Seq, c.Time, span.SpanContext(), 0
	}
	return t.commit, t.at, t.pushes < maxPushes && len(t.open) < maxOpen
}

var _ server.CodesOnly = (*Traces)(nil)

// CodesOnly implements [server.CodesOnly].
func (t *Traces) CodesOnly() {}

// Opened implements [server.Observer].
func (t *Traces) Opened(*server.Stream) {}

// Event implements [server.Observer].
func (t *Traces) Event(s *server.Stream, e protocol.Event) {
	switch e.Kind {
	case protocol.Sent:
		if e.Beats == 0 {
			t.sent(s, e)
		}
	case protocol.Acked, protocol.Nacked:
		t.answered(push{s.ID, e.Type, e.Nonce}, e)
	}
}

// Closed implements [server.Observer]. It ends the spans that the stream has not answered.
func (t *Traces) Closed(s *server.Stream, _ error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, span := range t.open {
		if k.stream == s.ID {
			span.SetStatus(codes.Error, "the stream ended without an answer")
			span.End()
			delete(t.open, k)
		}
	}
}

func (t *Traces) sent(s *server.Stream, e protocol.Event) {
	commit, at, more := t.look()
	now := time.Now()
	if !more || !commit.IsSampled() || !s.Since.Before(at) || now.Sub(at) > recent {
		return
	}
	_, span := t.tracer.Start(api.ContextWithSpanContext(context.Background(), commit), "xds.push", api.WithTimestamp(now), api.WithSpanKind(api.SpanKindProducer), api.WithAttributes(
		attribute.String("xds.node", clip(s.Node.ID)), attribute.String("xds.type", e.Type.Short), attribute.String("xds.version", clip(e.Version)),
		attribute.String("xds.variant", s.Variant.String()), attribute.Int("xds.resources.set", e.Count), attribute.Int("xds.resources.removed", e.Removed)))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pushes++
	t.open[push{s.ID, e.Type, e.Nonce}] = span
}

func (t *Traces) answered(k push, e protocol.Event) {
	t.mu.Lock()
	span := t.open[k]
	delete(t.open, k)
	t.mu.Unlock()
	if span == nil {
		return
	}
	if e.Kind == protocol.Nacked { // the client's text may contain a secret; the log has the redacted text
		span.SetStatus(codes.Error, "the client refused the response (NACK)")
		span.AddEvent("xds.nack")
	} else {
		span.AddEvent("xds.ack")
	}
	span.End()
}

// clip shortens a text of a client.
func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), 256)], "") }
