package metrics

import "testing"

func TestHandshakes(t *testing.T) {
	m, counts := New(Options{}), map[string]uint64{"expired": 1, "closed": 0}
	m.Handshakes(func() map[string]uint64 { return counts })
	if got := scrape(t, m)[prefix+`tls_handshakes_failed_total{reason="closed"}`]; got != "0" {
		t.Errorf("OBS-4 a reason that has not come is %q", got)
	}
	expect(t, m, func() { counts["expired"]++ }, `tls_handshakes_failed_total{reason="expired"} 2`)
}
