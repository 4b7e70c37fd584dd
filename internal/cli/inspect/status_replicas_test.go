package inspect

import (
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// Another server says for how long it has rejected a revision, or does not.
func TestRejectedThere(t *testing.T) {
	for want, at := range map[string]time.Time{"the newest revision is rejected there": {}, "the newest revision is rejected there for 2h": time.Now().Add(-2 * time.Hour)} {
		row := replicaTable([]api.Replica{{ID: "a", Rejected: &api.Rejected{Since: at}}}, false).Rows[0]
		if got := row[len(row)-1]; strings.TrimSuffix(got, "0m") != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
