package server

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/stats"

	"github.com/chancery-xds/chancery/store"
)

// What gRPC refuses before a handler hears of it is told all the same, once and counted.
func TestCompressedCalls(t *testing.T) {
	t.Run("SAFE-9 calls that gRPC refuses are in the log", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			s := New(store.New(), WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			h := s.StatsHandler()
			from := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1000}
			for _, e := range []stats.RPCStats{
				&stats.InHeader{RemoteAddr: from}, &stats.InHeader{RemoteAddr: from, Compression: "identity"}, &stats.InPayload{},
				&stats.InHeader{RemoteAddr: from, Compression: "lost-art"}, &stats.InHeader{RemoteAddr: from, Compression: "lost-art"},
			} {
				h.HandleRPC(t.Context(), e)
			}
			time.Sleep(time.Minute)
			got := strings.Split(strings.TrimSpace(log.String()), "\n")
			if len(got) != 2 || !strings.Contains(got[0], `peer=10.0.0.1:1000`) || !strings.Contains(got[0], `compressed by \"lost-art\"`) || !strings.HasSuffix(got[1], "repeated=1") {
				t.Errorf("logged %q", got)
			}
			if n := s.Stats().Malformed; n != 2 {
				t.Errorf("%d counted, want 2", n)
			}
		})
	})
	t.Run("SAFE-8 a log that panics ends no program", func(t *testing.T) {
		s := New(store.New())
		s.log = nil
		s.StatsHandler().HandleRPC(t.Context(), &stats.InHeader{RemoteAddr: &net.TCPAddr{}, Compression: "lost-art"})
	})
}
