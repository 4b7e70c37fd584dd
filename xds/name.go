package xds

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A name of the scheme xdstp is a URN:
//
//	xdstp://AUTHORITY/TYPE/ID?KEY=VALUE&KEY=VALUE
//
// The context parameters after "?" may come in any order. An ID that ends with "/*" names the collection
// of all resources under that path (xRFC TP1).
const scheme = "xdstp:"

// CanonicalName returns the form in which names are compared. For an xdstp URN it decodes each component
// after the authority, encodes it as Envoy does in its requests, and sorts the context parameters by key. Of two parameters
// with one key, the first counts. CanonicalName returns other names unchanged.
func CanonicalName(name string) string {
	if !strings.HasPrefix(name, scheme) {
		return name
	}
	path, context, directives := splitURN(name)
	authority := len(path)
	if i := strings.IndexByte(path[min(len(scheme+"//"), len(path)):], '/'); i >= 0 {
		authority = len(scheme+"//") + i
	}
	path = path[:authority] + recode(path[authority:], "%?#[]")
	if context == "" {
		return path + directives
	}
	params := map[string]string{}
	for param := range strings.SplitSeq(context, "&") {
		key, value, _ := strings.Cut(param, "=")
		key = recode(key, "%#[]&=")
		if _, twice := params[key]; !twice {
			params[key] = recode(value, "%#[]&=")
		}
	}
	separator := "?"
	for _, key := range slices.Sorted(maps.Keys(params)) {
		path += separator + key + "=" + params[key]
		separator = "&"
	}
	return path + directives
}

// recode decodes a component of a URN, and encodes the reserved characters, control characters, "~" and
// everything beyond ASCII, as Envoy 1.40 does. A "%" without two hexadecimal digits stands for itself.
func recode(component, reserved string) string {
	plain := func(c byte) bool { return c >= ' ' && c < '~' && strings.IndexByte(reserved, c) < 0 }
	for i := 0; ; i++ {
		if i == len(component) {
			return component
		}
		if !plain(component[i]) {
			break
		}
	}
	var b strings.Builder
	for i := 0; i < len(component); i++ {
		c := component[i]
		if c == '%' && i+2 < len(component) {
			n, err := strconv.ParseUint(component[i+1:i+3], 16, 8)
			if err == nil {
				c, i = byte(n), i+2
			}
		}
		if plain(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
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
