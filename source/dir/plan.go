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

// A plan is what a load would make of the groups. What is wrong with one that is alone with
// its errors keeps that group as it is, and the plan is made anew without its files; what is
// wrong with another keeps everything.
type plan struct {
	*Source
	order   []found
	scanned []findings.Problem // by which files may be missing
	approve bool               // of what goes
	now     time.Time

	layout layout
	rules  *groups.Rules
	next   map[string]world // by group, of those that are not kept
	lost   map[string]map[string]loss
	kept   map[string]*keep

	fatal    []findings.Problem
	more     int // mistakes that these leave out
	refusals []string
	warnings []findings.Problem // of the definitions
	begin    map[string]bool    // what was kept when this round began
}

// plan returns what is to be committed, or why nothing is.
func (s *Source) plan(sc *scanner, approve bool, now time.Time) (*plan, error) {
	p := &plan{Source: s, order: sc.files, scanned: sc.errs, approve: approve, now: now, kept: map[string]*keep{}}
	if len(sc.files) == 0 && len(sc.errs) == 0 && !approve && len(s.parts) > 1 {
		return p, refusal("the directory has no files any more", s.opts.HowToAllow)
	}
	for {
		p.begin = map[string]bool{}
		for name := range p.kept {
			p.begin[name] = true
		}
		p.fatal, p.more, p.refusals, p.warnings = nil, 0, nil, nil
		err := p.round()
		if err != nil || p.failed() {
			return p, p.failure(err)
		}
		if len(p.kept) == len(p.begin) {
			return p, nil
		}
	}
}

func (p *plan) failed() bool { return len(p.fatal) > 0 || p.more > 0 || len(p.refusals) > 0 }

