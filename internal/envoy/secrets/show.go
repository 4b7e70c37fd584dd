package secrets

import (
	"regexp"
	"strings"
	"unicode"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Of a file that nobody can read nobody knows which of its texts are secrets. So a line of
// it is shown only if nothing in the whole file has the name of a secret, and nothing in the
// line looks like one. The rule is coarse: what is not shown costs a look into the file.

// words are what the fields are called that Envoy's API marks as sensitive, where it keeps
// values (DataSource), and what people call secrets that stand elsewhere, such as in a
// header. They are compared with [spelling]. Not here are typed_config and config, which
// nearly every file has: what they are sensitive in has such a name itself.
var words = []string{
	"secret", "password", "passwd", "passphrase", "token", "credential", "username", "users",
	"privatekey", "inlinestring", "inlinebytes", "pkcs12", "keys", "apikey", "accesskey", "signingkey", "encryptionkey",
	"contextextensions", "typedstruct", "authorization", "basicauth", "bearer", "xauth", "hmac",
}

// spelling returns the letters and digits of a text: a mistake in the middle of a name
// changes nothing else, and neither do the ways to write it.
func spelling(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, text)
}

// escaped finds letters that YAML or JSON may have as numbers: names are not found then.
var escaped = regexp.MustCompile(`\\[xuU]`)

// ShowsLines reports whether lines of a file may be shown that cannot be read: nothing in it
// has the name of a secret, nor one of more names that are those of marked fields.
func ShowsLines(src []byte, more []protoreflect.Name) bool {
	if escaped.Match(src) {
		return false
	}
	text := spelling(string(src))
	for _, word := range words {
		if strings.Contains(text, word) {
			return false
		}
	}
	for _, name := range more {
		if word := spelling(string(name)); strings.Contains(text, word) {
			return false
		}
	}
	return true
}

var (
	opaque   = regexp.MustCompile(`[A-Za-z0-9+/=_-]{20,}`)
	userinfo = regexp.MustCompile(`://[^/\s]*@`)
	armour   = regexp.MustCompile(`-----(BEGIN|END)`)
)

// ShowsLine reports whether nothing in a line of such a file looks like a secret: PEM, a URL
// with a password, or a long text with digits in it, which keys and tokens are.
func ShowsLine(line string) bool {
	if armour.MatchString(line) || userinfo.MatchString(line) {
		return false
	}
	for _, text := range opaque.FindAllString(line, -1) {
		if len(text) >= 60 || strings.ContainsAny(text, "0123456789") {
			return false
		}
	}
	return true
}

// MarkedNames returns the names of the fields of a message, and of those declared in it,
// that are marked.
func MarkedNames(md protoreflect.MessageDescriptor) (names []protoreflect.Name) {
	for i := range md.Fields().Len() {
		if fd := md.Fields().Get(i); Marked(fd) {
			names = append(names, fd.Name())
		}
	}
	for i := range md.Messages().Len() {
		names = append(names, MarkedNames(md.Messages().Get(i))...)
	}
	return names
}
