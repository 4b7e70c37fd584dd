package fair

import (
	"net"
	"net/netip"
)

// Owner returns the owner of a connection from an address: the IP address without the port. For IPv6 it is
// the network of 64 bits, since one machine may have all its addresses. For a unix socket it is "unix".
func Owner(a net.Addr) string {
	if a == nil {
		return ""
	}
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return a.Network()
	}
	ip := ap.Addr().Unmap()
	if ip.Is6() {
		if p, err := ip.Prefix(64); err == nil { // a prefix has no zone
			return p.String()
		}
	}
	return ip.String()
}
