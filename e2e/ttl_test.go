package e2e

import (
	"slices"
	"syscall"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/chancery-xds/chancery/e2e/tap"
)

// Envoy 1.40 supports TTLs of listeners and clusters in delta without announcing it: the server
// sends TTLs if the operator sets the flag.
func TestTTL(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	expiring := func(name string, port int, routes string) *discovery.Resource {
		return &discovery.Resource{Name: name, Ttl: durationpb.New(ttl), Resource: pack(httpListener(name, port, routes))}
	}
	start := func(t *testing.T, v variant, port int, args ...string) *site {
		s := siteOf(t, func(w world) *rig { return newRig(t, w, renamed, args...) }, func(w world) {
			w.set(expiring("brief", port, "side"))
		})
		s.start(v)
		return s
	}
	bodyless := func(x tap.Resource) bool { return x.Sum == "" }
	beats := func(rs tap.Records) tap.Records {
		return slices.DeleteFunc(rs.Responses("LDS"), func(r tap.Record) bool { return !slices.ContainsFunc(r.Resources, bodyless) })
	}

	t.Run("TTL-3 TTL-6 heartbeats keep a listener, and without them it goes", func(t *testing.T) {
		t.Parallel()
		port := freePort(t)
		s := start(t, delta, port, "--force-ttl")
		brief := anew(port)
		eventually(t, soon, "it serves", brief.gets(answer{"b", "1"}))
		l := loaded(t, brief, nil)
		p := s.Mark("three TTLs")
		s.sees(p, 4*ttl, "heartbeats", func(rs tap.Records) bool { return len(beats(rs)) >= 9 })
		l.Unharmed(t)
		exactly(t, len(beats(s.Since(p))), "response, each a heartbeat", s.Since(p).Responses())

		s.Mark("the server stands still")
		if err := s.daemon.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if took := eventually(t, 3*ttl, "the listener goes", refused(port)); took < ttl/2 {
			t.Errorf("it went after %v", took)
		}
		if err := s.ingress.gets(answer{"a", "1"})(); err != nil {
			t.Error("one without TTL stays:", err)
		}
		s.Mark("the server goes on")
		if err := s.daemon.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		eventually(t, soon, "the listener is sent again", brief.gets(answer{"b", "1"}))
		p = s.commit("the TTL is taken away", func(w world) {
			w.set(&discovery.Resource{Name: "brief", Resource: pack(httpListener("brief", port, "side"))})
		})
		s.sees(p, soon, "the listener without it", func(rs tap.Records) bool { return len(rs.Responses("LDS")) > 0 })
		s.quiet()
		p = s.Mark("nothing follows")
		time.Sleep(ttl)
		exactly(t, 0, "heartbeat", beats(s.Since(p)))
		if err := brief.gets(answer{"b", "1"})(); err != nil {
			t.Error("it stays:", err)
		}
		exactly(t, 0, "NACK", s.Since(0).NACKs())
	})

	// If Envoy 1.40 gets a TTL over SotW, it crashes when the TTL ends.
	each(t, "TTL-1 TTL-6 nothing of TTLs without the feature", func(t *testing.T, v variant) {
		port := freePort(t)
		args := []string{}
		if !v.delta() {
			args = append(args, "--force-ttl")
		}
		s := start(t, v, port, args...)
		time.Sleep(2 * ttl)
		exactly(t, 0, "heartbeat", beats(s.Since(0)))
		if err := anew(port).gets(answer{"b", "1"})(); err != nil {
			t.Error("the listener stays:", err)
		}
		s.nextChange()
		exactly(t, 0, "NACK", s.Since(0).NACKs())
	})
}
