package dircommit

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/disk/lastgood"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/xds"
)

// Config returns the directory content that would be committed as this snapshot; it is the reverse of
// [Items]. With it, a served revision is saved to disk and explained in the same way as a served
// directory.
func Config(s *revisions.Snapshot, at time.Time) dir.LastGood {
	c := dir.LastGood{At: at, Mark: s.Mark()}
	by := map[string]map[string]*lastgood.Type{groups.Default: {}}
	for it := range s.All {
		k := it.Key()
		if by[k.Group] == nil {
			by[k.Group] = map[string]*lastgood.Type{}
		}
		if k.Type == "" {
			c.Definitions = append(c.Definitions, lastgood.Definition{Path: definitionPath(it), Data: it.Definition})
			continue
		}
		t := by[k.Group][k.Type]
		if t == nil {
			t = &lastgood.Type{Type: xds.TypeOf(k.Type)}
			by[k.Group][k.Type] = t
		}
		if it.Resource == nil {
			t.Version = it.Version
			continue
		}
		t.Resources = append(t.Resources, lastgood.Resource{Resource: it.Resource, File: it.Place.File, Line: it.Place.Line, Col: it.Place.Col, Path: it.Place.Path, Secret: it.Secret})
	}
	slices.SortFunc(c.Definitions, func(a, b lastgood.Definition) int { return cmp.Compare(a.Path, b.Path) })
	for _, group := range slices.Sorted(maps.Keys(by)) {
		var types []lastgood.Type
		for _, url := range slices.Sorted(maps.Keys(by[group])) {
			t := by[group][url]
			slices.SortFunc(t.Resources, func(a, b lastgood.Resource) int { return strings.Compare(a.Name, b.Name) })
			types = append(types, *t)
		}
		if group == groups.Default {
			c.Types = types
		} else {
			c.Groups = append(c.Groups, lastgood.Group{Name: group, Types: types})
		}
	}
	return c
}

// definitionPath is the path of a group's definition in the directory. If the item has no such path,
// it is a path that would make the file a definition of this group.
func definitionPath(it *revisions.Item) string {
	if def, _ := groups.Parse(it.Place.File, it.Definition); it.Place.File != "" && cmp.Or(def.Name, groupOf(it.Place.File)) == it.Group {
		return it.Place.File
	}
	if it.Group == groups.Default {
		return dir.GroupFile
	}
	return path.Join(it.Group, dir.GroupFile)
}

// groupOf is the group to which a definition's path belongs.
func groupOf(file string) string {
	if d := path.Dir(file); d != "." {
		return d
	}
	return groups.Default
}
