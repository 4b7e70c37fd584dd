package server

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/chancery-xds/chancery/internal/repeats"
	"github.com/chancery-xds/chancery/internal/shares"
)

// maxWarned is how many warnings of the clients of an address go into the log within 10 s,
// and as many of those of them that are connected for long: whatever nodes a stranger makes
// up, and whatever they say, a client that was there before is heard.
const (
	maxWarned = 100
	long      = time.Minute
)

// crowds bound the lines of the log, by the address of who causes them.
type crowds struct{ repeats.Counter }

// crowdOf says which crowd a client is one of.
func crowdOf(st *Stream) string {
	host := strconv.FormatUint(st.ID, 10)
	if st.Peer != nil {
		host = shares.Owner(st.Peer)
	}
	if !st.Since.IsZero() && time.Since(st.Since) > long {
		return host + " for long"
	}
	return host
}

// full reports whether a crowd has had its lines. Then it counts one more, of which a line
// tells later.
func (c *crowds) full(s *Server, st *Stream) bool {
	crowd := crowdOf(st)
	return c.Full(crowd, maxWarned) && !c.take(s, st, crowd)
}

// room counts a line, and reports whether it may be written.
func (c *crowds) room(s *Server, st *Stream) bool { return c.take(s, st, crowdOf(st)) }

func (c *crowds) take(s *Server, st *Stream, crowd string) bool {
	return c.Say(whose(st), crowd, maxWarned, func(n int, by []string) {
		attrs := repeated(n, by)
		if st.Peer != nil {
			attrs = append(attrs, slog.String("peer", st.Peer.String()))
		}
		s.log.LogAttrs(context.Background(), slog.LevelWarn, "more is wrong with clients of an address than is logged", attrs...)
	})
}
