package text

import (
	"regexp"
	"strings"
)

// shellPlain matches text that needs no quotes in a shell.
var shellPlain = regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,-]+$`)

// ShellQuoted quotes text for a shell, if needed.
func ShellQuoted(text string) string {
	if shellPlain.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
