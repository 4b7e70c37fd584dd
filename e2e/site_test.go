package e2e

import (
	"errors"
	"fmt"
	"testing"
	"time"

	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
)

// A site is an Envoy with two listeners: ingress routes to the cluster backend, and side routes to
// the cluster other, which most tests do not change.
type site struct {
	*rig
	t       *testing.T
	envoy   *envoy
	a, b    upstream
	sideAt  upstream // where the cluster other is; backend is at a
	ingress caller
	side    caller

	ingressPort, sidePort int
}

// soon is how long a change may take from the files to the traffic on a busy machine. A missing
// answer would take 15 s. For steps without a wait see [prompt].
const soon = 10 * time.Second

// newSite starts the daemon, with changes to its world, and no Envoy yet.
func newSite(t *testing.T, l layout, changes ...func(world)) *site {
	t.Helper()
	return siteOf(t, func(w world) *rig { return newRig(t, w, l) }, changes...)
}

// siteOf is newSite with a rig that serve makes.
func siteOf(t *testing.T, serve func(world) *rig, changes ...func(world)) *site {
	t.Helper()
	s := &site{t: t, a: newUpstream(t, "a"), b: newUpstream(t, "b"), ingressPort: freePort(t), sidePort: freePort(t)}
	s.ingress, s.side = via(t, s.ingressPort), via(t, s.sidePort)
	s.sideAt = s.b
	w := newWorld(
		edsCluster("backend", time.Second), assignment("backend", s.a.port),
		edsCluster("other", time.Second), assignment("other", s.b.port),
		httpListener("ingress", s.ingressPort, "ingress"), routes("ingress", "1", "backend"),
		httpListener("side", s.sidePort, "side"), routes("side", "1", "other"),
	)
	for _, change := range changes {
		change(w)
	}
	s.rig = serve(w)
	return s
}

// startSite starts an Envoy of the variant and waits until it serves and all
// is quiet.
func startSite(t *testing.T, v variant) *site {
	t.Helper()
	s := newSite(t, sourcedBy(v, renamed))
	s.start(v)
	return s
}

func (s *site) start(v variant, edits ...func(bootstrap)) {
	s.t.Helper()
	s.startAs(v, answer{"a", "1"}, edits...)
}

// startAs does the same as start, if ingress serves another answer.
func (s *site) startAs(v variant, ingress answer, edits ...func(bootstrap)) {
	s.t.Helper()
	s.boot(v, edits...)
	eventually(s.t, soon, "ingress serves", s.ingress.gets(ingress))
	eventually(s.t, soon, "side serves", s.side.gets(answer{"b", "1"}))
	s.quiet()
}

// boot starts an Envoy of the variant and waits until it is initialised within soon. A missing
// answer would take 15 s, and a wait of the server 5 s.
func (s *site) boot(v variant, edits ...func(bootstrap)) {
	s.t.Helper()
	s.Mark("envoy started: %s", v)
	s.envoy = startEnvoy(s.t, "e2e", v, s.Addr().Port, edits...)
	eventually(s.t, prompt, "envoy is live", s.envoy.Live)
}

// nextChange moves the cluster other and waits until traffic follows and no message is in flight.
// After it, no late message of an earlier change can follow.
func (s *site) nextChange() {
	s.t.Helper()
	if s.sideAt == s.a {
		s.sideAt = s.b
	} else {
		s.sideAt = s.a
	}
	s.commit("other moves to "+s.sideAt.name, func(w world) { w.set(assignment("other", s.sideAt.port)) })
	eventually(s.t, soon, "the next change arrives", func() error {
		got, err := s.side.once()
		if err == nil && got.from != s.sideAt.name {
			err = fmt.Errorf("answered by %s", got.from)
		}
		return err
	})
	s.quiet()
}

// listenerChanges changes ingress in place, and waits until the change is active and no message is
// in flight. Its references stay.
func (s *site) listenerChanges() {
	s.t.Helper()
	s.commit("ingress gets a name", func(w world) {
		w.manage("ingress", func(m *hcm.HttpConnectionManager) { m.ServerName = "second" })
	})
	eventually(s.t, soon, "the new listener is in force", func() error {
		err := s.envoy.dumps("dynamic_listeners", `"server_name": "second"`)()
		if err == nil && s.envoy.dumps("dynamic_listeners", `"warming_state"`)() == nil {
			err = errors.New("it is warming")
		}
		return err
	})
	s.quiet()
}

// each runs a test once with an Envoy of each variant of ADS.
func each(t *testing.T, name string, f func(t *testing.T, v variant)) {
	among(t, name, f, sotw, delta)
}

// everywhere runs a test once with an Envoy of each variant, including those with one stream for
// each subscription.
func everywhere(t *testing.T, name string, f func(t *testing.T, v variant)) {
	among(t, name, f, sotw, delta, ownSotw, ownDelta)
}

func among(t *testing.T, name string, f func(t *testing.T, v variant), variants ...variant) {
	for _, v := range variants {
		t.Run(fmt.Sprint(name, " ", v), func(t *testing.T) { t.Parallel(); f(t, v) })
	}
}
