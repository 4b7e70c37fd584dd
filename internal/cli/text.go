package cli

import (
	"cmp"
	"fmt"
)

// Count returns a number with its noun: "1 error", "2 errors".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprint(n, " ", what, "s")
}

// OrDash returns text, or "-" if it is empty.
func OrDash(text string) string { return cmp.Or(text, "-") }
