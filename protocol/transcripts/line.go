package transcripts

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/chancery-xds/chancery/xds"
)

// A line is one parsed step of a transcript.
type line struct {
	verb  string // "set", ">", …
	label string // of the stream, before ">"
	words []string
	args  []arg
}

// An arg is a key=value token. Both may have been quoted.
type arg struct {
	key    string
	quoted bool // the key was quoted: it is a resource's name, not a setting
	items  []item
}

// An item is one of the comma-separated values of an arg: text, or text@text.
type item struct{ text, at string }

func parse(s string) (l line, err error) {
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimLeft(s, " \t") {
		var a arg
		var eq bool
		a.key, a.quoted, s, err = text(s, " \t=")
		if err != nil {
			return l, err
		}
		s, eq = strings.CutPrefix(s, "=")
		if !eq {
			l.words = append(l.words, a.key)
			continue
		}
		for more := s != "" && s[0] != ' ' && s[0] != '\t'; more; {
			var it item
			it.text, _, s, err = text(s, " \t,@")
			if err != nil {
				return l, err
			}
			if rest, ok := strings.CutPrefix(s, "@"); ok {
				it.at, _, s, err = text(rest, " \t,")
				if err != nil {
					return l, err
				}
			}
			a.items = append(a.items, it)
			s, more = strings.CutPrefix(s, ",")
		}
		l.args = append(l.args, a)
	}
	if len(l.words) == 0 {
		return l, fmt.Errorf("empty line: expected a verb")
	}
	l.verb, l.words = l.words[0], l.words[1:]
	if label, ok := strings.CutSuffix(l.verb, ">"); ok {
		l.verb, l.label = ">", label
	}
	return l, nil
}

// text takes a quoted string, or the text before any of the stops.
func text(s, stops string) (text string, quoted bool, rest string, err error) {
	if strings.HasPrefix(s, `"`) {
		q, err := strconv.QuotedPrefix(s)
		if err != nil {
			return "", true, "", fmt.Errorf("%w: %s", err, s)
		}
		text, err = strconv.Unquote(q)
		return text, true, s[len(q):], err
	}
	if i := strings.IndexAny(s, stops); i >= 0 {
		return s[:i], false, s[i:], nil
	}
	return s, false, "", nil
}

// quote writes a string so that text reads it back.
func quote(s string) string {
	odd := func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r) || strings.ContainsRune(`",=@`, r)
	}
	if s == "" || strings.ContainsRune("-~?!", rune(s[0])) || strings.ContainsFunc(s, odd) {
		return strconv.Quote(s)
	}
	return s
}

// has reports whether the arg is given, even with an empty value.
func (l line) has(key string) bool {
	for _, a := range l.args {
		if !a.quoted && a.key == key {
			return true
		}
	}
	return false
}

func (l line) items(key string) []item {
	for _, a := range l.args {
		if !a.quoted && a.key == key {
			return a.items
		}
	}
	return nil
}

func (l line) texts(key string) (out []string) {
	for _, it := range l.items(key) {
		out = append(out, it.text)
	}
	return out
}

func (l line) text(key string) string { return strings.Join(l.texts(key), ",") }

func (l line) number(key string) int {
	n, _ := strconv.Atoi(l.text(key))
	return n
}

// only returns an error for an arg that the verb does not take.
func (l line) only(keys string) error {
	for _, a := range l.args {
		if !strings.Contains(" "+keys+" ", " "+a.key+" ") {
			return fmt.Errorf("%s does not take %s=", l.verb, a.key)
		}
	}
	return nil
}

// typeOf finds a type by its short name or its URL; "-" is none.
func typeOf(s string) (*xds.Type, error) {
	if s == "-" {
		return nil, nil
	}
	if strings.Contains(s, "/") {
		return xds.TypeOf(s), nil
	}
	for _, t := range xds.Types() {
		if t.Short == s {
			return t, nil
		}
	}
	return nil, fmt.Errorf("unknown type %q", s)
}

func nameOf(t *xds.Type) string {
	switch {
	case t == nil:
		return "-"
	case t.Known():
		return t.Short
	}
	return t.URL
}
