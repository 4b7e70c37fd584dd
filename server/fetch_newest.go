package server

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/xds"
)

// A standing is what is known of the version that a poll's client states, which it may have from another server. Before it
// is told anything else the server looks whether there is something newer ([WithNewest]), as streams do: once in a
// poll, and not for a client that is told nothing, as most are.
type standing struct {
	known  bool // the source has it, or it was told so here
	partly bool // the client may have applied a part of what it was told since: what it states is news, too
	asked  bool // the source is no older than that
	due    bool // something else is to be told, if that is so
}

// older reports whether another version may be older than the one that the client states.
func (p *Poll) older(version string) bool {
	return p.server.newest != nil && p.stated != "" && p.stated != version && !p.standing.asked
}

// lately reports whether the type had what the client states.
func (p *Poll) lately() bool {
	w, ok := p.watch.(Recalling)
	return ok && p.all && slices.ContainsFunc(w.Recent(p.info.Type), func(t *xds.Table) bool { return sum(t) == p.stated })
}

// catchUp makes the answer when the source is as new as what the client states may be. [errBehind] says that nobody
// knows that while the poll may be held.
func (p *Poll) catchUp(ctx context.Context, hold time.Duration) error {
	p.standing.due, p.standing.asked = false, true
	soon, cancel := context.WithTimeout(ctx, max(hold, margin))
	defer cancel()
	if err := p.server.newest(soon, p.standing.known || p.lately()); err != nil {
		if ctx.Err() != nil {
			return status.FromContextError(ctx.Err()).Err()
		}
		return errBehind
	}
	err := p.look()
	p.rejects(err)
	return err
}
