package dir

import (
	"slices"
	"time"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A part is the content of one group, as the source knows it. It does not deal with files.
type part struct {
	name     string       // of the group in the rules
	group    string       // of the group in the store
	content  groupContent // as last committed
	removals removals     // delayed removals and recent counts
	withheld []*xds.Type  // types that are marked unknown in the store, until the next commit
	departed departed     // recently removed resources
	loaded   bool         // its files were loaded at least once
}

func (s *Source) newPart(name string) *part {
	return &part{name: name, group: s.storeGroup(name), removals: removals{confirm: s.opts.Confirm}}
}

// storeGroup returns the group of the store for a group of the rules.
func (s *Source) storeGroup(name string) string {
	if name == groups.Default {
		return s.opts.Group
	}
	return name
}

// commit writes the changes of next to the group in the store; view has the group's tables. If
// meant is true, a group without resources is marked known, too.
func (p *part) commit(tx *store.Tx, next groupContent, meant bool, view xds.Tables) {
	p.content.replace(tx, next)
	for _, t := range p.withheld {
		if next.types[t.URL] == nil { // the files have none: keep only the resources that the program has set
			tx.Replace(t, slices.Collect(view.Table(t).All())...)
		}
	}
	p.withheld = nil
	if meant || len(p.content.types) > 0 {
		tx.MarkKnown()
	}
}

// committed records a commit; lost has the resources that it removed.
func (p *part) committed(now time.Time, next groupContent, lost map[string]loss) {
	p.removals.committed(now, lost)
	p.departed = p.departed.after(now, p.content, next)
	p.content, p.loaded = next, true
}

// same reports whether a commit of next would write nothing.
func (p *part) same(next groupContent) bool {
	if !p.loaded || p.withheld != nil || len(p.content.types) != len(next.types) {
		return false
	}
	for url, c := range next.types {
		was := p.content.types[url]
		if was == nil || was.version != c.version || len(was.at) != len(c.at) {
			return false
		}
		for name, l := range c.at {
			if was.at[name].Resource != l.Resource {
				return false
			}
		}
	}
	return true
}

// sorted returns the parts by name, the root's first.
func (s *Source) sorted() []*part {
	all := make([]*part, 0, len(s.parts))
	for _, p := range s.parts {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *part) int { return byGroup(a.name, b.name) })
	return all
}
