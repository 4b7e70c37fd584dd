package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/chancery-xds/chancery/internal/promx"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// streams counts events of streams. All series of a type exist from the start, so that the first
// event is visible as a change from zero. To count an event takes an index and an atomic addition.
type streams struct {
	byType   []typeMetrics // by index
	open     [2]prometheus.Gauge
	opened   [2]prometheus.Counter
	closed   []prometheus.Counter // by code
	refusals *refusals
}

// typeMetrics are the metrics of one type.
type typeMetrics struct {
	requests  [2][len(kinds)]prometheus.Counter // by variant and kind; nil for kinds that are not requests
	responses [2]prometheus.Counter
	sent      prometheus.Counter
	removed   prometheus.Counter
	retries   [2]prometheus.Counter // refused content that was sent again: refused once more, accepted
	answered  prometheus.Observer
	bytes     prometheus.Observer
	reached   prometheus.Observer
}

// kinds are the labels of events that are caused by requests.
var kinds = [...]string{
	protocol.Opened:     "initial",
	protocol.Subscribed: "subscribe",
	protocol.Acked:      "ack",
	protocol.Nacked:     "nack",
	protocol.Stale:      "stale_nonce",
}

// reasons are the labels for the ends of streams, by the status code of the stream.
var reasons = [...]string{
	codes.OK:                "ended", // the client closed the stream
	codes.Canceled:          "canceled",
	codes.DeadlineExceeded:  "deadline", // the client did not read in time, or its own deadline passed
	codes.Unavailable:       "drained",
	codes.InvalidArgument:   "malformed",
	codes.ResourceExhausted: "limit",
	codes.PermissionDenied:  "denied",
	codes.Unauthenticated:   "denied",
}

func reason(c codes.Code) string {
	if int(c) < len(reasons) && reasons[c] != "" {
		return reasons[c]
	}
	return other
}

func newStreams(r prometheus.Registerer, refusals *refusals) *streams {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: promx.Prefix + name, Help: help}, labels)
		register(r, c)
		return c
	}
	open := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: promx.Prefix + "streams", Help: "Open streams that have sent a request."}, []string{"variant"})
	opened := counter("streams_opened_total", "Streams that have sent their first request.", "variant")
	closed := counter("streams_closed_total", "Streams closed, by reason.", "reason")
	requests := counter("requests_total", "Requests, by kind. A request that answers a response and changes the subscription counts as both.", "type", "variant", "kind")
	responses := counter("responses_total", "Responses sent.", "type", "variant")
	sent := counter("resources_sent_total", "Resources in responses sent.", "type")
	removed := counter("resources_removed_total", "Names in responses sent that say that a resource was removed or does not exist.", "type")
	retries := counter("refused_retries_total", "Responses with content that the client had refused before, by its answer.", "type", "result")
	answered := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: promx.Prefix + "response_ack_seconds", Help: "Time from sending a response until the client accepts (ACK) or refuses (NACK) it, in seconds.",
		// Envoy answers for clusters when they are warm, which may take 15 s.
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
	}, []string{"type"})
	bytes := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: promx.Prefix + "response_bytes", Help: "Size of responses sent, in bytes; heartbeats have none. Clients of gRPC accept 4 MiB by default.",
		Buckets: []float64{1 << 10, 10 << 10, 100 << 10, 1 << 20, 4 << 20, 10 << 20, 40 << 20},
	}, []string{"type"})
	reached := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: promx.Prefix + "propagation_seconds", Help: "Time from a change of the configuration until a client that was there before has accepted it, in seconds.",
		Buckets: []float64{.0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
	}, []string{"type"})
	register(r, open, answered, bytes, reached, refusals)

	s := &streams{refusals: refusals}
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		s.open[v], s.opened[v] = open.WithLabelValues(v.String()), opened.WithLabelValues(v.String())
	}
	for c := range codes.Unauthenticated + 1 {
		s.closed = append(s.closed, closed.WithLabelValues(reason(c)))
	}
	for _, label := range labels {
		t := typeMetrics{
			sent: sent.WithLabelValues(label), removed: removed.WithLabelValues(label), answered: answered.WithLabelValues(label),
			bytes: bytes.WithLabelValues(label), reached: reached.WithLabelValues(label),
			retries: [2]prometheus.Counter{retries.WithLabelValues(label, "refused"), retries.WithLabelValues(label, "accepted")},
		}
		for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
			t.responses[v] = responses.WithLabelValues(label, v.String())
			for kind, name := range kinds {
				if name != "" {
					t.requests[v][kind] = requests.WithLabelValues(label, v.String(), name)
				}
			}
		}
		s.byType = append(s.byType, t)
	}
	return s
}
