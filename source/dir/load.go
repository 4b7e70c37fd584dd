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

// load reads the files, plans the groups and commits the plan. It returns early if nothing changed.
func (s *Source) load(o order, sc *scanner) (Report, error) {
	start, before := time.Now(), s.files
	if !s.look(o.force, sc) && !s.mayDiffer() {
		return s.report(store.Commit{}, start), nil
	}
	files := s.changedFiles(before)
	if len(files) > 0 {
		s.last.record(files)
	}
	if o.unsettled && len(files) > 0 {
		s.pending = true
		return Report{}, errUnsettled
	}
	return s.apply(o, sc, start, len(files) > 0)
}

// apply plans the groups and commits the plan, unless it waits for missing resources. The argument changed reports
// whether files have changed since the last look.
func (s *Source) apply(o order, sc *scanner, start time.Time, changed bool) (Report, error) {
	s.pending = false
	p, err := s.plan(sc, s.opts.AllowMassDelete || o.approve, start)
	s.addGroups(p)
	if err != nil {
		s.err = err
		return Report{}, err
	}
	if o.mayWait && s.waitsForMissing(p, changed) {
		s.pending = true
		return Report{}, errMissing
	}
	commit, err := s.take(p)
	s.err = err
	if err != nil {
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
		case p.approve: // the caller approved all removals
			part.removals.approved()
			p.lost[name] = nil
		default:
			part.removals.hold(p.now, p.lost[name], next)
		}
	}
	s.rememberSecrets(s.contentsWith(p.next)...)
	commit, err := s.store.Update(func(tx *store.Tx) error { s.commit(tx, p); return nil })
	if err != nil {
		s.rememberSecrets(s.contentsWith(nil)...)
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
		if !part.loaded && len(gone[name]) > 0 {
			s.logLosses(name, gone[name])
		}
		part.committed(p.now, next, p.lost[name])
	}
	redefined := p.rules != s.rules
	s.layout, s.rules = p.layout, p.rules
	s.neverLoaded = p.neverLoaded()
	s.rejected = s.rejectedGroups(p.rejections)
	held, until := 0, time.Time{}
	for _, part := range s.parts {
		held += part.removals.held
		if part.removals.held > 0 && part.removals.again.After(until) {
			until = part.removals.again
		}
	}
	s.publishServed()
	if held == 0 {
		s.unresolved = p.missing
	}
	if s.opts.References {
		s.missing = s.doubts()
	}
	if s.opts.Keep != nil && (len(commit.Changes) > 0 || !s.loadedOnce || redefined) {
		s.opts.Keep(s.lastGood(p.now))
	}
	s.heldUntil.Store(until.UnixNano()) // after Keep, so that a removal is always either held or kept
	s.held.Store(int64(held))
	s.loadedOnce = true
	return commit, nil
}

// contentsWith returns the content of all groups: from next if it has the group, otherwise as committed.
func (s *Source) contentsWith(next map[string]groupContent) []groupContent {
	all := slices.Collect(maps.Values(next))
	for name, p := range s.parts {
		if _, is := next[name]; !is {
			all = append(all, p.content)
		}
	}
	return all
}

// commit writes the changes of all groups, and the rules that select groups for nodes.
func (s *Source) commit(tx *store.Tx, p *plan) {
	for name, part := range s.parts {
		if name != groups.Default && p.layout.named[name] == nil {
			part.commit(tx.Group(part.group), groupContent{}, false, s.view(part))
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
	for _, name := range p.neverLoaded() { // another group may include it
		tx.Group(s.storeGroup(name)).MarkKnown()
	}
	if p.rules != s.rules {
		tx.Select(s.selector(p.rules))
	}
}

// view returns the tables that the store has for a group, from all sources.
func (s *Source) view(p *part) xds.Tables { return s.store.Snapshot().View(p.group) }

// mayDiffer reports whether a group may differ from its files.
func (s *Source) mayDiffer() bool {
	return !s.loadedOnce || s.err != nil || s.rejected != nil || s.held.Load() > 0 || s.pending
}

// addGroups records the warnings of files and definitions with their groups.
func (s *Source) addGroups(p *plan) {
	if len(p.layout.named) == 0 {
		return
	}
	all := slices.Concat(s.warnings, p.warnings)
	for i := range all {
		all[i].Group = p.layout.group(all[i].File)
	}
	s.warnings = all
}

// look reads the changed files, and reports whether any changed.
func (s *Source) look(force bool, sc *scanner) (changed bool) {
	s.prepare(sc)
	sc.scan(s.root)
	moved := s.readBootstraps(sc, force) // before the resources, which may name secrets of bootstraps
	files := s.read(sc.files, s.files, force)
	for again := 0; again < rereads && !maps.Equal(files, s.files) && !sc.still(s.root); again++ {
		moved = s.readBootstraps(sc, false) || moved
		files = s.read(sc.files, files, false)
	}
	return s.gather(sc, files) || moved
}

// prepare sets the options of a scan.
func (s *Source) prepare(sc *scanner) {
	sc.outside, sc.option, sc.readsBootstraps = s.opts.FollowLinksOutside, s.opts.called("FollowLinksOutside"), s.opts.ReadBootstraps
}

// gather records the files that were read, and reports whether they differ from the last ones.
func (s *Source) gather(sc *scanner, files map[string]*file) (changed bool) {
	changed, now, untold := len(sc.errs) > 0, time.Now(), 0
	var warnings []findings.Problem
	for _, f := range files {
		warnings = append(warnings, f.warnings...)
		warnings = append(warnings, f.certificateWarnings(now)...)
		untold += f.omittedWarnings
	}
	moved := !maps.Equal(files, s.files)
	s.failing.moved = s.failing.moved || moved
	s.order, s.files, s.warnings, s.omittedWarnings = sc.files, files, warnings, untold
	return changed || moved
}
