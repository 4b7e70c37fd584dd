package xdsclient_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/internal/cli/xdsclient"
	"github.com/chancery-xds/chancery/internal/relay"
	"github.com/chancery-xds/chancery/internal/testkit/upstreamtest"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// unread is a server that reads nothing, so that its connection closes late.
type unread struct{ *upstreamtest.Upstream }

func (unread) Close() error {
	time.Sleep(5 * time.Second)
	return nil
}

func TestStopDoesNotWaitForUpstream(t *testing.T) {
	t.Run("SAFE-14", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, err := client.New(client.Config{Node: &xds.Node{ID: "n"}, Servers: []client.Server{{Transport: unread{upstreamtest.New()}}}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			began := time.Now()
			xdsclient.Run(ctx, relay.New(store.New(), c, relay.Options{}), c, slog.New(slog.DiscardHandler))
			if d := time.Since(began); d != xdsclient.StopTime {
				t.Errorf("the stop takes %v", d)
			}
			time.Sleep(5 * time.Second) // until the client has closed
		})
	})
}
