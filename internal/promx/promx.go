// Package promx has the collectors that the metrics of a server and those of the program
// around it are made of. It counts nothing itself.
package promx

import "github.com/prometheus/client_golang/prometheus"

// Prefix begins the names of all series.
const Prefix = "xds_server_"

// Gauge is a number that is asked for at each scrape.
func Gauge(name, help string, value func() int) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: Prefix + name, Help: help}, func() float64 { return float64(value()) })
}

// Counter is a number that is asked for at each scrape and only grows.
func Counter(name, help string, value func() uint64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: Prefix + name, Help: help}, func() float64 { return float64(value()) })
}

// Flag is 1 while something is so, and 0 while it is not.
func Flag(name, help string, is func() bool) prometheus.Collector {
	return Gauge(name, help, func() int {
		if is() {
			return 1
		}
		return 0
	})
}
