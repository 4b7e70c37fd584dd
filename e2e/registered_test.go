package e2e

import (
	"testing"

	"github.com/chancery-xds/chancery/internal/adminapi"
)

// A real Envoy uses an endpoint that somebody registers, and not the one in the file; keeps it while the server is killed and
// starts again; drops it when its lease ends; and uses the file's when the cluster is released. The cluster next to it is as it was.
func TestRegisteredEndpoints(t *testing.T) {
	t.Parallel()
	each(t, "EDS-1 endpoints by the admin API", func(t *testing.T, v variant) {
		flags, _, admin := administered(t)
		s := siteOf(t, func(w world) *rig {
			return newRig(t, w, sourcedBy(v, renamed), append(flags, "--endpoints", "--state-dir", t.TempDir())...)
		})
		s.start(v)
		changed := func(r *adminapi.EndpointsResult, err error) {
			t.Helper()
			if err != nil || r.Set+r.Removed != 1 {
				t.Fatal(r, err)
			}
		}
		changed(admin.PutEndpoint(t.Context(), "", "backend", "b", adminapi.Endpoint{Address: "127.0.0.1", Port: s.b.port}))
		eventually(t, soon, "what is registered serves", s.ingress.gets(answer{"b", "1"}))
		s.daemon.kill()
		s.daemon.start()
		s.nextChange()
		if err := s.ingress.gets(answer{"b", "1"})(); err != nil {
			t.Error(err)
		}
		changed(admin.RemoveEndpoints(t.Context(), "", "backend", "b", false))
		eventually(t, soon, "nothing is registered", s.envoy.hasEndpoints("backend", 0))
		changed(admin.PutEndpoint(t.Context(), "", "backend", "b", adminapi.Endpoint{Address: "127.0.0.1", Port: s.b.port, TTL: "2s"}))
		eventually(t, soon, "what has a lease serves", s.ingress.gets(answer{"b", "1"}))
		eventually(t, soon, "the lease ends", s.envoy.hasEndpoints("backend", 0))
		eventually(t, soon, "nobody serves", s.ingress.fails("503"))
		if _, err := admin.RemoveEndpoints(t.Context(), "", "backend", "", true); err != nil {
			t.Fatal(err)
		}
		eventually(t, soon, "what the file says serves", s.ingress.gets(answer{"a", "1"}))
	})
}
