package admin

import "testing"

func TestMostChecked(t *testing.T) {
	for limit, want := range map[int64]int{256 << 20: 64 << 10, 1 << 30: 256 << 10, 1<<63 - 1: maxChecked} {
		if got := mostChecked(limit); got != want {
			t.Errorf("SAFE-14 limit %d: %d, not %d", limit, got, want)
		}
	}
}
