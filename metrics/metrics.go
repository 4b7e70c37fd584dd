// Package metrics counts what servers and stores do, for Prometheus: streams, requests,
// responses, refusals (NACKs) and the clients that still refuse, what is served, and how
// often limits were met. It observes and decides nothing, starts no goroutine, and costs a
// step of a stream no memory.
//
// All names begin with "xds_server_"; docs/metrics.md lists them.
//
// How many series there are does not depend on how many clients there are, nor
// on what they send: a label is a row of the table of types in lower case
// ("cds"; "other" for all types it does not list), a group (the first
// [MaxGroups] that were seen; "other" for the rest), or one of a few words.
// There is none for nodes, streams, names or versions.
package metrics

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/chancery-xds/chancery/internal/promx"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// Options say where metrics come from and go to. The zero value is ready to use.
type Options struct {
	// Registry is where they are registered; prometheus.DefaultRegisterer if nil. Of two
	// servers in one program each needs its own, or its own label: see
	// prometheus.WrapRegistererWith.
	Registry prometheus.Registerer

	// Group says which group a node is counted in: where it sees several
	// ([store.WithGroups]), the first. Nil: all are counted in the default group. It is called
	// when a client has refused a response.
	Group func(*xds.Node) string

	// Snapshot returns what is served, to be counted at each scrape:
	// [store.Store.Snapshot]. Nil: not counted.
	Snapshot func() *store.Snapshot

	// Newest returns the newest commit, so that it is measured how long it takes until clients
	// have accepted it: [store.Store.Newest]. Nil: not measured. It is called for each ACK.
	Newest func() (store.Commit, bool)
}

// Metrics are the metrics of one server. They are safe for concurrent use; create
// them with [New]. As a [server.Observer] they count what happens on streams.
type Metrics struct {
	registry prometheus.Registerer
	streams  *streams
	names    *groups
	newest   func() (store.Commit, bool) // nil: nobody says
}

// New registers metrics that are all zero. It panics if the registry has some of their
// names already.
func New(o Options) *Metrics {
	if o.Registry == nil {
		o.Registry = prometheus.DefaultRegisterer
	}
	if o.Group == nil {
		o.Group = func(*xds.Node) string { return store.DefaultGroup }
	}
	names := newGroups()
	m := &Metrics{registry: o.Registry, streams: newStreams(o.Registry, names, o.Group), names: names, newest: o.Newest}
	if o.Snapshot != nil {
		register(m.registry, &content{snapshot: o.Snapshot, groups: names})
	}
	return m
}

// register adds collectors to a registry, and panics if it cannot, with the remedy: Prometheus
// says neither which metric it is nor what to do.
func register(r prometheus.Registerer, all ...prometheus.Collector) {
	for _, c := range all {
		if err := r.Register(c); err != nil {
			panic(fmt.Errorf("metrics: the registry has metrics of this or another server or source already: give each its own label with prometheus.WrapRegistererWith, and each test a new registry: %w", err))
		}
	}
}

// Server adds what a server counts itself. It may be called once, with the
// [server.Server.Stats] of the server that m observes. Nil adds nothing.
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
