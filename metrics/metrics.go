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
	counter("panics_total", "Panics that were caught: each ended a connection, a stream, a poll, a load of the configuration, or a search for a resource. Each is a defect; the log has its stack.",
		func(s server.Stats) uint64 { return s.Panics })
	m.registry.MustRegister(labelled{throttledTotal, func() map[string]uint64 { return stats().Throttled }}, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: prefix + "streams_open", Help: "Streams that are open, also those on which no request has come.",
	}, func() float64 { return float64(stats().Open) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: prefix + "streams_silent", Help: "Streams on which no request has come, and unary calls without one.",
	}, func() float64 { return float64(stats().Silent) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: prefix + "polls_held", Help: "Polls of REST-JSON and Fetch that are held until something changes.",
	}, func() float64 { return float64(stats().Polls) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: prefix + "streams_other", Help: "Streams that are open and none of xDS: watches of health, reflection.",
	}, func() float64 { return float64(stats().Others) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: prefix + "held_bytes", Help: "Bytes of names that streams and held polls hold, 64 added for each, and of their nodes.",
	}, func() float64 { return float64(stats().Held) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: prefix + "unfinished_bytes", Help: "Bytes of requests that are not whole, where a connection has more than 64 KiB of them, and of larger ones that wait to be handled.",
	}, func() float64 { return float64(stats().Unfinished) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: prefix + "first_answers_waiting", Help: "Streams that wait for their turn to be answered first.",
	}, func() float64 { return float64(stats().Waiting) }))
}

// Connections adds how many connections of clients are open, and how many were closed
// since there were too many.
func (m *Metrics) Connections(open func() int, closed func() uint64) {
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: prefix + "connections", Help: "Connections of clients that are open.",
		}, func() float64 { return float64(open()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: prefix + "connections_closed_total", Help: "Connections closed since too many were open.",
		}, func() float64 { return float64(closed()) }),
	)
}

// Log adds how many lines of the log were lost.
func (m *Metrics) Log(lost func() uint64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: prefix + "log_lines_lost_total", Help: "Lines of the log that were lost, since who reads it is too slow.",
	}, func() float64 { return float64(lost()) }))
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
	good, bad  prometheus.Counter
	last, fine prometheus.Gauge
}

func newLoads(r prometheus.Registerer) *loads {
	results := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: prefix + "config_loads_total", Help: "Attempts to load the configuration, by result: success, or failure, which changes nothing.",
	}, []string{"result"})
	last := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: prefix + "config_last_load_success_timestamp_seconds", Help: "When the configuration was last loaded, in Unix time; 0: never.",
	})
	fine := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: prefix + "config_last_load_successful", Help: "1 if the last attempt to load the configuration was a success; 0: what is served is older than the files.",
	})
	r.MustRegister(results, last, fine)
	return &loads{good: results.WithLabelValues("success"), bad: results.WithLabelValues("failure"), last: last, fine: fine}
}

// Loaded counts an attempt to load the configuration that ended at a time. With
// an error it changed nothing.
func (m *Metrics) Loaded(at time.Time, err error) {
	if err != nil {
		m.loads.bad.Inc()
		m.loads.fine.Set(0)
		return
	}
	m.loads.good.Inc()
	m.loads.fine.Set(1)
	m.loads.last.Set(float64(at.UnixNano()) / 1e9)
}
