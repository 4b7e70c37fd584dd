package main

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"sync/atomic"

	"github.com/chancery-xds/chancery/internal/listen"
	"github.com/chancery-xds/chancery/internal/metrics"
	"github.com/chancery-xds/chancery/internal/repeats"
)

// raiseFiles makes room for as many clients as the system allows.
func (s *serving) raiseFiles() listen.Files {
	files, err := listen.RaiseFiles()
	if err != nil {
		s.log.Warn("the limit of open files stays", "error", err)
	}
	return files
}

// connections returns the limits of connections: of clients on all listeners
// together, and of who asks for health and metrics, who have a quarter of the files
// that are kept back from clients. It says how many clients there may be.
func (s *serving) connections(files listen.Files, m *metrics.Metrics) (clients, probes *listen.Limit) {
	most := s.limits.connections
	if room := files.Clients(); most == 0 || room > 0 && most > room {
		most = room
	}
	if files.Soft != 0 {
		level := slog.LevelInfo
		if files.Few() {
			level = slog.LevelWarn
		}
		s.log.Log(context.Background(), level, "limit of open files", "files", files.Soft, "clients", most)
	}
	clients, probes = listen.NewLimit(most), listen.NewLimit(files.Reserve()/4)
	var closed atomic.Uint64
	tell := s.crowd("of clients", most)
	clients.Closed = func(peer net.Addr) { closed.Add(1); tell(peer) }
	probes.Closed = s.crowd("for health and metrics", files.Reserve()/4)
	m.Connections(clients.Open, closed.Load)
	return clients, probes
}

// crowd returns what logs that connections are closed: at once, and then every 10 s how
// many more were. The goroutines that accept call it.
func (s *serving) crowd(what string, most int) func(peer net.Addr) {
	var lines repeats.Counter
	return func(peer net.Addr) {
		tell := func(repeated int, _ []string) {
			s.log.Warn("too many connections: one was closed, of the address that has most",
				"connections", what, "open", most, "peer", cmp.Or(peer.String(), "unix"), "repeated", repeated)
		}
		if lines.Say("", what, 1, tell) {
			tell(0, nil)
		}
	}
}
