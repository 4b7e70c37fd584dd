package protoyaml

import "strings"

// WithArticle returns a type name with "a" or "an" before it, as in spoken English: an Endpoint, a Cluster,
// an EDS, an HttpFilter, a UInt32Value.
func WithArticle(name string) string {
	if name == "" {
		return name
	}
	word := name // up to the next capital or digit
	if n := strings.IndexFunc(name[1:], func(r rune) bool { return r < 'a' || r > 'z' }); n >= 0 {
		word = name[:1+n]
	}
	vowels := "AEIO" // U depends on the pronunciation
	switch {
	case len(name) > 1 && name[1] >= 'A' && name[1] <= 'Z', !strings.ContainsAny(strings.ToLower(word), "aeiouy"):
		vowels = "AEFHILMNORSX" // an abbreviation, pronounced by its letters: an "ess", a "you"
	case word == "Udp" || word == "Uri" || word == "Url" || strings.HasPrefix(word, "Uni") || strings.HasPrefix(word, "Use"):
	default:
		vowels += "U"
	}
	if strings.Contains(vowels, strings.ToUpper(name[:1])) {
		return "an " + name
	}
	return "a " + name
}
