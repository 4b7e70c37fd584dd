package quarantine

import (
	"testing"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// HEAL-2: a retry that was planned for later remains. One whose time has come when the client refuses is the retry
// that it refused.
func TestScheduleOfPlannedRetries(t *testing.T) {
	now := time.Now()
	step := protocol.RetryDelay(2, false, 0, 7)
	for planned, want := range map[time.Duration]time.Duration{
		-time.Second: step, 0: step, time.Millisecond: minRetry, 4 * time.Second: 4 * time.Second, time.Hour: step,
	} {
		h := held{typ: xds.Listener, name: "l", nonce: 7, tries: 2, planned: now.Add(planned)}
		new(Watch).schedule(&h, now)
		if got := h.retryAt.Sub(now); got != want || !h.planned.IsZero() {
			t.Errorf("planned in %v: the next retry is in %v, want %v", planned, got, want)
		}
	}
}
