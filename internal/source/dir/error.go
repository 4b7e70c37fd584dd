package dir

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Pos is a place in a file. Lines and columns count from 1; zero means not
// known.
type Pos struct {
	File      string
	Line, Col int
}

// String returns "file:line:col", as far as known.
func (p Pos) String() string {
	switch {
	case p.Line == 0:
		return p.File
	case p.Col == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col)
}

// An Error is a mistake in a file, or a file that cannot be read.
type Error struct {
	Pos
	Text string
}

// Error returns the place and the text.
func (e Error) Error() string { return e.String() + ": " + e.Text }

// Errors is all that keeps a directory from being loaded, by place.
type Errors []Error

// Error returns the errors, one on a line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

func (e Errors) sort() {
	slices.SortStableFunc(e, func(a, b Error) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
}
