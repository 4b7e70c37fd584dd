package groups

import (
	"strings"
	"testing"
)

func TestGlobEdges(t *testing.T) {
	for _, tt := range []struct {
		pattern, value string
		want           bool
	}{
		{"a*b*b", "ab", false}, // the last b is there once
		{"a*b*b", "abb", true},
		{"*x?", "xé", true}, // one character, of two bytes
		{"*a?b", "aéb", true},
		{"a*", strings.Repeat("a", maxValue), true},
		{"a*", strings.Repeat("a", maxValue+1), false},
	} {
		g, err := compile(tt.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := g.match(tt.value); got != tt.want {
			t.Errorf("%q matches %.10q (%d bytes): %v, want %v", tt.pattern, tt.value, len(tt.value), got, tt.want)
		}
	}
}
