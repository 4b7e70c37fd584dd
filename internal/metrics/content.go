package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// content counts what is served, when asked.
type content struct {
	snapshot func() *store.Snapshot
	groups   *groups
}

var resources = prometheus.NewDesc(prefix+"resources", "Resources that are served.", []string{"type", "group"}, nil)

// Describe implements [prometheus.Collector].
func (c *content) Describe(out chan<- *prometheus.Desc) { out <- resources }

// Collect implements [prometheus.Collector].
func (c *content) Collect(out chan<- prometheus.Metric) {
	type series struct{ typ, group string }
	counts := map[series]int{}
	s := c.snapshot()
	for _, name := range s.Groups() {
		group := c.groups.label(name)
		for url, table := range s.View(name).All() {
			counts[series{labels[index(xds.TypeOf(url))], group}] += table.Len()
		}
	}
	for s, n := range counts {
		out <- prometheus.MustNewConstMetric(resources, prometheus.GaugeValue, float64(n), s.typ, s.group)
	}
}
