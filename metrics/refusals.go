package metrics

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/chancery-xds/chancery/internal/promx"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// refusals counts NACKs, and at each scrape the clients that refuse a type. The events of streams tell when a
// refusal begins and ends (HEAL-5). A stream without refusals needs no memory. The series of a group exist from
// the first scrape on, so that the first NACK is visible as a change from zero.
type refusals struct {
	group  func(*xds.Node) string
	groups func() []string // groups whose series exist from the start
	names  *groups
	nacks  *prometheus.CounterVec

	open sync.Map // *server.Stream → []*xds.Type: the refused types; only the goroutine of the stream writes its entry
}

var clientsNacked = prometheus.NewDesc(promx.Prefix+"clients_nacked",
	"Connected clients that refuse (NACK) a resource of a type and use an older one or none. All streams of a node are one client.", []string{"type", "group"}, nil)

func newRefusals(names *groups, group func(*xds.Node) string, groups func() []string) *refusals {
	return &refusals{group: group, groups: groups, names: names, nacks: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: promx.Prefix + "nacks_total", Help: "Responses that clients refused (NACK).",
	}, []string{"type", "group"})}
}

// nacked records a NACK. The argument refuses is true if the client now refuses the type.
func (r *refusals) nacked(s *server.Stream, t *xds.Type, refuses bool) {
	r.nacks.WithLabelValues(labels[index(t)], r.label(s)).Inc()
	if refuses && !slices.ContainsFunc(r.of(s), t.Is) {
		r.open.Store(s, append(slices.Clip(r.of(s)), t))
	}
}

// recovered records that the client of a stream no longer refuses a type.
func (r *refusals) recovered(s *server.Stream, t *xds.Type) {
	all := slices.DeleteFunc(slices.Clone(r.of(s)), t.Is)
	if len(all) == 0 {
		r.open.Delete(s)
		return
	}
	r.open.Store(s, all)
}

// forget removes all refusals of a stream at its end.
func (r *refusals) forget(s *server.Stream) { r.open.Delete(s) }

// of returns the types that the client of a stream refuses.
func (r *refusals) of(s *server.Stream) []*xds.Type {
	v, _ := r.open.Load(s)
	all, _ := v.([]*xds.Type)
	return all
}

func (r *refusals) label(s *server.Stream) string { return r.names.label(r.group(s.Node)) }

// Describe implements [prometheus.Collector].
func (r *refusals) Describe(out chan<- *prometheus.Desc) { out <- clientsNacked; r.nacks.Describe(out) }

// Collect implements [prometheus.Collector].
func (r *refusals) Collect(out chan<- prometheus.Metric) {
	type series struct{ typ, group string }
	counts := map[series]int{}
	add := func(group string) {
		for _, typ := range labels {
			counts[series{typ, group}] += 0
		}
	}
	for _, name := range r.groups() {
		r.names.label(name)
	}
	for _, label := range r.names.all() { // a series stays when the last refusal of its group has ended
		add(label)
	}
	type client struct {
		group, node, typ string
		stream           uint64 // of a client without a node id: each stream is a client
	}
	seen := map[client]bool{}
	for s, types := range r.open.Range {
		st := s.(*server.Stream)
		c := client{group: r.label(st), node: st.Node.ID}
		if c.node == "" {
			c.stream = st.ID
		}
		add(c.group)
		for _, t := range types.([]*xds.Type) {
			c.typ = labels[index(t)]
			if !seen[c] {
				seen[c] = true
				counts[series{c.typ, c.group}]++
			}
		}
	}
	for s, n := range counts {
		r.nacks.WithLabelValues(s.typ, s.group) // the series exists from now on
		out <- prometheus.MustNewConstMetric(clientsNacked, prometheus.GaugeValue, float64(n), s.typ, s.group)
	}
	r.nacks.Collect(out)
}
