package promx

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// firstExpiry is the time at which the first of several certificates expires. Without a certificate
// there is no series: a time of zero would look like an expired certificate.
type firstExpiry struct {
	*prometheus.Desc
	at func() time.Time
}

// FirstExpiry returns a gauge in Unix time, in seconds. There is no series while at returns the zero time.
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
