// Package metrics counts the events of a client of package client for Prometheus. The names are those
// of gRFC A78 in the form of OpenTelemetry: grpc.xds_client.connected is grpc_xds_client_connected. So
// dashboards for gRPC clients work for this client, too.
//
// The package starts no goroutine. The number of series depends on the servers, authorities and types
// that the program uses, not on the number of resources.
package metrics

import (
	"cmp"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Options are the options of [New]. The zero value is ready to use.
type Options struct {
	// Registry is the registry of the metrics. Nil: prometheus.DefaultRegisterer.
	Registry prometheus.Registerer

	// Target is the label grpc.target of gRFC A78. Clients that share a registry need different
	// targets. Empty: without the label.
	Target string
}

// Metrics are the metrics of one client, for Metrics of its client.Config. They are safe for concurrent
// use. Create them with [New].
type Metrics struct {
	valid, invalid, failures *prometheus.CounterVec
	connected, resources     *prometheus.GaugeVec
}

// New registers the metrics. A series exists from its first event on. New panics if the registry
// already has the metrics of a client with the same target.
func New(o Options) *Metrics {
	labels := prometheus.Labels{}
	if o.Target != "" {
		labels["grpc_target"] = o.Target
	}
	r := cmp.Or(o.Registry, prometheus.DefaultRegisterer)
	register := func(c prometheus.Collector) {
		if err := r.Register(c); err != nil {
			panic(fmt.Errorf("metrics: the registry already has the metrics of a client: set a different Options.Target for each client, and use a new registry for each test: %w", err))
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
		connected: gauge("connected", "1 while the connection to a server works, 0 after a failure until the next response.", server),
		resources: gauge("resources", "Resources by cache state.", authority, cacheState, resourceType),
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
	m.valid.WithLabelValues(of, typ).Add(float64(valid)) // also zero, so that the first resource is visible as a change
	m.invalid.WithLabelValues(of, typ).Add(float64(invalid))
}

// ServerFailure counts a failure of a server.
func (m *Metrics) ServerFailure(of string) { m.failures.WithLabelValues(of).Inc() }

// Connected sets whether the stream to a server works.
func (m *Metrics) Connected(of string, is bool) {
	n := 0.0
	if is {
		n = 1
	}
	m.connected.WithLabelValues(of).Set(n)
	m.failures.WithLabelValues(of).Add(0)
}

// Resources sets how many resources of a type are in a cache state.
func (m *Metrics) Resources(of, state, typ string, n int) {
	m.resources.WithLabelValues(of, state, typ).Set(float64(n))
}
