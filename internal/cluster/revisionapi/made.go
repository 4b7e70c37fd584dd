package revisionapi

import (
	"errors"
	"regexp"
)

// Who commits by itself what a directory says finds out by the source of revisions what it has committed, and whether somebody else was
// elected. So nobody else may have such a source: see [Forged].

// marked is how the source of a revision ends that was made of a directory by who is elected to do it.
var marked = regexp.MustCompile(`(?:^|, )files ([0-9a-f]{16})$`)

// Mark adds to a source which content a revision was made of: 16 hexadecimal digits.
func Mark(source, content string) string {
	if source != "" {
		source += ", "
	}
	return source + "files " + content
}

// MarkIn is the content that a source says; "": none.
func MarkIn(source string) string {
	if m := marked.FindStringSubmatch(source); m != nil {
		return m[1]
	}
	return ""
}

// errForged is of a source that somebody gives who was not elected.
var errForged = errors.New("a source that ends with \"files\" and 16 digits is for who commits a directory by itself (chancery serve DIR --store)")

// Forged is an error of a source that is for others than who gives it.
func Forged(source string) error {
	if MarkIn(source) != "" {
		return errForged
	}
	return nil
}
