package cli

import (
	"fmt"
)

// Count is "1 error", "2 errors".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprint(n, " ", what, "s")
}

// Prefixed is a text with what leads to it, or "" if there is none.
func Prefixed(lead, text string) string {
	if text == "" {
		return ""
	}
	return lead + text
}

// OrDash is text, or "-" if it is empty.
func OrDash(text string) string { return Prefixed("", text) + map[bool]string{true: "-"}[text == ""] }
