package xds

import (
	"slices"
	"strings"
	"time"
)

// A Type is one row of the table of resource types. All differences between types that the server must
// know are fields of this row.
//
// Compare types with [Type.Is], which compares URLs. For a URL that the table does not list, [TypeOf]
// returns a new row each time.
type Type struct {
	URL   string // "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	Short string // "CDS", "CDSv2"; for types that the table does not list, the name of the message

	// The service that serves this type only. Fields are empty if the type has no such service or
	// method; then clients get the type over ADS.
	Service string // "envoy.service.cluster.v3.ClusterDiscoveryService"
	Stream  string // "StreamClusters"
	Delta   string // "DeltaClusters"
	Fetch   string // "FetchClusters"
	REST    string // "/v3/discovery:clusters"
	Proto   string // the file that declares Service: "envoy/service/cluster/v3/cds.proto"

	// Name is the field of the message that holds the resource's name. It is empty if the message
	// has no such field; then the protocol's Resource message has the name.
	Name string

	// FullState is true if each SotW response has all subscribed resources: "for LDS and CDS resources, the
	// server must return all resources that the client has subscribed to in each [SotW response]".
	FullState bool

	// Implicit is true if a first request without names subscribes to "*". The xDS protocol specification
	// requires it for some types, and the server does the same for types that the table does not list.
	// Other types need an explicit "*": after a reconnect, Envoy reopens them with an empty list and must
	// not get all.
	Implicit bool

	// After is a type that the client must answer first: a resource of this type waits until the client
	// has answered for the resources of type After that it refers to. Nil if resources of this type do
	// not wait. ADS only.
	After *Type

	// Warms is the type that a client needs before it uses resources of this type. Each time a
	// resource of this type is sent on an aggregated stream, the resources of type Warms to which
	// it refers are sent again afterwards. Nil for most types.
	Warms *Type

	// Binds is true if a client binds addresses for resources of this type ([Stamp.Addresses]). A resource that
	// releases an address is sent before the resource that takes it.
	Binds bool

	// AbsenceDelay is how long the server waits before it reports to a delta client that a name does not
	// exist. The keys are user agents. The delay applies to names of which the client never got a
	// resource. Without the delay, Envoy would never finish its initialization.
	AbsenceDelay map[string]time.Duration

	// Parent is the type whose names are the first part of the names of this type, as in "route/host". On an
	// aggregated stream, a wildcard includes only resources below the parents to which the stream
	// subscribes. Nil for most types.
	Parent *Type

	// BodylessAbsence lists user agents that fail on removed_resources in delta responses. For them the
	// server reports "does not exist" with a Resource without a body.
	BodylessAbsence []string

	// V2 is true for types of API v2.
	V2 bool

	rank       int     // push order: the index in the table
	referredBy []*Type // types that may refer to resources of this type
}

const apis = "type.googleapis.com/"

// The resource types, in push order: when one commit changes several types, their responses are sent in
// this order ("make before break").
var (
	Cluster = &Type{
		URL: apis + "envoy.config.cluster.v3.Cluster", Short: "CDS", Name: "name",
		Service: "envoy.service.cluster.v3.ClusterDiscoveryService", Proto: "envoy/service/cluster/v3/cds.proto",
		Stream: "StreamClusters", Delta: "DeltaClusters", Fetch: "FetchClusters", REST: "/v3/discovery:clusters",
		FullState: true, Implicit: true,
	}
	Endpoint = &Type{
		URL: apis + "envoy.config.endpoint.v3.ClusterLoadAssignment", Short: "EDS", Name: "cluster_name",
		Service: "envoy.service.endpoint.v3.EndpointDiscoveryService", Proto: "envoy/service/endpoint/v3/eds.proto",
		Stream: "StreamEndpoints", Delta: "DeltaEndpoints", Fetch: "FetchEndpoints", REST: "/v3/discovery:endpoints",
	}
	LbEndpoint = &Type{
		URL: apis + "envoy.config.endpoint.v3.LbEndpoint", Short: "LEDS",
		Service: "envoy.service.endpoint.v3.LocalityEndpointDiscoveryService", Proto: "envoy/service/endpoint/v3/leds.proto",
		Delta: "DeltaLocalityEndpoints",
	}
	Secret = &Type{
		URL: apis + "envoy.extensions.transport_sockets.tls.v3.Secret", Short: "SDS", Name: "name",
		Service: "envoy.service.secret.v3.SecretDiscoveryService", Proto: "envoy/service/secret/v3/sds.proto",
		Stream: "StreamSecrets", Delta: "DeltaSecrets", Fetch: "FetchSecrets", REST: "/v3/discovery:secrets",
	}
	ExtensionConfig = &Type{
		URL: apis + "envoy.config.core.v3.TypedExtensionConfig", Short: "ECDS", Name: "name",
		Service: "envoy.service.extension.v3.ExtensionConfigDiscoveryService", Proto: "envoy/service/extension/v3/config_discovery.proto",
		Stream: "StreamExtensionConfigs", Delta: "DeltaExtensionConfigs", Fetch: "FetchExtensionConfigs", REST: "/v3/discovery:extension_configs",
		AbsenceDelay: envoyStarts,
	}
	Listener = &Type{
		URL: apis + "envoy.config.listener.v3.Listener", Short: "LDS", Name: "name",
		Service: "envoy.service.listener.v3.ListenerDiscoveryService", Proto: "envoy/service/listener/v3/lds.proto",
		Stream: "StreamListeners", Delta: "DeltaListeners", Fetch: "FetchListeners", REST: "/v3/discovery:listeners",
		FullState: true, Implicit: true, After: Cluster, Binds: true,
	}
	ScopedRoute = &Type{
		URL: apis + "envoy.config.route.v3.ScopedRouteConfiguration", Short: "SRDS", Name: "name",
		Service: "envoy.service.route.v3.ScopedRoutesDiscoveryService", Proto: "envoy/service/route/v3/srds.proto",
		Stream: "StreamScopedRoutes", Delta: "DeltaScopedRoutes", Fetch: "FetchScopedRoutes", REST: "/v3/discovery:scoped-routes",
		// The xDS protocol specification requires full state of listeners and clusters only. But Envoy 1.40
		// drops scopes that a response does not have.
		FullState: true, Implicit: true, After: Cluster,
	}
	Route = &Type{
		URL: apis + "envoy.config.route.v3.RouteConfiguration", Short: "RDS", Name: "name",
		Service: "envoy.service.route.v3.RouteDiscoveryService", Proto: "envoy/service/route/v3/rds.proto",
		Stream: "StreamRoutes", Delta: "DeltaRoutes", Fetch: "FetchRoutes", REST: "/v3/discovery:routes",
		After: Cluster, AbsenceDelay: envoyStarts,
	}
	VirtualHost = &Type{
		URL: apis + "envoy.config.route.v3.VirtualHost", Short: "VHDS",
		Service: "envoy.service.route.v3.VirtualHostDiscoveryService", Proto: "envoy/service/route/v3/rds.proto",
		Delta: "DeltaVirtualHosts", Implicit: true, After: Cluster, Parent: Route,
		// With Envoy 1.40, an HTTP request that waits for the virtual host hangs after
		// removed_resources. After a Resource without a body, Envoy answers the HTTP request with
		// 404 at once.
		BodylessAbsence: []string{"envoy"},
	}
	Runtime = &Type{
		URL: apis + "envoy.service.runtime.v3.Runtime", Short: "RTDS", Name: "name",
		Service: "envoy.service.runtime.v3.RuntimeDiscoveryService", Proto: "envoy/service/runtime/v3/rtds.proto",
		Stream: "StreamRuntime", Delta: "DeltaRuntime", Fetch: "FetchRuntime", REST: "/v3/discovery:runtime",
	}

	types = []*Type{Cluster, Endpoint, LbEndpoint, Secret, ExtensionConfig, Listener, ScopedRoute, Route, VirtualHost, Runtime}
)

