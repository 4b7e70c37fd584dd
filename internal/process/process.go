// Package process counts what the program does besides what its server does, for
// Prometheus: package metrics has that. It starts no goroutine.
package process

import (
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/chancery-xds/chancery/internal/series"
	"github.com/chancery-xds/chancery/metrics"
	"github.com/chancery-xds/chancery/store"
)

// Options say what runs. The zero value is ready to use.
type Options struct {
	// Version and Revision are the program's; "" becomes "unknown".
	Version, Revision string

	Snapshot func() *store.Snapshot // see [metrics.Options]
}

// Metrics are those of the program, and of its server. They are safe for concurrent use;
// create them with [New].
type Metrics struct {
	*metrics.Metrics
	*metrics.Loads
	registry *prometheus.Registry
}

// New returns metrics that are all zero.
func New(o Options) *Metrics {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildInfo(o.Version, o.Revision),
	)
	return &Metrics{metrics.New(metrics.Options{Registry: r, Snapshot: o.Snapshot}), metrics.NewLoads(r), r}
}

// Connections adds how many connections of clients are open, and how many were closed
// since there were too many.
func (m *Metrics) Connections(open func() int, closed func() uint64) {
	m.registry.MustRegister(
		series.Gauge("connections", "Connections of clients that are open.", open),
		series.Counter("connections_closed_total", "Connections closed since too many were open.", closed),
	)
}

// Log adds how many lines of the log were lost.
func (m *Metrics) Log(lost func() uint64) {
	m.registry.MustRegister(series.Counter("log_lines_lost_total", "Lines of the log that were lost, since who reads it is too slow.", lost))
}

// Handshakes adds how many TLS handshakes have failed, by reason.
func (m *Metrics) Handshakes(counts func() map[string]uint64) {
	m.registry.MustRegister(series.Labelled("tls_handshakes_failed_total", "TLS handshakes that have failed, by reason; closed: without a word, which is how load balancers look whether somebody listens.", "reason", counts))
}

// TLS adds when the first certificate ends of those that the server shows its clients.
func (m *Metrics) TLS(expiry func() time.Time) {
	m.registry.MustRegister(series.FirstExpiry("tls_certificate_first_expiry_timestamp_seconds",
		"When the first certificate ends of those that the server shows its clients, in Unix time. None: it has no TLS.", expiry))
}

// LastGood adds whether what is served was restored from disk, and whether it is kept
// there; kept is nil if that is not wanted.
func (m *Metrics) LastGood(restored, kept func() bool) {
	m.registry.MustRegister(series.Flag("config_restored", "1 while what is served is the last good configuration of before the start, since the files could not be loaded.", restored))
	if kept != nil {
		m.registry.MustRegister(series.Flag("config_kept", "1 if this server keeps on disk what it serves; 0: a start on bad files has something older, or nothing. None: that is not wanted.", kept))
	}
}

// Handler serves the metrics to Prometheus.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		EnableOpenMetrics: true,
		CoalesceGather:    true, // any number of scrapers costs one count of the store at a time
		ErrorHandling:     promhttp.ContinueOnError,
	})
}

// buildInfo is 1, and its labels are the information.
func buildInfo(version, revision string) prometheus.Collector {
	known := func(s string) string {
		if s == "" {
			return "unknown"
		}
		return s
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: series.Prefix + "build_info", Help: "What runs: always 1, told by the labels.",
		ConstLabels: prometheus.Labels{"version": known(version), "revision": known(revision), "goversion": runtime.Version()},
	})
	info.Set(1)
	return info
}
