package wire

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/chancery-xds/chancery/xds"
)

// Refs returns the resources an encoded resource refers to, as far as they can
// be read without generated code: the assignment of a Cluster, the collections
// of endpoints of a ClusterLoadAssignment. What stands in other fields may refer
// to anything ([xds.Wildcard]), but for those that cannot. For other types, and
// for a body that cannot be read and a nil type, it returns nil: not known.
func Refs(t *xds.Type, name string, body []byte) []xds.Ref {
	read := clusterRefs
	switch {
	case t == nil || t.Warms == nil:
		return nil
	case t.Is(xds.Endpoint):
		read = assignmentRefs
	}
	list := refList{[]xds.Ref{}}
	if err := read(&list, t, name, body); err != nil {
		return nil
	}
	return list.refs
}

// refList is a list of references without doubles.
type refList struct{ refs []xds.Ref }

func (l *refList) add(t *xds.Type, name string) {
	for _, r := range l.refs {
		if r.Type.Is(t) && r.Name == name {
			return
		}
	}
	l.refs = append(l.refs, xds.Ref{Type: t, Name: name})
}

// plain are the fields of envoy.config.cluster.v3.Cluster, and of
// envoy.api.v2.Cluster, in which no message names a resource or holds a
// google.protobuf.Any: name, timeouts, limits, policies of balancing without
// extensions, DNS, the options of protocols. And these with a reason:
// load_assignment (33), whose endpoints are static, and metadata (25), which is
// read when a cluster was chosen. Other fields are not looked into.
const plain = 1<<1 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<9 | 1<<10 | 1<<14 |
	1<<16 | 1<<17 | 1<<18 | 1<<20 | 1<<22 | 1<<23 | 1<<25 | 1<<26 | 1<<27 | 1<<28 |
	1<<29 | 1<<30 | 1<<31 | 1<<32 | 1<<33 | 1<<34 | 1<<37 | 1<<39 | 1<<44 | 1<<45 | 1<<46 | 1<<47 | 1<<49 |
	1<<51 | 1<<52 | 1<<53 | 1<<54 | 1<<56 | 1<<57 | 1<<58 | 1<<60

func clusterRefs(list *refList, t *xds.Type, name string, body []byte) error {
	const (
		discoveryType = 2  // enum, oneof with …
		clusterType   = 38 // … a message
		edsConfig     = 3
		loadReports   = 42

		edsSource      = 1
		edsServiceName = 2
		discoveryEDS   = 3
	)
	var discovery int32
	var service, custom, eds, opaque bool
	assignment := name // "Optional alternative to cluster name to present to EDS."
	for len(body) > 0 {
		f, rest, err := next(body)
		if err != nil {
			return err
		}
		body = rest
		switch {
		case f.num == discoveryType && f.typ == protowire.VarintType:
			discovery, custom = int32(f.varint), false
		case f.num == clusterType && f.typ == protowire.BytesType:
			discovery, custom, opaque = 0, true, true
			if known, err := knownCluster(f.data); err != nil {
				return err
			} else if !known {
				list.add(t.Warms, xds.Wildcard)
			}
		case f.num == edsConfig && f.typ == protowire.BytesType:
			eds = true
			for b := f.data; len(b) > 0; {
				if f, b, err = next(b); err != nil {
					return err
				}
				switch {
				case f.typ != protowire.BytesType:
				case f.num == edsServiceName:
					assignment, service = string(f.data), len(f.data) > 0
				case f.num == edsSource && !ownSource(f.data):
					opaque = true
				}
			}
		case f.num == loadReports && f.typ == protowire.BytesType:
			opaque = opaque || !ownSource(f.data)
		case f.num > 63 || plain>>f.num&1 == 0:
			opaque = true
		}
	}
	if !service {
		assignment = name
	}
	if discovery == discoveryEDS || custom && eds {
		list.add(t.Warms, xds.CanonicalName(assignment))
	}
	if opaque {
		list.any(t)
	}
	return nil
}

// knownCluster reports whether a CustomClusterType is one of Envoy's, which have
// no assignments.
func knownCluster(b []byte) (known bool, err error) {
	const typedConfig, typeURL = 2, 1
	err = within(b, typedConfig, func(b []byte) error {
		return within(b, typeURL, func(b []byte) error {
			url := string(b)
			known = strings.HasPrefix(url, "type.googleapis.com/envoy.extensions.clusters.") && !strings.Contains(url, ".dynamic_modules.")
			return nil
		})
	})
	return known, err
}

// any adds what an extension in a cluster of type t may refer to: secrets,
// clusters such as those of an aggregate one, filters.
func (l *refList) any(t *xds.Type) {
	for _, u := range []*xds.Type{xds.Cluster, xds.Secret, xds.ExtensionConfig} {
		if t.V2 {
			u = u.Legacy()
		}
		if u != nil {
			l.add(u, xds.Wildcard)
		}
	}
}

// ownSource reports whether a ConfigSource leads to the server that the
// resource around it is from, over the same stream: not to a file, nor to a
// server that is a cluster.
func ownSource(b []byte) bool {
	const file, server, watchedFile = 1, 2, 8
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil || f.num == file || f.num == server || f.num == watchedFile {
			return false
		}
		b = rest
	}
	return true
}

func assignmentRefs(list *refList, t *xds.Type, _ string, body []byte) error {
	const endpoints, collection, collectionName = 2, 8, 2
	return within(body, endpoints, func(b []byte) error {
		return within(b, collection, func(b []byte) error {
			// Not the name of one resource, but of all that it has.
			list.add(t.Warms, xds.Wildcard)
			return within(b, collectionName, func(b []byte) error {
				list.add(t.Warms, xds.CanonicalName(string(b)))
				return nil
			})
		})
	})
}

// within calls look with each value of a field of bytes.
func within(b []byte, num protowire.Number, look func([]byte) error) error {
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return err
		}
		if b = rest; f.num == num && f.typ == protowire.BytesType {
			if err := look(f.data); err != nil {
				return err
			}
		}
	}
	return nil
}
