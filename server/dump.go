package server

import (
	"regexp"
	"strings"
)

// dumped is a field with a text, as protobuf's text format and JSON have it: of a dump
// without a marker. The server does not know which fields are sensitive.
var dumped = regexp.MustCompile(`("[^"]*"|\w+)(\s*:\s*)"(?:[^"\\]|\\.)*"?`)

// withoutValues leaves out what fields have in them, but for names of resources and of
// types: they say what to mend.
func withoutValues(text string) string {
	return dumped.ReplaceAllStringFunc(text, func(s string) string {
		field := dumped.FindStringSubmatch(s)
		switch field[1] {
		case "name", "type_url", `"@type"`:
			return s
		}
		return strings.Join(field[1:], "") + `"…"`
	})
}
