package fair

import (
	"net"
	"net/netip"
)

// Owner says whose a connection from an address is: the address's without its port; of
// IPv6 the network of 64 bits, which one machine may have for itself; and for a unix
// socket, "unix".
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
		if p, err := ip.Prefix(64); err == nil { // which has no zone
			return p.String()
		}
	}
	return ip.String()
}
