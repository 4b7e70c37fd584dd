package dir

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
)

// A plan is what a load would commit. Errors of a group with "on_error: alone" reject that group: the
// plan is made again without its files. Errors of any other group reject the whole load.
type plan struct {
	*Source
	order      []found
	scanErrors []findings.Problem // errors of directories and paths: files may be missing because of them
	approve    bool               // allow all removals
	now        time.Time

	layout     layout
	rules      *groups.Rules
	next       map[string]groupContent // by group; without the rejected groups
	lost       map[string]map[string]loss
	missing    func() []dangling     // references to missing resources, before removals are delayed
	rejections map[string]*rejection // rejected groups, by name

	fatal          []findings.Problem
	more           int // mistakes beyond Options.MaxProblems that were not kept
	refusals       []string
	warnings       []findings.Problem // of the definitions
	rejectedBefore map[string]bool    // groups that were rejected before this round
}

// plan returns the plan of a load, and an error if nothing can be committed.
func (s *Source) plan(sc *scanner, approve bool, now time.Time) (*plan, error) {
	p := &plan{Source: s, order: sc.files, scanErrors: sc.errs, approve: approve, now: now, rejections: map[string]*rejection{}}
	if len(sc.files) == 0 && len(sc.errs) == 0 && !approve && len(s.parts) > 1 {
		return p, refusal("the directory has no files any more", s.opts.HowToAllow)
	}
	for {
		p.rejectedBefore = map[string]bool{}
		for name := range p.rejections {
			p.rejectedBefore[name] = true
		}
		p.fatal, p.more, p.refusals, p.warnings = nil, 0, nil, nil
		err := p.attempt()
		if err != nil || p.failed() {
			return p, p.failure(err)
		}
		if len(p.rejections) == len(p.rejectedBefore) {
			p.missing = missingIn(p.layout, p.contents(), p.bootstraps)
			return p, nil
		}
	}
}

func (p *plan) failed() bool { return len(p.fatal) > 0 || p.more > 0 || len(p.refusals) > 0 }

// failure returns the error of a load that commits nothing. It includes the errors of rejected groups.
func (p *plan) failure(err error) error {
	all, more := p.fatal, p.more
	for _, k := range p.rejections {
		all, more = append(all, k.problems...), more+k.more
	}
	switch {
	case len(all) > 0 || more > 0:
		return Errors(p.summary("error", p.counted(all), more))
	case err != nil:
		return err
	}
	const most = 3
	text := strings.Join(p.refusals[:min(most, len(p.refusals))], "; ")
	if n := len(p.refusals) - most; n > 0 {
		text += fmt.Sprintf("; and %d more groups", n)
	}
	return refusal(text, p.opts.HowToAllow)
}

// attempt makes the plan once. It stops after the first step that finds an error.
func (p *plan) attempt() error {
	p.arrange()
	p.addFileErrors()
	p.assemble()
	if p.failed() || len(p.rejections) > len(p.rejectedBefore) {
		return nil
	}
	if err := p.review(); err != nil || p.failed() || len(p.rejections) > len(p.rejectedBefore) {
		return err
	}
	return p.removals()
}

// blame records errors in the files or the content of a group.
func (p *plan) blame(group string, problems ...findings.Problem) {
	if len(problems) == 0 {
		return
	}
	if len(p.layout.named) > 0 {
		problems = slices.Clone(problems)
		for i := range problems {
			problems[i].Group = group
		}
	}
	if k := p.rejection(group); k != nil {
		k.problems = append(k.problems, problems...)
		return
	}
	p.fatal = append(p.fatal, problems...)
}

// rejection returns the errors of a rejected group, and rejects the group if it was not. It returns nil
// for a group without "on_error: alone".
func (p *plan) rejection(group string) *rejection {
	if k := p.rejections[group]; k != nil {
		return k
	}
	if !p.alone(group) {
		return nil
	}
	k := &rejection{}
	p.rejections[group] = k
	return k
}

// alone reports whether a group has "on_error: alone", in its last definition or in its new one. A
// user who adds it to a group that has errors already wants to load the other groups at once.
func (p *plan) alone(group string) bool {
	was, is := p.Source.layout.named[group], p.layout.named[group]
	switch {
	case p.checking:
		return false
	case was == nil || p.parts[group] == nil:
		return is != nil && is.Alone
	}
	return was.Alone || is != nil && is.dir == was.dir && is.Alone // in another directory it is another group of the same name
}

// refuse records why the removals of a group are refused.
func (p *plan) refuse(group, why string) {
	if len(p.layout.named) > 0 {
		why = fmt.Sprintf("group %q: %s", group, why)
	}
	if k := p.rejection(group); k != nil {
		k.err = refusal(why, p.opts.HowToAllow)
		return
	}
	p.refusals = append(p.refusals, why)
}

// addFileErrors records the errors of paths and files, except those of groups that are rejected already.
func (p *plan) addFileErrors() {
	for _, q := range p.scanErrors {
		if group := p.layout.group(q.File); !p.rejectedBefore[group] {
			p.blame(group, q)
		}
	}
	for _, f := range p.order {
		found := p.files[f.path]
		if len(found.errs) == 0 {
			continue
		}
		group := p.layout.group(f.path)
		if p.rejectedBefore[group] {
			continue
		}
		p.blame(group, found.errs...)
		if k := p.rejections[group]; k != nil {
			k.more += found.omittedErrors
		} else {
			p.more += found.omittedErrors
		}
	}
}

