package metrics

import "github.com/prometheus/client_golang/prometheus"

// A labelled counter has a value for each of a few labels, and tells them when asked.
type labelled struct {
	desc   *prometheus.Desc
	counts func() map[string]uint64
}

var (
	throttledTotal  = prometheus.NewDesc(prefix+"throttled_total", "Times a client ran into a limit: streams, silent_streams, other_streams, first_request, request, subscription, write, which end its stream, unfinished, which ends its connection, and rate, address_rate, stream_rate, first_answers, which make it wait.", []string{"limit"}, nil)
	handshakesTotal = prometheus.NewDesc(prefix+"tls_handshakes_failed_total", "TLS handshakes that have failed, by reason; closed: without a word, which is how load balancers look whether somebody listens.", []string{"reason"}, nil)
)

// Describe implements [prometheus.Collector].
func (l labelled) Describe(out chan<- *prometheus.Desc) { out <- l.desc }

// Collect implements [prometheus.Collector].
func (l labelled) Collect(out chan<- prometheus.Metric) {
	for label, n := range l.counts() {
		out <- prometheus.MustNewConstMetric(l.desc, prometheus.CounterValue, float64(n), label)
	}
}

// Handshakes adds how many TLS handshakes have failed, by reason. It may be called once;
// counts is called at each scrape.
func (m *Metrics) Handshakes(counts func() map[string]uint64) {
	m.registry.MustRegister(labelled{handshakesTotal, counts})
}
