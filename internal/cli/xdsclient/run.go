package xdsclient

import (
	"context"
	"log/slog"
	"time"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/internal/relay"
)

// StopTime is how long [Run] waits for the client. The client may apply a large response, and gRPC waits 5 s if the
// server reads nothing. The client replaces its files as a whole, so the program may end at any time.
const StopTime = 2 * time.Second

// Run runs a source until ctx ends, and closes its client. It returns at most [StopTime] after the end of ctx.
func Run(ctx context.Context, src *relay.Source, c *client.Client, log *slog.Logger) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		src.Run(ctx)
		if err := c.Close(); err != nil {
			log.Warn("cannot close the client of the upstream", "error", err)
		}
	}()
	<-ctx.Done()
	select {
	case <-ended:
	case <-time.After(StopTime):
	}
}
