package store_test

import (
	"fmt"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// An embedder fills a store, and a stream follows it. The server does the
// second half for each of its streams.
func Example() {
	st := store.New(store.WithSelect(func(n *xds.Node) string { return n.Cluster }))

	w := st.Watch(&xds.Node{ID: "envoy-1", Cluster: "edge"})
	defer w.Close()
	view, _ := w.Next()
	fmt.Println("known:", view != nil) // nothing was written to the group
	w.Interested(xds.Cluster, true, nil, nil)

	// All of it becomes visible at once, or, if the function returns an error,
	// nothing of it.
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
	view, _ = w.Next()
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
	view, touched := w.Next() // and which names may differ
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

// Each node sees one group, here that of its cluster, and nothing of the others. What all
// are to see is set in each group.
func ExampleWithSelect() {
	st := store.New(store.WithSelect(func(n *xds.Node) string { return n.Cluster }))
	shared := xds.NewResource(xds.Cluster, "shared", nil)
	_, err := st.Update(func(tx *store.Tx) error {
		for _, group := range []string{"edge", "internal"} {
			tx.Group(group).Set(shared)
		}
		tx.Group("edge").Set(xds.NewResource(xds.Cluster, "checkout", nil))
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, cluster := range []string{"edge", "internal", "unknown"} {
		w := st.Watch(&xds.Node{ID: "envoy-1", Cluster: cluster})
		if view, _ := w.Next(); view == nil {
			fmt.Println(cluster, "is told nothing: nobody wrote to its group")
		} else {
			fmt.Println(cluster, "sees", view.Table(xds.Cluster).Len())
		}
		w.Close()
	}
	// Output:
	// edge sees 2
	// internal sees 1
	// unknown is told nothing: nobody wrote to its group
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
