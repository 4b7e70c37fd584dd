// Package glob matches text with patterns. group.yaml, access.yaml and the filters of commands use these
// patterns (docs/patterns.md, ADR 22).
//
//	**       any text, also none
//	*        one or more word characters: letters, digits, "-" and "_"
//	{name}   in access.yaml: captures word characters, or is the captured text
//	\*       the character "*"; likewise \?, \{, \} and \\
//
// All other characters match themselves. So "*" and captures end at "/", ".", ":" and other separators. A
// single "?", "{" or "}" is an error, because it has a meaning in other pattern languages.
package glob

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxPattern is the maximum length of a pattern in bytes.
	MaxPattern = 512
	// MaxText is the maximum length of a text that a pattern with wildcards matches, in bytes.
	MaxText = 4096
)

// A Pattern is a compiled pattern. The zero Pattern matches only the empty text.
type Pattern struct {
	parts []Part // no two neighbours are Literal, and none is empty
}

// A Part is a text or a wildcard of a pattern.
type Part struct {
	Kind Kind
	Text string // of a Literal; the name of a Capture
}

// A Kind is the kind of a Part.
type Kind int8

// The kinds of parts.
const (
	Literal Kind = iota
	Word         // "*"
	Any          // "**"
	Capture      // "{name}"
)

// String returns the part as it is written in a pattern, without escapes.
func (w Part) String() string {
	switch w.Kind {
	case Word:
		return "*"
	case Any:
		return "**"
	case Capture:
		return "{" + w.Text + "}"
	}
	return w.Text
}

// Compile compiles a pattern without captures.
func Compile(s string) (Pattern, error) {
	if i := indexUnescaped(s, "{}"); i >= 0 {
		return Pattern{}, fmt.Errorf(`%c has no meaning here: write a list for one of several values, and \%[1]c for the character`, s[i])
	}
	return CompileCaptures(s)
}

// CompileCaptures compiles a pattern that may have captures.
func CompileCaptures(s string) (Pattern, error) {
	if len(s) > MaxPattern {
		return Pattern{}, fmt.Errorf("a pattern of %d bytes: at most %d are allowed", len(s), MaxPattern)
	}
	if !utf8.ValidString(s) {
		return Pattern{}, errors.New("the pattern is not valid UTF-8")
	}
	var p Pattern
	var text strings.Builder
	add := func(w Part) {
		if text.Len() > 0 {
			p.parts = append(p.parts, Part{Literal, text.String()})
			text.Reset()
		}
		p.parts = append(p.parts, w)
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '*':
			if strings.HasPrefix(s[i:], "**") {
				i++
				add(Part{Kind: Any})
			} else {
				add(Part{Kind: Word})
			}
		case '{':
			end := strings.IndexByte(s[i:], '}')
			if end < 0 || !isName(s[i+1:i+end]) {
				return p, errors.New(`{ needs a name of letters, digits and _, and then }: write \{ for the character`)
			}
			add(Part{Capture, s[i+1 : i+end]})
			i += end
		case '}', '?':
			return p, fmt.Errorf(`%c has no meaning in a pattern: write \%[1]c for the character`, c)
		case '\\':
			i++
			if i == len(s) || !strings.ContainsRune(escaped, rune(s[i])) {
				return p, errors.New(`\ must precede one of *, ?, {, } and \: write \\ for the character`)
			}
			text.WriteByte(s[i])
		default:
			text.WriteByte(c)
		}
	}
	if text.Len() > 0 {
		p.parts = append(p.parts, Part{Literal, text.String()})
	}
	return p, p.check()
}

