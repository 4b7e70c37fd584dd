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

// Syntax adds a syntax error of the whole file, with its line if that may be shown.
func (d *Decoder) Syntax(p findings.Problem) {
	p.File, p.Code = d.File, findings.Syntax
	if slices.Contains(d.Ignore, p.Code) {
		return
	}
	d.errors++
	if !d.reports(d.errors) {
		return
	}
	if d.Lines != nil && p.Pos.Column > 0 && d.Lines(d.Source) {
		p.Excerpt, p.Caret = line(d.Source, p.Pos)
	}
	d.Problems = append(d.Problems, p)
}

// maxLine is the maximum number of characters shown of a line.
const maxLine = 100

// line returns the visible part of the line at a position, and how many of its characters come before
// the position; "" if the line is empty or may contain a secret.
func line(src []byte, at findings.Pos) (text string, caret int) {
	whole := sourceLine(src, at.Line)
	if strings.TrimSpace(whole) == "" || !secrets.ShowsLine(whole) {
		return "", 0
	}
	all := []rune(whole)
	column := min(at.Column-1, len(all))
	// Of a long line, about a third of the visible part comes before the position.
	from := max(0, min(column-maxLine/3, len(all)-maxLine))
	to := min(len(all), from+maxLine)
	before, after := string(all[from:column]), string(all[column:to])
	if from > 0 {
		before = ellipsis + before
	}
	if to < len(all) {
		after += ellipsis
	}
	before, after = visible(before), visible(after)
	return strings.TrimRight(before+after, " \t"), utf8.RuneCountInString(before)
}

// visible escapes control characters and invisible ones. Tabs stay, because the caret line below
// repeats them.
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

// sourceLine returns a line of a source, counted from 1; "" if there is none.
func sourceLine(src []byte, line int) string {
	for l := range bytes.Lines(WithoutBOM(src)) {
		line--
		if line == 0 {
			return readable(l)
		}
	}
	return ""
}
