package xds

// API v2 has its own messages for most types, and its own services with the same method names. "The xDS
// wire protocol has a transport version associated with it": the messages of v2 are encoded like those
// of v3, field by field.
//
// A v2 type is a separate type. A client that subscribes to it gets the resources stored under its URL;
// nothing is translated. Its row is a copy of the v3 row with these columns changed.
var legacyRows = []struct {
	of            *Type
	url           string
	service, file string
}{
	{Cluster, "envoy.api.v2.Cluster", "envoy.api.v2.ClusterDiscoveryService", "envoy/api/v2/cds.proto"},
	{Endpoint, "envoy.api.v2.ClusterLoadAssignment", "envoy.api.v2.EndpointDiscoveryService", "envoy/api/v2/eds.proto"},
	{Secret, "envoy.api.v2.auth.Secret", "envoy.service.discovery.v2.SecretDiscoveryService", "envoy/service/discovery/v2/sds.proto"},
	{Listener, "envoy.api.v2.Listener", "envoy.api.v2.ListenerDiscoveryService", "envoy/api/v2/lds.proto"},
	{ScopedRoute, "envoy.api.v2.ScopedRouteConfiguration", "envoy.api.v2.ScopedRoutesDiscoveryService", "envoy/api/v2/srds.proto"},
	{Route, "envoy.api.v2.RouteConfiguration", "envoy.api.v2.RouteDiscoveryService", "envoy/api/v2/rds.proto"},
	{VirtualHost, "envoy.api.v2.route.VirtualHost", "envoy.api.v2.VirtualHostDiscoveryService", "envoy/api/v2/rds.proto"},
	{Runtime, "envoy.service.discovery.v2.Runtime", "envoy.service.discovery.v2.RuntimeDiscoveryService", "envoy/service/discovery/v2/rtds.proto"},
}

// legacy maps each v3 row to its v2 row.
var legacy = map[*Type]*Type{}

// addLegacy fills legacy.
func addLegacy() {
	for _, l := range legacyRows {
		t := *l.of
		t.URL, t.Service, t.Proto, t.REST = apis+l.url, l.service, l.file, ""
		t.Short, t.V2 = t.Short+"v2", true // metrics use Short, so it must differ from v3
		legacy[l.of] = &t
	}
	for _, t := range legacy {
		t.After, t.Parent, t.Warms = legacy[t.After], legacy[t.Parent], legacy[t.Warms]
		by := t.referredBy
		t.referredBy = nil
		for _, u := range by {
			if v2 := legacy[u]; v2 != nil {
				t.referredBy = append(t.referredBy, v2)
			}
		}
	}
}

// Legacy returns the v2 row of the same resource type, or nil if v2 did not have it.
func (t *Type) Legacy() *Type { return legacy[t] }
