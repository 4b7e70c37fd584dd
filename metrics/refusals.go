package metrics

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/chancery-xds/chancery/internal/promx"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// refusals counts the clients that run with something old because they refused
// what is new. A stream that has refused nothing costs nothing here.
type refusals struct {
	group func(*xds.Node) string
	names *groups
	nacks *prometheus.CounterVec
	gauge *prometheus.GaugeVec

	open sync.Map // *server.Stream → *refusal, of the streams that refuse something

	mu      sync.Mutex
	clients map[client]int // streams on which the client refuses the type
}

// A refusal is what a stream refuses. Only the stream's goroutine uses it.
type refusal struct {
	group string // its label
	types []*xds.Type
}

// A client is one node, however many streams it has, and the type it refuses. Of
// clients that do not say which node they are, each stream counts.
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

// refused notes that a stream's client refuses a type.
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

// accepted notes that a stream's client refuses a type no more.
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

// forget drops all that a stream refuses, when it ends.
func (r *refusals) forget(s *server.Stream) {
	if v, ok := r.open.LoadAndDelete(s); ok {
		f := v.(*refusal)
		for _, t := range f.types {
			r.count(s, f, t, -1)
		}
	}
}

// count adds one stream to a client, or takes one away. The gauge moves when it
// is the client's first or last.
func (r *refusals) count(s *server.Stream, f *refusal, t *xds.Type, by int) {
	c := client{group: f.group, node: s.Node.ID, url: t.URL}
	if c.node == "" {
		c.stream = s.ID
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.clients[c]
	if r.clients[c] += by; r.clients[c] == 0 {
		delete(r.clients, c)
	}
	if before == 0 || before+by == 0 {
		r.gauge.WithLabelValues(labels[index(t)], f.group).Add(float64(by))
	}
}
