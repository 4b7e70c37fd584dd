package lazy_test

import (
	"context"
	"fmt"

	"github.com/chancery-xds/chancery/lazy"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// Virtual hosts are read from a database, one by one, when an Envoy needs them for a request. To serve
// them, pass src to server.New instead of the store.
func Example() {
	st := store.New(store.WithEmptyGroups())
	src, err := lazy.New(st, func(ctx context.Context, q lazy.Query) (*xds.Resource, error) {
		if q.Name != "local/shop.example" {
			return nil, nil // there is none
		}
		return xds.NewResource(q.Type, q.Name, []byte("an encoded VirtualHost")), nil
	}, []*xds.Type{xds.VirtualHost})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go src.Run(ctx)

	// What the server does for each stream.
	w, err := src.Watch(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer w.Close()
	for _, name := range []string{"local/shop.example", "local/other.example"} {
		view, _, _ := w.Next()
		w.Interested(xds.VirtualHost, false, []string{name}, nil)
		for view.(xds.Undecided).Undecided(xds.VirtualHost, name) {
			<-w.C()
			view, _, _ = w.Next()
		}
		if r := view.Table(xds.VirtualHost).Lookup(name); r != nil {
			fmt.Println(name, "is", string(r.Body))
		} else {
			fmt.Println(name, "does not exist")
		}
	}
	// Output:
	// local/shop.example is an encoded VirtualHost
	// local/other.example does not exist
}

// A writer replaces the whole content of a group. The virtual host that the resolver has found stays.
func Example_clear() {
	st := store.New()
	src, err := lazy.New(st, func(ctx context.Context, q lazy.Query) (*xds.Resource, error) {
		return xds.NewResource(q.Type, q.Name, []byte("an encoded VirtualHost")), nil
	}, []*xds.Type{xds.VirtualHost})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go src.Run(ctx)
	write := func(route string) {
		_, err := st.Update(func(tx *store.Tx) error {
			tx.Clear()
			tx.Set(xds.NewResource(xds.Route, route, []byte("an encoded RouteConfiguration")))
			return nil
		})
		if err != nil {
			panic(err)
		}
	}
	write("local")

	w, err := src.Watch(ctx, nil)
	if err != nil {
		panic(err)
	}
	defer w.Close()
	w.Interested(xds.VirtualHost, false, []string{"local/shop.example"}, nil)
	for view, _, _ := w.Next(); view.Table(xds.VirtualHost).Lookup("local/shop.example") == nil; view, _, _ = w.Next() {
		<-w.C()
	}
	write("local-v2")
	view, _, _ := w.Next()
	fmt.Println(view.Table(xds.Route).Lookup("local-v2") != nil, view.Table(xds.VirtualHost).Lookup("local/shop.example") != nil)
	// Output: true true
}
