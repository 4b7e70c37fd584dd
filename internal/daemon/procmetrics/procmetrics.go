// Package procmetrics exports metrics of the process to Prometheus: the Go runtime, connections, log
// lines and certificates. Package metrics exports those of the xDS server. Package procmetrics starts
// no goroutine.
package procmetrics

import (
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/chancery-xds/chancery/internal/promx"
	"github.com/chancery-xds/chancery/metrics"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// Options configure [New]. The zero value is ready to use.
type Options struct {
	// Version and Revision are those of the program; "" is shown as "unknown".
	Version, Revision string

	Snapshot func() *store.Snapshot      // see [metrics.Options]
	Newest   func() (store.Commit, bool) // see [metrics.Options]
	Group    func(*xds.Node) string      // see [metrics.Options]
}

// Metrics are the metrics of the process and of its server. They are safe for concurrent use; create them
// with [New].
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
	return &Metrics{metrics.New(metrics.Options{Registry: r, Snapshot: o.Snapshot, Newest: o.Newest, Group: o.Group}), metrics.NewLoads(r), r}
}

// Registry returns the registry, so that others can register more metrics.
func (m *Metrics) Registry() prometheus.Registerer { return m.registry }

// Connections adds the number of open connections of clients, and the number of those closed because
// too many were open.
func (m *Metrics) Connections(open func() int, closed func() uint64) {
	m.registry.MustRegister(
		promx.Gauge("connections", "Open connections of clients.", open),
		promx.Counter("connections_closed_total", "Connections closed because too many were open (--max-connections).", closed),
	)
}

// Shed adds the number of streams that this server ended because it had more than its share.
func (m *Metrics) Shed(n func() uint64) {
	m.registry.MustRegister(promx.Counter("streams_shed_total", "Streams ended since this server had more than its share (--shed-surplus). Absent: it is off.", n))
}

// Quarantined adds the number of resources in quarantine, of these the number with an earlier version that
// others accepted, and the number of finished searches for a refused resource, by result.
func (m *Metrics) Quarantined(n, early func() int, searches func() map[string]uint64) {
	m.registry.MustRegister(
		promx.Gauge("quarantined_resources", "Resources in quarantine: clients refused them and do not get them. Counted once for each client.", n),
		promx.Gauge("earlier_versions", "Resources for which a client gets an earlier version that other clients accepted, since it refused the newest and had none. Counted once for each client.", early),
		promx.Labelled("quarantine_searches_total", "Searches by bisecting for the resource that a client refuses, by result.", "result", searches),
	)
}

// Log adds the number of lost log lines.
func (m *Metrics) Log(lost func() uint64) {
	m.registry.MustRegister(promx.Counter("log_lines_lost_total", "Log lines lost because the reader of the log was too slow.", lost))
}

// Handshakes adds the number of failed TLS handshakes, by reason.
func (m *Metrics) Handshakes(counts func() map[string]uint64) {
	m.registry.MustRegister(promx.Labelled("tls_handshakes_failed_total", "TLS handshakes that failed, by reason. closed: the client closed the connection without a reason, as health checks of load balancers do.", "reason", counts))
}

// TLS adds the time when the first certificate of the server expires.
func (m *Metrics) TLS(expiry func() time.Time) {
	m.registry.MustRegister(promx.FirstExpiry("tls_certificate_first_expiry_timestamp_seconds",
		"When the first certificate of the server (--tls-cert) expires, in Unix time. Absent: no TLS.", expiry))
}

// LastGood adds whether the served configuration was restored from disk, and whether it is stored there.
// kept is nil if the flags ask to store nothing.
func (m *Metrics) LastGood(restored, kept func() bool) {
	m.registry.MustRegister(promx.Flag("config_restored", "1 while the server serves the last good configuration from before its start, because the files have errors.", restored))
	if kept != nil {
		m.registry.MustRegister(promx.Flag("config_kept", "1 if the last good configuration is stored in --state-dir; 0: a restart with invalid files would serve an older one, or nothing. Absent: --state-dir is empty.", kept))
	}
}

// Handler serves the metrics to Prometheus.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		EnableOpenMetrics: true,
		CoalesceGather:    true, // concurrent scrapes share one count of the resources
		ErrorHandling:     promhttp.ContinueOnError,
	})
}

// buildInfo returns a metric that is always 1 and has the version in its labels.
func buildInfo(version, revision string) prometheus.Collector {
	known := func(s string) string {
		if s == "" {
			return "unknown"
		}
		return s
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: promx.Prefix + "build_info", Help: "Version of the running program, as labels. Always 1.",
		ConstLabels: prometheus.Labels{"version": known(version), "revision": known(revision), "goversion": runtime.Version()},
	})
	info.Set(1)
	return info
}
