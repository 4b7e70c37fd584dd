package procmetrics

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/chancery-xds/chancery/internal/promx"
)

// scrape returns the metrics of Chancery that Prometheus reads.
func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	var ours strings.Builder
	for line := range strings.Lines(w.Body.String()) {
		if short, is := strings.CutPrefix(line, promx.Prefix); is {
			ours.WriteString("\n" + strings.TrimSpace(short))
		}
	}
	return ours.String() + "\n"
}

func expect(t *testing.T, m *Metrics, want ...string) {
	t.Helper()
	got := scrape(t, m)
	for _, line := range want {
		if !strings.Contains(got, "\n"+line+"\n") {
			t.Errorf("no %q in:%s", line, got)
		}
	}
}

func TestProcessMetrics(t *testing.T) {
	m := New(Options{Version: "v1.2.3"})
	if got := scrape(t, m); !strings.Contains(got, `version="v1.2.3"} 1`) || !strings.Contains(got, `revision="unknown"`) {
		t.Error("build_info:", got)
	}
	restored, kept := false, false
	m.LastGood(func() bool { return restored }, func() bool { return kept })
	m.Connections(func() int { return 3 }, func() uint64 { return 4 })
	m.Log(func() uint64 { return 5 })
	ends := time.Time{}
	m.TLS(func() time.Time { return ends })
	if got := scrape(t, m); strings.Contains(got, "tls_certificate_first_expiry") {
		t.Error("without TLS a certificate expires:", got)
	}
	expect(t, m, `config_restored 0`, `config_kept 0`, `connections 3`, `connections_closed_total 4`, `log_lines_lost_total 5`)
	restored, kept, ends = true, true, time.Unix(2500, 0)
	expect(t, m, `config_restored 1`, `config_kept 1`, `tls_certificate_first_expiry_timestamp_seconds 2500`)
	if got := scrape(t, m); !strings.Contains(got, "\nstreams_opened_total") {
		t.Error("the metrics of the xDS server are missing")
	}
}

// With an empty --state-dir the metric config_kept is absent.
func TestNoStateDirHasNoMetric(t *testing.T) {
	m := New(Options{})
	m.LastGood(func() bool { return false }, nil)
	if got := scrape(t, m); strings.Contains(got, "config_kept") {
		t.Error(got)
	}
}

func TestFailedHandshakesByReason(t *testing.T) {
	m, counts := New(Options{}), map[string]uint64{"expired": 1, "closed": 0}
	m.Handshakes(func() map[string]uint64 { return counts })
	if got := scrape(t, m); !strings.Contains(got, `tls_handshakes_failed_total{reason="closed"} 0`) {
		t.Error("OBS-4 a reason that did not occur is missing:", got)
	}
	counts["expired"]++
	expect(t, m, `tls_handshakes_failed_total{reason="expired"} 2`)
}

func TestNamesFollowPrometheusConventions(t *testing.T) {
	m := New(Options{})
	m.LastGood(func() bool { return false }, func() bool { return false })
	m.Connections(func() int { return 0 }, func() uint64 { return 0 })
	m.Log(func() uint64 { return 0 })
	m.TLS(func() time.Time { return time.Unix(1, 0) })
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, promx.Prefix) {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}
