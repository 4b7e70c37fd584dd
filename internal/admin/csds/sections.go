package csds

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/xds"
)

// A section describes one section of a config_dump: the resources of one type, as items of a list.
type section struct {
	typ     *xds.Type
	message protoreflect.FullName // message of the section
	version bool                  // the section has the version of the type

	active  protoreflect.Name // list of resources that the client uses
	warming protoreflect.Name // list of the resources that the client does not use yet; "": the list active has these, too
	item    protoreflect.FullName

	body  protoreflect.Name // field with the resource, in an item or in the state of an item
	state bool              // the resource is in a field of the item: "active_state" or "warming_state"
	named bool              // an item has a name
}

const admin = "envoy.admin.v3."

// sections has all sections of a config_dump. A config_dump has no other types.
var sections = []section{
	{
		typ: xds.Cluster, message: admin + "ClustersConfigDump", version: true,
		active: "dynamic_active_clusters", warming: "dynamic_warming_clusters", item: admin + "ClustersConfigDump.DynamicCluster", body: "cluster",
	},
	{
		typ: xds.Endpoint, message: admin + "EndpointsConfigDump",
		active: "dynamic_endpoint_configs", item: admin + "EndpointsConfigDump.DynamicEndpointConfig", body: "endpoint_config",
	},
	{
		typ: xds.Secret, message: admin + "SecretsConfigDump",
		active: "dynamic_active_secrets", warming: "dynamic_warming_secrets", item: admin + "SecretsConfigDump.DynamicSecret", body: "secret", named: true,
	},
	{
		typ: xds.ExtensionConfig, message: admin + "EcdsConfigDump",
		active: "ecds_filters", item: admin + "EcdsConfigDump.EcdsFilterConfig", body: "ecds_filter",
	},
	{
		typ: xds.Listener, message: admin + "ListenersConfigDump", version: true,
		active: "dynamic_listeners", item: admin + "ListenersConfigDump.DynamicListener", body: "listener", state: true, named: true,
	},
	{
		typ: xds.ScopedRoute, message: admin + "ScopedRoutesConfigDump",
		active: "dynamic_scoped_route_configs", item: admin + "ScopedRoutesConfigDump.DynamicScopedRouteConfigs", body: "scoped_route_configs", named: true,
	},
	{
		typ: xds.Route, message: admin + "RoutesConfigDump",
		active: "dynamic_route_configs", item: admin + "RoutesConfigDump.DynamicRouteConfig", body: "route_config",
	},
}

// in returns the name of the list for a resource; "" if no list can show it.
func (c *section) in(r *Resource) protoreflect.Name {
	if !c.named && r.Body == nil && r.refused() == nil { // without a body, an item of such a list has no name
		return ""
	}
	if c.warming != "" && !r.used() {
		return c.warming
	}
	return c.active
}

// used reports whether the client uses the body of r.
func (r *Resource) used() bool { return r.State == Synced || r.State == Leaving || r.keeps() }

// fill sets the fields of an item. The server has only the current version of a resource, and the
// version that a quarantine keeps. So the answer lacks an older version that the client still has.
func (c *section) fill(m protoreflect.Message, r *Resource, body, refused *content) {
	if c.named {
		set(m, "name", r.Name)
	}
	set(m, "client_status", r.clientStatus())
	failure(m, r, refused)
	if r.State == Refused && !r.keeps() || r.State == Absent {
		return
	}
	if c.state {
		in := protoreflect.Name("warming_state")
		if r.used() {
			in = "active_state"
		}
		m = m.Mutable(m.Descriptor().Fields().ByName(in)).Message()
	}
	set(m, "version_info", r.version())
	set(m, c.body, body)
	set(m, "last_updated", r.Updated)
}
