package server

import "testing"

// A key that is put again is the newest, with its newest value.
func TestLRU(t *testing.T) {
	l := newLRU[string, int](2)
	for i, k := range []string{"a", "b", "a", "c"} {
		l.put(k, i)
	}
	for k, want := range map[string]int{"a": 2, "c": 3} {
		if got, ok := l.get(k); !ok || got != want {
			t.Errorf("SAFE-9: %s is %d, %v", k, got, ok)
		}
	}
	if _, ok := l.get("b"); ok {
		t.Error("SAFE-9: the oldest is remembered")
	}
}
