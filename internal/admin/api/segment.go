package api

import (
	"net/url"
	"strings"
)

// Segment returns a name as a segment of a path of the API. Browsers remove the segments "." and "..", also if they are
// percent-encoded. So these names get a "%", and names that consist of "%" and one of them get one more.
func Segment(name string) string {
	if isDots(name) {
		name = "%" + name
	}
	return url.PathEscape(name)
}

// NameOf returns the name of a decoded segment.
func NameOf(segment string) string {
	if strings.HasPrefix(segment, "%") && isDots(segment) {
		return segment[1:]
	}
	return segment
}

// isDots reports whether a text is a dot segment after any number of "%".
func isDots(s string) bool {
	dots := strings.TrimLeft(s, "%")
	return dots == "." || dots == ".."
}
