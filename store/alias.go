package store

import (
	"fmt"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// nameConflict returns an error if a name or alias of r also finds another resource of the table. A
// subscription matches "names and aliases", so a client that asks for this name or alias would get
// two resources. The name of a collection is not an alias: it may match many resources.
func nameConflict(t *xds.Table, r *xds.Resource) error {
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

// aliased returns the name of a resource other than r that has the alias, or "".
func aliased(t *xds.Table, alias, r string) string {
	for other := range t.Aliased(alias).All() {
		if other.Name != r && slices.Contains(other.Aliases, alias) {
			return other.Name
		}
	}
	return ""
}
