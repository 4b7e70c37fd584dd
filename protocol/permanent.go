package protocol

import (
	"slices"
	"strings"
)

// permanent are parts of error texts of Envoy and gRPC whose reason cannot pass while the content is
// unchanged. Such content is only tried at the slowest step.
var permanent = []string{
	"Proto constraint validation failed",
	"has unknown fields",
	"Unable to parse JSON as proto",
	"Didn't find a registered",
	"no registered implementation",
	"no filter implementation found",
	"regex",
	"regexp",
	"INVALID_ARGUMENT",
	"unsupported",
	"eds_cluster_config set in a non-EDS cluster",
	"non-terminal filter",

	// what RE2 says of a regex
	"no argument for repetition operator",
	"bad repetition operator",
	"invalid repetition size",
	"invalid perl operator",
	"invalid escape sequence",
	"invalid character class",
	"invalid character class range",
	"invalid named capture group",
}

// brackets are what RE2 says of brackets in a regex. They count with their punctuation.
var brackets = []string{"missing ): ", "missing ]: ", "unexpected ): "}

// CannotPass reports whether the reason in the error text of a NACK cannot pass by itself. Such content is
// only tried at the slowest step. The function named reports whether a word of the text is the name of a
// refused resource. Names and quoted parts do not count, because they do not give the reason.
func CannotPass(text string, named func(word string) bool) bool {
	text = unquoted(text[:min(len(text), maxBlameText)])
	reason := reasonOf(text, named)
	return slices.ContainsFunc(permanent, func(part string) bool { return strings.Contains(reason, " "+part+" ") }) ||
		slices.ContainsFunc(brackets, func(part string) bool { return strings.Contains(text, part) })
}

// reasonOf returns the words of an unquoted error text without names and punctuation. There is a space
// before and after each word.
func reasonOf(text string, named func(word string) bool) string {
	var b strings.Builder
	b.WriteByte(' ')
	for field := range strings.FieldsSeq(text) {
		isName := false
		for word := range words(field) {
			isName = isName || named(word)
		}
		if isName {
			continue
		}
		for word := range strings.FieldsFuncSeq(field, func(c rune) bool { return strings.ContainsRune(",;:()[]{}<>", c) }) {
			if bare := strings.Trim(word, "\"'`."); bare != "" {
				b.WriteString(bare)
				b.WriteByte(' ')
			}
		}
	}
	return b.String()
}

// unquoted returns a text without the parts in quotation marks. An apostrophe in a word is not a quotation
// mark.
func unquoted(text string) string {
	var b strings.Builder
	open := map[byte]bool{'"': true, '\'': true, '`': true} // may be closed in the rest of the text
	for i := 0; i < len(text); i++ {
		c := text[i]
		if !open[c] || i > 0 && isAlphanumeric(text[i-1]) {
			b.WriteByte(c)
			continue
		}
		end := i + 1
		for end < len(text) && (text[end] != c || end+1 < len(text) && isAlphanumeric(text[end+1])) {
			end++
		}
		if end == len(text) {
			open[c] = false // so that each byte is read only a few times
			continue
		}
		b.WriteByte(' ')
		i = end
	}
	return b.String()
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}
