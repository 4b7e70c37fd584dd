package revisionapi

import (
	"errors"
	"regexp"
)

// The elected server that commits a directory ends the source text of each revision with a mark. The
// mark shows that an elected server made the commit. Other authors must not use such a source: see
// [Forged].

// marked matches the source of a revision that an elected writer made from a directory.
var marked = regexp.MustCompile(`(?:^|, )files ([0-9a-f]{16})$`)

// Mark appends the hash of a revision's content, 16 hexadecimal digits, to a source.
func Mark(source, content string) string {
	if source != "" {
		source += ", "
	}
	return source + "files " + content
}

// MarkIn returns the mark in a source; "": none.
func MarkIn(source string) string {
	if m := marked.FindStringSubmatch(source); m != nil {
		return m[1]
	}
	return ""
}

// errForged is the error of a source that is reserved for writers.
var errForged = errors.New("the source must not end in \"files\" and 16 hexadecimal digits: that is reserved for chancery serve DIR --store")

// Forged returns an error if a source is reserved for elected writers.
func Forged(source string) error {
	if MarkIn(source) != "" {
		return errForged
	}
	return nil
}
