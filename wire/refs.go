package wire

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/chancery-xds/chancery/xds"
)

// Refs returns the references of an encoded resource, as far as they can be decoded without generated code. It
// finds the assignment of a Cluster and the endpoint collections of a ClusterLoadAssignment. A Cluster with
// other fields that may contain references gets a reference to [xds.Wildcard]. Refs returns nil, which
// means not known, for other types, for a nil type, and for a body that cannot be decoded. For other
// types see package refs.
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

// refList is a list of references without duplicates.
type refList struct{ refs []xds.Ref }

func (l *refList) add(t *xds.Type, name string) {
	for _, r := range l.refs {
		if r.Type.Is(t) && r.Name == name {
			return
		}
	}
	l.refs = append(l.refs, xds.Ref{Type: t, Name: name})
}

// fieldsWithoutRefs are the fields of envoy.config.cluster.v3.Cluster and envoy.api.v2.Cluster that
// contain neither the name of a resource nor a google.protobuf.Any: name, timeouts, limits, load
// balancing without extensions, DNS and protocol options. The set also has load_assignment (33),
// because its endpoints are static, and metadata (25), because a client reads it only after it has
// chosen the cluster. Fields outside this set are treated as unknown references.
const fieldsWithoutRefs = 1<<1 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<9 | 1<<10 | 1<<14 |
	1<<16 | 1<<17 | 1<<18 | 1<<20 | 1<<22 | 1<<23 | 1<<25 | 1<<26 | 1<<27 | 1<<28 |
	1<<29 | 1<<30 | 1<<31 | 1<<32 | 1<<33 | 1<<34 | 1<<37 | 1<<39 | 1<<44 | 1<<45 | 1<<46 | 1<<47 | 1<<49 |
	1<<51 | 1<<52 | 1<<53 | 1<<54 | 1<<56 | 1<<57 | 1<<58 | 1<<60

func clusterRefs(list *refList, t *xds.Type, name string, body []byte) error {
	const (
		discoveryType = 2  // an enum, in a oneof with clusterType
		clusterType   = 38 // a message
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
				f, b, err = next(b)
				if err != nil {
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
		case f.num > 63 || fieldsWithoutRefs>>f.num&1 == 0:
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
		list.addAny(t)
	}
	return nil
}

// knownCluster reports whether a CustomClusterType is one of Envoy's own. Such a cluster does not
// use assignments, unless it has an eds_cluster_config.
func knownCluster(b []byte) (known bool, err error) {
	const typedConfig, typeURL = 2, 1
	err = eachField(b, typedConfig, func(b []byte) error {
		return eachField(b, typeURL, func(b []byte) error {
			url := string(b)
			known = strings.HasPrefix(url, "type.googleapis.com/envoy.extensions.clusters.") && !strings.Contains(url, ".dynamic_modules.")
			return nil
		})
	})
	return known, err
}

// addAny adds the resources to which an extension in a cluster of type t may refer: clusters, for example of an
// aggregate cluster, secrets and filters.
func (l *refList) addAny(t *xds.Type) {
	for _, u := range []*xds.Type{xds.Cluster, xds.Secret, xds.ExtensionConfig} {
		if t.V2 {
			u = u.Legacy()
		}
		if u != nil {
			l.add(u, xds.Wildcard)
		}
	}
}

// ownSource reports whether a ConfigSource means the same server and stream from which the cluster came. A file
// is another source, and so is a server that the ConfigSource names as a cluster.
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
	return eachField(body, endpoints, func(b []byte) error {
		return eachField(b, collection, func(b []byte) error {
			// The collection refers to all its resources, not to one name.
			list.add(t.Warms, xds.Wildcard)
			return eachField(b, collectionName, func(b []byte) error {
				list.add(t.Warms, xds.CanonicalName(string(b)))
				return nil
			})
		})
	})
}

// eachField passes each bytes field with the given number to look.
func eachField(b []byte, num protowire.Number, look func([]byte) error) error {
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return err
		}
		b = rest
		if f.num == num && f.typ == protowire.BytesType {
			if err := look(f.data); err != nil {
				return err
			}
		}
	}
	return nil
}
