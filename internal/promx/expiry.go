package promx

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// firstExpiry tells when the first certificate ends of some. Without one there is no
// series: a time of zero would look like one that has ended.
type firstExpiry struct {
	*prometheus.Desc
	at func() time.Time
}

// FirstExpiry returns a time in Unix time; there is no series while it is zero.
func FirstExpiry(name, help string, at func() time.Time) prometheus.Collector {
	return firstExpiry{prometheus.NewDesc(Prefix+name, help, nil, nil), at}
}

// Describe implements [prometheus.Collector].
func (f firstExpiry) Describe(out chan<- *prometheus.Desc) { out <- f.Desc }

// Collect implements [prometheus.Collector].
func (f firstExpiry) Collect(out chan<- prometheus.Metric) {
	if at := f.at(); !at.IsZero() {
		out <- prometheus.MustNewConstMetric(f.Desc, prometheus.GaugeValue, float64(at.Unix()))
	}
}
