package server

import (
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A poll for content that is not known yet ends with UNAVAILABLE, and a line of the log names the node (SAFE-10).
func TestPollOfUnknownContent(t *testing.T) {
	within(t, "SAFE-10", func(t *testing.T) {
		var book logbook
		s := New[*store.Watch](store.New(), book.at(slog.LevelWarn))
		_, err := s.Poll(t.Context(), xds.Cluster, xds.Request{Type: xds.Cluster, Node: &xds.Node{ID: "n"}}, Caller{})
		if status.Code(err) != codes.Unavailable {
			t.Errorf("error %v", err)
		}
		if log := book.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "nothing is configured for its node yet") || !strings.Contains(log, "node=n") {
			t.Errorf("the log has %s", log)
		}
	})
}
