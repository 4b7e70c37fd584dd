// Package metrics counts what a client of package client does, for Prometheus, by the names of
// gRFC A78 as OpenTelemetry spells them there: grpc.xds_client.connected is
// grpc_xds_client_connected. So dashboards for clients of gRPC show this one, too.
//
// It observes and decides nothing, and starts no goroutine. How many series there are depends on
// the servers, authorities and types that the program uses, not on resources.
package metrics

import (
	"cmp"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Options say where metrics go to. The zero value is ready to use.
type Options struct {
	// Registry is where they are registered; prometheus.DefaultRegisterer if nil.
	Registry prometheus.Registerer

	// Target is what gRFC A78 has as grpc.target: of several clients in one registry each needs
	// its own. Empty: no series has it.
	Target string
}

// Metrics are those of one client, for the Metrics of its client.Config. They are safe for
// concurrent use; create them with [New].
type Metrics struct {
	valid, invalid, failures *prometheus.CounterVec
	connected, resources     *prometheus.GaugeVec
}

// New registers metrics, of which there are no series until something happens. It panics if the
// registry has those of another client with this target.
func New(o Options) *Metrics {
	labels := prometheus.Labels{}
	if o.Target != "" {
		labels["grpc_target"] = o.Target
	}
	r := cmp.Or(o.Registry, prometheus.DefaultRegisterer)
	register := func(c prometheus.Collector) {
		if err := r.Register(c); err != nil {
			panic(fmt.Errorf("metrics: the registry has metrics of this or another client already: give each its own Options.Target, and each test a new registry: %w", err))
		}
	}
	counter := func(name, help string, of ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help, ConstLabels: labels}, of)
		register(c)
		return c
	}
	gauge := func(name, help string, of ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + name, Help: help, ConstLabels: labels}, of)
		register(g)
		return g
	}
	return &Metrics{
		valid:     counter("resource_updates_valid_total", "Resources received that are valid, also those that have not changed.", server, resourceType),
		invalid:   counter("resource_updates_invalid_total", "Resources received that cannot be used.", server, resourceType),
		failures:  counter("server_failure_total", "Times that a server could not be reached, or its stream ended before a response.", server),
		connected: gauge("connected", "1 while the stream to a server works: from its first response on, or until it fails; 0 while it does not.", server),
		resources: gauge("resources", "Resources, by how the client stands with them.", authority, cacheState, resourceType),
	}
}

const (
	prefix = "grpc_xds_client_"

	server       = "grpc_xds_server"
	authority    = "grpc_xds_authority"
	cacheState   = "grpc_xds_cache_state"
	resourceType = "grpc_xds_resource_type"
)

// ResourceUpdates counts the resources of a response.
func (m *Metrics) ResourceUpdates(of, typ string, valid, invalid int) {
	m.valid.WithLabelValues(of, typ).Add(float64(valid)) // also none, so that a first one is seen as a change
	m.invalid.WithLabelValues(of, typ).Add(float64(invalid))
}

// ServerFailure counts a failure of a server.
func (m *Metrics) ServerFailure(of string) { m.failures.WithLabelValues(of).Inc() }

// Connected says whether the stream to a server works.
func (m *Metrics) Connected(of string, is bool) {
	n := 0.0
	if is {
		n = 1
	}
	m.connected.WithLabelValues(of).Set(n)
	m.failures.WithLabelValues(of).Add(0)
}

// Resources says how many resources of a type have a state.
func (m *Metrics) Resources(of, state, typ string, n int) {
	m.resources.WithLabelValues(of, state, typ).Set(float64(n))
}
