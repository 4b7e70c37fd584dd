package dir

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/groups"
)

// GroupFile is the name of the file that makes its directory, and all directories below, a group of
// nodes. There is only one spelling, so that a listing of the directory shows whether it is a group.
const GroupFile = "group.yaml"

func isGroupFile(path string) bool { return filepath.Base(path) == GroupFile }

// A definition is a group as its file defines it.
type definition struct {
	groups.Definition
	dir     string // the directory of the file
	raw     []byte // the content of the file
	invalid bool   // the file has an error: the definition has a name only; see plan.addInvalid
}

// A layout maps directories to groups. It does not change once made.
type layout struct {
	roots       []string               // directories of the group groups.Default
	dirs        map[string]*definition // by directory
	named       map[string]*definition // by name; includes groups.Default if there is any
	filesByName bool                   // some files were given by their names, so their groups are unknown
}

func newLayout(roots ...string) layout {
	l := layout{dirs: map[string]*definition{}, named: map[string]*definition{}}
	for _, root := range roots {
		l.roots = append(l.roots, filepath.Clean(root))
	}
	return l
}

// add adds a definition for a directory: the present or the former directory of its file.
func (l *layout) add(dir string, d *definition) {
	l.dirs[dir] = d
	l.named[d.Name] = d
}

// group returns the group of a file or directory.
func (l *layout) group(path string) string {
	if d := l.definition(path); d != nil {
		return d.Name
	}
	return groups.Default
}

// definition returns the definition of the group of a file or directory; nil: its group file is missing.
func (l *layout) definition(path string) *definition {
	if len(l.dirs) == 0 {
		return nil
	}
	for path != "" {
		if d := l.dirs[path]; d != nil {
			return d
		}
		up := filepath.Dir(path)
		if up == path || slices.Contains(l.roots, path) {
			break
		}
		path = up
	}
	return nil
}

// duplicate reports whether the group of a file has the name of the group of another directory.
func (l *layout) duplicate(path string) bool {
	d := l.definition(path)
	return d != nil && l.named[d.Name] != d
}

// name returns the default name of the group of a directory.
func (l *layout) name(dir string) string {
	for _, root := range l.roots {
		rel, err := filepath.Rel(root, dir)
		switch {
		case err != nil || !filepath.IsLocal(rel):
		case rel == ".":
			return groups.Default
		default:
			return filepath.ToSlash(rel)
		}
	}
	return filepath.Base(dir)
}

// define parses a group file.
func (l *layout) define(path string, data []byte) (*definition, []findings.Problem) {
	def, problems := groups.Parse(path, data)
	d := &definition{Definition: def, dir: filepath.Dir(path), raw: data}
	root := slices.Contains(l.roots, d.dir)
	switch {
	case root && d.Name != "" && d.Name != groups.Default:
		problems = append(problems, findings.Problem{File: path, Code: findings.GroupName, Message: fmt.Sprintf("name: the group of the root is %q, and has no other name", groups.Default)})
	case d.Name == "":
		d.Name = l.name(d.dir)
	}
	if !root && d.Name == groups.Default {
		problems = append(problems, findings.Problem{File: path, Code: findings.GroupName, Message: fmt.Sprintf("name: only the group of the root is called %q", groups.Default), Hint: "give this one another name"})
	}
	return d, problems
}

// invalid reports whether the group file of a group has an error.
func (l *layout) invalid(name string) bool { return l.named[name] != nil && l.named[name].invalid }

// knows reports whether a group exists.
func (l *layout) knows(name string) bool { return name == groups.Default || l.named[name] != nil }

// together computes which groups a node may get at the same time.
func (l *layout) together() *groups.Overlap {
	all := make([]groups.Definition, 0, len(l.named))
	for _, d := range l.named {
		all = append(all, d.Definition)
	}
	return groups.NewOverlap(all)
}

// definitions returns all definitions, by name.
func (l *layout) definitions() []*definition {
	all := make([]*definition, 0, len(l.named))
	for _, d := range l.named {
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b *definition) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// same reports whether two layouts have the same definitions.
func (l *layout) same(other *layout) bool {
	if len(l.named) != len(other.named) || len(l.dirs) != len(other.dirs) {
		return false
	}
	for dir, d := range l.dirs {
		if other.dirs[dir] != d {
			return false
		}
	}
	return true
}

// byGroup sorts names of groups, the root's first.
func byGroup(a, b string) int {
	switch {
	case a == b:
		return 0
	case a == groups.Default:
		return -1
	case b == groups.Default:
		return 1
	}
	return strings.Compare(a, b)
}
