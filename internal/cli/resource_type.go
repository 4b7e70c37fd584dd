package cli

import (
	"fmt"
	"strings"

	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	"github.com/chancery-xds/chancery/xds"
)

// APITypes begins the URLs of all types.
const APITypes = "type.googleapis.com/"

// typeNames are what people call a type: cds, Cluster, clusters. The words are those of its
// message and of its path in REST.
func typeNames(t *xds.Type) []string {
	_, rest, _ := strings.Cut(t.REST, ":")
	names := []string{t.Short, t.URL[strings.LastIndexByte(t.URL, '.')+1:]}
	if rest != "" {
		names = append(names, rest)
	}
	return names
}

// word is a name as names are compared: without case, plural and separators.
func word(name string) string {
	return strings.TrimSuffix(strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name)), "s")
}

// ParseType returns the type that is called so: by its short name, its message's name, the
// plural, or its URL.
func ParseType(name string) (*xds.Type, error) {
	if url := strings.TrimPrefix(name, APITypes); strings.Contains(url, ".") {
		return xds.TypeOf(APITypes + url), nil
	}
	var all []string
	for _, t := range xds.Types() {
		for _, n := range typeNames(t) {
			if word(n) == word(name) {
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

// ParseTypeAndName returns what TYPE/NAME says; without a name, it is "".
func ParseTypeAndName(arg string) (*xds.Type, string, error) {
	rest, of := strings.CutPrefix(arg, APITypes)
	typ, name, _ := strings.Cut(rest, "/")
	if of {
		typ = APITypes + typ
	}
	t, err := ParseType(typ)
	return t, name, err
}

// ParseResource is typeAndName of an argument that names one resource.
func ParseResource(arg string) (*xds.Type, string, error) {
	t, name, err := ParseTypeAndName(arg)
	if err == nil && name == "" {
		err = fmt.Errorf("%q names no resource: want TYPE/NAME", arg)
	}
	return t, name, err
}

// TypeInPath is a type in a path of the admin API: its short name, or its URL if it has none.
func TypeInPath(t *xds.Type) string {
	switch {
	case t == nil:
		return ""
	case t.Known():
		return t.Short
	}
	return t.URL
}
