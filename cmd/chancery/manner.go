package main

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/server"
)

// A manner is what chancery serve is told of how to speak to its clients.
type manner struct {
	grace          time.Duration
	forceTTL       bool
	resourceErrors bool
	v2             bool
}

func (m *manner) flags(f *pflag.FlagSet) {
	f.DurationVar(&m.grace, "removal-grace", 5*time.Second, "`time` for which a stream of a single type keeps what others may still refer to; 0: none")
	f.BoolVar(&m.forceTTL, "force-ttl", false, "tell delta clients TTLs though they do not say that they know them")
	f.BoolVar(&m.resourceErrors, "resource-errors", false, "tell of names that do not exist in resource_errors, too")
	f.BoolVar(&m.v2, "legacy-v2", false, "serve the methods of v2, too, and resources of v2 as the files have them; else one is a mistake")
}

// check returns an error of usage.
func (m *manner) check() error {
	return timeFlag{"removal-grace", m.grace, 0, longest}.check()
}

// options are what the server is told of it.
func (m *manner) options() []server.Option {
	o := []server.Option{server.WithRemovalGrace(m.grace)}
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
