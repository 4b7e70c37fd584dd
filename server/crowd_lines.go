package server

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/chancery-xds/chancery/internal/limit/fair"
	"github.com/chancery-xds/chancery/internal/logs/dedup"
)

// How many warnings of clients go into the log within 10 s: of those of an address, and of
// all, beside one line for an address that counts what else it had to say. As many may those
// cause that are connected for long: whatever nodes a stranger makes up, and whatever they
// say, a client that was there before is heard.
const (
	maxWarned      = 100
	maxWarnedInAll = 1000
	long           = time.Minute
)

// crowds bound the lines of the log by who causes them, whatever they say: that the same is
// said again and again is bounded before, by [Server.repeats]. What is remembered there and
// in of is displaced by much else; in all there are two reasons, which nothing displaces.
type crowds struct {
	of  dedup.Counter // by address
	all dedup.Counter
}

// A crowd is whom a client has its lines with.
type crowd struct{ of, all string }

func crowdOf(st *Stream) crowd {
	host := strconv.FormatUint(st.ID, 10)
	if st.Peer != nil {
		host = fair.Owner(st.Peer)
	}
	if !st.Since.IsZero() && time.Since(st.Since) > long {
		return crowd{host + " for long", "for long"}
	}
	return crowd{host, ""}
}

// most is how many lines an address may have. When half of those of all are written it is
// one, so that some who say much do not hide what another says first.
func (c *crowds) most(who crowd) int {
	if c.all.Full(who.all, maxWarnedInAll/2) {
		return 1
	}
	return maxWarned
}

// full reports whether a crowd has had its lines. Then it counts one more, of which a line
// tells later.
func (c *crowds) full(s *Server, st *Stream) bool {
	who := crowdOf(st)
	return (c.all.Full(who.all, maxWarnedInAll) || c.of.Full(who.of, c.most(who))) && !c.take(s, st, who)
}

// room counts a line, and reports whether it may be written.
func (c *crowds) room(s *Server, st *Stream) bool { return c.take(s, st, crowdOf(st)) }

func (c *crowds) take(s *Server, st *Stream, who crowd) bool {
	say := func(in *dedup.Counter, why string, most int, more string) bool {
		return in.Allow(whose(st), why, most, func(n int, by []string) {
			attrs := repeated(n, by)
			if st.Peer != nil {
				attrs = append(attrs, slog.String("peer", st.Peer.String()))
			}
			s.log.LogAttrs(context.Background(), slog.LevelWarn, more, attrs...) //nolint:sloglint // a literal
		})
	}
	if !c.all.Full(who.all, maxWarnedInAll) && // else no address is remembered: there are too many
		!say(&c.of, who.of, c.most(who), "not all errors of the clients of an address are logged") {
		return false
	}
	return say(&c.all, who.all, maxWarnedInAll, "not all errors of clients are logged")
}
