package metrics

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/chancery-xds/chancery/internal/promx"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// content counts the served resources at each scrape.
type content struct {
	snapshot func() *store.Snapshot
	groups   *groups
}

var (
	resources  = prometheus.NewDesc(promx.Prefix+"resources", "Resources served, by type.", []string{"type", "group"}, nil)
	configHash = prometheus.NewDesc(promx.Prefix+"config_hash", "Hash of the served configuration, an integer of 53 bits: servers with the same configuration have the same hash.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (c *content) Describe(out chan<- *prometheus.Desc) { out <- resources; out <- configHash }

// Collect implements [prometheus.Collector].
func (c *content) Collect(out chan<- prometheus.Metric) {
	type series struct{ typ, group string }
	counts := map[series]int{}
	var all []string
	s := c.snapshot()
	for _, name := range s.Groups() {
		group := c.groups.label(name)
		for url, table := range s.Effective(name).All() {
			counts[series{labels[index(xds.TypeOf(url))], group}] += table.Len()
			if sum := table.Versions().Sum(); sum != (xds.Sum{}) {
				all = append(all, fmt.Sprintf("%q %q %v %q\n", name, url, sum, table.Version()))
			}
		}
	}
	out <- prometheus.MustNewConstMetric(configHash, prometheus.GaugeValue, float64(hash(all)))
	for s, n := range counts {
		out <- prometheus.MustNewConstMetric(resources, prometheus.GaugeValue, float64(n), s.typ, s.group)
	}
}

// hash returns 53 bits of a hash of lines in any order, because a float64 holds 53 bits. It is 0 without lines.
func hash(lines []string) uint64 {
	if len(lines) == 0 {
		return 0
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "")))
	return binary.BigEndian.Uint64(sum[:]) >> 11
}