// escaped are the characters that need a backslash.
const escaped = `*?{}\`

// indexUnescaped returns the index of the first of some characters that has no backslash; -1: none.
func indexUnescaped(s, chars string) int {
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			i++
		case strings.IndexByte(chars, s[i]) >= 0:
			return i
		}
	}
	return -1
}

func isName(s string) bool {
	for i := range len(s) {
		if c := s[i]; c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// check returns an error for combinations of wildcards that would need backtracking.
func (p *Pattern) check() error {
	isAny := func(w Part) bool { return w.Kind == Any }
	first, last := slices.IndexFunc(p.parts, isAny), -1
	for i, w := range p.parts {
		if w.Kind == Any {
			last = i
		}
		if i > 0 && (w.Kind == Word || w.Kind == Any) && (p.parts[i-1].Kind == Word || p.parts[i-1].Kind == Any) {
			return errors.New("two wildcards next to each other")
		}
	}
	if first == last {
		return nil
	}
	if len(p.Captures()) > 0 {
		return errors.New("a pattern with a capture can have ** only once")
	}
	if slices.ContainsFunc(p.parts[first:last], func(w Part) bool { return w.Kind == Word }) {
		return errors.New("only plain text can be between two **")
	}
	return nil
}

// Captures returns the names of the captures.
func (p *Pattern) Captures() (names []string) {
	for _, w := range p.parts {
		if w.Kind == Capture {
			names = append(names, w.Text)
		}
	}
	return names
}

// Ambiguous returns two neighbouring wildcards without a separator between them, for which counts is true;
// "" if there are none. The end of the first one is then ambiguous: "a-b-1" matches "{team}-*" both with
// team a and with team a-b.
func (p *Pattern) Ambiguous(counts func(a, b Part) bool) string {
	last, apart := -1, false
	for i, w := range p.parts {
		if w.Kind == Literal {
			apart = apart || strings.ContainsFunc(w.Text, func(r rune) bool { return !isWord(r) })
			continue
		}
		if last >= 0 && !apart && counts(p.parts[last], w) {
			return p.parts[last].String() + " and " + w.String()
		}
		last, apart = i, false
	}
	return ""
}

// With returns the pattern with the captures replaced by their values, which match only themselves. It
// reports whether all have a value.
func (p *Pattern) With(captured map[string]string) (Pattern, bool) {
	var out Pattern
	for _, w := range p.parts {
		if w.Kind == Capture {
			v, ok := captured[w.Text]
			if !ok || v == "" {
				return Pattern{}, false
			}
			w = Part{Literal, v}
		}
		if n := len(out.parts); w.Kind == Literal && n > 0 && out.parts[n-1].Kind == Literal {
			out.parts[n-1].Text += w.Text
		} else {
			out.parts = append(out.parts, w)
		}
	}
	return out, true
}

// Plain returns the only text that a pattern without wildcards matches.
func (p *Pattern) Plain() (string, bool) {
	return p.Prefix()
}

// Prefix returns the text that all matching texts begin with, and whether it is the whole text.
func (p *Pattern) Prefix() (text string, whole bool) {
	if len(p.parts) == 0 {
		return "", true
	}
	if p.parts[0].Kind != Literal {
		return "", false
	}
	return p.parts[0].Text, len(p.parts) == 1
}

// MatchesAll reports whether the pattern is "**".
func (p *Pattern) MatchesAll() bool { return len(p.parts) == 1 && p.parts[0].Kind == Any }

// String returns the pattern as it is written. Equal patterns have equal strings.
func (p *Pattern) String() string {
	var b strings.Builder
	for _, w := range p.parts {
		if w.Kind != Literal {
			b.WriteString(w.String())
			continue
		}
		for i := range len(w.Text) {
			if strings.IndexByte(escaped, w.Text[i]) >= 0 {
				b.WriteByte('\\')
			}
			b.WriteByte(w.Text[i])
		}
	}
	return b.String()
}

// Lower changes the letters A to Z of the pattern to lower case.
func (p *Pattern) Lower() {
	for i := range p.parts {
		if p.parts[i].Kind == Literal {
			p.parts[i].Text = Lower(p.parts[i].Text)
		}
	}
}

// Lower returns a text with the letters A to Z in lower case. It does not change other letters, because
// some of them have an ASCII letter as their lower case, such as the Kelvin sign.
func Lower(s string) string {
	for i := range len(s) {
		if s[i] >= 'A' && s[i] <= 'Z' {
			b := []byte(s)
			for ; i < len(b); i++ {
				if b[i] >= 'A' && b[i] <= 'Z' {
					b[i] |= 0x20
				}
			}
			return string(b)
		}
	}
	return s
}

// isWord reports whether a character is a word character.
func isWord(r rune) bool {
	switch {
	case r == utf8.RuneError:
		return false
	case r < utf8.RuneSelf:
		return r == '-' || r == '_' || r >= '0' && r <= '9' || r|0x20 >= 'a' && r|0x20 <= 'z'
	}
	return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)
}

// wordLen returns the length of the word at the beginning.
func wordLen(v string) (n int) {
	for n < len(v) {
		r, size := rune(v[n]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRuneInString(v[n:])
		}
		if !isWord(r) {
			return n
		}
		n += size
	}
	return n
}

// Match reports whether the pattern matches a text. It calls capture with each captured text; if capture
// is nil, a capture is like "*".
//
// No backtracking is needed. A wildcard other than "**" stays within a word. The nearest occurrence of the
// text after it leaves the fewest characters to it and the most to the next wildcard, and all characters
// between two occurrences belong to the same word. After the last "**" the same holds from the end. Between
// two "**" there is only plain text, and its first occurrence leaves the most for the others.
func (p *Pattern) Match(v string, capture func(name, value string)) bool {
	if text, ok := p.Plain(); ok {
		return v == text
	}
	if len(v) > MaxText {
		return false
	}
	parts := p.parts
	for len(parts) > 0 {
		w := parts[0]
		switch w.Kind {
		case Literal:
			if !strings.HasPrefix(v, w.Text) {
				return false
			}
			v, parts = v[len(w.Text):], parts[1:]
			continue
		case Any:
			return matchAfterAny(parts[1:], v, capture)
		}
		n := wordLen(v)
		switch {
		case len(parts) == 1:
			if n != len(v) {
				return false
			}
		case parts[1].Kind == Literal && len(parts) == 2:
			n = len(v) - len(parts[1].Text)
			if n < 0 || n > wordLen(v) {
				return false
			}
		default:
			n = nearest(v, parts[1].Text, n)
		}
		if n <= 0 {
			return false
		}
		if w.Kind == Capture && capture != nil {
			capture(w.Text, v[:n])
		}
		v, parts = v[n:], parts[1:]
	}
	return v == ""
}

// nearest returns the index of the first occurrence of text in v, which must have at least one character
// before it and start in the first within bytes or directly after them; 0 if there is none.
func nearest(v, text string, within int) int {
	_, size := utf8.DecodeRuneInString(v)
	if size == 0 || size > within {
		return 0
	}
	if i := strings.Index(v[size:min(len(v), within+len(text))], text); i >= 0 {
		return size + i
	}
	return 0
}

// matchAfterAny matches the parts after the first "**".
func matchAfterAny(parts []Part, v string, capture func(name, value string)) bool {
	last := -1
	for i, w := range parts {
		if w.Kind == Any {
			last = i
		}
	}
	v, ok := matchEnd(parts[last+1:], v, capture)
	if !ok {
		return false
	}
	for _, w := range parts[:last+1] {
		if w.Kind == Literal {
			i := strings.Index(v, w.Text)
			if i < 0 {
				return false
			}
			v = v[i+len(w.Text):]
		}
	}
	return true
}

// matchEnd matches the parts after the last "**" with the end of a text. It returns the text before.
func matchEnd(parts []Part, v string, capture func(name, value string)) (before string, ok bool) {
	for len(parts) > 0 {
		w := parts[len(parts)-1]
		parts = parts[:len(parts)-1]
		if w.Kind == Literal {
			if !strings.HasSuffix(v, w.Text) {
				return "", false
			}
			v = v[:len(v)-len(w.Text)]
			continue
		}
		if len(parts) == 0 { // next to "**", which check refuses
			return "", false
		}
		start := wordStart(v)
		_, size := utf8.DecodeLastRuneInString(v)
		if size == 0 || start > len(v)-size {
			return "", false
		}
		text := parts[len(parts)-1].Text
		begin := max(start-len(text), 0)
		i := strings.LastIndex(v[begin:len(v)-size], text)
		if i < 0 {
			return "", false
		}
		at := begin + i + len(text)
		if w.Kind == Capture && capture != nil {
			capture(w.Text, v[at:])
		}
		v = v[:at]
	}
	return v, true
}

// wordStart returns the index of the word at the end.
func wordStart(v string) int {
	n := len(v)
	for n > 0 {
		r, size := utf8.DecodeLastRuneInString(v[:n])
		if !isWord(r) {
			return n
		}
		n -= size
	}
	return n
}
