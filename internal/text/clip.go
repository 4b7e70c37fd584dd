package text

import "unicode/utf8"

// Tail returns the first n bytes of a text, or a few less, and "…" for the rest.
func Tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// Middle leaves about n bytes of a text, and "…" for those in its middle: its head says where
// something is wrong, and its end what.
func Middle(s string, n int) string {
	if len(s) <= n {
		return s
	}
	end := len(s) - n/2
	for end < len(s) && !utf8.RuneStart(s[end]) {
		end++
	}
	return Tail(s[:end], n-n/2) + s[end:]
}
