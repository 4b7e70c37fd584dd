package xds

import (
	"slices"
	"strings"
)

// A name of the scheme xdstp is a URN:
//
//	xdstp://AUTHORITY/TYPE/ID?KEY=VALUE&KEY=VALUE
//
// with context parameters in any order, and IDs that end with "/*" for the
// collection of all resources in that place (xRFC TP1).
const scheme = "xdstp:"

// CanonicalName returns the form in which names are compared: the context
// parameters of an xdstp URN in the order of their keys. Other names are what
// they are.
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

// Collection returns the name of the collection that a resource of the type
// with that name belongs to, or "" if it belongs to none: "xdstp://a/t/x/*?k=v"
// for "xdstp://a/t/x/y?k=v", and "route/*" for the virtual host "route/host".
func (t *Type) Collection(name string) string {
	path, context, start := name, "", 0
	switch {
	case strings.HasPrefix(name, scheme):
		start = len(scheme + "//")
		if path, context, _ = splitURN(name); context != "" {
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

// IsCollection reports whether a name is that of an xdstp collection, such as
// "xdstp://a/t/x/*?k=v": it subscribes to resources, and is none's name.
func IsCollection(name string) bool {
	path, _, _ := splitURN(name)
	return strings.HasPrefix(name, scheme) && strings.HasSuffix(path, "/*")
}

// splitURN returns the parts of a URN: what is before "?", between it and "#",
// and from "#" on.
func splitURN(name string) (path, context, directives string) {
	path = name
	if i := strings.IndexByte(path, '#'); i >= 0 {
		path, directives = path[:i], path[i:]
	}
	path, context, _ = strings.Cut(path, "?")
	return path, context, directives
}
