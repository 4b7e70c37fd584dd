package metrics

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/chancery-xds/chancery/internal/promx"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// refusals counts the clients that keep an old version because they refused a new one. It needs no memory for
// a stream without refusals.
type refusals struct {
	group func(*xds.Node) string
	names *groups
	nacks *prometheus.CounterVec
	gauge *prometheus.GaugeVec

	open sync.Map // *server.Stream → *refusal, for streams that refuse a type

	mu      sync.Mutex
	clients map[client]int // number of streams on which the client refuses the type
}

// A refusal has the types that a stream refuses. Only the goroutine of the stream uses it.
type refusal struct {
	group string // the label
	types []*xds.Type
}

// A client is a node with a type that it refuses. All streams of a node are one client. Each stream
// without a node id is a separate client.
type client struct {
	group, node string
	stream      uint64
	url         string
}

func newRefusals(counter func(name, help string, labels ...string) *prometheus.CounterVec, r prometheus.Registerer,
	names *groups, group func(*xds.Node) string,
) *refusals {
	nacks := counter("nacks_total", "Responses that clients refused (NACK).", "type", "group")
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: promx.Prefix + "clients_nacked", Help: "Connected clients that refused (NACK) a response of a type and have accepted none since.",
	}, []string{"type", "group"})
	register(r, gauge)
	return &refusals{group: group, names: names, nacks: nacks, gauge: gauge, clients: map[client]int{}}
}

// refused records that the client of a stream refuses a type.
func (r *refusals) refused(s *server.Stream, t *xds.Type) {
	v, _ := r.open.Load(s)
	f, _ := v.(*refusal)
	if f == nil {
		f = &refusal{group: r.names.label(r.group(s.Node))}
		r.open.Store(s, f)
	}
	label := labels[index(t)]
	r.nacks.WithLabelValues(label, f.group).Inc()
	if !slices.ContainsFunc(f.types, t.Is) {
		f.types = append(f.types, t)
		r.count(s, f, t, 1)
	}
}

// accepted records that the client of a stream no longer refuses a type.
func (r *refusals) accepted(s *server.Stream, t *xds.Type) {
	v, ok := r.open.Load(s)
	if !ok {
		return
	}
	f := v.(*refusal)
	i := slices.IndexFunc(f.types, t.Is)
	if i < 0 {
		return
	}
	f.types = slices.Delete(f.types, i, i+1)
	r.count(s, f, t, -1)
	if len(f.types) == 0 {
		r.open.Delete(s)
	}
}

// forget removes all refusals of a stream at its end.
func (r *refusals) forget(s *server.Stream) {
	if v, ok := r.open.LoadAndDelete(s); ok {
		f := v.(*refusal)
		for _, t := range f.types {
			r.count(s, f, t, -1)
		}
	}
}

// count adds a stream to a client or removes one. The gauge changes with the first and the last stream of a
// client.
func (r *refusals) count(s *server.Stream, f *refusal, t *xds.Type, by int) {
	c := client{group: f.group, node: s.Node.ID, url: t.URL}
	if c.node == "" {
		c.stream = s.ID
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.clients[c]
	r.clients[c] += by
	if r.clients[c] == 0 {
		delete(r.clients, c)
	}
	if before == 0 || before+by == 0 {
		r.gauge.WithLabelValues(labels[index(t)], f.group).Add(float64(by))
	}
}
