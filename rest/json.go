package rest

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A parser goes through JSON once and reads what it is asked to. After the first
// error, which it keeps, it is at the end. Its methods read the value that is
// next; null is read as none, "the default value of the field".
//
// encoding/json takes ten times as long to pass over what nobody wants.
type parser struct {
	b     []byte
	at    int
	depth int
	path  []string // of the value that is next
	err   error
}

// maxDepth is how deep values may be nested.
const maxDepth = 1000

func parse(b []byte) *parser {
	p := &parser{b: b}
	if !utf8.Valid(b) {
		p.fail("the request is not UTF-8")
	}
	return p
}

// end returns the first error; there must be nothing left.
func (p *parser) end() error {
	if p.space(); p.at < len(p.b) {
		p.malformed("the end")
	}
	return p.err
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
	p.at = len(p.b)
}

// malformed fails for something that is no JSON.
func (p *parser) malformed(want string) {
	if p.at >= len(p.b) {
		p.fail("malformed JSON: it ends where %s is missing", want)
	} else {
		p.fail("malformed JSON at byte %d: want %s, not %q", p.at, want, p.b[p.at])
	}
}

// wrong fails for JSON that is not what it should be.
func (p *parser) wrong(want string) {
	start := p.at
	if p.skip(); p.err == nil {
		p.fail("%s: want %s, not %.40s", p.where(), want, p.b[start:p.at])
	}
}

func (p *parser) where() string {
	if len(p.path) == 0 {
		return "the request"
	}
	return strings.ReplaceAll(strings.Join(p.path, "."), ".[", "[")
}

func (p *parser) space() {
	for p.at < len(p.b) && (p.b[p.at] == ' ' || p.b[p.at] == '\n' || p.b[p.at] == '\t' || p.b[p.at] == '\r') {
		p.at++
	}
}

// next returns the first byte of what is next; 0 at the end.
func (p *parser) next() byte {
	if p.space(); p.at < len(p.b) {
		return p.b[p.at]
	}
	return 0
}

// eats passes over a byte, if it is next.
func (p *parser) eats(c byte) bool {
	if p.next() != c {
		return false
	}
	p.at++
	return true
}

// null passes over a null, if it is next.
func (p *parser) null() bool {
	if p.next() != 'n' {
		return false
	}
	p.literal("null")
	return true
}

func (p *parser) literal(s string) {
	for i := range len(s) {
		if p.at >= len(p.b) || p.b[p.at] != s[i] {
			p.malformed(s)
			return
		}
		p.at++
	}
}

// list calls item for each item of what is between the brackets.
func (p *parser) list(opens, closes byte, item func(i int)) {
	p.at++ // opens
	if p.depth++; p.depth > maxDepth {
		p.fail("%s: nested deeper than %d", p.where(), maxDepth)
	}
	defer func() { p.depth-- }()
	if p.eats(closes) {
		return
	}
	for i := 0; p.err == nil; i++ {
		if item(i); p.err != nil || p.eats(closes) {
			return
		}
		if !p.eats(',') {
			p.malformed(fmt.Sprintf("%q or %q", ',', closes))
		}
	}
}

// key passes over the name of a field and the colon.
func (p *parser) key() []byte {
	if p.next() != '"' {
		p.malformed("a name")
		return nil
	}
	k := p.quoted()
	if !p.eats(':') {
		p.malformed(`":"`)
	}
	return k
}

// object calls field with the name of each field, in snake_case: "Parsers accept
// both the lowerCamelCase name and the original proto field name." It reads the
// value and returns true, or returns false.
func (p *parser) object(field func(name string) bool) {
	if p.null() || p.err != nil {
		return
	}
	if p.next() != '{' {
		p.wrong("an object")
		return
	}
	p.list('{', '}', func(int) {
		name := snake(unquote(p.key()))
		p.path = append(p.path, name)
		if p.err == nil && !field(name) {
			p.skip()
		}
		p.path = p.path[:len(p.path)-1]
	})
}

