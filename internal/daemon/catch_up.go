package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revsource"
	"github.com/chancery-xds/chancery/server"
)

// turnAwayFor is the time for which this server turns away clients with unknown versions while the
// store does not answer. These clients keep their configuration, and may find another server. After
// this time probably no server reaches the store. Then old content is better than none.
const turnAwayFor = 5 * time.Minute

// catchUpOptions makes a server of a store look for a newer revision before it answers a client that
// was connected to another server.
func catchUpOptions(src source) []server.Option {
	if d, ok := src.(*storeSource); ok {
		return []server.Option{server.WithCatchUp(d.catchUp), server.WithRefusals(d.refusals)}
	}
	return nil
}

// catchUp returns nil when this server serves every revision that another server may have sent to the
// client. The argument known means that this server knows the versions of the client.
func (d *storeSource) catchUp(ctx context.Context, known bool) error {
	err := d.repo.Newest(ctx, !known)
	if err == nil || known {
		return nil
	}
	behind, ok := errors.AsType[*revsource.BehindError](err)
	if !ok { // the stream has ended
		return err
	}
	serveAnyway := time.Since(behind.Since) > turnAwayFor
	message := "store does not answer: turning away clients with unknown versions"
	if serveAnyway {
		message = "store does not answer: serving clients with unknown versions, whose content may be newer"
	}
	warn := func(more ...any) {
		d.log.Warn(message, append([]any{"store", d.dir, "served", d.repo.Served().Number.String(), "since", behind.Since.UTC().Format(time.RFC3339), "error", behind.Err}, more...)...) //nolint:sloglint // both messages are constants
	}
	if d.turnedAway.Allow("", message, 1, func(n int, _ []string) { warn("repeated", n) }) {
		warn()
	}
	if serveAnyway {
		return nil
	}
	return err
}
