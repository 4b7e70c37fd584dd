package daemon

import (
	"cmp"
	"slices"

	"github.com/chancery-xds/chancery/internal/cli/dirload"
)

// exposed returns how others could read what the listeners send. They could read plain text on the network,
// or connect themselves where no certificate is required. The mode of its file protects a unix socket.
func exposed(f *listenFlags, r *restFlags) dirload.Exposure {
	if at := cmp.Or(f.plain(), r.plain(f)); at != "" {
		return dirload.Exposure{Way: "over the network in plain text, from " + at, Mend: "--tls-cert, --tls-key and --client-ca"}
	}
	if f.tls.ClientCA != "" {
		return dirload.Exposure{}
	}
	all := f.parsed
	if r.address != "" {
		all = append(slices.Clip(all), r.parsed)
	}
	for _, a := range all {
		if !a.Loopback() {
			return dirload.Exposure{Way: "to every client that connects to " + a.String(), Mend: "--client-ca"}
		}
	}
	return dirload.Exposure{}
}
