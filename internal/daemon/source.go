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

	// files returns the source that knows the file of each resource, and the groups of each node. It
	// is not nil after load.
	files() *dir.Source

	// redacted returns a client's text about a type, without the secrets in the type's resources. It
	// returns false if some of these secrets are unknown.
	redacted(t *xds.Type, text string) (string, bool)

	hasConfig() bool                                     // whether there is a configuration to serve
	ready() error                                        // the reason why clients cannot be served; nil: they can
	note() string                                        // the served configuration, for /readyz
	config() api.Config                                  // the served configuration, for status
	reload(ctx context.Context, approve bool) api.Reload // loads again on behalf of an operator
	upstreamNote() func() (text string, known bool)      // for explain: the state of the upstream, and whether the relay has its resources; nil: no upstream
}
