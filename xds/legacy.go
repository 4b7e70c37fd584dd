package xds

// The API before v3 has messages of its own for most types, and services with
// methods of the same names. "The xDS wire protocol has a transport version
// associated with it": v2's messages are encoded like v3's, field by field.
//
// A type of v2 is a type of its own: who asks for it gets what is stored under
// its URL, and nothing is translated. In all else it is like the type of v3: its
// row differs in these columns.
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

// legacy are the rows of v2, by the row of v3.
var legacy = map[*Type]*Type{}

// addLegacy makes them.
func addLegacy() {
	for _, l := range legacyRows {
		t := *l.of
		t.URL, t.Service, t.Proto, t.REST = apis+l.url, l.service, l.file, ""
		t.Short, t.V2 = t.Short+"v2", true // two types of one name would be one where they are counted
		legacy[l.of] = &t
	}
	for _, t := range legacy {
		t.After, t.Parent, t.Warms = legacy[t.After], legacy[t.Parent], legacy[t.Warms]
		by := t.referredBy
		t.referredBy = nil
		for _, u := range by {
			if u = legacy[u]; u != nil {
				t.referredBy = append(t.referredBy, u)
			}
		}
	}
}

// Legacy returns the row of the same type of v2, nil if v2 had none.
func (t *Type) Legacy() *Type { return legacy[t] }
