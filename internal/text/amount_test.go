package text

import (
	"testing"
	"time"
)

func TestDurationsAndNumbersForPeople(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Hour: "0s", 0: "0s", 59 * time.Second: "59s", time.Minute: "1m", 90 * time.Minute: "1h30m", 2 * time.Hour: "2h", 24 * time.Hour: "1d", 75 * time.Hour: "3d3h",
	} {
		if got := Since(time.Now().Add(-d)); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
	if Since(time.Time{}) != "" {
		t.Error("Since of the zero time is not empty")
	}
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234", -123: "-123"} {
		if got := Number(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}
