package daemon

import (
	"strings"

	"github.com/chancery-xds/chancery/internal/cli"
)

// identifier is what responses say as control_plane.identifier: which replica, of which
// version, answered. Envoy shows it in its stats (control_plane.identifier).
func identifier(host string) string {
	return strings.TrimSpace(host + " chancery/" + cli.Version())
}
