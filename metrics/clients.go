package metrics

import (
	"iter"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/chancery-xds/chancery/internal/promx"
	"github.com/chancery-xds/chancery/xds"
)

// A Standing is how a connected client stands, as [Metrics.Clients] counts it.
type Standing struct {
	Group string      // one, such as the first that the node sees
	State string      // the worst of its types: one of [States]; of others there is one series
	Stale []*xds.Type // of which it owes an answer for long
}

// States are those of clients that have series of their own, the worst first.
func States() []string { return slices.Clone(states) }

var states = []string{"nacked", "stale", "waiting", "sent", "not_sent", "synced", "idle"}

// Clients adds how many clients are connected, by how they stand, and how many owe an answer for
// long. It may be called once, with what yields all connected clients, at each scrape: who follows
// the streams knows them, and these metrics do not. Nil adds nothing.
func (m *Metrics) Clients(all iter.Seq[Standing]) {
	if all != nil {
		register(m.registry, &clients{all: all, groups: m.names})
	}
}

type clients struct {
	all    iter.Seq[Standing]
	groups *groups
}

var (
	clientsOf    = prometheus.NewDesc(promx.Prefix+"clients", "Connected clients, by how they stand with the worst of their types.", []string{"group", "state"}, nil)
	clientsStale = prometheus.NewDesc(promx.Prefix+"clients_stale", "Connected clients that have not answered a response of a type for 30 s or more.", []string{"type", "group"}, nil)
)

// Describe implements [prometheus.Collector].
func (c *clients) Describe(out chan<- *prometheus.Desc) { out <- clientsOf; out <- clientsStale }

// Collect implements [prometheus.Collector].
func (c *clients) Collect(out chan<- prometheus.Metric) {
	type key struct{ of, group string }
	by, late := map[key]int{}, map[key]int{}
	for s := range c.all {
		group, state := c.groups.label(s.Group), s.State
		if !slices.Contains(states, state) {
			state = other
		}
		for _, state := range states { // so that what falls to zero is seen to
			by[key{state, group}] += 0
		}
		by[key{state, group}]++
		counted := make([]string, 0, 4) // the client may owe several answers of types that have one label
		for _, t := range s.Stale {
			if label := labels[index(t)]; !slices.Contains(counted, label) {
				counted = append(counted, label)
				late[key{label, group}]++
			}
		}
	}
	for k, n := range by {
		out <- prometheus.MustNewConstMetric(clientsOf, prometheus.GaugeValue, float64(n), k.group, k.of)
	}
	for k, n := range late {
		out <- prometheus.MustNewConstMetric(clientsStale, prometheus.GaugeValue, float64(n), k.of, k.group)
	}
}
