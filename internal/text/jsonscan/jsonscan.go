// Package jsonscan reads JSON one value after the other, for programs that need few of the values: the
// requests of REST polls in the server, their responses in the client. Skipping a value takes a tenth of
// the time that encoding/json takes.
//
// It performs no I/O and starts no goroutine.
package jsonscan

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Options describe the text to scan and the errors about it.
type Options struct {
	// Root is the name of the whole text in errors, such as "the request".
	Root string

	// MaxDepth limits the nesting of objects and lists.
	MaxDepth int

	// Place describes a byte offset in errors, such as "line 2:5". Errors then do not quote values, which
	// may be secrets of a response. Nil: errors have the path of the value, and quote its beginning.
	Place func(offset int) string

	// Check is called after each 64 KiB of text. Its error ends the scan. Nil: it is not called.
	Check func() error
}

// A Scanner reads JSON from the beginning to the end. Each method reads the next value. Null is read as
// the zero value: "the default value of the field". After the first error, which it keeps, the scanner
// is at the end of the text.
type Scanner struct {
	options   Options
	text      []byte
	at        int // offset of the next byte
	nextCheck int // offset of the next call of Check
	depth     int
	path      []string // of the next value
	err       error
}

const checkEvery = 64 << 10

// New returns a scanner of a text.
func New(text []byte, o Options) *Scanner {
	s := &Scanner{options: o, text: text, nextCheck: checkEvery}
	if o.Check == nil {
		s.nextCheck = math.MaxInt
	}
	return s
}

// Document reads the object that the whole text is. It returns the first error. It calls field as Object
// does.
func (s *Scanner) Document(field func(name string) bool) error {
	if s.next() == '{' || s.err != nil {
		s.Object(field)
	} else {
		s.wrong("an object")
	}
	return s.End()
}

// End returns the first error. Text after the last value is an error.
func (s *Scanner) End() error {
	s.space()
	if s.at < len(s.text) {
		s.malformed("the end")
	}
	return s.err
}

// Err returns the first error so far.
func (s *Scanner) Err() error { return s.err }

// Fail ends the scan with an error, unless there was one before.
func (s *Scanner) Fail(err error) {
	if s.err == nil {
		s.err = err
	}
	s.at = len(s.text)
}

func (s *Scanner) failf(format string, args ...any) { s.Fail(fmt.Errorf(format, args...)) }

// check calls Options.Check if it is due.
func (s *Scanner) check() {
	if s.at < s.nextCheck {
		return
	}
	s.nextCheck = s.at + checkEvery
	if err := s.options.Check(); err != nil {
		s.Fail(err)
	}
}

// malformed fails because the text is not JSON. want is the missing part.
func (s *Scanner) malformed(want string) {
	place := ""
	switch {
	case s.options.Place != nil:
		place = " at " + s.options.Place(s.at)
	case s.at < len(s.text):
		place = fmt.Sprintf(" at byte %d", s.at)
	}
	if s.at >= len(s.text) {
		s.failf("malformed JSON%s: it ends where %s is missing", place, want)
	} else {
		s.failf("malformed JSON%s: want %s, not %q", place, want, s.text[s.at])
	}
}

// wrong fails because the next value has another type.
func (s *Scanner) wrong(want string) {
	start := s.at
	s.skip()
	switch {
	case s.err != nil:
	case s.options.Place != nil:
		s.failf("%s: want %s", s.options.Place(start), want)
	default:
		s.failf("%s: want %s, not %.40s", s.Where(), want, s.text[start:s.at])
	}
}

// Where returns the path of the next value: "node.locality.zone", or Options.Root.
func (s *Scanner) Where() string {
	if len(s.path) == 0 {
		return s.options.Root
	}
	return strings.ReplaceAll(strings.Join(s.path, "."), ".[", "[")
}

func (s *Scanner) space() {
	for s.at < len(s.text) && (s.text[s.at] == ' ' || s.text[s.at] == '\n' || s.text[s.at] == '\t' || s.text[s.at] == '\r') {
		s.at++
	}
}