// envoyStarts is longer than 15 s, Envoy's own timeout for a missing resource. If Envoy 1.40 learns
// at start-up that a route or extension configuration does not exist, its initialization never
// ends.
var envoyStarts = map[string]time.Duration{"envoy": 20 * time.Second}

func init() {
	for i, t := range types {
		t.rank = i
	}
	Cluster.Warms = Endpoint
	Endpoint.Warms = LbEndpoint // Envoy 1.40 waits 15 s for the LbEndpoints of a locality
	// referredBy decides the order of removals: a resource is removed after the client has acknowledged
	// the changes of every type that may refer to it.
	//
	// A filter in an extension config refers to clusters and secrets like a filter in a listener.
	//
	// Invariant: no type refers to itself, directly or through other types. Otherwise two types would
	// wait for each other. So the references from clusters and routes to extension configs are left out.
	// References inside a type, as of an aggregate cluster, need no row: each type has them (ADS-10).
	Cluster.referredBy = []*Type{ExtensionConfig, Listener, ScopedRoute, Route, VirtualHost}
	Endpoint.referredBy = []*Type{Cluster}
	LbEndpoint.referredBy = []*Type{Endpoint}
	Secret.referredBy = []*Type{Cluster, ExtensionConfig, Listener}
	ExtensionConfig.referredBy = []*Type{Listener}
	ScopedRoute.referredBy = []*Type{Listener}
	Route.referredBy = []*Type{Listener, ScopedRoute}
	VirtualHost.referredBy = []*Type{Route}
	addLegacy()
}

// Types returns the types of the table in push order.
func Types() []*Type { return slices.Clone(types) }

// TypeOf returns the type with a URL, including types of API v2 ([Type.Legacy]). For a URL that the table does
// not list it returns a new Type, which is served over ADS after all other types.
func TypeOf(url string) *Type {
	for _, t := range types {
		if t.URL == url {
			return t
		}
		if l := legacy[t]; l != nil && l.URL == url {
			return l
		}
	}
	short := url[strings.LastIndexAny(url, "/.")+1:]
	return &Type{URL: url, Short: short, Name: "name", Implicit: true, rank: len(types)}
}

// Is reports whether t and u are the same type.
func (t *Type) Is(u *Type) bool { return t == u || t != nil && u != nil && t.URL == u.URL }

// Known reports whether the table lists the type. For nil it returns false.
func (t *Type) Known() bool { return t.Rank() < len(types) }

// Rank is the position of the type in push order: lower ranks are sent first. Types that the table does not
// list, and nil, come last.
func (t *Type) Rank() int {
	if t == nil {
		return len(types)
	}
	return t.rank
}

// ReferredBy returns the types whose resources may refer to resources of t. A resource of t is
// removed after the changes of these types. The caller must not change the result. For a nil type
// the result is empty.
func (t *Type) ReferredBy() []*Type {
	if t == nil {
		return nil
	}
	return t.referredBy
}

// String returns the short name, or "no type" for nil.
func (t *Type) String() string {
	if t == nil {
		return "no type"
	}
	return t.Short
}
