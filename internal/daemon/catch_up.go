package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revsource"
	"github.com/chancery-xds/chancery/server"
)

// patience is how long clients that have what this server does not know are turned away while the store does not
// answer: they keep what they have, and may find another server. After that all servers are likely to be without it,
// and what this one has is better than no answer.
const turnAwayFor = 5 * time.Minute

// newestOptions have a server of a store look for a newer revision before it answers a client of another server.
func catchUpOptions(src source) []server.Option {
	if d, ok := src.(*storeSource); ok {
		return []server.Option{server.WithCatchUp(d.catchUp), server.WithRefusals(d.refusals)}
	}
	return nil
}

// newest returns when nothing newer than what is served may have been told to a client by another server.
func (d *storeSource) catchUp(ctx context.Context, known bool) error {
	err := d.repo.Newest(ctx, !known)
	if err == nil || known {
		return nil
	}
	behind, ok := errors.AsType[*revsource.BehindError](err)
	if !ok { // the stream has ended
		return err
	}
	told := time.Since(behind.Since) > turnAwayFor
	what := "store does not answer: turning away clients with unknown versions"
	if told {
		what = "store does not answer: serving clients with unknown versions, whose content may be newer"
	}
	tell := func(more ...any) {
		d.log.Warn(what, append([]any{"store", d.dir, "served", d.repo.Served().Number.String(), "since", behind.Since.UTC().Format(time.RFC3339), "error", behind.Err}, more...)...) //nolint:sloglint // a literal
	}
	if d.turnedAway.Allow("", what, 1, func(n int, _ []string) { tell("repeated", n) }) {
		tell()
	}
	if told {
		return nil
	}
	return err
}
