package cli

import "cmp"

// OrDash returns text, or "-" if it is empty.
func OrDash(text string) string { return cmp.Or(text, "-") }
