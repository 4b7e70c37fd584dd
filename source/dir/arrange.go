package dir

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/groups"
)

// arrange finds which directory is of which group, and the rules. A group that is kept has its
// last definition, and so has one whose file cannot be read or is gone.
func (p *plan) arrange() {
	last := &p.Source.layout
	p.layout = layout{roots: last.roots, some: last.some, dirs: map[string]*definition{}, named: map[string]*definition{}}
	defs, twice := map[string]*definition{}, map[string]bool{}
	for _, f := range p.order {
		if !isGroupFile(f.path) {
			continue
		}
		dir := filepath.Dir(f.path)
		d := p.files[f.path].definition
		if len(p.files[f.path].errs) > 0 {
			d = nil
		}
		if d != nil && p.kept[d.Name] != nil && p.parts[d.Name] != nil && last.named[d.Name] != nil {
			d = last.named[d.Name] // wherever it stands now
		}
		if was := last.dirs[dir]; was != nil && (d == nil || p.kept[was.Name] != nil && p.parts[was.Name] != nil) {
			d = was
		}
		if d != nil {
			defs[dir] = d
			twice[d.Name] = true
		}
	}
	for dir, was := range last.dirs {
		if d := defs[dir]; d == was || d == nil && twice[was.Name] || d != nil && (d.Name == was.Name || twice[was.Name]) {
			continue
		}
		if part := p.parts[was.Name]; part == nil || p.approve || was.Name == groups.Default || len(part.world.types) == 0 {
			continue
		}
		defs[dir] = was // until somebody says that it is meant
		if p.kept[was.Name] == nil {
			p.layout.named[was.Name] = was
			p.refuse(was.Name, p.vanished(was))
		}
	}
	p.define(defs)
	if p.checking || !p.layout.same(last) || p.Source.rules == nil || !slices.Equal(p.unready(), p.Source.unready) {
		p.decide(defs)
		return
	}
	p.rules = p.Source.rules
}

// vanished says what is gone of a group.
func (p *plan) vanished(d *definition) string {
	n := 0
	for _, c := range p.parts[d.Name].world.types {
		n += len(c.at)
	}
	if f := p.files[filepath.Join(d.dir, GroupFile)]; f != nil && f.definition != nil {
		return fmt.Sprintf("it has another name now in %s, %q, and nodes that have %d resources of it", f.definition.File, f.definition.Name, n)
	}
	return fmt.Sprintf("%s is gone, with a group of %d resources", filepath.Join(d.dir, GroupFile), n)
}

// define takes the definitions up. The root's is made if there are only others.
func (p *plan) define(defs map[string]*definition) {
	clear(p.layout.named)
	for dir, d := range defs {
		p.layout.dirs[dir] = d
		if other := p.layout.named[d.Name]; other == nil || dir < other.dir {
			p.layout.named[d.Name] = d
		}
	}
	if len(defs) > 0 && p.layout.named[groups.Default] == nil {
		p.layout.named[groups.Default] = rootless
	}
}

// rootless is the definition of a root without a file.
var rootless = &definition{Definition: groups.Definition{Name: groups.Default}}

// decide makes the rules.
func (p *plan) decide(defs map[string]*definition) {
	if len(defs) == 0 && p.Source.rules == nil {
		return
	}
	all := p.definitions(defs)
	if d := p.layout.named[p.opts.Group]; d != nil && p.opts.Group != groups.Default {
		p.blame(d.Name, findings.Problem{File: d.File, Code: findings.GroupName, Message: fmt.Sprintf("the group %q of the store is that of the root", p.opts.Group)})
	}
	rules, problems := groups.New(all, groups.Options{CEL: p.opts.CEL})
	for _, q := range problems {
		name := p.owner(defs, filepath.Dir(q.File))
		switch {
		case q.Warning:
			q.Group = name
			p.warnings = append(p.warnings, q)
		case p.begin[name]: // its last definition does not go with what the others say now
			p.fatal = append(p.fatal, q)
		default:
			p.blame(name, q)
		}
	}
	p.rules = rules
}

// unready returns the names of the groups that are alone with errors and were never loaded, while
// others are served. No client has anything of them: their rules wait until they are loaded, and
// nodes that match them get what they got.
func (p *plan) unready() (names []string) {
	if p.checking || !p.begun && len(p.parts) == 1 && len(p.home.world.types) == 0 { // nothing ever was
		return nil
	}
	for name := range p.kept {
		if p.parts[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// owner returns the group that a definition is blamed on: who gives itself the name of another
// is still the one that it was.
func (p *plan) owner(defs map[string]*definition, dir string) string {
	if was := p.Source.layout.dirs[dir]; was != nil && p.parts[was.Name] != nil {
		return was.Name
	}
	if d := defs[dir]; d != nil {
		return d.Name
	}
	return p.layout.group(dir)
}

// definitions returns each once. Those that are alone with their errors come last: of two that
// have one name the second is wrong.
func (p *plan) definitions(defs map[string]*definition) []groups.Definition {
	var first, last []groups.Definition
	seen, unready := map[*definition]bool{}, p.unready()
	for _, dir := range slices.Sorted(maps.Keys(defs)) {
		d := defs[dir]
		if seen[d] {
			continue
		}
		def := d.Definition
		if slices.Contains(unready, d.Name) {
			def.Match = nil
		}
		if p.alone(p.owner(defs, dir)) {
			last = append(last, def)
		} else {
			first = append(first, def)
		}
		seen[defs[dir]] = true
	}
	return append(first, last...)
}
