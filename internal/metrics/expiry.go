package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// firstExpiry tells when the first certificate ends. Without one there is no series: a
// time of zero would look like one that has ended.
type firstExpiry func() time.Time

var firstExpirySeconds = prometheus.NewDesc(prefix+"certificate_first_expiry_timestamp_seconds",
	"When the first certificate ends of those in the resources that are served, in Unix time. None: no resource has one in it.", nil, nil)

// Describe implements [prometheus.Collector].
func (f firstExpiry) Describe(out chan<- *prometheus.Desc) { out <- firstExpirySeconds }

// Collect implements [prometheus.Collector].
func (f firstExpiry) Collect(out chan<- prometheus.Metric) {
	if at := f(); !at.IsZero() {
		out <- prometheus.MustNewConstMetric(firstExpirySeconds, prometheus.GaugeValue, float64(at.Unix()))
	}
}
