package metrics

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/chancery-xds/chancery/server"
)

// A second server in the same registry panics with a hint and with the error of Prometheus. With labels it does
// not.
func TestRegisterTwice(t *testing.T) {
	stats := func() server.Stats { return server.Stats{} }
	for name, twice := range map[string]func(r prometheus.Registerer){
		"New":      func(r prometheus.Registerer) { New(Options{Registry: r}) },
		"Server":   func(r prometheus.Registerer) { (&Metrics{registry: r}).Server(stats) },
		"NewLoads": func(r prometheus.Registerer) { NewLoads(r) },
	} {
		t.Run(name, func(t *testing.T) {
			r := prometheus.NewRegistry()
			for _, label := range []string{"a", "b"} {
				twice(prometheus.WrapRegistererWith(prometheus.Labels{"server": label}, r))
			}
			defer func() {
				err, _ := recover().(error)
				if _, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); !ok || !strings.Contains(err.Error(), "prometheus.WrapRegistererWith") {
					t.Errorf("it panics with %v", err)
				}
			}()
			twice(prometheus.WrapRegistererWith(prometheus.Labels{"server": "b"}, r))
		})
	}
}

func TestNil(t *testing.T) {
	r := prometheus.NewRegistry()
	New(Options{Registry: r}).Server(nil)
	NewLoads(r).Source(nil)
	if _, err := r.Gather(); err != nil {
		t.Error(err)
	}
}
