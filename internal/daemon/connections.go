package daemon

import (
	"cmp"
	"log/slog"
	"net"
	"sync/atomic"

	"github.com/chancery-xds/chancery/internal/daemon/procmetrics"
	"github.com/chancery-xds/chancery/internal/listen"
	"github.com/chancery-xds/chancery/internal/logs/dedup"
)

// raiseFiles makes room for as many clients as the system allows.
func raiseFiles(log *slog.Logger) listen.Files {
	files, err := listen.RaiseFiles()
	if err != nil {
		log.Warn("cannot raise the limit of open files", "error", err)
	}
	return files
}

// moreFiles says how to have more of them.
const moreFilesHint = "raise the hard limit: LimitNOFILE= of systemd, ulimit -Hn"

// connections returns the limits of connections: of clients on all listeners
// together, and of who asks for health and metrics, who have a quarter of the files
// that are kept back from clients. It says how many clients there may be.
func connectionLimits(log *slog.Logger, most int, files listen.Files, m *procmetrics.Metrics) (clients, probes *listen.Limit) {
	asked := most
	if room := files.Clients(); most == 0 || room > 0 && most > room {
		most = room
	}
	switch {
	case files.Few():
		log.Warn("the limit of open files is low: it limits how many clients can connect", "files", files.Soft, "clients", most, "hint", moreFilesHint)
	case files.Soft != 0:
		log.Info("limit of open files", "files", files.Soft, "clients", most)
	}
	if asked > most {
		log.Warn("--max-connections was lowered to what the limit of open files allows", "asked", asked, "clients", most, "hint", moreFilesHint)
	}
	clients, probes = listen.NewLimit(most), listen.NewLimit(files.Reserve()/4)
	var closed atomic.Uint64
	tell := logTooMany(log, "of clients", most)
	clients.Closed = func(peer net.Addr) { closed.Add(1); tell(peer) }
	probes.Closed = logTooMany(log, "for health and metrics", files.Reserve()/4)
	m.Connections(clients.Open, closed.Load)
	return clients, probes
}

// crowd returns what logs that connections are closed: at once, and then every 10 s how
// many more were. The goroutines that accept call it.
func logTooMany(log *slog.Logger, what string, most int) func(peer net.Addr) {
	var lines dedup.Counter
	return func(peer net.Addr) {
		tell := func(more ...any) {
			log.Warn("too many connections: closed one from the address with the most",
				append([]any{"connections", what, "open", most, "peer", cmp.Or(peer.String(), "unix")}, more...)...)
		}
		if lines.Allow("", what, 1, func(n int, _ []string) { tell("repeated", n) }) {
			tell()
		}
	}
}
