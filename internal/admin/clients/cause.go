package clients

import (
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	textutil "github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

const (
	maxText  = 1024     // maximum bytes of a NACK's text in memory
	maxRead  = 16 << 10 // maximum bytes of a NACK's text that are read
	maxMarks = 8
	maxName  = 512 // maximum bytes of a resource name in a cause, of a node ID, and of other texts from clients

	// maxCauses and maxCauseBytes limit the memory for causes, because each client may send a different
	// error text.
	maxCauses     = 10_000
	maxCauseBytes = 8 << 20
)

// A cause is a type, an error text and the resources that the text names. All equal refusals share
// one cause. A cause is immutable.
type cause struct {
	typ   *xds.Type
	text  string
	names []string // resources of the response that the text names; if it names none: at most 5 of the response
	key   string
}

// size returns the approximate bytes of memory that a cause takes.
func (c *cause) size() int { return len(c.key) + 300 }

// causes has the causes of all current refusals, with a reference count for each.
type causes struct {
	mu    sync.Mutex
	known map[string]*counted
	bytes int
}

type counted struct {
	*cause
	refusals int
}

// intern returns the stored cause equal to c and counts one more use.
func (cs *causes) intern(c *cause) *cause {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.known[c.key] == nil && (len(cs.known) >= maxCauses || cs.bytes+c.size() > maxCauseBytes) {
		c = newCause(c.typ, "(too many different refusals: this one is not remembered)", nil)
	}
	k := cs.known[c.key]
	if k == nil {
		if cs.known == nil {
			cs.known = map[string]*counted{}
		}
		k = &counted{cause: c}
		cs.known[c.key] = k
		cs.bytes += c.size()
	}
	k.refusals++
	return k.cause
}

// release removes one use of a cause, and forgets the cause after its last use.
func (cs *causes) release(c *cause) {
	if c == nil {
		return
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	k := cs.known[c.key]
	if k == nil {
		return
	}
	k.refusals--
	if k.refusals == 0 {
		delete(cs.known, c.key)
		cs.bytes -= c.size()
	}
}

func newCause(t *xds.Type, text string, names []string) *cause {
	c := &cause{typ: t, key: t.URL + "\x00" + text + "\x00" + strings.Join(names, "\x00")}
	rest := c.key[len(t.URL)+1:] // the other strings are substrings of the key, to save memory
	c.text, rest = rest[:len(text)], rest[len(text)+1:]
	for _, name := range names {
		c.names, rest = append(c.names, rest[:len(name)]), strings.TrimPrefix(rest[len(name):], "\x00")
	}
	return c
}

// causeOf returns the cause of a NACK. The argument all is the number of resources in the response,
// including removed ones. The result partly reports whether the response had more resources than the
// cause names.
func causeOf(e *protocol.Event, all int) (c *cause, partly bool) {
	text := ""
	if e.Error != nil {
		text = Normalise(e.Error.Message)
	}
	var names []string
	for _, name := range e.Names {
		if mentions(text, name) {
			names = append(names, textutil.Head(name, maxName))
		}
	}
	partly = all > max(len(names), 1)
	if len(names) == 0 && len(e.Names) >= all { // one of these resources is faulty, but the text does not name it
		for _, name := range e.Names {
			names = append(names, textutil.Head(name, maxName))
		}
	}
	return newCause(e.Type, text, names), partly
}

// marker begins the debug marks in Envoy's texts: goo.gle/debugonly, debugstr or debugproto. A random number of
// spaces follows, which differs in each build.
const marker = "goo.gle/debug"

// Normalise returns the text of a NACK on one line, in a form that is equal for all clients with the same
// error. It removes debug marks, dumps of resources and surplus spaces. It keeps numbers, because a
// number may be the reason of the error.
func Normalise(text string) string {
	text = strings.ToValidUTF8(textutil.Middle(text, maxRead), "\uFFFD")
	for range maxMarks {
		at := strings.Index(text, marker)
		if at < 0 {
			break
		}
		head, dump := text[:at], text[at+len(marker):]
		tail := ""
		for _, end := range []string{"\n: ", ": Proto constraint validation failed"} {
			if i := strings.LastIndex(dump, end); i >= 0 {
				tail = strings.TrimPrefix(strings.TrimSpace(dump[i:]), ": ")
				break
			}
		}
		if tail == "" && !strings.Contains(strings.TrimSpace(dump), "\n") { // the mark is at the end of a line, without a dump
			_, tail, _ = strings.Cut(dump, " ")
		}
		text = head + " … " + tail
	}
	text = strings.ReplaceAll(text, marker, "")
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	text = strings.TrimPrefix(strings.ReplaceAll(text, "… : ", "… "), "… ")
	return textutil.Middle(text, maxText)
}

// mentions reports whether text contains name as a whole name, not only as a part of a longer name.
func mentions(text, name string) bool {
	if name == "" {
		return false
	}
	for {
		before, after, found := strings.Cut(text, name)
		if !found {
			return false
		}
		last, _ := utf8.DecodeLastRuneInString(before)
		next, _ := utf8.DecodeRuneInString(strings.TrimLeft(after, ".,:;")) // punctuation after a name; a letter after it continues the name
		if !isNameChar(last) && !isNameChar(next) {
			return true
		}
		_, size := utf8.DecodeRuneInString(name)
		text = text[len(before)+size:]
	}
}

// isNameChar reports whether r may be part of a name.
func isNameChar(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_/", r))
}
