package server

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/chancery-xds/chancery/internal/limit/fair"
	"github.com/chancery-xds/chancery/internal/logs/dedup"
)

// Limits of warnings about clients in the log within 10 s: maxWarned for an address, and
// maxWarnedTotal for all addresses. One more line for each address counts its other warnings.
// Clients that have been connected for longer than longConnected have separate limits with the same
// numbers. So new clients cannot suppress the warnings about old ones.
const (
	maxWarned      = 100
	maxWarnedTotal = 1000
	longConnected  = time.Minute
)

// addressLog limits the warnings that an address causes, whatever their text. Before that,
// [Server.repeats] limits equal warnings. A new address may displace the counter of another
// address. The counter of all addresses has only two keys, so it is never displaced.
type addressLog struct {
	of  dedup.Counter // by address
	all dedup.Counter
}

// logKeys has the keys of a client in the two counters.
type logKeys struct{ of, all string }

func logKeysOf(st *Stream) logKeys {
	host := strconv.FormatUint(st.ID, 10)
	if st.Peer != nil {
		host = fair.Owner(st.Peer)
	}
	if !st.Since.IsZero() && time.Since(st.Since) > longConnected {
		return logKeys{host + " for long", "for long"}
	}
	return logKeys{host, ""}
}

// most returns how many lines an address may have. After half of the lines for all addresses are
// used, an address may have only one, so that a few noisy addresses do not hide the first warning
// of another.
func (c *addressLog) most(who logKeys) int {
	if c.all.Full(who.all, maxWarnedTotal/2) {
		return 1
	}
	return maxWarned
}

// full reports whether the lines of a client's address are used up. Then it counts the suppressed
// line, and a later line reports the count.
func (c *addressLog) full(s *Server, st *Stream) bool {
	who := logKeysOf(st)
	return (c.all.Full(who.all, maxWarnedTotal) || c.of.Full(who.of, c.most(who))) && !c.count(s, st, who)
}

// allow counts a line, and reports whether it may be written.
func (c *addressLog) allow(s *Server, st *Stream) bool { return c.count(s, st, logKeysOf(st)) }

func (c *addressLog) count(s *Server, st *Stream, who logKeys) bool {
	say := func(in *dedup.Counter, why string, most int, more string) bool {
		return in.Allow(logOwner(st), why, most, func(n int, by []string) {
			attrs := repeated(n, by)
			if st.Peer != nil {
				attrs = append(attrs, slog.String("peer", st.Peer.String()))
			}
			s.log.LogAttrs(context.Background(), slog.LevelWarn, more, attrs...) //nolint:sloglint // a literal
		})
	}
	if !c.all.Full(who.all, maxWarnedTotal) && // if the limit of all addresses is used up, single addresses are not counted
		!say(&c.of, who.of, c.most(who), "not all errors of the clients of an address are logged") {
		return false
	}
	return say(&c.all, who.all, maxWarnedTotal, "not all errors of clients are logged")
}