// failure returns why nothing can be loaded, with what is wrong with groups that are alone.
func (p *plan) failure(err error) error {
	all, more := p.fatal, p.more
	for _, k := range p.kept {
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

// round plans, and stops after the step that has found something.
func (p *plan) round() error {
	p.arrange()
	p.wrong()
	p.assemble()
	if p.failed() || len(p.kept) > len(p.begin) {
		return nil
	}
	if err := p.review(); err != nil || p.failed() || len(p.kept) > len(p.begin) {
		return err
	}
	return p.removals()
}

// blame notes what is wrong with a group: with its files, or with its content.
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
	if k := p.keeps(group); k != nil {
		k.problems = append(k.problems, problems...)
		return
	}
	p.fatal = append(p.fatal, problems...)
}

// keeps returns what is known of a group that is to be kept, nil if it is not alone with its
// errors.
func (p *plan) keeps(group string) *keep {
	if k := p.kept[group]; k != nil {
		return k
	}
	if !p.alone(group) {
		return nil
	}
	k := &keep{}
	p.kept[group] = k
	return k
}

// alone reports whether a group is alone with its errors: it was, or its file says so now. Who
// makes a group alone that has errors already wants the others to move at once.
func (p *plan) alone(group string) bool {
	was, is := p.Source.layout.named[group], p.layout.named[group]
	switch {
	case p.checking:
		return false
	case was == nil || p.parts[group] == nil:
		return is != nil && is.Alone
	}
	return was.Alone || is != nil && is.dir == was.dir && is.Alone // another may have taken its name
}

// refuse notes why a group does not become what its files say.
func (p *plan) refuse(group, why string) {
	if len(p.layout.named) > 0 {
		why = fmt.Sprintf("group %q: %s", group, why)
	}
	if k := p.keeps(group); k != nil {
		k.err = refusal(why, p.opts.HowToAllow)
		return
	}
	p.refusals = append(p.refusals, why)
}

// wrong notes what is wrong with files, of those that are read for groups that are not kept.
func (p *plan) wrong() {
	for _, q := range p.scanned {
		if group := p.layout.group(q.File); !p.begin[group] {
			p.blame(group, q)
		}
	}
	for _, f := range p.order {
		found := p.files[f.path]
		if len(found.errs) == 0 && found.more == 0 {
			continue
		}
		group := p.layout.group(f.path)
		if p.begin[group] {
			continue
		}
		p.blame(group, found.errs...)
		if k := p.kept[group]; k != nil {
			k.more += found.more
		} else {
			p.more += found.more
		}
	}
}

// assemble puts what stands in the files together, group by group, each in the order of the
// files. A name or an alias that a type has twice in one is an error that tells both places.
func (p *plan) assemble() {
	p.next = map[string]world{}
	for name := range p.layout.named {
		p.world(name)
	}
	p.world(groups.Default)
	type guest struct {
		Loaded
		home, in string
	}
	var guests []guest
	for _, f := range p.order {
		home := p.layout.group(f.path)
		if p.kept[home] != nil {
			continue
		}
		w := p.next[home]
		if !isGroupFile(f.path) {
			w.files++
			p.next[home] = w
		}
		for _, l := range p.files[f.path].loaded {
			if l.elsewhere == nil {
				if why := w.add(l); why != "" {
					p.twice(home, home, l, why)
				}
				continue
			}
			for _, in := range p.in(l, home) {
				if in != home {
					guests = append(guests, guest{l, home, in})
				} else if why := w.add(l); why != "" {
					p.twice(home, home, l, why)
				}
			}
		}
	}
	for name := range p.kept {
		for in := range p.next {
			if was := p.parts[in]; was != nil {
				for _, l := range was.world.all() {
					if p.Source.layout.group(l.File) == name {
						guests = append(guests, guest{l, name, in})
					}
				}
			}
		}
	}
	for _, g := range guests {
		if p.kept[g.in] != nil {
			continue
		}
		w := p.world(g.in)
		w.files++
		p.next[g.in] = w
		if why := w.add(g.Loaded); why != "" && p.kept[g.home] == nil {
			p.twice(g.home, g.in, g.Loaded, why)
		}
	}
	if p.opts.Validate {
		p.sharing()
	}
}

// world returns what a group is to be, which is nothing at first.
func (p *plan) world(name string) world {
	w, ok := p.next[name]
	if !ok && p.kept[name] == nil {
		w = world{types: map[string]*content{}}
		p.next[name] = w
	}
	return w
}

// in returns the groups of a resource in a file of a group.
func (p *plan) in(l Loaded, home string) (in []string) {
	if l.elsewhere == nil {
		return []string{home}
	}
	for i, name := range l.elsewhere.names {
		if !p.layout.some && !p.layout.knows(name) {
			q := l.elsewhere.at[i]
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

// twice notes that a resource cannot be in a group, because of another one.
func (p *plan) twice(home, in string, l Loaded, why string) {
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

// review shows Review what is about to be committed, and adds what it adds.
func (p *plan) review() error {
	if p.opts.Review == nil {
		return nil
	}
	var all []Loaded
	for _, f := range p.order {
		if p.kept[p.layout.group(f.path)] == nil {
			all = append(all, p.files[f.path].loaded...)
		}
	}
	for name := range p.kept {
		if was := p.parts[name]; was != nil {
			all = append(all, was.world.all()...)
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
		for _, in := range p.in(l, p.layout.group(l.File)) {
			if w, ok := p.next[in]; ok {
				w.add(l)
			}
		}
	}
	return err
}

// removals refuses what looks like a part of what the files should say.
func (p *plan) removals() error {
	p.lost = map[string]map[string]loss{}
	for name, next := range p.next {
		was := p.parts[name]
		if was == nil {
			continue
		}
		lost := was.removals.losses(p.now, was.world, next)
		p.lost[name] = lost
		if why := was.removals.refuse(lost, was.world, next, !was.begun); why != "" && !p.approve {
			p.refuse(name, why)
		}
	}
	slices.Sort(p.refusals)
	return nil
}
