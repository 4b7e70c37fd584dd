// Package store holds the resources that streams may see. It knows neither
// gRPC nor generated code, performs no I/O and looks into no resource.
//
// A writer changes any number of types and groups in one transaction
// ([Store.Update]). What is committed is immutable: tables that share all but
// the change with the tables before them ([xds.Table]), so that a commit costs
// what it changes, however much there is.
//
//	st := store.New()
//	_, err := st.Update(func(tx *store.Tx) error {
//		tx.Set(backend, endpoints)
//		tx.Delete(xds.Route, "old")
//		tx.Group("edge").Replace(xds.Listener, all...)
//		return nil
//	})
//
// A stream follows the store by a [Watch] of its own: a doorbell, and on asking
// the newest view together with the names touched since it last asked. The
// doorbell rings for what the stream said it is interested in. A stream that
// does not ask costs its writers nothing and keeps no old state alive: a watch
// holds a number, no view.
//
// # Groups
//
// A node sees the groups that a [Selector] chooses for it, and nothing of the others:
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
// Several groups are laid over each other: of a name that two have, the resource of the first is
// seen. As a name or an alias finds one resource, one that has a name of a resource in a group
// before its own is not seen, either. Nodes with the same list share one view, which exists as
// long as one of them watches it.
//
// Methods of tx itself write to the default group, which nodes of the name "" see. A group
// comes into being by the first commit that has resources for it; a stream may watch
// it before, and sees nothing until then.
//
// # Concurrency
//
// A [Store] and a [Snapshot] are safe for concurrent use. A [Tx] belongs to the
// function that it was given to, a [Watch] to the goroutine of its stream.
// Writers take turns. Readers wait for no writer, and writers for no stream:
// a commit hands the ringing of doorbells to a goroutine, which runs while
// there is something to ring and then ends. An idle store has no goroutine.
package store
