package daemon

import (
	"context"
	"os"
	"sync"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/xds"
)

// A source is where serve has from what it serves: a directory, another xDS server, or a store of revisions.
type source interface {
	// load loads for the first time. It returns false if there is nothing to serve, and with no error if a
	// signal came before.
	load(signals <-chan os.Signal) (bool, error)

	// run keeps the source up to date until ctx is done, and loads at each hangup.
	run(ctx context.Context, running *sync.WaitGroup, hangups <-chan os.Signal)

	// files says where resources stand, and which groups a node gets. It is not nil after load.
	files() *dir.Source

	// redacted returns what a client says of a type without the secrets of that; false: not all of them are known.
	redacted(t *xds.Type, text string) (string, bool)

	hasConfig() bool                                     // there is something to serve
	ready() error                                        // why clients cannot be served; nil: they can
	note() string                                        // what is served, for who asks about readiness
	config() api.Config                                  // what is served, for status
	reload(ctx context.Context, approve bool) api.Reload // what an operator wants
	upstreamNote() func() (text string, known bool)      // what explain says of what is not here; nil: it is in the files or nowhere
}
