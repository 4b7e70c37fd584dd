package daemon

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/server"
)

// clientFlags are the flags for the treatment of clients.
type clientFlags struct {
	grace          time.Duration
	forceTTL       bool
	resourceErrors bool
	v2             bool
	retryRefused   bool
}

func (m *clientFlags) flags(f *pflag.FlagSet) {
	f.DurationVar(&m.grace, "removal-grace", 5*time.Second, "`time` to delay removals on non-aggregated streams (one type each), if the client may have the resources that refer to a removed one on another connection; 0: none")
	f.BoolVar(&m.retryRefused, "retry-refused", true, "send content that a client refused again, with growing delays, because the reason may pass by itself; =false: not until the content changes")
	f.BoolVar(&m.forceTTL, "force-ttl", false, "send TTLs to delta clients even if they do not announce support for them")
	f.BoolVar(&m.resourceErrors, "resource-errors", false, "also report missing resources, in resource_errors")
	f.BoolVar(&m.v2, "legacy-v2", false, "also serve the v2 API, with v2 resources unchanged from the files; without this flag a v2 resource is an error")
}

// check returns a usage error.
func (m *clientFlags) check() error {
	return timeFlag{"removal-grace", m.grace, 0, maxTime}.check()
}

// options returns the options of the xDS server that these flags set.
func (m *clientFlags) options() []server.Option {
	o := []server.Option{server.WithRemovalGrace(m.grace)}
	if m.retryRefused {
		o = append(o, server.WithRetryRefused())
	}
	if m.forceTTL {
		o = append(o, server.WithForcedTTL())
	}
	if m.resourceErrors {
		o = append(o, server.WithResourceErrors())
	}
	if m.v2 {
		o = append(o, server.WithV2())
	}
	return o
}
