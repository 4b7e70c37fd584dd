package inspect

import (
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// The table shows how long another server has rejected a revision, if the time is known.
func TestReplicaTableShowsRejectedRevision(t *testing.T) {
	for want, at := range map[string]time.Time{"rejects the newest revision": {}, "rejects the newest revision for 2h": time.Now().Add(-2 * time.Hour)} {
		row := replicaTable([]api.Replica{{ID: "a", Rejected: &api.Rejected{Since: at}}}, false).Rows[0]
		if got := row[len(row)-1]; strings.TrimSuffix(got, "0m") != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
