package protoyaml

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy/secrets"
)

// Syntax adds the error of a file that nobody can read, with the line it stands in if that
// may be shown.
func (d *Decoder) Syntax(p findings.Problem) {
	p.File, p.Code = d.File, findings.Syntax
	if slices.Contains(d.Ignore, p.Code) {
		return
	}
	if d.errors++; !d.tells(d.errors) {
		return
	}
	if d.Lines != nil && p.Pos.Column > 0 && d.Lines(d.Source) {
		p.Excerpt, p.Caret = line(d.Source, p.Pos)
	}
	d.Problems = append(d.Problems, p)
}

// widest is how many characters of a line are shown.
const widest = 100

// line returns what may be shown of the line of a place, and how many characters of that
// stand before it; "" if nothing may, or nothing is there.
func line(src []byte, at findings.Pos) (text string, caret int) {
	whole := sourceLine(src, at.Line)
	if strings.TrimSpace(whole) == "" || !secrets.ShowsLine(whole) {
		return "", 0
	}
	all := []rune(whole)
	column := min(at.Column-1, len(all))
	// What is cut off leaves a third of what is shown before the place.
	from := max(0, min(column-widest/3, len(all)-widest))
	to := min(len(all), from+widest)
	before, after := string(all[from:column]), string(all[column:to])
	if from > 0 {
		before = left + before
	}
	if to < len(all) {
		after += left
	}
	before, after = visible(before), visible(after)
	return strings.TrimRight(before+after, " \t"), utf8.RuneCountInString(before)
}

// visible returns a text with escapes for what a terminal would obey or nobody sees. Tabs
// stay: the caret below has the same ones.
func visible(s string) string {
	if strings.IndexFunc(s, hidden) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if hidden(r) {
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func hidden(r rune) bool { return r != '\t' && !unicode.IsPrint(r) }

// sourceLine returns a line of a source, which counts from 1; "" if there is none.
func sourceLine(src []byte, line int) string {
	for l := range bytes.Lines(WithoutMark(src)) {
		if line--; line == 0 {
			return readable(l)
		}
	}
	return ""
}
