package xds

import (
	"slices"
	"strings"
	"time"
)

// A Type is one row of the table of resource types. Everything the server does
// differently for one type than for another is a column here.
//
// Types are compared by URL ([Type.Is]): a type that the table does not list
// has no unique row.
type Type struct {
	URL   string // "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	Short string // "CDS", "CDSv2"; the message's name for types the table does not list

	// The service of its own. "" where there is none: then the type can be had
	// over ADS only.
	Service string // "envoy.service.cluster.v3.ClusterDiscoveryService"
	Stream  string // "StreamClusters"
	Delta   string // "DeltaClusters"
	Fetch   string // "FetchClusters"
	REST    string // "/v3/discovery:clusters"
	Proto   string // file that declares Service: "envoy/service/cluster/v3/cds.proto"

	// Name is the field of the message that holds the resource's name; "" where
	// only the protocol's Resource wrapper can say it.
	Name string

	// FullState: "for LDS and CDS resources, the server must return all
	// resources that the client has subscribed to in each [SotW response]".
	FullState bool

	// Implicit: a first request without names subscribes to "*". It holds for
	// the types of the text and those nobody knows; Envoy reopens the others
	// with an empty list after a reconnect and must not be flooded.
	Implicit bool

	// After is the type whose flight holds back resources that refer to it; nil
	// if resources of this type wait for nothing. ADS only.
	After *Type

	// Warms is the type of the resources without which the client does not
	// accept resources of this type: each time one of these is sent on an
	// aggregated stream, what it refers to is sent after it. Nil for most.
	Warms *Type

	// AbsenceDelay is, by user agent, how long the absence of a name never sent before
	// is kept from a delta client that would not survive being told (Envoy
	// stays initialising for ever).
	AbsenceDelay map[string]time.Duration

	// Parent is the type whose names are the first part of names of this type:
	// "route/host". On an aggregated stream a wildcard covers what is under the
	// names that the stream subscribes to of that type. Nil for most.
	Parent *Type

	// BodylessAbsence are the user agents that, on delta streams, take a Resource
	// without body for "does not exist" and are harmed by removed_resources.
	BodylessAbsence []string

	// V2 is set for types of the API before v3.
	V2 bool

	rank       int     // push order: the index in the table
	referredBy []*Type // who may refer to resources of this type
}

const apis = "type.googleapis.com/"

// The rows, in the order in which responses leave when one commit changes
// several types ("make before break").
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
		FullState: true, Implicit: true, After: Cluster,
	}
	ScopedRoute = &Type{
		URL: apis + "envoy.config.route.v3.ScopedRouteConfiguration", Short: "SRDS", Name: "name",
		Service: "envoy.service.route.v3.ScopedRoutesDiscoveryService", Proto: "envoy/service/route/v3/srds.proto",
		Stream: "StreamScopedRoutes", Delta: "DeltaScopedRoutes", Fetch: "FetchScopedRoutes", REST: "/v3/discovery:scoped-routes",
		// The text names listeners and clusters only. Seen with Envoy 1.40: scopes
		// that a response lacks are dropped.
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
		// Seen with Envoy 1.40: a request that waits for a virtual host hangs when
		// told removed_resources, and is answered 404 at once by the other.
		BodylessAbsence: []string{"envoy"},
	}
	Runtime = &Type{
		URL: apis + "envoy.service.runtime.v3.Runtime", Short: "RTDS", Name: "name",
		Service: "envoy.service.runtime.v3.RuntimeDiscoveryService", Proto: "envoy/service/runtime/v3/rtds.proto",
		Stream: "StreamRuntime", Delta: "DeltaRuntime", Fetch: "FetchRuntime", REST: "/v3/discovery:runtime",
	}

	types = []*Type{Cluster, Endpoint, LbEndpoint, Secret, ExtensionConfig, Listener, ScopedRoute, Route, VirtualHost, Runtime}
)

// Seen with Envoy 1.40: told at start-up that a route configuration or an
// extension configuration does not exist, it stays initialising for ever. Its
// own timeout for a missing one is 15 s.
var envoyStarts = map[string]time.Duration{"envoy": 20 * time.Second}

func init() {
	for i, t := range types {
		t.rank = i
	}
	Cluster.Warms = Endpoint
	Endpoint.Warms = LbEndpoint // seen with Envoy 1.40: it waits 15 s for endpoints that a locality names
	// Who may refer to whom decides what is withdrawn last: a resource leaves
	// when every type that may refer to it has moved on.
	//
	// A filter that comes as an extension config names clusters and secrets as it
	// would in its listener.
	//
	// Invariant: no type refers to itself, not by way of others either: two
	// would wait for each other. So it is not said that an aggregate cluster
	// refers to clusters; nor that clusters, routes and extension configs refer to
	// extension configs, as upstream filters and the composite filter do.
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

// Types returns the rows of the table in push order.
func Types() []*Type { return slices.Clone(types) }

// TypeOf returns the row of a type URL, also one of v2 ([Type.Legacy]). A URL
// that the table does not list gets a row of its own, served over ADS after all
// others.
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

// Known reports whether the table lists the type. It does not list nil.
func (t *Type) Known() bool { return t.Rank() < len(types) }

// Rank is the type's place in the push order; lower ranks are sent first. Types that the table
// does not list, and nil, come after all others.
func (t *Type) Rank() int {
	if t == nil {
		return len(types)
	}
	return t.rank
}

// ReferredBy returns the types whose resources may refer to resources of t:
// the ones that must have moved on before a resource of t is withdrawn. It
// must not be changed. Nothing refers to resources of a nil type.
func (t *Type) ReferredBy() []*Type {
	if t == nil {
		return nil
	}
	return t.referredBy
}

// String returns the short name, "no type" for nil.
func (t *Type) String() string {
	if t == nil {
		return "no type"
	}
	return t.Short
}
