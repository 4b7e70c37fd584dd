// Package clients remembers how each client stands: what it was sent last, what it accepted and
// what it refused, of each type; who left and why; and what happened lately. It is told by a
// server what happens on its streams, and asks nobody: what a client has by name is known to
// its stream alone ([server.Stream]).
//
// It starts no goroutine. What it holds has a bound, whatever clients do: see [Options].
package clients

import (
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/text/glob"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// Options say what a tracker knows beyond what happens on streams. The zero value is ready to
// use. Functions but Groups are called by whoever asks the tracker, without locks, never by a stream.
type Options struct {
	// Groups says which groups a node sees. It is asked once for each client, and again after
	// [Tracker.Regroup]; and by a stream whose client begins to refuse something. Nil: none are told.
	Groups func(*xds.Node) []string

	// Identity is what the connection of a stream proves; "" if nothing. Nil: nothing.
	Identity func(*server.Stream) string

	// Place is where a resource stands that a node has refused, such as "clusters.yaml:12:3";
	// "" if that is not known. Nil: it never is.
	Place func(node *xds.Node, t *xds.Type, name string) string

	// Expects says whether what a node sees needs another type, such as endpoints because it
	// has EDS clusters. Only then it is a trouble that the client does not ask for it. Nil: it
	// is assumed, also where all clusters are static.
	Expects func(node *xds.Node, t *xds.Type) bool

	// Kept is what of a type the client of a stream keeps in the place of what it has refused. Nil: nothing.
	Kept func(*server.Stream, *xds.Type) []api.Kept

	Now      func() time.Time // nil: time.Now
	Events   int              // how many are remembered; 0: 4096
	Departed int              // how many clients are remembered that left; 0: 1000
}

// A Filter selects clients. The zero value selects all that are connected and not healthy.
type Filter struct {
	Node   *glob.Pattern // of the node id; nil: any
	Group  string        // one of the client's; "": any
	States []api.State   // any of them, of Type if that is given; none: any
	Type   *xds.Type     // one that the client has opened; nil: any
	All    bool          // also clients that are healthy: SYNCED or IDLE, without troubles. States imply it
	Left   bool          // also those that have left, as long as they are remembered
	Limit  int           // at most so many, the worst first; 0: any number
}

var _ server.Observer = (*Tracker)(nil)
