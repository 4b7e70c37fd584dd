package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// A yamlWriter converts JSON to readable YAML that all readers understand alike. For example, Envoy's
// reader reads an unquoted y as true, and 0x10 as 16.
type yamlWriter struct {
	json *json.Decoder
	out  bytes.Buffer
}

// value writes the next value, after a key or a dash at the indent.
func (w *yamlWriter) value(indent int, dash bool) error {
	token, err := w.json.Token()
	if err != nil {
		return err
	}
	switch v := token.(type) {
	case json.Delim:
		pad, empty, entry := indent+2, " {}\n", w.pair
		if v == '[' {
			empty, entry = " []\n", w.item
			if !dash {
				pad = indent
			}
		}
		if !w.json.More() {
			w.out.WriteString(empty)
		} else if err := w.block(pad, dash, entry); err != nil {
			return err
		}
		_, err = w.json.Token() // the closing delimiter
	case string:
		w.text(indent, v)
	case nil:
		w.out.WriteString(" null\n")
	default: // numbers and booleans
		fmt.Fprintf(&w.out, " %v\n", v)
	}
	return err
}

// block writes the entries of an object or a list, each on its own lines. The first entry after a dash
// continues the line.
func (w *yamlWriter) block(indent int, dash bool, entry func(indent int) error) error {
	for first := true; w.json.More(); first = false {
		switch {
		case first && dash:
			w.out.WriteByte(' ')
		case first:
			w.out.WriteByte('\n')
			fallthrough
		default:
			w.pad(indent)
		}
		if err := entry(indent); err != nil {
			return err
		}
	}
	return nil
}

func (w *yamlWriter) pair(indent int) error {
	key, err := w.json.Token()
	if err != nil {
		return err
	}
	w.out.WriteString(quote(key.(string)) + ":")
	return w.value(indent, false)
}

func (w *yamlWriter) item(indent int) error {
	w.out.WriteByte('-')
	return w.value(indent, true)
}

// text writes a string. Readable text of several lines, such as certificates and scripts, becomes a
// block.
func (w *yamlWriter) text(indent int, s string) {
	if !strings.Contains(s, "\n") || !literal.MatchString(s) || strings.ContainsFunc(s, isUnprintable) {
		w.out.WriteString(" " + quote(s) + "\n")
		return
	}
	body, final := strings.CutSuffix(s, "\n")
	w.out.WriteString(" |")
	if !final {
		w.out.WriteByte('-')
	}
	for line := range strings.SplitSeq(body, "\n") {
		w.out.WriteByte('\n')
		if line != "" {
			w.pad(indent + 2)
			w.out.WriteString(line)
		}
	}
	w.out.WriteByte('\n')
}

func (w *yamlWriter) pad(n int) { w.out.WriteString(strings.Repeat(" ", n)) }

var (
	// literal matches text that a YAML block can hold: its first line sets the indent, and it ends in
	// at most one line feed.
	literal = regexp.MustCompile(`(?s)^[^ \n].*[^ \n]\n?$`)

	plain     = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./-]*$`)
	boolWords = regexp.MustCompile(`^(?i:y|yes|n|no|on|off|true|false|null|nan|inf|infinity)$`)
)

func isUnprintable(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }

// quote returns a string as a YAML scalar. Go's escapes are valid in YAML.
func quote(s string) string {
	if plain.MatchString(s) && !boolWords.MatchString(s) {
		return s
	}
	return strconv.Quote(s)
}
