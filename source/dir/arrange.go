package dir

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/text"
)

// arrange assigns directories to groups, and makes the rules. A group keeps its last definition if it is
// rejected, or if its file is gone or cannot be read.
func (p *plan) arrange() {
	last := &p.Source.layout
	p.layout = layout{roots: last.roots, filesByName: last.filesByName, dirs: map[string]*definition{}, named: map[string]*definition{}}
	defs := map[string]*definition{} // by directory
	for _, f := range p.order {
		if !isGroupFile(f.path) {
			continue
		}
		dir := filepath.Dir(f.path)
		if d := p.definition(dir, p.files[f.path]); d != nil {
			defs[dir] = d
		}
	}
	p.keepDefinitions(defs)
	p.define(defs)
	p.addInvalid(defs)
	if p.checking || !p.layout.same(last) || p.Source.rules == nil || !slices.Equal(p.neverLoaded(), p.Source.neverLoaded) {
		p.decide(defs)
		return
	}
	p.rules = p.Source.rules
}

// definition returns the new or the last definition for the group file of a directory; nil if there is none.
func (p *plan) definition(dir string, f *file) *definition {
	last := &p.Source.layout
	d := f.definition
	if len(f.errs) > 0 {
		d = nil
	}
	if d != nil && p.keepsLast(d.Name) && last.named[d.Name] != nil {
		d = last.named[d.Name] // the definition may be of another directory
	}
	if was := last.dirs[dir]; was != nil && (d == nil || p.keepsLast(was.Name)) {
		d = was
	}
	return d
}

// keepsLast reports whether a group is rejected, and was loaded before.
func (p *plan) keepsLast(group string) bool {
	return p.rejections[group] != nil && p.parts[group] != nil
}

// keepDefinitions adds the last definitions of groups that have none any more and still have
// resources. It refuses to remove these groups until the removal is approved.
func (p *plan) keepDefinitions(defs map[string]*definition) {
	defined := map[string]bool{} // names of groups
	for _, d := range defs {
		defined[d.Name] = true
	}
	for dir, was := range p.Source.layout.dirs {
		d := defs[dir]
		switch {
		case d != nil && d.Name == was.Name, defined[was.Name]:
			continue
		}
		part := p.parts[was.Name]
		if part == nil || p.approve || was.Name == groups.Default || len(part.content.types) == 0 {
			continue
		}
		defs[dir] = was
		if p.rejections[was.Name] == nil {
			p.layout.named[was.Name] = was
			p.refuse(was.Name, p.vanished(was))
		}
	}
}

// vanished returns the reason for refusing to remove a group.
func (p *plan) vanished(d *definition) string {
	n := 0
	for _, c := range p.parts[d.Name].content.types {
		n += len(c.at)
	}
	if f := p.files[filepath.Join(d.dir, GroupFile)]; f != nil && f.definition != nil {
		return fmt.Sprintf("it has another name now in %s, %q, and nodes that have %d resources of it", f.definition.File, f.definition.Name, n)
	}
	return fmt.Sprintf("%s is gone, with a group of %s", filepath.Join(d.dir, GroupFile), text.Amount(n, "resource"))
}

// define sets the definitions of the layout. If the root has none, but other directories do, it adds
// one.
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

// addInvalid adds a definition for each group file with an error that has no last definition. Without it the
// resources of the group would be in the group of the directory above, and would cause errors that are wrong.
// The error rejects the load. The exception is a directory above with "on_error: alone": then its group gets
// the blame.
func (p *plan) addInvalid(defs map[string]*definition) {
	names := map[string]string{} // of groups, by directory
	for _, q := range p.scanErrors {
		if isGroupFile(q.File) {
			names[filepath.Dir(q.File)] = ""
		}
	}
	for _, f := range p.order {
		if isGroupFile(f.path) && len(p.files[f.path].errs) > 0 {
			names[filepath.Dir(f.path)] = p.files[f.path].groupName
		}
	}
	maps.DeleteFunc(names, func(dir, _ string) bool {
		return defs[dir] != nil || slices.Contains(p.layout.roots, dir) || p.alone(p.layout.group(dir))
	})
	for _, dir := range slices.Sorted(maps.Keys(names)) {
		name := names[dir]
		if name == "" || p.isTaken(name) {
			name = p.layout.name(dir)
		}
		if p.isTaken(name) {
			continue
		}
		d := &definition{Definition: groups.Definition{Name: name, File: filepath.Join(dir, GroupFile)}, dir: dir, invalid: true}
		defs[dir] = d
		p.layout.add(dir, d)
	}
	if len(names) > 0 && p.layout.named[groups.Default] == nil {
		p.layout.named[groups.Default] = rootless
	}
}

// isTaken reports whether an invalid group file cannot have a name.
func (p *plan) isTaken(name string) bool {
	return name == groups.Default || p.layout.named[name] != nil || p.Source.layout.named[name] != nil || p.rejections[name] != nil || strings.HasSuffix(name, groups.LaneSuffix)
}

// rootless is the definition of a root without a group file.
var rootless = &definition{Definition: groups.Definition{Name: groups.Default}}

// decide makes the rules from the definitions.
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
		case q.Code == findings.UnusedGroup && slices.ContainsFunc(all, func(d groups.Definition) bool { return p.layout.invalid(d.Name) }):
			// an invalid group may include the group
		case q.Warning:
			q.Group = name
			p.warnings = append(p.warnings, q)
		case p.rejectedBefore[name]: // its last definition conflicts with a new one of another group
			p.fatal = append(p.fatal, q)
		default:
			p.blame(name, q)
		}
	}
	p.rules = rules
}

// neverLoaded returns the names of the rejected groups that were never loaded, if other groups are served.
// No client has resources of them. The rules leave them out until they are loaded, and nodes that
// match them keep their other groups.
func (p *plan) neverLoaded() (names []string) {
	if p.checking || !p.loadedOnce && len(p.parts) == 1 && len(p.home.content.types) == 0 { // nothing was ever served
		return nil
	}
	for name := range p.rejections {
		if p.parts[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// owner returns the group that gets the blame for the definition in a directory. If the file changes
// its name to that of another group, the group of the old name gets the blame.
func (p *plan) owner(defs map[string]*definition, dir string) string {
	if was := p.Source.layout.dirs[dir]; was != nil && p.parts[was.Name] != nil {
		return was.Name
	}
	if d := defs[dir]; d != nil {
		return d.Name
	}
	return p.layout.group(dir)
}

// definitions returns each definition once. Groups with "on_error: alone" come last: if two groups
// have the same name, the second one gets the error.
func (p *plan) definitions(defs map[string]*definition) []groups.Definition {
	var first, last []groups.Definition
	seen, unready := map[*definition]bool{}, p.neverLoaded()
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
