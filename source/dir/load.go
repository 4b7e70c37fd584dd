package dir

import (
	"maps"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

func (s *Source) load(o order, sc *scanner) (Report, error) {
	start := time.Now()
	if changed := s.look(o.force, sc); !changed && !s.behind() {
		return s.report(store.Commit{}, start), nil
	}
	p, err := s.plan(sc, s.opts.AllowMassDelete || o.approve, start)
	if s.doubtful(p); err != nil {
		s.err = err
		return Report{}, err
	}
	commit, err := s.take(p)
	if s.err = err; err != nil {
		return Report{}, err
	}
	return s.report(commit, start), nil
}

// take commits a plan: all groups and the rules, or nothing.
func (s *Source) take(p *plan) (store.Commit, error) {
	gone := maps.Clone(p.lost)
	for name, next := range p.next {
		part := s.parts[name]
		switch {
		case part == nil:
		case p.approve: // whatever it is, it is meant
			part.removals.approved()
			p.lost[name] = nil
		default:
			part.removals.hold(p.now, p.lost[name], next)
		}
	}
	s.hides(s.worlds(p.next)...)
	commit, err := s.store.Update(func(tx *store.Tx) error { s.commit(tx, p); return nil })
	if err != nil {
		s.hides(s.worlds(nil)...)
		return commit, err
	}
	for name := range s.parts {
		if name != groups.Default && p.layout.named[name] == nil {
			delete(s.parts, name)
		}
	}
	for name, next := range p.next {
		part := s.parts[name]
		if part == nil {
			part = s.newPart(name)
			s.parts[name] = part
		}
		if !part.begun && len(gone[name]) > 0 {
			s.since(name, gone[name])
		}
		part.became(p.now, next, p.lost[name])
	}
	redefined := p.rules != s.rules
	s.layout, s.rules = p.layout, p.rules
	s.unready = p.unready()
	s.kept = s.groupsKept(p.kept)
	held := 0
	for _, part := range s.parts {
		held += part.removals.held
	}
	s.held.Store(int64(held))
	s.serves()
	if s.opts.References {
		s.missing = problems(s.dangling())
	}
	if s.opts.Keep != nil && (len(commit.Changes) > 0 || !s.begun || redefined) {
		s.opts.Keep(s.config(p.now))
	}
	s.begun = true
	return commit, nil
}

// worlds returns what all groups are, some of them as in next.
func (s *Source) worlds(next map[string]world) []world {
	all := slices.Collect(maps.Values(next))
	for name, p := range s.parts {
		if _, is := next[name]; !is {
			all = append(all, p.world)
		}
	}
	return all
}

// commit writes what is new of all groups, and which nodes get them.
func (s *Source) commit(tx *store.Tx, p *plan) {
	for name, part := range s.parts {
		if name != groups.Default && p.layout.named[name] == nil {
			part.commit(tx.Group(part.group), world{}, false, s.view(part))
		}
	}
	needed := p.layout.needed()
	for _, name := range slices.SortedFunc(maps.Keys(p.next), byGroup) {
		part, next := s.parts[name], p.next[name]
		if part == nil {
			part = s.newPart(name)
		}
		if p.rules == nil || !part.same(next) {
			part.commit(tx.Group(part.group), next, s.opts.AllowEmpty || needed[name], s.view(part))
		}
	}
	for _, name := range p.unready() { // others may include it
		tx.Group(s.storeGroup(name)).MarkKnown()
	}
	if p.rules != s.rules {
		tx.Select(s.selector(p.rules))
	}
}

// view returns what there is in the store of a group, from whomever.
func (s *Source) view(p *part) xds.Tables { return s.store.Snapshot().View(p.group) }

// behind reports whether a group is not what the files say.
func (s *Source) behind() bool {
	return !s.begun || s.err != nil || s.kept != nil || s.held.Load() > 0
}

// doubtful notes the warnings of files and definitions.
func (s *Source) doubtful(p *plan) {
	if len(p.layout.named) == 0 {
		return
	}
	all := slices.Concat(s.warnings, p.warnings)
	for i := range all {
		all[i].Group = p.layout.group(all[i].File)
	}
	s.warnings = all
}

// look reads what has changed, and reports whether anything has.
func (s *Source) look(force bool, sc *scanner) (changed bool) {
	sc.outside, sc.option = s.opts.FollowLinksOutside, s.opts.called("FollowLinksOutside")
	sc.scan(s.root)
	files := s.read(sc.files, s.files, force)
	for again := 0; again < rereads && !maps.Equal(files, s.files) && !sc.still(s.root); again++ {
		files = s.read(sc.files, files, false)
	}
	return s.gather(sc, files)
}

// gather notes what was read, and reports whether it is something new.
func (s *Source) gather(sc *scanner, files map[string]*file) (changed bool) {
	changed, now, untold := len(sc.errs) > 0, time.Now(), 0
	var warnings []findings.Problem
	for _, f := range files {
		warnings = append(warnings, f.warnings...)
		warnings = append(warnings, f.ending(now)...)
		untold += f.untold
	}
	moved := !maps.Equal(files, s.files)
	s.failing.moved = s.failing.moved || moved
	s.files, s.warnings, s.untold = files, warnings, untold
	return changed || moved
}
