// Package promx has Prometheus collectors that read their values at each scrape.
package promx

import "github.com/prometheus/client_golang/prometheus"

// Prefix is the prefix of all metric names.
const Prefix = "xds_server_"

// Gauge returns a gauge that reads its value at each scrape.
func Gauge(name, help string, value func() int) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: Prefix + name, Help: help}, func() float64 { return float64(value()) })
}

// Counter returns a counter that reads its value at each scrape; value must never decrease.
func Counter(name, help string, value func() uint64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: Prefix + name, Help: help}, func() float64 { return float64(value()) })
}

// Flag returns a gauge that is 1 while the function returns true, and 0 otherwise.
func Flag(name, help string, is func() bool) prometheus.Collector {
	return Gauge(name, help, func() int {
		if is() {
			return 1
		}
		return 0
	})
}