// snake returns a name in snake_case.
func snake(name string) string {
	if strings.IndexFunc(name, unicode.IsUpper) < 0 {
		return name
	}
	var b strings.Builder
	for _, c := range name {
		if unicode.IsUpper(c) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}

// text reads a string.
func (p *parser) text() string {
	if p.null() || p.err != nil {
		return ""
	}
	if p.next() != '"' {
		p.wrong("a string")
		return ""
	}
	return unquote(p.quoted())
}

// unquote returns the string that a valid quoted one is. It shares no memory
// with it.
func unquote(b []byte) (s string) {
	if len(b) < 2 {
		return ""
	}
	if inner := string(b[1 : len(b)-1]); !strings.Contains(inner, `\`) {
		return inner
	}
	_ = json.Unmarshal(b, &s) // it is valid
	return s
}

// texts reads a list of strings.
func (p *parser) texts() (all []string) {
	if p.null() || p.err != nil {
		return nil
	}
	if p.next() != '[' {
		p.wrong("a list of strings")
		return nil
	}
	p.list('[', ']', func(i int) {
		p.path = append(p.path, fmt.Sprintf("[%d]", i))
		if p.next() != '"' {
			p.wrong("a string")
			return
		}
		all = append(all, unquote(p.quoted()))
		p.path = p.path[:len(p.path)-1]
	})
	return all
}

// integer reads a whole number, which may be in a string.
func (p *parser) integer(least, most int64) int64 {
	if p.null() || p.err != nil {
		return 0
	}
	start := p.at
	p.skip()
	if p.err != nil {
		return 0
	}
	s := string(p.b[start:p.at])
	if s[0] == '"' {
		s = unquote([]byte(s))
	}
	n, err := strconv.ParseFloat(s, 64) // exact for 32 bits
	if !json.Valid([]byte(s)) || err != nil || n != math.Trunc(n) || n < float64(least) || n > float64(most) {
		p.at = start
		p.wrong(fmt.Sprintf("a whole number from %d to %d", least, most))
	}
	return int64(n)
}

// raw reads any value as it is; nil if there is none.
func (p *parser) raw() []byte {
	if p.null() || p.err != nil {
		return nil
	}
	start := p.at
	p.skip()
	if p.err != nil {
		return nil
	}
	return p.b[start:p.at]
}

// skip passes over a value.
func (p *parser) skip() {
	switch c := p.next(); {
	case c == '{':
		p.list('{', '}', func(int) {
			if p.key(); p.err == nil {
				p.skip()
			}
		})
	case c == '[':
		p.list('[', ']', func(int) { p.skip() })
	case c == '"':
		p.quoted()
	case c == '-' || '0' <= c && c <= '9':
		p.number()
	case c == 't':
		p.literal("true")
	case c == 'f':
		p.literal("false")
	case c == 'n':
		p.literal("null")
	default:
		p.malformed("a value")
	}
}

// quoted passes over a string and returns it with its quotes; nil if it is
// malformed.
func (p *parser) quoted() []byte {
	start := p.at
	for p.at++; p.at < len(p.b); p.at++ {
		switch c := p.b[p.at]; {
		case c == '"':
			p.at++
			return p.b[start:p.at]
		case c < ' ':
			p.malformed("a character of a string")
			return nil
		case c == '\\':
			if p.at++; !p.escape() {
				p.malformed("an escape of a string")
				return nil
			}
		}
	}
	p.malformed("the end of a string")
	return nil
}

// escape passes over what follows a backslash, save the last byte.
func (p *parser) escape() bool {
	if p.at >= len(p.b) {
		return false
	}
	if p.b[p.at] != 'u' {
		return strings.IndexByte(`"\/bfnrt`, p.b[p.at]) >= 0
	}
	for range 4 {
		if p.at++; p.at >= len(p.b) || strings.IndexByte("0123456789abcdefABCDEF", p.b[p.at]) < 0 {
			return false
		}
	}
	return true
}

// number passes over a number.
func (p *parser) number() {
	digits := func() {
		start := p.at
		for p.at < len(p.b) && '0' <= p.b[p.at] && p.b[p.at] <= '9' {
			p.at++
		}
		if p.at == start {
			p.malformed("a digit")
		}
	}
	one := func(of string) bool {
		if p.at >= len(p.b) || strings.IndexByte(of, p.b[p.at]) < 0 {
			return false
		}
		p.at++
		return true
	}
	one("-")
	if !one("0") {
		digits()
	}
	if one(".") {
		digits()
	}
	if one("eE") {
		one("+-")
		digits()
	}
}
