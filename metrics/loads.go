package metrics

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/chancery-xds/chancery/internal/promx"
)

// Loads are the metrics of one source of configuration: the results of its loads, and its state.
// Loads are safe for concurrent use. Create them with [NewLoads]. If there are several sources,
// give each its own Loads with a label:
//
//	loads := metrics.NewLoads(prometheus.WrapRegistererWith(prometheus.Labels{"source": "edge"}, registry))
//	src := dir.New("config/edge", st, dir.Options{Group: "edge", Done: loads.Loaded})
//	loads.Source(src)
type Loads struct {
	registry   prometheus.Registerer
	good, bad  prometheus.Counter
	last, fine prometheus.Gauge
}

// A Source reports its state at each scrape. A *dir.Source of package source/dir is a Source.
type Source interface {
	Held() int              // number of resources whose removal waits for a confirmation
	MissesChanges() bool    // true: file changes are noticed late, because the system does not report them
	FirstExpiry() time.Time // when the first certificate of the served resources expires; zero: no certificate
}

// NewLoads registers the metrics with the value zero. If r is nil, it uses
// prometheus.DefaultRegisterer. NewLoads panics if the registry already has metrics with some of
// these names.
func NewLoads(r prometheus.Registerer) *Loads {
	r = cmp.Or(r, prometheus.DefaultRegisterer)
	results := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: promx.Prefix + "config_loads_total", Help: "Attempts to load the configuration, by result: success, or failure, which keeps the previous configuration.",
	}, []string{"result"})
	last := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: promx.Prefix + "config_last_load_success_timestamp_seconds", Help: "When the configuration was last loaded successfully, in Unix time; 0: never.",
	})
	fine := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: promx.Prefix + "config_last_load_successful", Help: "1 if the last attempt to load the configuration was successful; 0: the server serves an older configuration than the files.",
	})
	register(r, results, last, fine)
	return &Loads{registry: r, good: results.WithLabelValues("success"), bad: results.WithLabelValues("failure"), last: last, fine: fine}
}

// Source adds the state of the source. Call Source at most once. Nil adds nothing.
func (l *Loads) Source(s Source) {
	if s == nil {
		return
	}
	register(l.registry,
		promx.Flag("watch_deaf", "1 while the system does not report all changes of files, so that the server notices them up to 30 s late.", s.MissesChanges),
		promx.Gauge("config_removals_waiting", "Resources that are missing from the files and still served, until the removal is confirmed (--confirm-removals).", s.Held),
		promx.FirstExpiry("certificate_first_expiry_timestamp_seconds",
			"When the first certificate in the served resources expires, in Unix time. Absent: no resource contains a certificate.", s.FirstExpiry),
	)
}

// Loaded counts a load that ended at the given time. An error means that the configuration did not change. A
// source calls it: pass it as Options.Done to package source/dir.
func (l *Loads) Loaded(at time.Time, err error) {
	if err != nil {
		l.bad.Inc()
		l.fine.Set(0)
		return
	}
	l.good.Inc()
	l.fine.Set(1)
	l.last.Set(float64(at.UnixNano()) / 1e9)
}
