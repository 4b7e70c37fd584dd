// Package text makes text from clients and files fit for people: it escapes control bytes, which move the
// cursor of a terminal, and marks that change the direction of text, and it clips long text. Programs that
// read the output get the text unchanged.
package text

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line returns text as one line. Characters that are not graphic, line breaks and tabs included,
// are escaped as in Go: \n, \x1b, \u202e.
func Line(text string) string { return escape(text, "") }

// Lines is like [Line] but keeps line breaks and tabs.
func Lines(text string) string { return escape(text, "\n\t") }

// Clip returns text as one line of at most n characters. If text is longer, the last one is "…".
func Clip(text string, n int) string {
	text = Line(text)
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	return string([]rune(text)[:max(n-1, 0)]) + "…"
}

// JSON returns JSON of the same value in which characters that are not graphic are escaped;
// encoding/json escapes only those below 0x20. Characters above 0xffff stay, because YAML cannot read
// the surrogate pairs that JSON needs for them, and none of them controls a terminal.
func JSON(text []byte) []byte {
	odd := func(r rune) bool { return r >= 0x7f && r <= 0xffff && !unicode.IsGraphic(r) } // JSON itself is ASCII
	if !bytes.ContainsFunc(text, odd) {
		return text
	}
	var b []byte
	for _, r := range string(text) {
		if odd(r) {
			b = fmt.Appendf(b, `\u%04x`, r)
		} else {
			b = utf8.AppendRune(b, r)
		}
	}
	return b
}

// WriteJSON writes v as JSON that is safe on a terminal: see [JSON].
func WriteJSON(w io.Writer, v any, indent string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(v)
	if err == nil {
		_, err = w.Write(JSON(b.Bytes()))
	}
	return err
}

// JSONWriter returns a writer that passes JSON on as [JSON] changes it. Each write is whole JSON text.
func JSONWriter(w io.Writer) io.Writer { return jsonWriter{w} }

type jsonWriter struct{ io.Writer }

// Write implements [io.Writer].
func (w jsonWriter) Write(b []byte) (int, error) {
	if _, err := w.Writer.Write(JSON(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

func escape(text, keep string) string {
	odd := func(r rune) bool { return !unicode.IsGraphic(r) && !strings.ContainsRune(keep, r) }
	if utf8.ValidString(text) && !strings.ContainsFunc(text, odd) {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		switch _, size := utf8.DecodeRuneInString(text[i:]); {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case !odd(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
