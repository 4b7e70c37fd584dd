package access

import (
	"slices"

	"github.com/chancery-xds/chancery/internal/tablecache"
	"github.com/chancery-xds/chancery/internal/text/glob"
	"github.com/chancery-xds/chancery/xds"
)

// A filter decides which names of a type are visible: those in shown that are not in hidden. It does
// not change. Nil shows nothing.
type filter struct {
	shown, hidden names
	key           string // equal for filters with equal rules
}

// Names is a set of names, given by texts and patterns.
type names struct {
	all      bool // all names
	exact    map[string]bool
	patterns []glob.Pattern
}

// add adds the names of a type that a rule shows or hides. The url "" is for all types that no rule
// mentions.
func (s *names) add(p appliedRule, url string) {
	var patterns []glob.Pattern
	switch {
	case p.rule == nil:
		s.all = true
		return
	case url == xds.Secret.URL && (!p.rule.deny || p.rule.limits.secrets != nil):
		patterns = p.rule.limits.secrets
	case p.rule.limits.names[url] != nil:
		patterns = p.rule.limits.names[url]
	case p.rule.deny:
		s.all = s.all || p.rule.limits.types[url]
		return
	default:
		s.all = s.all || p.rule.limits.types == nil || p.rule.limits.types[url]
		return
	}
	for i := range patterns {
		with, ok := patterns[i].With(p.with)
		if !ok {
			continue
		}
		if text, plain := with.Plain(); plain {
			if s.exact == nil {
				s.exact = map[string]bool{}
			}
			s.exact[xds.CanonicalName(text)] = true
		} else if with.MatchesAll() {
			s.all = true
		} else {
			s.patterns = append(s.patterns, with)
		}
	}
}

// finish simplifies the filter and computes its key.
func (f *filter) finish() {
	if f.hidden.all {
		f.shown = names{}
	}
	if !f.shown.some() {
		f.hidden = names{}
	}
	f.key = f.shown.key() + "-" + f.hidden.key()
}

// some reports whether the set can contain any name.
func (s *names) some() bool { return s.all || len(s.exact) > 0 || len(s.patterns) > 0 }

func (s *names) key() string {
	if s.all {
		return "*"
	}
	list := make([]string, 0, len(s.exact)+len(s.patterns))
	for name := range s.exact {
		list = append(list, "="+name)
	}
	for i := range s.patterns {
		list = append(list, "~"+s.patterns[i].String())
	}
	slices.Sort(list)
	return tablecache.Key(slices.Compact(list))
}

func (s *names) has(name string) bool {
	if s.all || s.exact[name] {
		return true
	}
	for i := range s.patterns {
		if s.patterns[i].Match(name, nil) {
			return true
		}
	}
	return false
}

// allows reports whether a name is visible.
func (f *filter) allows(name string) bool {
	if f == nil {
		return false
	}
	name = xds.CanonicalName(name)
	return f.shown.has(name) && !f.hidden.has(name)
}

// all reports whether all names are visible.
func (f *filter) all() bool { return f != nil && f.shown.all && !f.hidden.some() }

// few reports whether the filter has a list of all visible names, and no patterns.
func (f *filter) few() bool { return f == nil || !f.shown.all && len(f.shown.patterns) == 0 }

// of returns the visible part of a table. The table from is the visible part of an older table; it
// may be nil.
func (f *filter) of(t, from *xds.Table) *xds.Table {
	if f.few() {
		return t.PartOf(f.known, f.allows, from)
	}
	return t.Part(f.allows, from)
}

// known yields the visible names if few is true.
func (f *filter) known(yield func(string) bool) {
	if f == nil {
		return
	}
	for name := range f.shown.exact {
		if !f.hidden.has(name) && !yield(name) {
			return
		}
	}
}
