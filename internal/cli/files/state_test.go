package files

import (
	"testing"
	"time"
)

func TestAgeMayBeInDays(t *testing.T) {
	for age, want := range map[string]time.Duration{"90d": 90 * 24 * time.Hour, "1d": 24 * time.Hour, "12h": 12 * time.Hour, "1ns": 1} {
		if got, err := parseAge(age); err != nil || got != want {
			t.Errorf("%s: %v, %v", age, got, err)
		}
	}
}
