package dir

import (
	"slices"
	"time"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A part is what a source knows of the content of one group. Files are no business of it.
type part struct {
	name     string      // of the group, in rules
	group    string      // of the store
	world    world       // as last committed
	removals removals    // of what was committed
	withheld []*xds.Type // types of it that are not known
	departed departed    // what was served lately, and is not any more
	begun    bool        // its files were loaded once
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

// commit writes what is new, to a group with a view. If it is empty it is known if that is
// meant to be so.
func (p *part) commit(tx *store.Tx, next world, meant bool, view xds.Tables) {
	p.world.replace(tx, next)
	for _, t := range p.withheld {
		if next.types[t.URL] == nil { // none of it is there but what the program has set
			tx.Replace(t, slices.Collect(view.Table(t).All())...)
		}
	}
	if p.withheld = nil; meant || len(p.world.types) > 0 {
		tx.MarkKnown()
	}
}

// became notes what was committed; lost is what went with it.
func (p *part) became(now time.Time, next world, lost map[string]loss) {
	p.removals.committed(now, lost)
	p.departed = p.departed.after(now, p.world, next)
	p.world, p.begun = next, true
}

// same reports whether a commit of next would write nothing.
func (p *part) same(next world) bool {
	if !p.begun || p.withheld != nil || len(p.world.types) != len(next.types) {
		return false
	}
	for url, c := range next.types {
		was := p.world.types[url]
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
