package daemon

import (
	"strings"

	"github.com/chancery-xds/chancery/internal/cli"
)

// identifier returns the control_plane.identifier of responses: the host and the version of this server.
// Envoy shows it in its stats.
func identifier(host string) string {
	return strings.TrimSpace(host + " chancery/" + cli.Version())
}
