package xds

import (
	"slices"
	"strings"
)

// A name of the scheme xdstp is a URN:
//
//	xdstp://AUTHORITY/TYPE/ID?KEY=VALUE&KEY=VALUE
//
// The context parameters after "?" may come in any order. An ID that ends with "/*" names the collection
// of all resources under that path (xRFC TP1).
const scheme = "xdstp:"

// CanonicalName returns the form in which names are compared. For an xdstp URN it sorts the context
// parameters by key. It returns other names unchanged.
func CanonicalName(name string) string {
	if !strings.HasPrefix(name, scheme) {
		return name
	}
	path, context, directives := splitURN(name)
	if params := strings.Split(context, "&"); len(params) > 1 && !slices.IsSorted(params) {
		slices.Sort(params)
		return path + "?" + strings.Join(params, "&") + directives
	}
	return name
}

// Collection returns the collection to which a resource of the type with this name belongs, or "" if it
// belongs to none. For "xdstp://a/t/x/y?k=v" it is "xdstp://a/t/x/*?k=v", and for the virtual host
// "route/host" it is "route/*".
func (t *Type) Collection(name string) string {
	path, context, start := name, "", 0
	switch {
	case strings.HasPrefix(name, scheme):
		start = len(scheme + "//")
		path, context, _ = splitURN(name)
		if context != "" {
			context = "?" + context
		}
	case t == nil || t.Parent == nil:
		return ""
	}
	i := strings.LastIndexByte(path, '/')
	if i < start || path[i:] == "/*" {
		return ""
	}
	return path[:i] + "/*" + context
}

// IsCollection reports whether a name is the name of an xdstp collection, such as
// "xdstp://a/t/x/*?k=v". A client can subscribe to a collection, but a resource cannot have its
// name.
func IsCollection(name string) bool {
	path, _, _ := splitURN(name)
	return strings.HasPrefix(name, scheme) && strings.HasSuffix(path, "/*")
}

// splitURN returns the parts of a URN: the part before "?", the part between "?" and "#", and the part
// from "#" on.
func splitURN(name string) (path, context, directives string) {
	path = name
	if i := strings.IndexByte(path, '#'); i >= 0 {
		path, directives = path[:i], path[i:]
	}
	path, context, _ = strings.Cut(path, "?")
	return path, context, directives
}
