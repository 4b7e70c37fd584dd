package metrics

import (
	"iter"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/chancery-xds/chancery/internal/promx"
	"github.com/chancery-xds/chancery/xds"
)

// A Standing is the state of a connected client, as [Metrics.Clients] counts it.
type Standing struct {
	Group string      // one group, such as the first that the node sees
	State string      // the worst state of its types: one of [States]; other values count as "other"
	Stale []*xds.Type // types with a response that the client has not answered for a long time
}

// States returns the states of clients that have series of their own, the worst first.
func States() []string { return slices.Clone(states) }

var states = []string{"nacked", "stale", "waiting", "sent", "not_sent", "synced", "idle"}

// Clients adds two metrics: connected clients by state, and clients with old unanswered responses.
// The function all yields the connected clients. It is called at each scrape, because the metrics
// do not track clients. Call Clients at most once. Nil adds nothing.
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
	clientsOf    = prometheus.NewDesc(promx.Prefix+"clients", "Connected clients, by the worst state of their types.", []string{"group", "state"}, nil)
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
		for _, state := range states { // a state without clients has the value 0
			by[key{state, group}] += 0
		}
		by[key{state, group}]++
		counted := make([]string, 0, 4) // labels of this client, because several types may share a label
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
