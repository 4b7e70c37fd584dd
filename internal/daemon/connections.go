package daemon

import (
	"cmp"
	"log/slog"
	"net"
	"sync/atomic"

	"github.com/chancery-xds/chancery/internal/daemon/procmetrics"
	"github.com/chancery-xds/chancery/internal/listen"
	"github.com/chancery-xds/chancery/internal/logs/dedup"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
)

// raiseFiles raises the limit of open files to the hard limit, so that more clients can connect.
func raiseFiles(log *slog.Logger) listen.Files {
	files, err := listen.RaiseFiles()
	if err != nil {
		log.Warn("cannot raise the limit of open files", "error", err)
	}
	return files
}

// moreFilesHint tells an operator how to raise the limit of open files.
const moreFilesHint = "raise the hard limit: LimitNOFILE= of systemd, ulimit -Hn"

// connectionLimits returns two limits of connections, and logs how many clients can connect. One
// limit is for clients, over all listeners; its default fits into the memory. The other is for
// health and metrics: a quarter of the open files that clients cannot use.
func connectionLimits(log *slog.Logger, most, memory int, files listen.Files, m *procmetrics.Metrics) (clients, probes *listen.Limit) {
	requested := most
	if most == 0 {
		most = memory
	}
	if room := files.Clients(); room > 0 && most > room {
		most = room
	}
	switch {
	case files.Few():
		log.Warn("the limit of open files is low: it limits how many clients can connect", "files", files.Soft, "clients", most, "hint", moreFilesHint)
	case files.Soft != 0:
		log.Info("limit of open files", "files", files.Soft, "clients", most)
	}
	if requested > most {
		log.Warn("--max-connections was lowered to what the limit of open files allows", "asked", requested, "clients", most, "hint", moreFilesHint)
	}
	clients, probes = listen.NewLimit(most), listen.NewLimit(files.Reserve()/4)
	var closed atomic.Uint64
	warn := logTooMany(log, "of clients", most)
	clients.Closed = func(peer net.Addr) { closed.Add(1); warn(peer) }
	probes.Closed = logTooMany(log, "for health and metrics", files.Reserve()/4)
	m.Connections(clients.Open, closed.Load)
	return clients, probes
}

// A settler tells the limit of connections which ones belong to clients that answer (SAFE-14).
type settler struct{ clients *listen.Limit }

// Opened implements [server.Observer].
func (s settler) Opened(*server.Stream) {}

// Event implements [server.Observer].
func (s settler) Event(st *server.Stream, e protocol.Event) {
	if e.Kind == protocol.Acked || e.Kind == protocol.Nacked {
		s.clients.Settle(st.Peer)
	}
}

// Closed implements [server.Observer].
func (s settler) Closed(st *server.Stream, err error) {
	if st.Poll && err == nil { // the poll was answered
		s.clients.Settle(st.Peer)
	}
}

// CodesOnly implements [server.CodesOnly].
func (s settler) CodesOnly() {}

// logTooMany returns a function that logs closed connections: the first at once, and then every 10 s
// the number of further ones. The accepting goroutines call it.
func logTooMany(log *slog.Logger, kind string, most int) func(peer net.Addr) {
	var lines dedup.Counter
	return func(peer net.Addr) {
		warn := func(more ...any) {
			log.Warn("too many connections: closed one from the address with the most",
				append([]any{"connections", kind, "open", most, "peer", cmp.Or(peer.String(), "unix")}, more...)...)
		}
		if lines.Allow("", kind, 1, func(n int, _ []string) { warn("repeated", n) }) {
			warn()
		}
	}
}
