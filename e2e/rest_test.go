package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
)

// polling has Envoy's settings for polls.
type polling struct {
	delay   string // between an answer and the next poll, at least; twice that at most
	timeout string // for an answer
	http2   bool
}

func (v polling) source() map[string]any {
	return map[string]any{"resource_api_version": "V3", "api_config_source": map[string]any{
		"api_type":              "REST",
		"transport_api_version": "V3",
		"cluster_names":         []any{"xds"},
		"refresh_delay":         v.delay,
		"request_timeout":       v.timeout,
	}}
}

// layout returns a layout whose resources come by polling instead of ADS.
func (v polling) layout(l layout) layout {
	source, err := json.Marshal(v.source()["api_config_source"])
	if err != nil {
		panic(err)
	}
	ads := regexp.MustCompile(`"ads": *\{\}`)
	return func(dir string, n int, w world) error {
		moved := newWorld()
		for k, m := range w {
			b, err := protojson.Marshal(m)
			if err != nil {
				return err
			}
			b = ads.ReplaceAllLiteral(b, append([]byte(`"api_config_source":`), source...))
			moved[k] = m.ProtoReflect().New().Interface()
			if err := protojson.Unmarshal(b, moved[k]); err != nil {
				return err
			}
		}
		return l(dir, n, moved)
	}
}

// bootstrap changes a bootstrap so that Envoy polls.
func (v polling) bootstrap(b bootstrap) {
	b["dynamic_resources"] = map[string]any{"cds_config": v.source(), "lds_config": v.source()}
	if !v.http2 {
		delete(b["static_resources"].(map[string]any)["clusters"].([]any)[0].(map[string]any), "typed_extension_protocol_options")
	}
}

// A pollSite is a site whose Envoy polls.
type pollSite struct {
	*site
	*recorder // of HTTP/1.1
}

// startPolls starts an Envoy that polls, and waits until it serves and all of
// its polls are held.
func startPolls(t *testing.T, v polling, changes ...func(world)) *pollSite {
	t.Helper()
	at := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	s := &pollSite{site: siteOf(t, func(w world) *rig { return newRig(t, w, v.layout(renamed), "--rest-listen", at) }, changes...)}
	s.recorder = record(t, at)
	port := s.port()
	if v.http2 {
		fmt.Sscanf(at, "127.0.0.1:%d", &port)
	}
	s.envoy = startEnvoy(t, "e2e", sotw, port, v.bootstrap)
	eventually(t, 20*time.Second, "envoy is live", s.envoy.Live)
	eventually(t, soon, "ingress serves", s.ingress.gets(answer{"a", "1"}))
	eventually(t, soon, "side serves", s.side.gets(answer{"b", "1"}))
	if !v.http2 {
		s.settles()
	}
	return s
}

// pollers are the subscriptions of a site's Envoy, each with its own poller.
var pollers = []struct{ typ, name, stats string }{
	{"clusters", "", "cluster_manager.cds."},
	{"listeners", "", "listener_manager.lds."},
	{"endpoints", "backend", "cluster.backend."},
	{"endpoints", "other", "cluster.other."},
	{"routes", "ingress", "http.ingress.rds.ingress."},
	{"routes", "side", "http.side.rds.side."},
}

// settles waits until each poller has a poll that is held.
func (s *pollSite) settles() {
	s.site.t.Helper()
	eventually(s.site.t, soon, "each subscription has a poll that is held", func() error {
		for _, p := range pollers {
			n := 0
			for _, q := range s.since(0).of(p.typ, p.name) {
				if q.answered == 0 && s.now()-q.asked > 50*time.Millisecond {
					n++
				}
			}
			if n != 1 {
				return fmt.Errorf("%d for %s %s", n, p.typ, p.name)
			}
		}
		return nil
	})
}

// told fails the test unless exactly these subscriptions were answered since a point, once each.
func (s *pollSite) told(p time.Duration, want ...string) {
	s.site.t.Helper()
	got := map[string]int{}
	for _, q := range s.since(p).of("", "", http.StatusOK) {
		got[q.typ+" "+q.names]++
	}
	for _, w := range want {
		if got[w] != 1 {
			s.site.t.Errorf("%d answers for %s", got[w], w)
		}
		delete(got, w)
	}
	if len(got) > 0 {
		s.site.t.Errorf("answered for nothing: %v", got)
	}
}

