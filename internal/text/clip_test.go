package text

import "testing"

func TestShorten(t *testing.T) {
	for _, c := range []struct {
		text         string
		n            int
		head, middle string
	}{
		{"", 0, "", ""},
		{"abcdef", 6, "abcdef", "abcdef"},
		{"abcdef", 5, "abcde…", "abc…ef"},
		{"abcdef", 0, "…", "…"},
		{"aüü", 2, "a…", "a…"},
		{"üüü", 1, "…", "…"},
		{"aüüb", 4, "aü…", "a…b"},
		{"aüübc", 4, "aü…", "a…bc"},
		{"\xff\xfe\xfd", 2, "\xff\xfe…", "\xff…\xfd"},
		{"\x80\x80\x80", 2, "…", "…"}, // parts of characters, without a first character
	} {
		if got := Head(c.text, c.n); got != c.head {
			t.Errorf("head of %q at %d: %q, want %q", c.text, c.n, got, c.head)
		}
		if got := Middle(c.text, c.n); got != c.middle {
			t.Errorf("middle of %q at %d: %q, want %q", c.text, c.n, got, c.middle)
		}
	}
}
