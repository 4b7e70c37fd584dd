package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/chancery-xds/chancery/internal/series"
)

// A Source is asked at each scrape what it says of itself. A *dir.Source of
// package source/dir is one.
type Source interface {
	Held() int              // resources that wait to be removed
	Deaf() bool             // changes are noticed late
	FirstExpiry() time.Time // when the first certificate ends of what is served; zero: it has none
}

// Source adds what a source of configuration tells, and how its loads ended: see
// [Metrics.Loaded]. It may be called once.
func (m *Metrics) Source(s Source) {
	m.loads.register(m.registry)
	m.registry.MustRegister(
		series.Flag("watch_deaf", "1 while the system does not tell of all changes of the files, which are then noticed late.", s.Deaf),
		series.Gauge("config_removals_waiting", "Resources that are gone from the files, and served until a second look agrees.", s.Held),
		series.FirstExpiry("certificate_first_expiry_timestamp_seconds",
			"When the first certificate ends of those in the resources that are served, in Unix time. None: no resource has one in it.", s.FirstExpiry),
	)
}

// Loaded counts an attempt to load the configuration that ended at a time. With an error it
// changed nothing. It is what a source calls when it is done, such as Options.Done of
// package source/dir.
func (m *Metrics) Loaded(at time.Time, err error) {
	if err != nil {
		m.loads.bad.Inc()
		m.loads.fine.Set(0)
		return
	}
	m.loads.good.Inc()
	m.loads.fine.Set(1)
	m.loads.last.Set(float64(at.UnixNano()) / 1e9)
}

// loads counts the attempts to load the configuration.
type loads struct {
	results    *prometheus.CounterVec
	good, bad  prometheus.Counter
	last, fine prometheus.Gauge
}

func newLoads() *loads {
	results := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: series.Prefix + "config_loads_total", Help: "Attempts to load the configuration, by result: success, or failure, which changes nothing.",
	}, []string{"result"})
	last := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: series.Prefix + "config_last_load_success_timestamp_seconds", Help: "When the configuration was last loaded, in Unix time; 0: never.",
	})
	fine := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: series.Prefix + "config_last_load_successful", Help: "1 if the last attempt to load the configuration was a success; 0: what is served is older than the files.",
	})
	return &loads{results: results, good: results.WithLabelValues("success"), bad: results.WithLabelValues("failure"), last: last, fine: fine}
}

// register shows them. Without a source nothing is loaded, and 0 would look like a failure.
func (l *loads) register(r prometheus.Registerer) { r.MustRegister(l.results, l.last, l.fine) }