// next returns the first byte of the next token; 0 at the end.
func (s *Scanner) next() byte {
	s.space()
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

// accept skips a byte, if it is next.
func (s *Scanner) accept(c byte) bool {
	if s.next() != c {
		return false
	}
	s.at++
	return true
}

// Null skips a null, if it is next.
func (s *Scanner) Null() bool {
	if s.next() != 'n' {
		return false
	}
	s.literal("null")
	return true
}

func (s *Scanner) literal(word string) {
	for i := range len(word) {
		if s.at >= len(s.text) || s.text[s.at] != word[i] {
			s.malformed(word)
			return
		}
		s.at++
	}
}

// items calls item for each item between two brackets. The opening bracket is next.
func (s *Scanner) items(closing byte, item func(i int)) {
	s.at++
	s.depth++
	if s.depth > s.options.MaxDepth {
		s.failf("%s: nested deeper than %d", s.Where(), s.options.MaxDepth)
	}
	defer func() { s.depth-- }()
	if s.accept(closing) {
		return
	}
	for i := 0; s.err == nil; i++ {
		item(i)
		s.check()
		if s.err != nil || s.accept(closing) {
			return
		}
		if !s.accept(',') {
			s.malformed(fmt.Sprintf("%q or %q", ',', closing))
		}
	}
}

// key reads the name of a field and its colon.
func (s *Scanner) key() []byte {
	if s.next() != '"' {
		s.malformed("a name")
		return nil
	}
	k := s.quoted()
	if !s.accept(':') {
		s.malformed(`":"`)
	}
	return k
}

// Object reads an object. It calls field with the name of each field in snake_case: "Parsers accept both
// the lowerCamelCase name and the original proto field name." The function field reads the value and
// returns true, or returns false to skip it.
func (s *Scanner) Object(field func(name string) bool) {
	if s.Null() || s.err != nil {
		return
	}
	if s.next() != '{' {
		s.wrong("an object")
		return
	}
	s.items('}', func(int) {
		name := snakeCase(unquote(s.key()))
		s.path = append(s.path, name)
		if s.err == nil && !field(name) {
			s.skip()
		}
		s.path = s.path[:len(s.path)-1]
	})
}

func snakeCase(name string) string {
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

// List reads a list. It calls item before each item; item must read it. want names the list in an error,
// such as "a list of strings".
func (s *Scanner) List(want string, item func(i int)) {
	if s.Null() || s.err != nil {
		return
	}
	if s.next() != '[' {
		s.wrong(want)
		return
	}
	s.items(']', func(i int) {
		s.path = append(s.path, fmt.Sprintf("[%d]", i))
		s.space()
		item(i)
		s.path = s.path[:len(s.path)-1]
	})
}

// Text reads a string.
func (s *Scanner) Text() string {
	if s.Null() || s.err != nil {
		return ""
	}
	return s.notNull()
}

// notNull reads a string that must not be null.
func (s *Scanner) notNull() string {
	if s.next() != '"' {
		s.wrong("a string")
		return ""
	}
	return unquote(s.quoted())
}

// unquote returns the string in a valid quoted one, in memory of its own. Invalid UTF-8 becomes U+FFFD.
func unquote(b []byte) (text string) {
	if len(b) < 2 {
		return ""
	}
	if inner := b[1 : len(b)-1]; utf8.Valid(inner) && !strings.Contains(string(inner), `\`) {
		return string(inner)
	}
	_ = json.Unmarshal(b, &text) // it is valid
	return text
}

// Texts reads a list of strings.
func (s *Scanner) Texts() (all []string) {
	s.List("a list of strings", func(int) {
		text := s.notNull()
		if s.err == nil {
			all = append(all, text)
		}
	})
	return all
}

// Integer reads a whole number, which may be in a string.
func (s *Scanner) Integer(least, most int64) int64 {
	if s.Null() || s.err != nil {
		return 0
	}
	start := s.at
	s.skip()
	if s.err != nil {
		return 0
	}
	number := string(s.text[start:s.at])
	if number[0] == '"' {
		number = unquote([]byte(number))
	}
	n, err := strconv.ParseFloat(number, 64) // exact for 32 bits
	if !json.Valid([]byte(number)) || err != nil || n != math.Trunc(n) || n < float64(least) || n > float64(most) {
		s.at = start
		s.wrong(fmt.Sprintf("a whole number from %d to %d", least, most))
	}
	return int64(n)
}

// Raw reads any value, null included, and returns its text and offset. The text is nil after an error.
func (s *Scanner) Raw() (raw []byte, offset int) {
	s.space()
	start := s.at
	s.skip()
	if s.err != nil {
		return nil, start
	}
	return s.text[start:s.at], start
}

// skip skips a value.
func (s *Scanner) skip() {
	switch c := s.next(); {
	case c == '{':
		s.items('}', func(int) {
			s.key()
			if s.err == nil {
				s.skip()
			}
		})
	case c == '[':
		s.items(']', func(int) { s.skip() })
	case c == '"':
		s.quoted()
	case c == '-' || '0' <= c && c <= '9':
		s.number()
	case c == 't':
		s.literal("true")
	case c == 'f':
		s.literal("false")
	case c == 'n':
		s.literal("null")
	default:
		s.malformed("a value")
	}
}

// quoted skips a string and returns it with its quotes; nil if it is malformed.
func (s *Scanner) quoted() []byte {
	start := s.at
	for s.at++; s.at < len(s.text); s.at++ {
		if s.at >= s.nextCheck {
			s.check()
			if s.err != nil {
				return nil
			}
		}
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return s.text[start:s.at]
		case c < ' ':
			s.malformed("a character of a string")
			return nil
		case c == '\\':
			s.at++
			if !s.escape() {
				s.malformed("an escape of a string")
				return nil
			}
		}
	}
	s.malformed("the end of a string")
	return nil
}

// escape skips the text after a backslash, except its last byte.
func (s *Scanner) escape() bool {
	if s.at >= len(s.text) {
		return false
	}
	if s.text[s.at] != 'u' {
		return strings.IndexByte(`"\/bfnrt`, s.text[s.at]) >= 0
	}
	for range 4 {
		s.at++
		if s.at >= len(s.text) || strings.IndexByte("0123456789abcdefABCDEF", s.text[s.at]) < 0 {
			return false
		}
	}
	return true
}

// number skips a number.
func (s *Scanner) number() {
	digits := func() {
		start := s.at
		for s.at < len(s.text) && '0' <= s.text[s.at] && s.text[s.at] <= '9' {
			s.at++
		}
		if s.at == start {
			s.malformed("a digit")
		}
	}
	one := func(of string) bool {
		if s.at >= len(s.text) || strings.IndexByte(of, s.text[s.at]) < 0 {
			return false
		}
		s.at++
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

// Values returns an upper limit for the number of values in valid JSON, without decoding it. A decoded value takes up
// to some hundred bytes, also if its text has two.
func Values(text []byte) int {
	n, quoted := 1, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case !quoted && (c == ',' || c == '{' || c == '['):
			n++
		}
	}
	return n
}