// answers waits until n polls of a type were answered with a status.
func (s *pollSite) answers(p time.Duration, typ, name string, status, n int, within time.Duration) polls {
	s.site.t.Helper()
	var got polls
	eventually(s.site.t, within, fmt.Sprintf("%d × %d for %s %s", n, status, typ, name), func() error {
		if got = s.since(p).of(typ, name, status); len(got) < n {
			return fmt.Errorf("%d", len(got))
		}
		return nil
	})
	return got
}

// stats are Envoy's counters of a subscription.
func (s *pollSite) stats(prefix string) map[string]int {
	s.site.t.Helper()
	b, err := s.envoy.Get("/stats?format=json&filter=^" + regexp.QuoteMeta(prefix) + "update_")
	if err != nil {
		s.site.t.Fatal(err)
	}
	var all struct {
		Stats []struct {
			Name  string
			Value int
		}
	}
	if err := json.Unmarshal(b, &all); err != nil {
		s.site.t.Fatal(err)
	}
	m := map[string]int{}
	for _, st := range all.Stats {
		m[strings.TrimPrefix(st.Name, prefix+"update_")] = st.Value
	}
	return m
}

// counters are Envoy's counters of all subscriptions that a site begins with, and
// of the polls that it should have counted. A poll that a busy machine answered
// too late counts as failed.
func (s *pollSite) counters() map[string]map[string]int {
	s.site.t.Helper()
	all := map[string]map[string]int{}
	for _, p := range pollers {
		all[p.stats] = s.stats(p.stats)
		if n := len(s.since(0).of(p.typ, p.name)); all[p.stats]["attempt"] > n {
			s.site.t.Errorf("%s: %d attempts, %d polls", p.stats, all[p.stats]["attempt"], n)
		}
		if n, late := all[p.stats]["failure"], s.late(p.typ, p.name); n > late {
			s.site.t.Errorf("%s: %d failures, %d polls were answered late", p.stats, n, late)
		}
	}
	return all
}

// late returns how many polls of a subscription were answered about the time of Envoy's timeout or
// later.
func (s *pollSite) late(typ, name string) (n int) {
	for _, q := range s.since(0).of(typ, name) {
		ms, _ := strconv.Atoi(q.timeout)
		if held := q.answered - q.asked; q.status == 0 || held > time.Duration(ms)*time.Millisecond-20*time.Millisecond {
			n++
		}
	}
	return n - 1 // that is held
}

