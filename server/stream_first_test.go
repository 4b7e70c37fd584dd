package server

import (
	"testing"
	"testing/synctest"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/chancery-xds/chancery/xds"
)

// SAFE-9: the initial versions of a client count once, with the first request of their type. A client within its rate
// is not logged.
func TestInitialVersionsCountOnce(t *testing.T) {
	within(t, "SAFE-9 delta", func(t *testing.T) {
		w := serve(t)
		w.set(xds.Cluster, res("a", "1"))
		c := w.delta(t, w.dial(t))
		for range 2 {
			c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL, InitialResourceVersions: map[string]string{"a": "123", "bc": "4"}})
			synctest.Wait()
			if got, want := w.Server.held.total(), len("a123bc4"); got != want {
				t.Errorf("%d bytes are held, want %d", got, want)
			}
		}
		if log := w.log.String(); log != "" {
			t.Errorf("the log has %s", log)
		}
	})
}
