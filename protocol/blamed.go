package protocol

import (
	"slices"
	"strings"
)

const (
	// maxBlamed is the maximum number of names in a Nacked event.
	maxBlamed = 5

	// maxBlameText is how many bytes of the client's error text are searched for names.
	maxBlameText = 16 << 10
)

// blamed returns the names of a refused message that are most useful for finding the error. First
// come the names in the client's error text, in the order of the text, and then other names that
// the message changed. A removed name is included only if the text has the name.
//
// blamed looks up each word of the text in the response. It does not search the text for each name
// of the response, which may have many.
func (u *subscription) blamed(d *delivery, p *part, text string) []string {
	var names []string
	add := func(name string) bool {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		return len(names) < maxBlamed
	}
	for word := range words(text[:min(len(text), maxBlameText)]) {
		if is := d.Carries(word); is != nil && p.within(word, is) || p.world && stands(u.told(word)) {
			if !add(strings.Clone(word)) {
				return names
			}
		}
	}
	for _, r := range d.beats {
		if !add(r.Name) {
			return names
		}
	}
	for name, it := range d.in(p) {
		if stands(it.Is) && !add(name) {
			return names
		}
	}
	return names
}

// upserts returns the number of resources in a message. In a full state, only changed resources count.
func (d *delivery) upserts(p *part) int {
	n := len(d.beats)
	for _, it := range d.in(p) {
		if stands(it.Is) {
			n++
		}
	}
	return n
}

// words yields the possible names in a text: each part between spaces, first unchanged and then
// without the punctuation around it.
func words(text string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for word := range strings.FieldsSeq(text) {
			if !yield(word) {
				return
			}
			for _, marks := range []string{"\"'`,;.:", "\"'`,;.:()[]{}<>"} {
				if bare := strings.Trim(word, marks); bare != word && bare != "" && !yield(bare) {
					return
				}
			}
		}
	}
}
