package groups

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	maxPattern = 256  // bytes of a pattern
	maxValue   = 4096 // bytes of a value that is compared with a pattern that has wildcards
)

// A glob is a pattern, taken apart. Matching takes no more than the length of the value
// times that of the pattern: both are bounded, and no choice is ever made twice.
type glob struct {
	text string // as it was written

	// What stands between the "*": each a list of texts with one character, which is any,
	// between them. One part alone: there is no "*".
	parts [][]string
}

// compile takes a pattern apart.
func compile(pattern string) (glob, error) {
	g := glob{text: pattern}
	if len(pattern) > maxPattern {
		return g, fmt.Errorf("a pattern of %d bytes: at most %d are allowed", len(pattern), maxPattern)
	}
	var part []string
	var text strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; c {
		case '*':
			g.parts, part = append(g.parts, append(part, text.String())), nil
			text.Reset()
		case '?':
			part = append(part, text.String())
			text.Reset()
		case '\\':
			i++
			if i == len(pattern) || !strings.ContainsRune(`*?\`, rune(pattern[i])) {
				return g, errors.New(`behind \ stands neither *, ? nor \`)
			}
			text.WriteByte(pattern[i])
		default:
			text.WriteByte(c)
		}
	}
	g.parts = append(g.parts, append(part, text.String()))
	return g, nil
}

// foreign reports whether a pattern has what is of other languages of patterns: (a|b), {a,b}, [a-z],
// ^a, a$. Such characters stand for themselves here, and are in few names of nodes.
func isForeign(pattern string) bool {
	between := func(open, inner, end string) bool {
		_, rest, found := strings.Cut(pattern, open)
		rest, _, closed := strings.Cut(rest, end)
		return found && closed && strings.Contains(rest, inner)
	}
	return strings.Contains(pattern, "|") || between("{", ",", "}") || between("[", "", "]") || strings.HasPrefix(pattern, "^") || strings.HasSuffix(pattern, "$")
}

// prefix returns what a value begins with, and whether it is all of it.
func (g *glob) prefix() (text string, all bool) {
	return g.parts[0][0], len(g.parts) == 1 && len(g.parts[0]) == 1
}

// match reports whether the pattern stands for a value.
func (g *glob) match(v string) bool {
	text, all := g.prefix()
	if all {
		return v == text
	}
	if !strings.HasPrefix(v, text) || len(v) > maxValue {
		return false
	}
	n, ok := begins(v, g.parts[0])
	if !ok {
		return false
	}
	v = v[n:]
	if len(g.parts) == 1 {
		return v == ""
	}
	last := len(g.parts) - 1
	n, ok = ends(v, g.parts[last])
	if !ok {
		return false
	}
	v = v[:len(v)-n]
	// The leftmost place of each part leaves most for the others.
	for _, part := range g.parts[1:last] {
		n, ok = find(v, part)
		if !ok {
			return false
		}
		v = v[n:]
	}
	return true
}

// begins reports whether a value begins with a part, and how long that is.
func begins(v string, part []string) (n int, ok bool) {
	for i, text := range part {
		if i > 0 {
			_, size := utf8.DecodeRuneInString(v[n:])
			if size == 0 {
				return 0, false
			}
			n += size
		}
		if !strings.HasPrefix(v[n:], text) {
			return 0, false
		}
		n += len(text)
	}
	return n, true
}

// ends reports whether a value ends with a part, and how long that is.
func ends(v string, part []string) (n int, ok bool) {
	for i, text := range slices.Backward(part) {
		if !strings.HasSuffix(v[:len(v)-n], text) {
			return 0, false
		}
		n += len(text)
		if i > 0 {
			_, size := utf8.DecodeLastRuneInString(v[:len(v)-n])
			if size == 0 {
				return 0, false
			}
			n += size
		}
	}
	return n, true
}

// find returns where the leftmost place of a part ends.
func find(v string, part []string) (end int, ok bool) {
	if len(part) == 1 {
		i := strings.Index(v, part[0])
		return i + len(part[0]), i >= 0
	}
	for i := 0; ; {
		if n, ok := begins(v[i:], part); ok {
			return i + n, true
		}
		_, size := utf8.DecodeRuneInString(v[i:])
		if size == 0 {
			return 0, false
		}
		i += size
	}
}
