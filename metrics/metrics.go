// Package metrics exports Prometheus metrics of servers and stores: streams, requests, responses,
// refusals (NACKs), clients that still refuse, served resources and exceeded limits. The package
// only observes. It starts no goroutine and allocates no memory for an event of a stream.
//
// All names begin with "xds_server_"; docs/metrics.md lists them.
//
// The number of series does not depend on the number of clients or on their requests. A label is one of these: a
// resource type in lower case ("cds", or "other" for types that the table does not list), a group (the
// first [MaxGroups] groups, or "other"), or one of a few words. Nodes, streams, resource names and
// versions are not labels.
package metrics

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/chancery-xds/chancery/internal/promx"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// Options are the sources and the target of metrics. The zero value is ready to use.
type Options struct {
	// Registry is where the metrics are registered. Nil means prometheus.DefaultRegisterer. If a program has
	// two servers, give each its own registry or its own label: see prometheus.WrapRegistererWith.
	Registry prometheus.Registerer

	// Group returns the group of a node for the label. If a node sees several groups
	// ([store.WithGroups]), use the first. Nil counts all nodes in the default group. The function
	// is called when a client refuses a response, and at each scrape for each client that refuses.
	Group func(*xds.Node) string

	// Snapshot returns the served resources, which are counted at each scrape: pass
	// [store.Store.Snapshot]. The metrics of refusals have series for its groups from the start. Nil means
	// that the resources are not counted.
	Snapshot func() *store.Snapshot

	// Newest returns the newest commit: pass [store.Store.Newest]. The metrics call Newest for each
	// ACK, to measure the time until a client accepts a commit. Nil means that this time is not
	// measured.
	Newest func() (store.Commit, bool)
}

// Metrics are the metrics of one server. Metrics are safe for concurrent use. Create them with
// [New]. As a [server.Observer] they count the events of streams.
type Metrics struct {
	registry prometheus.Registerer
	streams  *streams
	names    *groups
	newest   func() (store.Commit, bool) // may be nil
}

// New registers the metrics with the value zero. It panics if the registry already has metrics with
// some of these names.
func New(o Options) *Metrics {
	if o.Registry == nil {
		o.Registry = prometheus.DefaultRegisterer
	}
	known := func() []string { return nil } // groups whose series of refusals exist from the start
	switch {
	case o.Group == nil:
		o.Group = func(*xds.Node) string { return store.DefaultGroup }
		known = func() []string { return []string{store.DefaultGroup} }
	case o.Snapshot != nil:
		known = func() []string { return o.Snapshot().Groups() }
	}
	names := newGroups()
	m := &Metrics{registry: o.Registry, streams: newStreams(o.Registry, newRefusals(names, o.Group, known)), names: names, newest: o.Newest}
	if o.Snapshot != nil {
		register(m.registry, &content{snapshot: o.Snapshot, groups: names})
	}
	return m
}

// register adds collectors to a registry. It panics if this fails, with a hint that the error of Prometheus does
// not have.
func register(r prometheus.Registerer, all ...prometheus.Collector) {
	for _, c := range all {
		if err := r.Register(c); err != nil {
			panic(fmt.Errorf("metrics: the registry has metrics of this or another server or source already: give each its own label with prometheus.WrapRegistererWith, and each test a new registry: %w", err))
		}
	}
}

// Server adds the counters of a server. Call Server at most once, with [server.Server.Stats] of the
// server that m observes. Nil adds nothing.
func (m *Metrics) Server(stats func() server.Stats) {
	if stats == nil {
		return
	}
	counter := func(name, help string, value func(server.Stats) uint64) prometheus.Collector {
		return promx.Counter(name, help, func() uint64 { return value(stats()) })
	}
	register(m.registry,
		counter("blocked_writes_total", "Streams closed because their client did not read a response in time (--write-timeout).",
			func(s server.Stats) uint64 { return s.Blocked }),
		counter("node_changes_total", "Streams whose client changed its node id, which is ignored.",
			func(s server.Stats) uint64 { return s.NodeChanges }),
		counter("malformed_requests_total", "Streams closed because their client sent a malformed request.",
			func(s server.Stats) uint64 { return s.Malformed }),
		counter("denied_total", "Streams and polls refused or closed because their node may see nothing.",
			func(s server.Stats) uint64 { return s.Denied }),
		counter("panics_total", "Panics that were caught: each ended a connection, a stream, a poll, a load of the configuration, or the resolving of a resource. Each is a bug; the log has its stack.",
			func(s server.Stats) uint64 { return s.Panics }),
		promx.Labelled("throttled_total", "Times a client reached a limit. streams, silent_streams, other_streams, first_request, request, subscription and write close its stream; unfinished closes its connection; rate, address_rate, stream_rate and first_answers make it wait.",
			"limit", func() map[string]uint64 { return stats().Throttled }),
		promx.Gauge("streams_open", "Open streams, including those that have sent no request.", func() int { return stats().Open }),
		promx.Gauge("streams_silent", "Open streams and unary calls that have sent no request.", func() int { return stats().Silent }),
		promx.Gauge("polls_held", "Polls (REST-JSON and Fetch) that are held until a resource changes.", func() int { return stats().Polls }),
		promx.Gauge("streams_other", "Open streams of other services than xDS (health watches, reflection).", func() int { return stats().Others }),
		promx.Gauge("held_bytes", "Bytes of the names (plus 64 for each) and nodes that streams and held polls hold.", func() int { return stats().Held }),
		promx.Gauge("unfinished_bytes", "Bytes of unfinished requests, on connections with more than 64 KiB of them, and of larger requests that wait to be handled.",
			func() int { return stats().Unfinished }),
		promx.Gauge("first_answers_waiting", "Streams that wait for their first responses (--max-first-answers).", func() int { return stats().Waiting }),
	)
}
