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
	maxText  = 1024     // bytes of what a client says
	maxRead  = 16 << 10 // the same of what is looked at
	maxMarks = 8
	maxName  = 512 // bytes of a name in a cause, or of what a client says of itself

	// maxCauses and maxCauseBytes bound what is remembered of causes: as many clients as
	// there are may each give one of their own.
	maxCauses     = 10_000
	maxCauseBytes = 8 << 20
)

// A cause is what clients refuse and why: one for all that say the same of the same. It does
// not change.
type cause struct {
	typ   *xds.Type
	text  string
	names []string // what the text names of the response; if that is nothing, all of it, if that is 5 at most
	key   string
}

// size is about how many bytes a cause takes.
func (c *cause) size() int { return len(c.key) + 300 }

// causes are those of all refusals that stand.
type causes struct {
	mu    sync.Mutex
	known map[string]*counted
	bytes int
}

type counted struct {
	*cause
	refusals int
}

// take returns the cause that is as c, which stands once more.
func (cs *causes) take(c *cause) *cause {
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

// drop says that a cause stands once less.
func (cs *causes) drop(c *cause) {
	if c == nil {
		return
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	k := cs.known[c.key]
	if k == nil {
		return
	}
	if k.refusals--; k.refusals == 0 {
		delete(cs.known, c.key)
		cs.bytes -= c.size()
	}
}

func newCause(t *xds.Type, text string, names []string) *cause {
	c := &cause{typ: t, key: t.URL + "\x00" + text + "\x00" + strings.Join(names, "\x00")}
	rest := c.key[len(t.URL)+1:] // of which the others are parts, so that they take no room
	c.text, rest = rest[:len(text)], rest[len(text)+1:]
	for _, name := range names {
		c.names, rest = append(c.names, rest[:len(name)]), strings.TrimPrefix(rest[len(name):], "\x00")
	}
	return c
}

// causeOf is the cause of a refusal; all is how many resources the response told of. It also
// says whether there were some besides those that it names.
func causeOf(e *protocol.Event, all int) (c *cause, partly bool) {
	text := ""
	if e.Error != nil {
		text = Normalise(e.Error.Message)
	}
	var names []string
	for _, name := range e.Names {
		if speaksOf(text, name) {
			names = append(names, textutil.Head(name, maxName))
		}
	}
	partly = all > max(len(names), 1)
	if len(names) == 0 && len(e.Names) >= all { // one of these, and nobody says which
		for _, name := range e.Names {
			names = append(names, textutil.Head(name, maxName))
		}
	}
	return newCause(e.Type, text, names), partly
}

// marker begins what Envoy's texts have of debugging: goo.gle/debugonly, debugstr, debugproto,
// with a random number of spaces after it, which are made to be different in each build.
const marker = "goo.gle/debug"

// Normalise returns the text of a NACK in a form that is the same for all clients that mean
// the same, and as long as fits a line: without marks that are made to be different, dumps of
// resources, and spaces. Numbers stay, for they may be what is wrong.
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
		if tail == "" && !strings.Contains(strings.TrimSpace(dump), "\n") { // it marks a line, and is followed by no dump
			_, tail, _ = strings.Cut(dump, " ")
		}
		text = head + " … " + tail
	}
	text = strings.ReplaceAll(text, marker, "")
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	text = strings.TrimPrefix(strings.ReplaceAll(text, "… : ", "… "), "… ")
	return textutil.Middle(text, maxText)
}

// speaksOf reports whether a name stands in a text, and not only as part of a longer one.
func speaksOf(text, name string) bool {
	if name == "" {
		return false
	}
	for {
		before, after, found := strings.Cut(text, name)
		if !found {
			return false
		}
		last, _ := utf8.DecodeLastRuneInString(before)
		next, _ := utf8.DecodeRuneInString(strings.TrimLeft(after, ".,:;")) // marks end a sentence, unless a name goes on
		if !ofName(last) && !ofName(next) {
			return true
		}
		_, size := utf8.DecodeRuneInString(name)
		text = text[len(before)+size:]
	}
}

// ofName reports whether a character may be part of a name.
func ofName(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_/", r))
}
