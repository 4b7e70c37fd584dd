package importer

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	"github.com/chancery-xds/chancery/internal/envoy/refs"
	"github.com/chancery-xds/chancery/xds"
)

// dumps lists the paths to the resources in each part of a config_dump, by the part's type. A "|"
// separates alternatives; the first one present counts. Static resources are left out, because the
// bootstrap has them too.
var dumps = map[string][]string{
	"ClustersConfigDump":     {"dynamic_active_clusters.cluster", "dynamic_warming_clusters.cluster"},
	"ListenersConfigDump":    {"dynamic_listeners.active_state.listener|dynamic_listeners.warming_state.listener"},
	"RoutesConfigDump":       {"dynamic_route_configs.route_config"},
	"ScopedRoutesConfigDump": {"dynamic_scoped_route_configs.scoped_route_configs"},
	"EndpointsConfigDump":    {"dynamic_endpoint_configs.endpoint_config"},
	"SecretsConfigDump":      {"dynamic_active_secrets.secret", "dynamic_warming_secrets.secret"},
	"EcdsConfigDump":         {"ecds_filters.ecds_filter"},
}

// dump reads a config_dump.
func (im *importer) dump(s *source, n *yaml.Node) bool {
	configs := protoyaml.Get(n, "configs")
	if configs == nil || configs.Kind != yaml.SequenceNode {
		s.Report(n, "", "", "the config_dump has no list \"configs\"")
		return true
	}
	im.isConfigDump = true
	before := len(im.entries)
	had := map[string]bool{}
	for _, c := range configs.Content {
		url := protoyaml.Get(c, "@type")
		if url == nil {
			continue
		}
		kind := strings.TrimPrefix(url.Value, apis+"envoy.admin.v3.")
		if kind == "BootstrapConfigDump" {
			if b := protoyaml.Get(c, "bootstrap"); b != nil {
				forgetBuild(b)
				im.bootstrap(s, b)
			}
			continue
		}
		for _, path := range dumps[kind] {
			listed, _, _ := strings.Cut(path, ".")
			for _, one := range items(protoyaml.Get(c, listed)) {
				for choice := range strings.SplitSeq(path, "|") {
					_, below, _ := strings.Cut(choice, ".")
					if found := items(follow(one, below)); len(found) > 0 {
						for _, r := range found {
							if kind == "EndpointsConfigDump" {
								im.forgetHealth(r)
								im.dumpedEndpoints = true
							}
							im.addOnce(s, r, had)
						}
						break
					}
				}
			}
		}
	}
	for _, e := range im.entries[before:] {
		e.walk(im.Types, sortMaps)
	}
	if im.boot != nil {
		walk(im.Types, im.boot, im.Types.New(bootstrapName).Descriptor(), "", sortMaps)
	}
	switch {
	case im.boot != nil:
	case len(im.entries) > before: // a server's dump has no bootstrap
		im.note("the config_dump has no bootstrap, and none is written: if it is an Envoy's own, request all of /config_dump, without resource= or mask=")
	default:
		s.Report(n, "", "request all of /config_dump, without resource= or mask=", "the config_dump has no bootstrap")
	}
	return true
}

// sortMaps sorts the keys of a message's map fields and Structs, because Envoy writes them in another
// order after each start. So equal resources of two Envoys become equal files.
func sortMaps(n *yaml.Node, md protoreflect.MessageDescriptor, _ string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		fd := protoyaml.Field(md, n.Content[i].Value)
		if fd == nil {
			continue
		}
		value := fd
		if fd.IsMap() {
			value = fd.MapValue()
		}
		m := value.Message()
		isStruct := m != nil && m.ParentFile().Path() == "google/protobuf/struct.proto"
		if fd.IsMap() || isStruct {
			sortKeys(n.Content[i+1], isStruct)
		}
	}
}

// sortKeys sorts the keys of a mapping, and with deep those of all mappings inside.
func sortKeys(n *yaml.Node, deep bool) {
	if n.Kind == yaml.MappingNode {
		pairs := slices.SortedStableFunc(slices.Chunk(n.Content, 2), func(a, b []*yaml.Node) int { return strings.Compare(a[0].Value, b[0].Value) })
		n.Content = slices.Concat(pairs...)
	}
	if deep {
		for _, c := range n.Content {
			sortKeys(c, deep)
		}
	}
}

// addOnce adds a resource unless the dump has had it: a warming resource may be active too.
func (im *importer) addOnce(s *source, r *yaml.Node, had map[string]bool) {
	before := len(im.entries)
	im.single(s, r)
	if len(im.entries) == before {
		return
	}
	e := im.entries[before]
	if had[key(e.typ, e.name)] {
		im.entries = im.entries[:before]
	}
	had[key(e.typ, e.name)] = true
}

// follow returns the node at a path of mapping keys; nil if it is missing.
func follow(n *yaml.Node, path string) *yaml.Node {
	for key := range strings.SplitSeq(path, ".") {
		n = protoyaml.Get(n, key)
		if n == nil {
			return nil
		}
	}
	return n
}

// items returns the items of a list, or a single node as a list of one.
func items(n *yaml.Node) []*yaml.Node {
	switch {
	case n == nil:
		return nil
	case n.Kind == yaml.SequenceNode:
		return n.Content
	}
	return []*yaml.Node{n}
}

// dropUnusedEndpoints leaves out endpoints that no cluster requests by EDS. Envoy dumps the endpoints
// of all clusters from a server, including addresses that it resolved by DNS.
func (im *importer) dropUnusedEndpoints() {
	if !im.dumpedEndpoints {
		return
	}
	asked := map[string]bool{}
	for _, e := range im.entries {
		if e.typ.Is(xds.Endpoint) {
			continue
		}
		if m := e.message(); m != nil {
			for _, r := range refs.Of(im.Types, m) {
				if r.Type.Is(xds.Endpoint) {
					asked[r.Name] = true
				}
			}
		}
	}
	if !asked[xds.Wildcard] {
		im.entries = slices.DeleteFunc(im.entries, func(e *entry) bool { return e.typ.Is(xds.Endpoint) && !asked[e.name] })
	}
}

// forgetHealth removes the health that Envoy observed, and a weight of 0, which Envoy refuses in a
// resource.
func (im *importer) forgetHealth(n *yaml.Node) {
	seen := false
	for _, locality := range items(protoyaml.Get(n, "endpoints")) {
		if w := protoyaml.Get(locality, "load_balancing_weight"); w != nil && w.Value == "0" {
			*locality = *without(locality, "load_balancing_weight")
		}
		for _, endpoint := range items(protoyaml.Get(locality, "lb_endpoints")) {
			seen = seen || protoyaml.Get(endpoint, "health_status") != nil
			*endpoint = *without(endpoint, "health_status")
		}
	}
	if seen && !im.healthDropped {
		im.healthDropped = true
		im.note("the health of endpoints is left out: it is what Envoy observed")
	}
}

// forgetBuild removes the fields that Envoy itself adds to its node.
func forgetBuild(bootstrap *yaml.Node) {
	for i := 0; i+1 < len(bootstrap.Content); i += 2 {
		if bootstrap.Content[i].Value != "node" {
			continue
		}
		n := without(bootstrap.Content[i+1], "user_agent_name", "user_agent_version", "user_agent_build_version", "extensions", "client_features", "dynamic_parameters")
		bootstrap.Content[i+1] = n
		if len(n.Content) == 0 {
			bootstrap.Content = append(bootstrap.Content[:i], bootstrap.Content[i+2:]...)
		}
		return
	}
}
