package protoyaml

import (
	"fmt"
	"iter"
	"strings"

	"github.com/chancery-xds/chancery/internal/text"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
)

const typePrefix = "type.googleapis.com/"

// suggestType returns a suggestion for a wrong type URL, or "". It searches all type names, which takes
// some milliseconds.
func (d *Decoder) suggestType(url string) (hint string) {
	word := url[strings.LastIndexByte(url, '/')+1:]
	if word == "" {
		return ""
	}
	known := func(name string) bool {
		_, err := d.Types.FindMessageByURL(typePrefix + name)
		return err == nil
	}
	if known(word) {
		return fmt.Sprintf("did you mean %q?", typePrefix+word)
	}
	if url := d.Words[strings.ToUpper(word)]; url != "" {
		return fmt.Sprintf("did you mean %q?", url)
	}
	if near := nearestType(word, d.Types.Names()); near != "" && known(near) {
		return fmt.Sprintf("did you mean %q?", typePrefix+near)
	}
	return ""
}

// SuggestType returns a suggestion for a wrong type URL in the file, or "". It suggests nothing for text
// that may be a secret.
func (d *Decoder) SuggestType(url string) (hint string) {
	if d.secrets > 0 || !d.reports(d.errors+1) {
		return ""
	}
	hint, ok := d.suggestions[url]
	if !ok {
		if d.suggestions == nil {
			d.suggestions = map[string]string{}
		}
		hint = d.suggestType(url)
		d.suggestions[url] = hint
	}
	return hint
}

// UnknownType reports a type URL without a known type.
func (d *Decoder) UnknownType(n *yaml.Node, url, path string) {
	name := "…"
	if d.secrets == 0 {
		name = typeName(url[strings.LastIndexByte(url, '/')+1:])
	}
	d.ReportAs(findings.UnknownType, n, path, d.SuggestType(url), "no message type is known as %q", name)
}

// SuggestKey returns a hint for a mapping without "@type": a key that was meant to be "@type", or an
// example.
func SuggestKey(mapping *yaml.Node) (hint string) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		switch key := mapping.Content[i].Value; {
		case key == "type_url", key == "typeUrl", key == "@type_url", slip("@type", key),
			strings.HasPrefix(mapping.Content[i+1].Value, typePrefix):
			return fmt.Sprintf(`did you mean "@type" and not %q?`, shorten(key))
		}
	}
	return `for example "@type": ` + typePrefix + "envoy.config.cluster.v3.Cluster"
}

// typeName returns a type name for messages. It shortens only names longer than any real one.
func typeName(name string) string { return text.Middle(name, 200) }

// nearestType returns the type name with at most slips edits from word. If there is none, it returns a
// type whose last part is that of word, in any package. It prefers v3 packages, and then the nearest
// name.
func nearestType(word string, names iter.Seq[protoreflect.FullName]) string {
	const slips = 3
	last := word[strings.LastIndexByte(word, '.')+1:]
	best, at := "", slips+1
	same, from := "", 0
	for n := range names {
		name := string(n)
		if d := distance(strings.ToLower(word), strings.ToLower(name), at); d < at || d == at && d <= slips && name < best {
			best, at = name, d
		}
		if !slip(last, string(n.Name())) {
			continue
		}
		d := distance(word, name, len(word)+len(name)) + 10*distance(last, string(n.Name()), len(last))
		if !strings.Contains(name, ".v3") {
			d += 1000
		}
		if same == "" || d < from || d == from && name < same {
			same, from = name, d
		}
	}
	if best != "" {
		return best
	}
	return same
}

// slip reports whether two words differ by at most two edits, or fewer if the words are short.
func slip(a, b string) bool {
	most := min(2, len(a)/4)
	return distance(strings.ToLower(a), strings.ToLower(b), most) <= most
}

// successors maps fields of Envoy's older APIs to their replacements in v3. Files in use still have
// these fields.
var successors = map[protoreflect.Name]protoreflect.Name{
	"config": "typed_config", "hosts": "load_assignment", "tls_context": "transport_socket",
	"host_rewrite": "host_rewrite_literal", "regex": "safe_regex", "regex_match": "safe_regex_match",
}

// formerField returns a hint if a message reserves the name of a former field; else "".
func formerField(name protoreflect.Name, md protoreflect.MessageDescriptor) string {
	if !md.ReservedNames().Has(name) {
		return ""
	}
	if next := successors[name]; md.Fields().ByName(next) != nil {
		return fmt.Sprintf("Envoy's API no longer has it: write %q", next)
	}
	return "Envoy's API no longer has it"
}

// Nearest returns the candidate closest to a word, or "" if none is close enough.
func Nearest(word string, candidates func(func(string) bool)) string {
	best, at := "", 1+len(word)/3
	for c := range candidates {
		if d := distance(strings.ToLower(word), strings.ToLower(c), at); d < at || d == at && best == "" {
			best, at = c, d
		}
	}
	return best
}

// distance returns the number of edits between two words, or more than limit.
func distance(a, b string, limit int) int {
	if len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diag, least := row[0], i
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diag
			if a[i-1] != b[j-1] {
				cost++
			}
			diag = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
			least = min(least, row[j])
		}
		if least > limit {
			return limit + 1
		}
	}
	return row[len(b)]
}
