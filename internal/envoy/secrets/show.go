package secrets

import (
	"regexp"
	"strings"
	"unicode"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Any text in an unreadable file may be a secret. So a line of it is shown only if two conditions hold:
// the file contains no name of a secret, and the line does not look like one. The rule is coarse on
// purpose: if a line is not shown, the user opens the file.

// words are names of sensitive fields in Envoy's API, names of the fields that hold values
// (DataSource), and common names of secrets, such as those in headers. They are compared with
// [spelling]. The sensitive fields typed_config and config are missing, because nearly every file has
// them; the messages that make them sensitive have a name in this list.
var words = []string{
	"secret", "password", "passwd", "passphrase", "token", "credential", "username", "users",
	"privatekey", "inlinestring", "inlinebytes", "pkcs12", "keys", "apikey", "accesskey", "signingkey", "encryptionkey",
	"contextextensions", "typedstruct", "authorization", "basicauth", "bearer", "xauth", "hmac",
}

// spelling returns the letters and digits of a text in lower case. So a typing error in the middle of a
// name, or another way to write it, does not prevent a match.
func spelling(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, text)
}

// escaped matches letters written as numbers in YAML or JSON. They could hide a name.
var escaped = regexp.MustCompile(`\\[xuU]`)

// ShowsLines reports whether lines of an unreadable file may be shown: the file contains no name of a
// secret, and none of the marked fields in more.
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

// ShowsLine reports whether a line contains nothing that looks like a secret: PEM, a URL with a
// password, or a long text with digits, like a key or token.
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

// MarkedNames returns the names of the marked fields of a message and of the messages declared inside
// it.
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
