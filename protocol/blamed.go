package protocol

import (
	"slices"
	"strings"
)

const (
	// maxBlamed is how many names of a refused response an event tells.
	maxBlamed = 5

	// maxBlameText is how many bytes of the client's text are looked at for names.
	maxBlameText = 16 << 10
)

// blamed returns some of the names that a message told, for who looks for what is wrong
// with it: first those that the client's text names, in its order, then others that the
// message made new. What is gone stands there only if the text names it.
//
// It looks the words of the text up, and not for each name of a large response in the text.
func (u *subscription) blamed(d *delivery, p *part, text string) []string {
	var names []string
	add := func(name string) bool {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		return len(names) < maxBlamed
	}
	for word := range words(text[:min(len(text), maxBlameText)]) {
		if is := d.carries(word); is != nil && p.within(word, is) || p.world && stands(u.told(word)) {
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
	for name, it := range d.each {
		if stands(it.is) && p.within(name, it.is) && !add(name) {
			return names
		}
	}
	return names
}

// words yields what may be a name in a text: what stands between spaces, as it is, and
// without the marks that stand around names.
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
