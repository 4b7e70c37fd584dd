package k8s

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// The health of endpoints, in the words of xDS.
const (
	healthy  = "HEALTHY"
	draining = "DRAINING"
)

// endpointsOf returns the endpoints of a port of a service from its slices, in the order of addresses.
//
// "Clients of the EndpointSlice API must iterate through all the existing EndpointSlices associated to a Service and build
// a complete list of unique network endpoints. It is important to mention that endpoints may be duplicated in different EndpointSlices."
// https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/#duplicate-endpoints
func endpointsOf(all []*discovery.EndpointSlice, port, region string, families Families) []api.Endpoint {
	by := map[netip.AddrPort]api.Endpoint{}
	for _, s := range all {
		if s.AddressType == discovery.AddressTypeFQDN || !families.has(s.AddressType) {
			continue
		}
		at, ok := portOf(s, port)
		if !ok {
			continue
		}
		for _, e := range s.Endpoints {
			health := healthOf(e.Conditions)
			if health == "" || len(e.Addresses) == 0 {
				continue
			}
			// "the first address is used": other addresses of an endpoint have no meaning.
			addr, err := netip.ParseAddr(e.Addresses[0])
			if err != nil || addr.Zone() != "" {
				continue
			}
			key := netip.AddrPortFrom(addr, at)
			if old, twice := by[key]; twice && (old.Health == healthy || health == draining) {
				continue
			}
			one := api.Endpoint{Address: addr.String(), Port: int(at), Health: health}
			if e.Zone != nil && *e.Zone != "" {
				one.Locality = &api.Locality{Region: region, Zone: *e.Zone}
			} else if region != "" {
				one.Locality = &api.Locality{Region: region}
			}
			by[key] = one
		}
	}
	out := make([]api.Endpoint, 0, len(by))
	for _, e := range by {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b api.Endpoint) int {
		return cmp.Or(netip.MustParseAddr(a.Address).Compare(netip.MustParseAddr(b.Address)), cmp.Compare(a.Port, b.Port))
	})
	return out
}

// healthOf returns the health of an endpoint in xDS, by its conditions; "": leave it out.
//
// A ready endpoint gets requests. A terminating endpoint that still serves finishes its requests and
// gets no new ones, as Envoy does for DRAINING. Other endpoints are left out, as kube-proxy does.
func healthOf(c discovery.EndpointConditions) string {
	ready := c.Ready == nil || *c.Ready // "A nil value should be interpreted as "true""
	serving := ready
	if c.Serving != nil {
		serving = *c.Serving
	}
	switch {
	case ready:
		return healthy
	case serving && c.Terminating != nil && *c.Terminating:
		return draining
	}
	return ""
}

// portOf returns the number of a port in a slice, by its name or number; "" means the only port. The
// number may differ between slices.
func portOf(s *discovery.EndpointSlice, want string) (uint16, bool) {
	var found []uint16
	for _, p := range s.Ports {
		if p.Port == nil || *p.Port < 1 || *p.Port > 65535 || p.Protocol != nil && *p.Protocol != core.ProtocolTCP {
			continue
		}
		named := p.Name != nil && *p.Name == want && want != ""
		if want == "" || named || strconv.Itoa(int(*p.Port)) == want {
			found = append(found, uint16(*p.Port))
		}
		if named {
			return uint16(*p.Port), true
		}
	}
	if len(found) != 1 {
		return 0, false
	}
	return found[0], true
}

// portNames returns the names of the TCP ports of slices; "" is a port without a name.
func portNames(all []*discovery.EndpointSlice) (names []string) {
	for _, s := range all {
		for _, p := range s.Ports {
			if p.Port == nil || p.Protocol != nil && *p.Protocol != core.ProtocolTCP {
				continue
			}
			name := ""
			if p.Name != nil {
				name = *p.Name
			}
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Families select the addresses of a service with IPv4 and IPv6.
type Families string

// The values of Families.
const (
	Both Families = "" // an endpoint with both addresses counts as two
	IPv4 Families = "ipv4"
	IPv6 Families = "ipv6"
)

func (f Families) has(t discovery.AddressType) bool {
	return f == Both || f == IPv4 && t == discovery.AddressTypeIPv4 || f == IPv6 && t == discovery.AddressTypeIPv6
}
