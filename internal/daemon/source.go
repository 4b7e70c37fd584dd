package daemon

import (
	"context"
	"os"
	"sync"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/xds"
)

// A source fills the server with configuration: from a directory, a store of revisions, or another xDS
// server.
type source interface {
	// load loads for the first time. It returns false without an error if a signal came first.
	load(signals <-chan os.Signal) (bool, error)

	// run keeps the source up to date until ctx is done, and loads again at each hangup.
	run(ctx context.Context, running *sync.WaitGroup, hangups <-chan os.Signal)

	// files returns the source that knows in which file a resource is, and which groups a node gets. It is
	// not nil after load.
	files() *dir.Source

	// redacted returns a text of a client about a type, without the secrets of the type. It returns false if
	// not all secrets are known.
	redacted(t *xds.Type, text string) (string, bool)

	hasConfig() bool                                     // there is configuration to serve
	ready() error                                        // why clients cannot be served; nil: they can
	note() string                                        // the served configuration, for /readyz
	config() api.Config                                  // the served configuration, for status
	reload(ctx context.Context, approve bool) api.Reload // loads for an operator
	upstreamNote() func() (text string, known bool)      // for explain: the state of the upstream, and whether the relay has its resources; nil: no upstream
}
