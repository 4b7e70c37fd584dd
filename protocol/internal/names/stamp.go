package names

import "github.com/chancery-xds/chancery/xds"

// The two told states in which a name has no resource of its own.
var (
	Absent = &xds.Stamp{}          // the name does not exist, or nothing was sent for it yet
	Others = &xds.Stamp{Name: "@"} // the name matches other resources, which are sent under their own names
)

// Stands reports whether a stamp is a resource that the client may hold: not nil, Absent or Others.
// A stamp without a sum is a resource with unknown content: the client holds it from an earlier
// stream.
func Stands(s *xds.Stamp) bool { return s != nil && s != Absent && s != Others }

// Known reports whether a stamp is a resource with known content.
func Known(s *xds.Stamp) bool { return s != nil && s.Sum != xds.Sum{} }

// Same reports whether two stamps are the same state of a name.
func Same(a, b *xds.Stamp) bool { return a == b || Known(a) && Known(b) && a.Sum == b.Sum }
