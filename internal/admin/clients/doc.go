// Package clients tracks the state of each xDS client of a server: for each type, the last response, ACK
// and NACK. It also remembers disconnected clients with the reason, and recent events. A [Tracker] is a
// [server.Observer]. Only the stream of a client knows the names of the client's resources: see
// [server.Stream.Inspect].
// The package starts no goroutine. The memory of a tracker is limited, whatever clients do: see [Options].
package clients

import (
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/text/glob"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// Options give a tracker information that is not in stream events. The zero value is ready to use.
// The tracker holds no lock while it calls these functions. A stream's goroutine calls only Groups.
// The other functions run in the goroutines of the tracker's callers.
type Options struct {
	// Groups returns the groups of a node. The tracker calls it once for each client, again after
	// [Tracker.GroupsChanged], and when a client begins to refuse resources. Nil: clients have no groups.
	Groups func(*xds.Node) []string

	// Identity returns the identity that the connection of a stream proves, or "". Nil: always "".
	Identity func(*server.Stream) string

	// Place returns the place of a resource that a node refused, such as "clusters.yaml:12:3", or "" if it
	// is unknown. Nil: always "".
	Place func(node *xds.Node, t *xds.Type, name string) string

	// Expects reports whether the resources of a node need resources of type t; for example, EDS clusters
	// need endpoints. If so, a client without a subscription to t is reported as a trouble. Nil: always
	// true, even if all clusters are static.
	Expects func(node *xds.Node, t *xds.Type) bool

	// Unfilled returns the first of the groups whose content is unknown, or "". The server sends nothing to a new
	// client until all its groups have content. Nil: always "".
	Unfilled func(groups []string) string

	// Newest returns the newest commit of the store, for [Tracker.Propagation]. Each response and each answer calls it.
	// Nil: the propagation of commits is not measured.
	Newest func() (store.Commit, bool)

	// Kept returns the resources of a type that are in quarantine for the client of a stream. Nil: none.
	Kept func(*server.Stream, *xds.Type) []api.Kept

	Now      func() time.Time // nil: time.Now
	Events   int              // number of remembered events; 0: 4096
	Departed int              // number of remembered disconnected clients; 0: 1000
}

// A Filter selects clients. The zero value selects the connected clients that are not healthy.
type Filter struct {
	Node   *glob.Pattern // pattern for the node ID; nil: any node
	Group  string        // a group that the client gets; "": any
	Agent  *string       // the program and version of the client, such as "envoy 1.40.0"; nil: any
	States []api.State   // state of the client, or of Type if that is given; none: any state
	Type   *xds.Type     // a type that the client has opened; nil: any
	All    bool          // also healthy clients (SYNCED or IDLE, without troubles); implied by States
	Left   bool          // also the remembered disconnected clients
	Limit  int           // maximum number of clients, worst first; 0: no limit
	Offset int           // number of the worst clients that are left out
}

var _ server.Observer = (*Tracker)(nil)
