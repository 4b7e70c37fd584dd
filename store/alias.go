package store

import (
	"fmt"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// clashes returns an error if one of a resource's names finds another of the
// table, too: "names and aliases" both match a subscription, so whoever asked
// would be told of two. Collections have many members, and are no aliases.
func clashes(t *xds.Table, r *xds.Resource) error {
	for _, a := range r.Aliases {
		if other := t.Lookup(a); other != nil && other.Name != r.Name {
			return fmt.Errorf("%q is an alias of %q and the name of another resource", a, r.Name)
		}
		if other := aliased(t, a, r.Name); other != "" {
			return fmt.Errorf("%q is an alias of both %q and %q", a, min(r.Name, other), max(r.Name, other))
		}
	}
	if other := aliased(t, r.Name, r.Name); other != "" {
		return fmt.Errorf("%q is an alias of %q and the name of another resource", r.Name, other)
	}
	return nil
}

// aliased returns the name of a resource that has the alias and is another than
// r; "" if none has.
func aliased(t *xds.Table, alias, r string) string {
	for other := range t.Aliased(alias).All() {
		if other.Name != r && slices.Contains(other.Aliases, alias) {
			return other.Name
		}
	}
	return ""
}
