package text

import "unicode/utf8"

// Head returns the first n bytes of s, without half a character at the end, and "…" for the rest.
func Head(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// Middle returns about n bytes of s, with "…" in place of the middle. The head of an error usually has
// the place, and its end the reason.
func Middle(s string, n int) string {
	if len(s) <= n {
		return s
	}
	end := len(s) - n/2
	for end < len(s) && !utf8.RuneStart(s[end]) {
		end++
	}
	return Head(s[:end], n-n/2) + s[end:]
}
