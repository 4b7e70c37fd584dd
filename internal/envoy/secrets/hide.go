package secrets

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Hidden replaces a secret in a text.
const Hidden = "…"

const (
	// window is the number of consecutive bytes of a secret that must not be shown. A shorter secret is
	// searched for as a whole.
	window = 6

	// minLength is the minimum length of a secret to search for anywhere. A shorter one, such as "1", is
	// hidden only where a value may be.
	minLength = 4

	// levels limits nested quoting, such as the JSON of a message inside the text format of another.
	levels = 3
)

// Hide returns a text without the secrets and without parts of them. It finds them with the escapes of
// JSON, YAML or protobuf's text format, also nested, and with different white space.
func Hide(text string, secrets []string) string {
	var views []view
	for v, more := raw(text), true; more && len(views) <= levels; v, more = v.unescaped() {
		views = append(views, v)
	}
	hidden := make([]bool, len(text))
	found := newGrams(views)
	for _, secret := range secrets {
		s := raw(strings.TrimSpace(secret)).bytes
		switch {
		case len(s) >= window:
			found.look(s)
		case len(s) >= minLength:
			for _, v := range views {
				v.mark(s, hidden, func(int, int) bool { return true })
			}
		case len(s) > 0:
			for _, v := range views {
				v.mark(s, hidden, v.alone)
			}
		}
	}
	for _, v := range views {
		found.mark(v, hidden)
	}
	return without(text, hidden)
}

// without returns a text with each hidden part replaced.
func without(text string, hidden []bool) string {
	var b strings.Builder
	for i := range len(text) {
		switch {
		case !hidden[i]:
			b.WriteByte(text[i])
		case i == 0 || !hidden[i-1]:
			b.WriteString(Hidden)
		}
	}
	return strings.ToValidUTF8(b.String(), "")
}

// A view is one reading of a text: its bytes, and the offset of each byte in the text. The last element
// of at is the end of the text.
type view struct {
	bytes []byte
	at    []int
}

func (v *view) add(b byte, at int) {
	if b == ' ' || b >= '\t' && b <= '\r' { // white space counts as one space
		b = ' '
		if len(v.bytes) > 0 && v.bytes[len(v.bytes)-1] == ' ' {
			return
		}
	}
	v.bytes, v.at = append(v.bytes, b), append(v.at, at)
}

// raw is the literal reading of a text.
func raw(text string) view {
	v := view{make([]byte, 0, len(text)), make([]int, 0, len(text)+1)}
	for i := range len(text) {
		v.add(text[i], i)
	}
	v.at = append(v.at, len(text))
	return v
}

// unescaped returns the reading of v with escapes resolved; false if it has no escapes.
func (v view) unescaped() (out view, any bool) {
	for i := 0; i < len(v.bytes); {
		b, n := []byte{v.bytes[i]}, 1
		if b[0] == '\\' {
			if e, w := escape(v.bytes[i:]); w > 0 {
				b, n, any = e, w, true
			}
		}
		for _, b := range b {
			out.add(b, v.at[i])
		}
		i += n
	}
	out.at = append(out.at, v.at[len(v.bytes)])
	return out, any
}

var letters = map[byte]byte{'n': '\n', 't': '\t', 'r': '\r', 'a': '\a', 'b': '\b', 'f': '\f', 'v': '\v', '"': '"', '\'': '\'', '\\': '\\', '/': '/', ' ': ' '}

