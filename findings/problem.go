package findings

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/chancery-xds/chancery/internal/text"
)

// A Pos is a place in a file, counted from 1; the zero Pos is no place.
type Pos struct{ Line, Column int }

// A Problem is something wrong, or in a warning doubtful, at a place in a file.
type Problem struct {
	File    string
	Pos     Pos
	Path    string // of the field, such as "filter_chains[0].filters[1].typed_config"; may be empty
	Code    Code   // "": none was given
	Message string
	Hint    string // such as `did you mean "connect_timeout"?`; may be empty
	Warning bool
	Excerpt string // what may be shown of the line of the file; may be empty
	Others  int    // how many that are not told this one stands for; 0: it is one itself
	Caret   int    // characters of the excerpt before what is wrong
	Group   string // of nodes, in whose files it is; "": there is one only
}

// Count returns how many there are, those included that are not told.
func Count(problems []Problem) int {
	n := 0
	for _, p := range problems {
		n += max(1, p.Others)
	}
	return n
}

// Coded returns the code of the problem. One that was given none is another mistake.
func (p Problem) Coded() Code { return cmp.Or(p.Code, Other) }

// Error returns the problem in one line: file:line:column: group edge: path: message (hint).
// Bytes that would move a terminal's cursor, and marks that turn text, are escaped: names of
// files and groups are somebody else's.
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
	if p.Group != "" {
		b.WriteString("group " + p.Group + ": ")
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Message)
	if p.Hint != "" {
		b.WriteString(" (" + p.Hint + ")")
	}
	return text.Line(b.String())
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
	for _, r := range text.Lines(string([]rune(p.Excerpt)[:p.Caret])) {
		if r == '\t' {
			pad.WriteRune('\t')
		} else {
			pad.WriteByte(' ')
		}
	}
	return fmt.Sprintf("%s\n%s%s\n%s%s^", p.Error(), prefix, text.Lines(p.Excerpt), strings.Repeat(" ", len(prefix)), pad.String())
}