func TestREST(t *testing.T) {
	t.Parallel()
	t.Run("REST-1 REST-2 REST-7 updates and deletions", func(t *testing.T) {
		t.Parallel()
		s := startPolls(t, polling{delay: "0.2s", timeout: "20s"})
		for _, q := range s.since(0).of("", "", http.StatusOK) {
			want := 1 // a poll for a name gets only this resource
			if q.names == "[]" {
				want = 2
			}
			if q.version != "" || q.count != want || q.timeout != "20000" || q.nonce+q.failure != "" {
				t.Errorf("%v", q)
			}
		}
		s.told(0, "clusters []", "listeners []", "endpoints [backend]", "endpoints [other]", "routes [ingress]", "routes [side]")
		for stats, c := range s.counters() {
			if c["success"] != 1 || c["rejected"] != 0 {
				t.Errorf("%s: %v", stats, c)
			}
		}
		l := loaded(t, s.ingress, nil)

		p := s.now()
		s.commit("backend moves", func(w world) { w.set(assignment("backend", s.b.port)) })
		eventually(t, soon, "traffic follows", s.ingress.gets(answer{"b", "1"}))
		s.settles()
		s.told(p, "endpoints [backend]")

		p = s.now()
		s.commit("a new cluster", func(w world) { w.set(edsCluster("third", time.Second), assignment("third", s.a.port)) })
		eventually(t, soon, "Envoy has it", s.envoy.hasClusters("backend", "other", "third"))
		s.settles()
		s.told(p, "clusters []", "endpoints [third]")

		p = s.now()
		s.commit("ingress goes there", func(w world) { w.set(routes("ingress", "2", "third")) })
		eventually(t, soon, "traffic follows", s.ingress.gets(answer{"a", "2"}))
		s.settles()
		s.told(p, "routes [ingress]")

		p = s.now()
		s.commit("side is deleted", func(w world) { w.drop(httpListener("side", 0, "")) })
		eventually(t, soon, "no listener on the side port", refused(s.sidePort))
		eventually(t, soon, "the listener is gone", s.envoy.hasListeners("ingress"))
		s.told(p, "listeners []")
		p = s.now()
		s.commit("and its cluster", func(w world) { w.drop(edsCluster("other", 0)) })
		eventually(t, soon, "the cluster is gone", s.envoy.hasClusters("backend", "third"))
		s.told(p, "clusters []")
		l.Unharmed(t)
	})

	t.Run("REST-2 what Envoy makes of a poll that nothing happens to", func(t *testing.T) {
		t.Parallel()
		s := startPolls(t, polling{delay: "0.3s", timeout: "2s"})
		before := s.counters()
		for _, p := range pollers {
			last := time.Duration(0)
			for _, q := range s.answers(0, p.typ, p.name, http.StatusNotModified, 2, 20*time.Second) {
				// The server holds the poll until shortly before Envoy's timeout.
				if held := q.answered - q.asked; held < 1850*time.Millisecond {
					t.Errorf("held for %v: %v", held, q)
				}
				// After an answer, Envoy waits once to twice its refresh_delay.
				if last > 0 && q.asked-last < 290*time.Millisecond {
					t.Errorf("%v after an answer: %v", q.asked-last, q)
				}
				last = q.answered
			}
		}
		s.settles()
		for stats, c := range s.counters() {
			// A 304 counts as an attempt, and neither as success nor as failure.
			if c["attempt"] < before[stats]["attempt"]+2 || c["success"] != 1 || c["rejected"] != 0 {
				t.Errorf("%s: %v, before %v", stats, c, before[stats])
			}
		}
		s.told(0, "clusters []", "listeners []", "endpoints [backend]", "endpoints [other]", "routes [ingress]", "routes [side]")
	})

	t.Run("REST-2 REST-4 the server restarts", func(t *testing.T) {
		t.Parallel()
		s := startPolls(t, polling{delay: "0.2s", timeout: "5s"})
		l := loaded(t, s.ingress, nil)
		s.kill()
		eventually(t, 20*time.Second, "Envoy notices", func() error {
			for _, p := range pollers {
				if s.stats(p.stats)["failure"] == 0 {
					return fmt.Errorf("%s: %v", p.stats, s.stats(p.stats))
				}
			}
			return nil
		})
		s.restart()
		p := s.now()
		s.settles()
		s.told(p) // versions are the same as before
		s.commit("backend moves", func(w world) { w.set(assignment("backend", s.b.port)) })
		eventually(t, soon, "traffic follows", s.ingress.gets(answer{"b", "1"}))
		l.Unharmed(t)
	})

	t.Run("REST-1 over HTTP/2", func(t *testing.T) {
		t.Parallel()
		s := startPolls(t, polling{delay: "0.2s", timeout: "2s", http2: true})
		l := loaded(t, s.ingress, nil)
		s.commit("backend moves", func(w world) { w.set(assignment("backend", s.b.port)) })
		eventually(t, soon, "traffic follows", s.ingress.gets(answer{"b", "1"}))
		s.commit("side is deleted", func(w world) { w.drop(httpListener("side", 0, "")) })
		eventually(t, soon, "the listener is gone", s.envoy.hasListeners("ingress"))
		eventually(t, 20*time.Second, "polls end unanswered", func() error {
			if c := s.stats("cluster_manager.cds."); c["attempt"] < 4 || c["success"] != 1 {
				return fmt.Errorf("%v", c)
			}
			return nil
		})
		l.Unharmed(t)
	})
}

