package access

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxPattern = 512  // bytes of a pattern
	maxValue   = 4096 // bytes of a value that is compared with a pattern that has wildcards
)

// A pattern is a text in which "*" stands for one or more word characters, "**" for anything,
// and "{name}" captures word characters, or stands for what was captured. Word characters are
// letters, digits, "-" and "_": neither "*" nor a capture goes beyond a "/", ".", ":" or any
// other separator.
type pattern struct {
	text  string
	parts []part
}

// A part is a text or a wildcard.
type part struct {
	kind kind
	text string // of a literal; the name of a capture
}

type kind int8

const (
	literal kind = iota
	star
	rest
	capture
)

// compile takes a pattern apart.
func compile(s string) (pattern, error) {
	p := pattern{text: s}
	if len(s) > maxPattern {
		return p, fmt.Errorf("a pattern of %d bytes: at most %d are allowed", len(s), maxPattern)
	}
	if !utf8.ValidString(s) {
		return p, errors.New("a pattern is UTF-8")
	}
	var text strings.Builder
	add := func(w part) {
		if text.Len() > 0 {
			p.parts = append(p.parts, part{literal, text.String()})
			text.Reset()
		}
		p.parts = append(p.parts, w)
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '*':
			if strings.HasPrefix(s[i:], "**") {
				i++
				add(part{kind: rest})
			} else {
				add(part{kind: star})
			}
		case '{':
			end := strings.IndexByte(s[i:], '}')
			if end < 0 || !isName(s[i+1:i+end]) {
				return p, errors.New(`behind { stands a name of letters, digits and _, and }; \{ is the character`)
			}
			add(part{capture, s[i+1 : i+end]})
			i += end
		case '}', '?':
			return p, fmt.Errorf(`%c alone means nothing here; \%c is the character`, c, c)
		case '\\':
			if i++; i == len(s) || !strings.ContainsRune(`*?{}\`, rune(s[i])) {
				return p, errors.New(`behind \ stands none of *, ?, {, } and \`)
			}
			text.WriteByte(s[i])
		default:
			text.WriteByte(c)
		}
	}
	if text.Len() > 0 {
		p.parts = append(p.parts, part{literal, text.String()})
	}
	rests := 0
	for i, w := range p.parts {
		if w.kind == rest {
			rests++
		}
		if i > 0 && w.kind != literal && w.kind != capture && p.parts[i-1].kind != literal && p.parts[i-1].kind != capture {
			return p, errors.New("two wildcards stand side by side")
		}
	}
	if rests > 1 {
		return p, errors.New("** stands there twice")
	}
	return p, nil
}

func isName(s string) bool {
	for i := range len(s) {
		if c := s[i]; c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// captures returns the names of what it captures, or needs.
func (p *pattern) captures() (names []string) {
	for _, w := range p.parts {
		if w.kind == capture {
			names = append(names, w.text)
		}
	}
	return names
}

// unclear returns two neighbouring wildcards between which no separator stands; "" if there are
// none. Of such a pattern nobody can say where one ends and the other begins: that
// "{team}-*" is "a-b-1" both for team a and team a-b. fixed says which captures have a value.
func (p *pattern) unclear(counts func(a, b part) bool) string {
	last, apart := -1, false
	for i, w := range p.parts {
		if w.kind == literal {
			apart = apart || strings.ContainsFunc(w.text, func(r rune) bool { return !isWord(r) })
			continue
		}
		if last >= 0 && !apart && counts(p.parts[last], w) {
			return p.parts[last].String() + " and " + w.String()
		}
		last, apart = i, false
	}
	return ""
}

func (w part) String() string {
	switch w.kind {
	case star:
		return "*"
	case rest:
		return "**"
	case capture:
		return "{" + w.text + "}"
	}
	return w.text
}

// with returns the pattern with what was captured, as plain text: whatever characters it has.
func (p *pattern) with(captured map[string]string) (pattern, bool) {
	out := pattern{text: p.text}
	for _, w := range p.parts {
		if w.kind == capture {
			v, ok := captured[w.text]
			if !ok || v == "" {
				return pattern{}, false
			}
			w = part{literal, v}
		}
		if n := len(out.parts); w.kind == literal && n > 0 && out.parts[n-1].kind == literal {
			out.parts[n-1].text += w.text
		} else {
			out.parts = append(out.parts, w)
		}
	}
	return out, true
}

// plain returns the text that a pattern without wildcards stands for.
func (p *pattern) plain() (string, bool) {
	switch {
	case len(p.parts) == 0:
		return "", true
	case len(p.parts) == 1 && p.parts[0].kind == literal:
		return p.parts[0].text, true
	}
	return "", false
}

// everything reports whether it stands for all texts.
func (p *pattern) everything() bool { return len(p.parts) == 1 && p.parts[0].kind == rest }

// quoted returns the pattern as it would be written: two patterns that are written the same
// stand for the same.
func (p *pattern) quoted() string {
	var b strings.Builder
	for _, w := range p.parts {
		if w.kind != literal {
			b.WriteString(w.String())
			continue
		}
		for i := range len(w.text) {
			if strings.IndexByte(`*?{}\`, w.text[i]) >= 0 {
				b.WriteByte('\\')
			}
			b.WriteByte(w.text[i])
		}
	}
	return b.String()
}

// lower makes it stand for texts in lower case.
func (p *pattern) lower() {
	for i := range p.parts {
		if p.parts[i].kind == literal {
			p.parts[i].text = lower(p.parts[i].text)
		}
	}
}

// lower makes the letters of ASCII small. Of others nothing is the same but itself: the sign of
// kelvin is no k.
func lower(s string) string {
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

// isWord reports whether a character is one of those that "*" stands for.
func isWord(r rune) bool {
	switch {
	case r == utf8.RuneError:
		return false
	case r < utf8.RuneSelf:
		return r == '-' || r == '_' || r >= '0' && r <= '9' || r|0x20 >= 'a' && r|0x20 <= 'z'
	}
	return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)
}

// words returns how long the word at the beginning is.
func words(v string) (n int) {
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

// match reports whether the pattern stands for a value. What it captures is told to take, which
// may be nil: then a capture is like a star.
//
// It needs no choice to be made twice. A wildcard but "**" stays within a word, so the nearest
// place of the text behind it leaves it the least and the next one the most, and all that lies
// between two places of this text is of the same word. Behind "**" the same holds from the end.
func (p *pattern) match(v string, take func(name, value string)) bool {
	if text, ok := p.plain(); ok {
		return v == text
	}
	if len(v) > maxValue {
		return false
	}
	parts := p.parts
	for len(parts) > 0 {
		w := parts[0]
		switch w.kind {
		case literal:
			if !strings.HasPrefix(v, w.text) {
				return false
			}
			v, parts = v[len(w.text):], parts[1:]
			continue
		case rest:
			return fromEnd(parts[1:], v, take)
		}
		n := words(v)
		switch {
		case len(parts) == 1:
			if n != len(v) {
				return false
			}
		case parts[1].kind == literal && len(parts) == 2:
			if n = len(v) - len(parts[1].text); n < 0 || n > words(v) {
				return false
			}
		default:
			n = nearest(v, parts[1].text, n)
		}
		if n <= 0 {
			return false
		}
		if w.kind == capture && take != nil {
			take(w.text, v[:n])
		}
		v, parts = v[n:], parts[1:]
	}
	return v == ""
}

// nearest returns the first place of a text that has something before it and begins within the
// first bytes or just behind them; 0 if there is none.
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

// fromEnd matches what stands behind "**", which takes what is left.
func fromEnd(parts []part, v string, take func(name, value string)) bool {
	for len(parts) > 0 {
		w := parts[len(parts)-1]
		parts = parts[:len(parts)-1]
		if w.kind == literal {
			if !strings.HasSuffix(v, w.text) {
				return false
			}
			v = v[:len(v)-len(w.text)]
			continue
		}
		from := wordsFromEnd(v)
		if len(parts) == 0 { // side by side with "**": compile refuses it
			return false
		}
		_, size := utf8.DecodeLastRuneInString(v)
		if size == 0 || from > len(v)-size {
			return false
		}
		text := parts[len(parts)-1].text
		begin := max(from-len(text), 0)
		i := strings.LastIndex(v[begin:len(v)-size], text)
		if i < 0 {
			return false
		}
		at := begin + i + len(text)
		if w.kind == capture && take != nil {
			take(w.text, v[at:])
		}
		v = v[:at]
	}
	return true
}

// wordsFromEnd returns where the word at the end begins.
func wordsFromEnd(v string) int {
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
