package protofile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/internal/findings"
)

// A Pos is a place in a file, counted from 1; the zero Pos is no place.
type Pos struct{ Line, Column int }

// A Problem is something wrong, or in a warning doubtful, at a place in a file.
type Problem struct {
	File    string
	Pos     Pos
	Path    string        // of the field, such as "filter_chains[0].filters[1].typed_config"; may be empty
	Code    findings.Code // "": none was given
	Message string
	Hint    string // such as `did you mean "connect_timeout"?`; may be empty
	Warning bool
	Excerpt string // what may be shown of the line of the file; may be empty

	caret int // characters of the excerpt before what is wrong
}

// Error returns the problem in one line: file:line:column: path: message (hint).
func (p Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Pos.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Pos.Line)
		if p.Pos.Column > 0 {
			fmt.Fprintf(&b, ":%d", p.Pos.Column)
		}
	}
	b.WriteString(": ")
	if p.Warning {
		b.WriteString("warning: ")
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Message)
	if p.Hint != "" {
		b.WriteString(" (" + p.Hint + ")")
	}
	return b.String()
}

// Text returns the problem, what may be shown of the line it stands in, and a caret
// below.
func (p Problem) Text() string {
	if p.Excerpt == "" {
		return p.Error()
	}
	prefix := fmt.Sprintf("%5d | ", p.Pos.Line)
	// The caret stands where the column does, tabs and wide text notwithstanding.
	var pad strings.Builder
	for _, r := range string([]rune(p.Excerpt)[:p.caret]) {
		if r == '\t' {
			pad.WriteRune('\t')
		} else {
			pad.WriteByte(' ')
		}
	}
	return fmt.Sprintf("%s\n%s%s\n%s%s^", p.Error(), prefix, p.Excerpt, strings.Repeat(" ", len(prefix)), pad.String())
}

// Nearest returns the candidate that is likely to be meant by a word, "" if none is.
func Nearest(word string, candidates []string) string {
	return nearest(word, slices.Values(candidates))
}

// nearest returns the candidate that is closest to a word, or "" if none is
// close enough to be meant.
func nearest(word string, candidates func(func(string) bool)) string {
	best, at := "", 1+len(word)/3
	for c := range candidates {
		if d := distance(strings.ToLower(word), strings.ToLower(c), at); d < at || d == at && best == "" {
			best, at = c, d
		}
	}
	return best
}

// distance is the number of edits between two words, or more than limit.
func distance(a, b string, limit int) int {
	if len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diag := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diag
			if a[i-1] != b[j-1] {
				cost++
			}
			diag = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