// Envoy does not report a refused answer: it continues to poll with its previous version. It does
// not get the same answer again.
func TestRESTRefused(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	for _, c := range []struct {
		typ, short, name, stats string
		bad, revert             func(*pollSite, world)
	}{
		{
			"clusters", "CDS", "", "cluster_manager.cds.",
			func(s *pollSite, w world) {
				w.set(brokenCluster("bad"), edsCluster("zgood", time.Second), assignment("zgood", s.a.port))
			},
			func(s *pollSite, w world) { w.drop(brokenCluster("bad"), edsCluster("zgood", 0), assignment("zgood")) },
		},
		{
			"listeners", "LDS", "", "listener_manager.lds.",
			func(_ *pollSite, w world) { w.set(brokenListener("bad", port, "side")) },
			func(_ *pollSite, w world) { w.drop(brokenListener("bad", 0, "")) },
		},
		{
			"routes", "RDS", "ingress", "http.ingress.rds.ingress.",
			func(_ *pollSite, w world) { w.set(brokenRoutes("ingress", "backend")) },
			func(_ *pollSite, w world) { w.set(routes("ingress", "1", "backend")) },
		},
	} {
		t.Run("REST-3 SOTW-21 "+c.typ, func(t *testing.T) {
			t.Parallel()
			s := startPolls(t, polling{delay: "0.2s", timeout: "2s"})
			l := loaded(t, s.ingress, nil)
			p := s.now()
			s.commit("a bad one", func(w world) { c.bad(s, w) })
			told := s.answers(p, c.typ, c.name, http.StatusOK, 1, soon)[0]
			// Two polls after it are held, at the version before.
			refused := s.now()
			for _, q := range s.answers(refused, c.typ, c.name, http.StatusNotModified, 2, 20*time.Second) {
				if q.version != told.version {
					t.Errorf("%v after %v", q, told)
				}
			}
			s.nextChange()
			if n := len(s.since(p).of(c.typ, c.name, http.StatusOK)); n != 1 {
				t.Errorf("told %d times", n)
			}
			if st := s.stats(c.stats); st["rejected"] != 1 {
				t.Errorf("%v", st)
			}
			lines := s.daemon.logged("client refused a response (NACK)")
			if len(lines) != 1 || lines[0]["type"] != c.short || lines[0]["version"] != told.told || lines[0]["in_use"] != told.version || !strings.HasPrefix(fmt.Sprint(lines[0]["error"]), "not applied") {
				t.Errorf("logged %q", lines)
			}

			// A revert is sent, although Envoy states that version: it may have applied a part of
			// the refused one.
			p = s.now()
			s.commit("reverted", func(w world) { c.revert(s, w) })
			if q := s.answers(p, c.typ, c.name, http.StatusOK, 1, soon)[0]; q.told != q.version {
				t.Errorf("%v", q)
			}
			eventually(t, soon, "the clusters are as they were", s.envoy.hasClusters("backend", "other"))
			eventually(t, soon, "and the listeners", s.envoy.hasListeners("ingress", "side"))
			s.settles()
			l.Unharmed(t)
		})
	}
	t.Run("REST-3 the first answer", func(t *testing.T) {
		t.Parallel()
		s := startPolls(t, polling{delay: "0.2s", timeout: "2s"}, func(w world) { w.set(brokenCluster("bad")) })
		// A poll without a version may come from an Envoy that has just started, unless its
		// connection is older than the answer. So each connection gets the answer once.
		s.answers(0, "clusters", "", http.StatusNotModified, 4, 40*time.Second)
		on := map[int]int{}
		for _, q := range s.since(0).of("clusters", "", http.StatusOK) {
			if on[q.conn]++; on[q.conn] > 1 {
				t.Errorf("told again on a connection: %v", q)
			}
		}
		p := s.now()
		s.commit("fixed", func(w world) { w.set(edsCluster("bad", time.Second), assignment("bad", s.a.port)) })
		eventually(t, soon, "the change is active", s.envoy.hasClusters("backend", "other", "bad"))
		s.settles()
		s.told(p, "clusters []", "endpoints [bad]")
	})
}

// With the output of "chancery bootstrap envoy --rest", Envoy finds the server.
func TestRESTBootstrap(t *testing.T) {
	t.Parallel()
	t.Run("REST-1 bootstrap", func(t *testing.T) {
		t.Parallel()
		at := fmt.Sprintf("127.0.0.1:%d", freePort(t))
		newDaemon(t, newWorld(edsCluster("a", time.Second), assignment("a", freePort(t))), polling{delay: "1s", timeout: "31s"}.layout(renamed), "--rest-listen", at)
		out, err := exec.Command(binary, "bootstrap", "envoy", "--node", "polls", "--server", at, "--rest", "--admin", "127.0.0.1:0").Output()
		if err != nil {
			t.Fatal(err)
		}
		var printed bootstrap
		if err := json.Unmarshal(out, &printed); err != nil {
			t.Fatal(err)
		}
		e := startEnvoy(t, "", sotw, 0, func(b bootstrap) { clear(b); maps.Copy(b, printed) })
		eventually(t, 20*time.Second, "the cluster that the server has", e.hasClusters("a"))
	})
}