// assemble collects the resources of each group, in the order of the files. If two resources of a type
// have the same name or alias in one group, the error has both places.
func (p *plan) assemble() {
	p.next = map[string]groupContent{}
	for name := range p.layout.named {
		p.contentOf(name)
	}
	p.contentOf(groups.Default)
	type guest struct {
		Loaded
		home, in string
	}
	var guests []guest
	for _, f := range p.order {
		home := p.layout.group(f.path)
		if p.rejections[home] != nil {
			continue
		}
		w := p.next[home]
		if !isGroupFile(f.path) {
			w.files++
			p.next[home] = w
		}
		for _, l := range p.files[f.path].loaded {
			if l.groups == nil {
				if why := w.add(l); why != "" {
					p.addConflict(home, home, l, why)
				}
				continue
			}
			for _, in := range p.groupsOf(l, home) {
				if in != home {
					guests = append(guests, guest{l, home, in})
				} else if why := w.add(l); why != "" {
					p.addConflict(home, home, l, why)
				}
			}
		}
	}
	for name := range p.rejections {
		for in := range p.next {
			if was := p.parts[in]; was != nil {
				for _, l := range was.content.all() {
					if p.Source.layout.group(l.File) == name {
						guests = append(guests, guest{l, name, in})
					}
				}
			}
		}
	}
	for _, g := range guests {
		if p.rejections[g.in] != nil {
			continue
		}
		w := p.contentOf(g.in)
		w.files++
		p.next[g.in] = w
		if why := w.add(g.Loaded); why != "" && p.rejections[g.home] == nil {
			p.addConflict(g.home, g.in, g.Loaded, why)
		}
	}
	if p.opts.Validate {
		p.checkRequired()
		p.checkClaims()
	}
}

// contentOf returns the planned content of a group, which is empty at first.
func (p *plan) contentOf(name string) groupContent {
	w, ok := p.next[name]
	if !ok && p.rejections[name] == nil {
		w = groupContent{types: map[string]*typeContent{}}
		p.next[name] = w
	}
	return w
}

// contents returns the content of all groups after the commit. A rejected group keeps its content.
func (p *plan) contents() map[string]groupContent {
	all := maps.Clone(p.next)
	for name := range p.rejections {
		if was := p.parts[name]; was != nil {
			all[name] = was.content
		}
	}
	return all
}

// groupsOf returns the groups of a resource whose file is in the group home.
func (p *plan) groupsOf(l Loaded, home string) (in []string) {
	if l.groups == nil {
		return []string{home}
	}
	for i, name := range l.groups.names {
		if !p.layout.filesByName && !p.layout.knows(name) {
			q := l.groups.at[i]
			q.Code, q.Message, q.Hint = findings.UnknownGroup, fmt.Sprintf("there is no group %q", name), "groups are directories with a "+GroupFile
			if near := protoyaml.Nearest(name, maps.Keys(p.layout.named)); near != "" {
				q.Hint = fmt.Sprintf("did you mean %q?", near)
			}
			p.blame(home, q)
			continue
		}
		if !slices.Contains(in, name) {
			in = append(in, name)
		}
	}
	return in
}

// addConflict records that a resource conflicts with another one of the group in.
func (p *plan) addConflict(home, in string, l Loaded, why string) {
	if p.layout.duplicate(l.File) {
		return // the two groups of the same name are the error
	}
	if home != in {
		why += fmt.Sprintf(" in group %q", in)
	}
	q := l.Pos.problem("%s", why)
	q.Code = findings.DuplicateName
	if p.alone(in) && !p.alone(home) {
		home = in
	}
	p.blame(home, q)
}

// review passes the planned resources to Options.Review, and adds the resources that it returns.
func (p *plan) review() error {
	if p.opts.Review == nil {
		return nil
	}
	var all []Loaded
	for _, f := range p.order {
		if p.rejections[p.layout.group(f.path)] == nil {
			all = append(all, p.files[f.path].loaded...)
		}
	}
	for name := range p.rejections {
		if was := p.parts[name]; was != nil {
			all = append(all, was.content.all()...)
		}
	}
	more, err := p.opts.Review(all)
	if errs, ok := errors.AsType[Errors](err); ok && len(p.layout.named) > 0 {
		for _, q := range errs {
			p.blame(p.layout.group(q.File), q)
		}
		return nil
	}
	for _, l := range more {
		for _, in := range p.groupsOf(l, p.layout.group(l.File)) {
			if w, ok := p.next[in]; ok {
				w.add(l)
			}
		}
	}
	return err
}

// removals refuses groups that would lose so much that their files may be incomplete.
func (p *plan) removals() error {
	p.lost = map[string]map[string]loss{}
	for name, next := range p.next {
		was := p.parts[name]
		if was == nil {
			continue
		}
		lost := was.removals.losses(p.now, was.content, next)
		p.lost[name] = lost
		if why := was.removals.refuse(lost, was.content, next, !was.loaded); why != "" && !p.approve {
			p.refuse(name, why)
		}
	}
	slices.Sort(p.refusals)
	return nil
}
