package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A Source is what a source of configuration says of itself, at each scrape.
type Source struct {
	Restored func() bool      // what is served was restored from disk
	Held     func() int       // resources that wait to be removed
	Deaf     func() bool      // changes of the files are noticed late
	Expiry   func() time.Time // when the first certificate ends of what is served; zero: it has none
	Kept     func() bool      // what is served could be kept on disk; nil: that is not wanted
}

// Source adds a source.
func (m *Metrics) Source(s Source) {
	flag := func(name, help string, is func() bool) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + name, Help: help}, func() float64 {
			if is() {
				return 1
			}
			return 0
		}))
	}
	flag("config_restored", "1 while what is served is the last good configuration of before the start, since the files could not be loaded.", s.Restored)
	flag("watch_deaf", "1 while the system does not tell of all changes of the files, which are then noticed late.", s.Deaf)
	if s.Kept != nil {
		flag("config_kept", "1 if this server keeps on disk what it serves; 0: a start on bad files has something older, or nothing. None: that is not wanted.", s.Kept)
	}
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: prefix + "config_removals_waiting", Help: "Resources that are gone from the files, and served until a second look agrees.",
	}, func() float64 { return float64(s.Held()) }), firstExpiry{servedExpiry, s.Expiry})
}
