package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// MinColumns is the minimum width of a terminal for which lines are folded.
const MinColumns = 30

// A Page writes to a terminal and folds lines that are wider than the terminal. If possible it folds
// between words. It aligns the rest of the line with the start of the text. If the writer is not a
// terminal, it does not fold lines.
type Page struct {
	Out     io.Writer
	Columns int    // 0: not a terminal
	begun   []byte // start of a line without its newline
}

// Page returns the writer for a command's answer. The writer folds lines if a person reads the output.
func (o *Output) Page(cmd *cobra.Command) io.Writer {
	if !o.ForPeople() {
		return cmd.OutOrStdout()
	}
	return NewPage(cmd.OutOrStdout())
}

// NewPage returns a page with the width of the terminal w. If w is not a terminal, the page does not fold
// lines.
func NewPage(w io.Writer) *Page {
	p := &Page{Out: w}
	if f, ok := w.(*os.File); ok {
		p.Columns, _ = TerminalSize(f)
	}
	if p.Columns < MinColumns {
		p.Columns = 0
	}
	return p
}

// Write implements [io.Writer].
func (p *Page) Write(b []byte) (int, error) {
	if p.Columns == 0 {
		return p.Out.Write(b)
	}
	p.begun = append(p.begun, b...)
	end := bytes.LastIndexByte(p.begun, '\n')
	if end < 0 {
		return len(b), nil
	}
	var folded strings.Builder
	for line := range strings.SplitSeq(string(p.begun[:end]), "\n") {
		hang := hanging(line, p.Columns)
		for i, part := range fold(line, p.Columns, p.Columns-hang) {
			if i > 0 {
				folded.WriteString(strings.Repeat(" ", hang))
			}
			folded.WriteString(part + "\n")
		}
	}
	p.begun = append(p.begun[:0], p.begun[end+1:]...)
	_, err := io.WriteString(p.Out, folded.String())
	return len(b), err
}

// hanging returns the column for the continuation of a folded line. After a title, it is the column where
// the text begins. Otherwise it is slightly to the right of the line's start.
func hanging(line string, columns int) int {
	indent := len(line) - len(strings.TrimLeft(line, " "))
	if at := strings.Index(line[indent:], "  "); at > 0 {
		text := strings.TrimLeft(line[indent+at:], " ")
		if hang := Cells(line[:len(line)-len(text)]); text != "" && hang <= columns/3 {
			return hang
		}
	}
	return min(indent+2, columns/3)
}

// fold divides a text into parts: the first has at most the width `first`, the others at most `others`.
func fold(text string, first, others int) (parts []string) {
	for width := first; Cells(text) > width; width = others {
		cut, space := len(text), -1
		at := 0
		for i, r := range text {
			at += cellsOf(r)
			if at > width {
				cut = max(i, utf8.RuneLen(r)) // take at least one character
				if r == ' ' {
					space = i
				}
				break
			}
			if r == ' ' && strings.TrimSpace(text[:i]) != "" {
				space = i
			}
		}
		if space > 0 && Cells(text[:space]) >= width/3 { // else break inside the long word, because this line would be nearly empty
			cut = space
		}
		parts, text = append(parts, strings.TrimRight(text[:cut], " ")), strings.TrimLeft(text[cut:], " ")
	}
	return append(parts, text)
}

// Cells returns the number of terminal columns that a text takes.
func Cells(text string) (n int) {
	for _, r := range text {
		n += cellsOf(r)
	}
	return n
}

// cellsOf returns the number of terminal columns that a character takes.
func cellsOf(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana), r >= 0xff01 && r <= 0xff60, r >= 0x1f300 && r <= 0x1faff:
		return 2
	}
	return 1
}

// gap is the space between two columns of a table, and minCell is the minimum width of a column. The
// last column contains text: if it has less than minText columns of the terminal, it moves to lines
// of its own.
const gap, minCell, minText = 2, 8, 24

// fit writes a table that is not wider than the page. The text of a wide cell continues in the next line.
// A last column without enough room moves below the other columns.
func (p *Page) fit(rows [][]string) {
	n := len(rows[0])
	widths := make([]int, n)
	for _, row := range rows {
		for i, c := range row {
			widths[i] = max(widths[i], Cells(c))
		}
	}
	sum := gap * (n - 1)
	for _, w := range widths {
		sum += w
	}
	last := widths[n-1]
	beneath := false
	if over := sum - p.Columns; over > 0 && last > minText {
		widths[n-1] = max(minText, last-over)
		beneath = last-over < minText
		sum -= last - widths[n-1]
	}
	if beneath {
		sum -= widths[n-1] + gap
		n--
	}
	for ; sum > p.Columns; sum-- { // each step narrows the widest column
		widest := 0
		for i, w := range widths[:n] {
			if w > widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= minCell {
			break
		}
		widths[widest]--
	}
	var b strings.Builder
	for _, row := range rows {
		columns := make([][]string, n)
		height := 0
		for i, c := range row[:n] {
			columns[i] = fold(c, widths[i], widths[i])
			height = max(height, len(columns[i]))
		}
		for h := range height {
			var line strings.Builder
			for i, c := range columns {
				text := ""
				if h < len(c) {
					text = c[h]
				}
				fmt.Fprintf(&line, "%s%s", text, strings.Repeat(" ", max(0, widths[i]-Cells(text))+gap))
			}
			b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
		}
		if beneath {
			for _, part := range fold(row[n], p.Columns-4, p.Columns-4) {
				b.WriteString("    " + part + "\n")
			}
		}
	}
	_, _ = io.WriteString(p.Out, b.String()) // errors are ignored, as for tables of tabwriter
}
