package findings

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/chancery-xds/chancery/internal/text"
)

// A Pos is a position in a file. Lines and columns start at 1. The zero Pos means no position.
type Pos struct{ Line, Column int }

// A Problem is an error, or a warning, at a position in a file.
type Problem struct {
	File    string
	Pos     Pos
	Path    string // of the field, such as "filter_chains[0].filters[1].typed_config"; may be empty
	Code    Code   // "": see CodeOrOther
	Message string
	Hint    string // such as `did you mean "connect_timeout"?`; may be empty
	Warning bool
	Excerpt string // the line of the file without secrets; may be empty
	Omitted int    // number of problems that this one summarizes; 0: it is one problem itself
	Caret   int    // characters of the excerpt before the error
	Group   string // the group whose files have the problem; "": there is only one group
	Type    string // of the resource with the problem, such as "RDS"; may be empty
	Name    string // of that resource
}

// Count returns the number of problems, including those that are summarized.
func Count(problems []Problem) int {
	n := 0
	for _, p := range problems {
		n += max(1, p.Omitted)
	}
	return n
}

// CodeOrOther returns the code of the problem, or [Other] if it has none.
func (p Problem) CodeOrOther() Code { return cmp.Or(p.Code, Other) }

// Error returns the problem in one line: file:line:column: group edge: path: message (hint). It escapes
// bytes that move a terminal's cursor, and characters that change the direction of text, because names
// of files and groups may be hostile.
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

// Text returns the problem with the excerpt of its line, and a caret below the error.
func (p Problem) Text() string {
	if p.Excerpt == "" {
		return p.Error()
	}
	prefix := fmt.Sprintf("%5d | ", p.Pos.Line)
	// The padding has the tabs of the excerpt, so that the caret is at the column.
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
