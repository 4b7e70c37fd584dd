package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/chancery-xds/chancery/e2e/tap"
)

// A reason that passes by itself: Envoy gets the refused listener again, and accepts it (HEAL-2).
func TestRefusedListenerIsRetried(t *testing.T) {
	t.Parallel()
	const within = 15 * time.Second
	for _, v := range []variant{sotw, delta} {
		begin := func(t *testing.T) (*site, team) {
			s := siteOf(t, func(w world) *rig { return newRig(t, w, sourcedBy(v, renamed), "--quarantine", "--retry-refused") })
			s.start(v)
			return s, team{s.daemon, "."}
		}
		healed := func(s *site) {
			s.t.Helper()
			eventually(s.t, soon, "the refusal ends", func() error {
				if lines := s.daemon.logged("client no longer refuses a type"); len(lines) != 1 {
					return fmt.Errorf("HEAL-5: %v", lines)
				}
				return nil
			})
			if lines := s.daemon.logged("client refused a response (NACK)"); len(lines) != 1 {
				s.t.Errorf("%d lines of one refused version: %v", len(lines), lines)
			}
		}
		t.Run("HEAL-2 a listener takes the port of another/"+v.String(), func(t *testing.T) {
			t.Parallel()
			_, files := begin(t)
			one, two := freePort(t), freePort(t)
			first, second := via(t, one), via(t, two)
			files.has("listeners.yaml", caseFile(t, "before.yaml", one, two))
			eventually(t, soon, "web serves", first.gets(answer{"web-1", ""}))
			files.has("listeners.yaml", caseFile(t, "after.yaml", one, two))
			eventually(t, within, "api serves on the port", anew(one).gets(answer{"api", ""}))
			eventually(t, soon, "web serves on its new port", second.gets(answer{"web-2", ""}))
		})
		t.Run("HEAL-2 the port of a new listener becomes free/"+v.String(), func(t *testing.T) {
			t.Parallel()
			s, files := begin(t)
			one, two := freePort(t), freePort(t)
			l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", one))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			s.provoked = "SOTW-5 DELTA-15 the same content again" // the retry
			p := s.Mark("a listener on a port in use")
			files.has("listeners.yaml", caseFile(t, "before.yaml", one, two))
			s.sees(p, soon, "a NACK", func(rs tap.Records) bool { return len(rs.NACKs("LDS")) > 0 })
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			eventually(t, within, "web serves", anew(one).gets(answer{"web-1", ""}))
			healed(s)
		})
		t.Run("HEAL-2 a port in use becomes free/"+v.String(), func(t *testing.T) {
			t.Parallel()
			s, files := begin(t)
			one, two := freePort(t), freePort(t)
			files.has("listeners.yaml", caseFile(t, "before.yaml", one, two))
			eventually(t, soon, "web serves", via(t, one).gets(answer{"web-1", ""}))
			l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", two))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			p := s.Mark("web moves to a port in use")
			files.has("listeners.yaml", caseFile(t, "moved.yaml", one, two))
			s.sees(p, 2*within, "a refused retry", func(rs tap.Records) bool { return len(rs.NACKs("LDS")) > 1 })
			eventually(t, soon, "web serves on its old port", anew(one).gets(answer{"web-1", ""}))
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			eventually(t, within, "web serves on its new port", anew(two).gets(answer{"web-2", ""}))
			healed(s)
		})
	}
}

// caseFile returns a file of listeners with these ports.
func caseFile(t *testing.T, name string, one, two int) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "retry", name))
	if err != nil {
		t.Fatal(err)
	}
	return []byte(os.Expand(string(b), func(port string) string { return fmt.Sprint(map[string]int{"ONE": one, "TWO": two}[port]) }))
}

// With a stream for each type, a listener with its routes inside waits until Envoy has accepted its new cluster, and
// Envoy keeps the old cluster, which the same commit deletes, until it has accepted the listener.
func TestListenerOfLateCluster(t *testing.T) {
	t.Parallel()
	among(t, "ADS-11 ADS-3 a listener and its cluster;", func(t *testing.T, v variant) {
		s := siteOf(t, func(w world) *rig {
			return newRig(t, w, sourcedBy(v, renamed), "--quarantine", "--retry-refused")
		}, func(w world) { inside(w, "ingress", "1", "backend") })
		s.start(v)
		l := loaded(t, anew(s.ingressPort), nil) // open connections stay with the old listener and its routes
		release := s.Hold(func(r tap.Record) bool { return r.Type == "CDS" })
		p := s.commit("the answer to clusters is held", func(w world) { w.set(edsCluster("other", 2*time.Second)) })
		s.sees(p, soon, "clusters", func(rs tap.Records) bool { return len(rs.Responses("CDS")) > 0 })
		p = s.commit("the listener leads to a new cluster, the old one goes", func(w world) {
			inside(w, "ingress", "2", "next")
			w.set(edsCluster("next", time.Second), assignment("next", s.b.port))
			w.drop(edsCluster("backend", 0), assignment("backend"))
		})
		time.Sleep(time.Second)
		exactly(t, 0, "LDS response", s.Since(p).Responses("LDS"))
		release()
		eventually(t, soon, "the new cluster serves", anew(s.ingressPort).gets(answer{"b", "2"}))
		eventually(t, soon, "the old cluster goes", s.envoy.hasClusters("next", "other"))
		for i, to := range []string{"backend", "next", "backend", "next"} {
			from, other := s.a, "backend"
			if to == "next" {
				from = s.b
			} else {
				other = "next"
			}
			gen := fmt.Sprint(3 + i)
			s.commit("the listener leads to "+to, func(w world) {
				inside(w, "ingress", gen, to)
				w.set(edsCluster(to, time.Second), assignment(to, from.port))
				w.drop(edsCluster(other, 0), assignment(other))
			})
			eventually(t, soon, "the new cluster serves", anew(s.ingressPort).gets(answer{from.name, gen}))
			eventually(t, soon, "the old cluster goes", s.envoy.hasClusters(to, "other"))
		}
		exactly(t, 0, "NACK", s.Since(p).NACKs())
		l.Unharmed(t)
	}, ownSotw, ownDelta)
}

// inside puts the routes of a listener into it.
func inside(w world, name, generation, to string) {
	w.manage(name, func(m *hcm.HttpConnectionManager) {
		m.RouteSpecifier = &hcm.HttpConnectionManager_RouteConfig{RouteConfig: routes("", generation, to)}
	})
	w.drop(routes(name, "", ""))
}
