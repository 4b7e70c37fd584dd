// Package metrics counts what the daemon does, for Prometheus. It observes and
// decides nothing, starts no goroutine, and costs a step of a stream no memory.
//
// How many series there are does not depend on how many clients there are, nor
// on what they send: a label is a row of the table of types in lower case
// ("cds"; "other" for all types it does not list), a group (the first
// [MaxGroups] that were seen; "other" for the rest), or one of a few words.
// There is none for nodes, streams, names or versions.
package metrics

import (
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// Options say where metrics come from. The zero value is ready to use.
type Options struct {
	// Version and Revision are the program's; "" becomes "unknown".
	Version, Revision string

	// Group says which group a node sees: the function given to
	// [store.WithSelect]. Nil: all see the default group. It is called when a
	// client has refused a response.
	Group func(*xds.Node) string

	// Snapshot returns what is served, to be counted at each scrape. Nil: not
	// counted.
	Snapshot func() *store.Snapshot
}

// Metrics are the daemon's metrics. They are safe for concurrent use; create
// them with [New]. As a [server.Observer] they count what happens on streams.
type Metrics struct {
	registry *prometheus.Registry
	streams  *streams
	loads    *loads
}

// New returns metrics that are all zero.
func New(o Options) *Metrics {
	if o.Group == nil {
		o.Group = func(*xds.Node) string { return store.DefaultGroup }
	}
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildInfo(o.Version, o.Revision),
	)
	names := newGroups()
	m.streams = newStreams(m.registry, names, o.Group)
	m.loads = newLoads(m.registry)
	if o.Snapshot != nil {
		m.registry.MustRegister(&content{snapshot: o.Snapshot, groups: names})
	}
	return m
}

// Server adds what a server counts itself. It may be called once, with the
// [server.Server.Stats] of the server that m observes.
func (m *Metrics) Server(stats func() server.Stats) {
	counter := func(name, help string, value func(server.Stats) uint64) {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: prefix + name, Help: help},
			func() float64 { return float64(value(stats())) }))
	}
	counter("blocked_writes_total", "Streams ended because their client did not read a response in time.",
		func(s server.Stats) uint64 { return s.Blocked })
	counter("node_changes_total", "Streams whose client named another node than at first, which is ignored.",
		func(s server.Stats) uint64 { return s.NodeChanges })
	counter("malformed_requests_total", "Streams ended because their client sent what is no request.",
		func(s server.Stats) uint64 { return s.Malformed })
	counter("panics_total", "Panics that were caught: each ended a stream, a poll, a load of the configuration, or a search for a resource. Each is a defect; the log has its stack.",
		func(s server.Stats) uint64 { return s.Panics })
	m.registry.MustRegister(throttled(stats), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: prefix + "first_answers_waiting", Help: "Streams that wait for their turn to be answered first.",
	}, func() float64 { return float64(stats().Waiting) }))
}

// throttled tells how often clients ran into a limit, when asked.
type throttled func() server.Stats

var throttledTotal = prometheus.NewDesc(prefix+"throttled_total", "Times a client ran into a limit: streams, request, subscription, write, which end its stream, and rate, first_answers, which make it wait.", []string{"limit"}, nil)

// Describe implements [prometheus.Collector].
func (t throttled) Describe(out chan<- *prometheus.Desc) { out <- throttledTotal }

// Collect implements [prometheus.Collector].
func (t throttled) Collect(out chan<- prometheus.Metric) {
	for limit, n := range t().Throttled {
		out <- prometheus.MustNewConstMetric(throttledTotal, prometheus.CounterValue, float64(n), limit)
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

const prefix = "xds_server_"

// buildInfo is 1, and its labels are the information.
func buildInfo(version, revision string) prometheus.Collector {
	known := func(s string) string {
		if s == "" {
			return "unknown"
		}
		return s
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: prefix + "build_info", Help: "What runs: always 1, told by the labels.",
		ConstLabels: prometheus.Labels{"version": known(version), "revision": known(revision), "goversion": runtime.Version()},
	})
	info.Set(1)
	return info
}

// loads counts the attempts to load the configuration.
type loads struct {
	good, bad prometheus.Counter
	last      prometheus.Gauge
}

func newLoads(r prometheus.Registerer) *loads {
	results := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: prefix + "config_loads_total", Help: "Attempts to load the configuration, by result: success, or failure, which changes nothing.",
	}, []string{"result"})
	last := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: prefix + "config_last_load_success_timestamp_seconds", Help: "When the configuration was last loaded, in Unix time; 0: never.",
	})
	r.MustRegister(results, last)
	return &loads{good: results.WithLabelValues("success"), bad: results.WithLabelValues("failure"), last: last}
}

// Loaded counts an attempt to load the configuration that ended at a time. With
// an error it changed nothing.
func (m *Metrics) Loaded(at time.Time, err error) {
	if err != nil {
		m.loads.bad.Inc()
		return
	}
	m.loads.good.Inc()
	m.loads.last.Set(float64(at.UnixNano()) / 1e9)
}
