package promx

import "github.com/prometheus/client_golang/prometheus"

// labelled is a counter with one label. It reads its values at each scrape.
type labelled struct {
	desc   *prometheus.Desc
	counts func() map[string]uint64
}

// Labelled returns a counter with one series for each key of counts, as the value of label.
func Labelled(name, help, label string, counts func() map[string]uint64) prometheus.Collector {
	return labelled{prometheus.NewDesc(Prefix+name, help, []string{label}, nil), counts}
}

// Describe implements [prometheus.Collector].
func (l labelled) Describe(out chan<- *prometheus.Desc) { out <- l.desc }

// Collect implements [prometheus.Collector].
func (l labelled) Collect(out chan<- prometheus.Metric) {
	for label, n := range l.counts() {
		out <- prometheus.MustNewConstMetric(l.desc, prometheus.CounterValue, float64(n), label)
	}
}
