package cli

import (
	"fmt"
	"strings"

	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	"github.com/chancery-xds/chancery/xds"
)

// APITypes is the prefix of all type URLs.
const APITypes = "type.googleapis.com/"

// typeNames returns the names that a user may write for a type, such as CDS, Cluster and clusters. They
// come from the name of the type's message and from the type's REST path.
func typeNames(t *xds.Type) []string {
	_, rest, _ := strings.Cut(t.REST, ":")
	names := []string{t.Short, t.URL[strings.LastIndexByte(t.URL, '.')+1:]}
	if rest != "" {
		names = append(names, rest)
	}
	return names
}

// normalize returns a name in the form for comparisons: lower case, singular, without separators.
func normalize(name string) string {
	return strings.TrimSuffix(strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name)), "s")
}

// ParseType returns the type with a name: its short name, the name of its message, the plural, or its URL.
func ParseType(name string) (*xds.Type, error) {
	if url := strings.TrimPrefix(name, APITypes); strings.Contains(url, ".") {
		return xds.TypeOf(APITypes + url), nil
	}
	var all []string
	for _, t := range xds.Types() {
		for _, n := range typeNames(t) {
			if normalize(n) == normalize(name) {
				return t, nil
			}
			all = append(all, strings.ToLower(n))
		}
	}
	err := fmt.Errorf("%q is not a type: write cds, clusters, lds, listeners, … or a URL, %senvoy.config.cluster.v3.Cluster", name, APITypes)
	near := protoyaml.Nearest(strings.ToLower(name), func(yield func(string) bool) {
		for _, n := range all {
			if !yield(n) {
				return
			}
		}
	})
	if near != "" {
		err = fmt.Errorf("%q is not a type: did you mean %s?", name, near)
	}
	return nil, err
}

// ParseTypeAndName parses TYPE/NAME or TYPE. In the second case, the returned name is "".
func ParseTypeAndName(arg string) (*xds.Type, string, error) {
	rest, of := strings.CutPrefix(arg, APITypes)
	typ, name, _ := strings.Cut(rest, "/")
	if of {
		typ = APITypes + typ
	}
	t, err := ParseType(typ)
	return t, name, err
}

// ParseResource is ParseTypeAndName for an argument that must name a resource.
func ParseResource(arg string) (*xds.Type, string, error) {
	t, name, err := ParseTypeAndName(arg)
	if err == nil && name == "" {
		err = fmt.Errorf("%q does not name a resource: want TYPE/NAME", arg)
	}
	return t, name, err
}

// TypeInPath returns a type in the form for a path of the admin API: its short name, else its URL.
func TypeInPath(t *xds.Type) string {
	switch {
	case t == nil:
		return ""
	case t.Known():
		return t.Short
	}
	return t.URL
}