// escape returns the bytes and the length of an escape at the beginning of s; zero if there is none.
func escape(s []byte) (b []byte, n int) {
	if len(s) < 2 {
		return nil, 0
	}
	if b, ok := letters[s[1]]; ok {
		return []byte{b}, 2
	}
	number := func(from, most, base int) (uint64, int) {
		to := from
		for to < len(s) && to < from+most && strings.IndexByte("0123456789abcdef"[:base], s[to]|0x20) >= 0 {
			to++
		}
		v, err := strconv.ParseUint(string(s[from:to]), base, 32)
		if err != nil {
			return 0, 0
		}
		return v, to
	}
	switch s[1] {
	case 'x':
		if v, to := number(2, 2, 16); to > 0 {
			return []byte{byte(v)}, to
		}
	case 'u', 'U':
		most := 4
		if s[1] == 'U' {
			most = 8
		}
		v, to := number(2, most, 16)
		if to == 0 {
			return nil, 0
		}
		if r := rune(v); utf16.IsSurrogate(r) && len(s) > to+2 && s[to] == '\\' && s[to+1] == 'u' {
			if low, end := number(to+2, 4, 16); end > 0 {
				return utf8.AppendRune(nil, utf16.DecodeRune(r, rune(low))), end
			}
		}
		return utf8.AppendRune(nil, rune(v)), to
	default:
		if v, to := number(1, 3, 8); to > 0 {
			return []byte{byte(v)}, to
		}
	}
	return nil, 0
}

// mark hides each occurrence of a secret that may accepts.
func (v view) mark(secret []byte, hidden []bool, may func(from, to int) bool) {
	for from := 0; ; {
		i := bytes.Index(v.bytes[from:], secret)
		if i < 0 {
			return
		}
		i += from
		if may(i, i+len(secret)) {
			v.hide(i, i+len(secret), hidden)
		}
		from = i + 1
	}
}

func (v view) hide(from, to int, hidden []bool) {
	for i := v.at[from]; i < v.at[to]; i++ {
		hidden[i] = true
	}
}

// alone reports whether the bytes are a whole value: in quotes, or after a colon.
func (v view) alone(from, to int) bool {
	before := bytes.TrimRight(v.bytes[:from], " ")
	quoted := from > 0 && to < len(v.bytes) && strings.IndexByte(`"'`, v.bytes[from-1]) >= 0 && strings.IndexByte(`"'\`, v.bytes[to]) >= 0
	ends := to == len(v.bytes) || strings.IndexByte(" ,;}])\"'\\", v.bytes[to]) >= 0
	return quoted || ends && len(before) > 0 && strings.IndexByte(":=[", before[len(before)-1]) >= 0
}

// grams holds the windows of the views, and whether a secret contains them. Secrets have many more
// bytes than the text. A bit table excludes most of their windows quickly.
type grams struct {
	bits  []uint64
	all   map[uint64]bool // true: part of a secret
	found bool
}

const tableBits = 20

func newGrams(views []view) *grams {
	g := &grams{bits: make([]uint64, 1<<tableBits/64), all: map[uint64]bool{}}
	for _, v := range views {
		each(v.bytes, func(_ int, gram uint64) {
			h := hash(gram)
			g.bits[h/64] |= 1 << (h % 64)
			g.all[gram] = false
		})
	}
	return g
}

func hash(gram uint64) uint64 { return gram * 0x9e3779b97f4a7c15 >> (64 - tableBits) }

// each calls f with each window and its offset.
func each(s []byte, f func(i int, gram uint64)) {
	gram := uint64(0)
	for i, b := range s {
		gram = (gram<<8 | uint64(b)) & (1<<(8*window) - 1)
		if i >= window-1 {
			f(i-window+1, gram)
		}
	}
}

// look marks the windows of the text that a secret contains.
func (g *grams) look(secret []byte) {
	each(secret, func(_ int, gram uint64) {
		if h := hash(gram); g.bits[h/64]&(1<<(h%64)) != 0 {
			if _, in := g.all[gram]; in {
				g.all[gram], g.found = true, true
			}
		}
	})
}

// mark hides the windows found in secrets.
func (g *grams) mark(v view, hidden []bool) {
	if g.found {
		each(v.bytes, func(i int, gram uint64) {
			if g.all[gram] {
				v.hide(i, i+window, hidden)
			}
		})
	}
}
