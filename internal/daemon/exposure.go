package daemon

import (
	"cmp"
	"slices"

	"github.com/chancery-xds/chancery/internal/cli/dirload"
)

// exposed returns how other machines or programs could read what the listeners send. They could read
// plain text on the network, or connect where no certificate is required. A unix socket is protected
// by the mode of its file.
func exposed(f *listenFlags, r *restFlags) dirload.Exposure {
	if at := cmp.Or(f.plain(), r.plain(f)); at != "" {
		return dirload.Exposure{Way: "over the network in plain text, from " + at, Remedy: "--tls-cert, --tls-key and --client-ca"}
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
			return dirload.Exposure{Way: "to every client that connects to " + a.String(), Remedy: "--client-ca"}
		}
	}
	return dirload.Exposure{}
}
