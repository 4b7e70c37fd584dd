package server

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/xds"
)

// A statedVersion describes the version that a poll's client states. Another server may have sent
// this version. Before the client gets another version, the server makes sure that its source is up
// to date ([WithCatchUp]), as for streams. The server does so at most once in a poll, and only if
// it has something to send.
type statedVersion struct {
	known  bool // the source has this version, or this server has sent it
	partly bool // the client may have applied a part of a later answer, so even the stated version may be new for the client
	asked  bool // the source is up to date
	due    bool // another version is to be sent after the source is up to date
}

// mayBeOlder reports whether version may be older than the version that the client states.
func (p *Poll) mayBeOlder(version string) bool {
	return p.server.newest != nil && p.stated != "" && p.stated != version && !p.standing.asked
}

// wasRecent reports whether the type recently had the version that the client states.
func (p *Poll) wasRecent() bool {
	w, ok := p.watch.(HistoryWatch)
	return ok && p.all && slices.ContainsFunc(w.Recent(p.info.Type), func(t *xds.Table) bool { return sum(t) == p.stated })
}

// catchUp brings the source up to date and then looks for an answer. It returns [errBehind] if that is not possible
// while the poll may be held.
func (p *Poll) catchUp(ctx context.Context, hold time.Duration) error {
	p.standing.due, p.standing.asked = false, true
	soon, cancel := context.WithTimeout(ctx, max(hold, margin))
	defer cancel()
	if err := p.server.newest(soon, p.standing.known || p.wasRecent()); err != nil {
		if ctx.Err() != nil {
			return status.FromContextError(ctx.Err()).Err()
		}
		return errBehind
	}
	return p.check()
}
