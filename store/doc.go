// Package store holds the resources that xDS clients may see, in memory. It does not link gRPC or the
// generated messages of Envoy, performs no I/O and does not decode resources.
//
// # Writing
//
// A writer changes any number of types and groups in one transaction ([Store.Update]):
//
//	st := store.New()
//	_, err := st.Update(func(tx *store.Tx) error {
//		tx.Set(backend, endpoints)
//		tx.Delete(xds.Route, "old")
//		tx.Group("edge").Replace(xds.Listener, all...)
//		return nil
//	})
//
// A commit makes new immutable tables that share unchanged content with the old ones ([xds.Table]). So the
// cost of a commit depends on the change, not on the size of the store.
//
// # Reading
//
// [Store.Snapshot] returns the content of all groups. Package server gives each stream a [Watch]: a channel
// that signals changes, and the newest view with the names that changed since the last call. It
// signals only changes of names in which the stream is interested. A stream that does not ask costs
// its writers nothing and keeps no old content alive, because a watch holds a commit number and no view.
//
// # Groups
//
// A node sees only the groups that a [Selector] chooses for it:
//
//	st := store.New(store.WithGroups(func(_ context.Context, n *xds.Node) ([]string, error) {
//		return []string{n.Cluster, "shared"}, nil
//	}))
//	_, err := st.Update(func(tx *store.Tx) error {
//		tx.Group("edge").Set(checkout)
//		tx.Group("shared").Set(ledger)
//		return nil
//	})
//
// If a node sees several groups and two of them have a resource with the same name, the node gets the
// resource of the first group. Aliases count as names: a resource is hidden if its name or one of its
// aliases is already used in an earlier group. Nodes with the same list of groups share one view, which
// exists as long as one of them watches it.
//
// The methods of tx itself write to the default group. Nodes for which the selector returns "" see that
// group. The first commit with resources of a group creates the group. A stream may watch it before, and
// sees nothing until then.
//
// # For programs that build on the server
//
// Most programs do not need these: [Tx.MarkKnown], [Tx.MarkUnknown] and [Tx.Notify] are for sources that do
// not know all resources at once. [WithOverlays], [WithOverlayOf], [OverlayOf], [IsOverlay],
// [Store.WatchWithUnderlay], [UnderlayOf] and [Snapshot.Effective] are for a second writer, such as package
// lazy, that adds to each group without changing it. [Watch] is for package server and for your own transport.
//
// # Concurrency
//
// A [Store] and a [Snapshot] are safe for concurrent use. Only the function that receives a [Tx] may use it,
// and only the goroutine of a stream may use its [Watch]. Writers take turns. Readers do not wait for
// writers, and writers do not wait for streams: a commit starts a goroutine that signals the watches and
// ends when no signal is due. An idle store has no goroutine.
package store
