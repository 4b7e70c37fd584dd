package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A firstExpiry tells when the first certificate ends of some. Without one there is no
// series: a time of zero would look like one that has ended.
type firstExpiry struct {
	*prometheus.Desc
	at func() time.Time
}

var (
	servedExpiry = prometheus.NewDesc(prefix+"certificate_first_expiry_timestamp_seconds",
		"When the first certificate ends of those in the resources that are served, in Unix time. None: no resource has one in it.", nil, nil)
	ownExpiry = prometheus.NewDesc(prefix+"tls_certificate_first_expiry_timestamp_seconds",
		"When the first certificate ends of those that the server shows its clients, in Unix time. None: it has no TLS.", nil, nil)
)

// TLS adds when the first certificate ends of those that the server shows its clients.
func (m *Metrics) TLS(expiry func() time.Time) {
	m.registry.MustRegister(firstExpiry{ownExpiry, expiry})
}

// Describe implements [prometheus.Collector].
func (f firstExpiry) Describe(out chan<- *prometheus.Desc) { out <- f.Desc }

// Collect implements [prometheus.Collector].
func (f firstExpiry) Collect(out chan<- prometheus.Metric) {
	if at := f.at(); !at.IsZero() {
		out <- prometheus.MustNewConstMetric(f.Desc, prometheus.GaugeValue, float64(at.Unix()))
	}
}
