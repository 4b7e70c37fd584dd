package store_test

import (
	"context"
	"fmt"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A program fills a store, and a stream follows it. Package server does the second part for each of its
// streams.
func Example() {
	st := store.New(store.WithGroups(byCluster))

	w, err := st.Watch(context.Background(), &xds.Node{ID: "envoy-1", Cluster: "edge"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer w.Close()
	view, _, _ := w.Next()
	fmt.Println("known:", view != nil) // false: nothing was written to the group yet
	w.Interested(xds.Cluster, true, nil, nil)

	// All changes become visible together, or none if the function returns an error.
	c, err := st.Update(func(tx *store.Tx) error {
		edge := tx.Group("edge")
		edge.Set(xds.NewResource(xds.Cluster, "backend", []byte("an encoded Cluster")))
		edge.Set(xds.NewResource(xds.Endpoint, "backend", []byte("an encoded ClusterLoadAssignment")))
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, change := range c.Changes {
		fmt.Println("commit", c.Seq, "sets", change.Set, change.Type, "in", change.Group)
	}

	<-w.C()
	view, _, _ = w.Next()
	for c := range view.Table(xds.Cluster).All() {
		fmt.Println(c.Name, "is", string(c.Body))
	}

	_, err = st.Update(func(tx *store.Tx) error {
		tx.Group("edge").Set(xds.NewResource(xds.Cluster, "canary", []byte("another")))
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	<-w.C()
	view, touched, _ := w.Next() // touched: the names that may differ
	for _, names := range touched {
		for _, name := range names[xds.Cluster.URL] {
			fmt.Println(name, "is", string(view.Table(xds.Cluster).Lookup(name).Body))
		}
	}
	// Output:
	// known: false
	// commit 1 sets 1 CDS in edge
	// commit 1 sets 1 EDS in edge
	// backend is an encoded Cluster
	// canary is another
}

// byCluster selects the group of the node's cluster.
func byCluster(_ context.Context, n *xds.Node) ([]string, error) { return []string{n.Cluster}, nil }

// Each node sees the group of its cluster, and below it a group for all. A node without a cluster is refused.
func ExampleWithGroups() {
	st := store.New(store.WithGroups(func(_ context.Context, n *xds.Node) ([]string, error) {
		if n.Cluster == "" {
			return nil, fmt.Errorf("node %q has no cluster", n.ID)
		}
		return []string{n.Cluster, store.DefaultGroup}, nil
	}))
	_, err := st.Update(func(tx *store.Tx) error {
		tx.Set(xds.NewResource(xds.Cluster, "ledger", nil), xds.NewResource(xds.Cluster, "checkout", nil))
		tx.Group("edge").Set(xds.NewResource(xds.Cluster, "checkout", []byte("for the edge")))
		tx.Group("internal").MarkKnown() // its content is known: nothing
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, cluster := range []string{"edge", "internal", "unknown", ""} {
		w, err := st.Watch(context.Background(), &xds.Node{ID: "envoy-1", Cluster: cluster})
		if err != nil {
			fmt.Println("refused:", err)
			continue
		}
		if view, _, _ := w.Next(); view == nil {
			fmt.Println(cluster, "gets nothing: its group was never written")
		} else {
			checkout := view.Table(xds.Cluster).Lookup("checkout")
			fmt.Printf("%s sees %d, and checkout is %q\n", cluster, view.Table(xds.Cluster).Len(), checkout.Body)
		}
		w.Close()
	}
	// Output:
	// edge sees 2, and checkout is "for the edge"
	// internal sees 2, and checkout is ""
	// unknown gets nothing: its group was never written
	// refused: node "envoy-1" has no cluster
}

func ExampleTx_Replace() {
	st := store.New()
	load := func(names ...string) {
		c, err := st.Update(func(tx *store.Tx) error {
			var all []*xds.Resource
			for _, name := range names {
				all = append(all, xds.NewResource(xds.Cluster, name, nil))
			}
			tx.Replace(xds.Cluster, all...)
			return nil
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		if len(c.Changes) == 0 {
			fmt.Println("nothing changed since commit", c.Seq)
		}
		for _, change := range c.Changes {
			fmt.Printf("commit %d: +%d -%d\n", c.Seq, change.Set, change.Removed)
		}
	}
	load("a", "b")
	load("b", "a")
	load("b", "c", "d")
	// Output:
	// commit 1: +2 -0
	// nothing changed since commit 1
	// commit 2: +2 -1
}
