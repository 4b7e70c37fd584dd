package dir

import (
	"fmt"
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A groupContent has all resources of the files of one group. It does not change once assembled.
type groupContent struct {
	files int
	types map[string]*typeContent // by URL
}

// A typeContent has all resources of one type.
type typeContent struct {
	typ     *xds.Type
	at      map[string]Loaded // by name
	aliases map[string]Loaded // by alias; nil: none
	version string            // the version_info of the response; "": computed from the content
	first   Loaded
}

// add adds a resource. If its name or an alias is already taken, it returns the reason as why.
func (w groupContent) add(l Loaded) (why string) {
	c := w.types[l.Type.URL]
	if c == nil {
		c = &typeContent{typ: l.Type, at: map[string]Loaded{}, version: l.version, first: l}
		w.types[l.Type.URL] = c
	}
	if other, twice := c.at[l.Name]; twice {
		return fmt.Sprintf("%s %q is already at %s", l.Type, l.Name, other.Pos)
	}
	if other, taken := c.aliases[l.Name]; taken {
		return fmt.Sprintf("%s %q is already an alias of %q at %s", l.Type, l.Name, other.Name, other.Pos)
	}
	for _, alias := range l.Aliases {
		if other, taken := c.at[alias]; taken {
			return fmt.Sprintf("%s %q: its alias %q is already the name of the one at %s", l.Type, l.Name, alias, other.Pos)
		}
		if other, taken := c.aliases[alias]; taken {
			return fmt.Sprintf("%s %q: its alias %q is already an alias of %q at %s", l.Type, l.Name, alias, other.Name, other.Pos)
		}
	}
	c.at[l.Name] = l
	for _, alias := range l.Aliases {
		if c.aliases == nil {
			c.aliases = map[string]Loaded{}
		}
		if alias != l.Name { // an alias may be equal to the name
			c.aliases[alias] = l
		}
	}
	// The version_info of a response is the version of the type only if the response has all resources
	// of the type.
	if c.first.File != l.File || c.first.doc != l.doc {
		c.version = ""
	}
	return ""
}

// replace writes next to a group that had w. It writes only the difference: resources of unchanged
// files stay the same objects, and resources that other programs put into the group stay.
func (w groupContent) replace(tx *store.Tx, next groupContent) {
	for url, c := range w.types {
		if next.types[url] == nil {
			tx.Delete(c.typ, slices.Collect(maps.Keys(c.at))...)
			tx.Version(c.typ, "")
		}
	}
	for url, c := range next.types {
		set, gone := c.since(w.types[url])
		tx.Set(set...)
		tx.Delete(c.typ, gone...)
		tx.Version(c.typ, c.version)
	}
}

// since returns the resources that c has and was lacks, and the names that was has and c lacks; was
// may be nil.
func (c *typeContent) since(was *typeContent) (set []*xds.Resource, gone []string) {
	if was == nil {
		was = &typeContent{}
	}
	if was == c {
		return nil, nil
	}
	for name, l := range c.at {
		if was.at[name].Resource != l.Resource {
			set = append(set, l.Resource)
		}
	}
	return set, was.gone(c)
}
