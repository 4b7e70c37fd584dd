package xdstest_test

import (
	"fmt"

	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// t stands for the *testing.T of a test.
var t example

type example struct{ done *[]func() }

func (example) Helper()                      {}
func (e example) Cleanup(f func())           { *e.done = append(*e.done, f) }
func (example) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }

// A test of your own server: the resources that it serves, and its reaction when a client refuses one.
func Example() {
	t.done = new([]func())
	defer func() {
		for _, f := range *t.done {
			defer f()
		}
	}()

	// Your program: a store and the code that fills it.
	st := store.New()
	put := func(resources ...*xds.Resource) {
		if _, err := st.Update(func(tx *store.Tx) error { tx.Set(resources...); return nil }); err != nil {
			t.Fatalf("%v", err)
		}
	}
	put(xds.NewResource(xds.Cluster, "backend", []byte("an encoded Cluster")))

	// The test: a client that subscribes to all clusters.
	envoy := xdstest.Delta(t, xdstest.Serve(t, server.New(st)))
	envoy.Subscribe(xds.Cluster, "*")
	envoy.ACK(envoy.Expect(xds.Cluster, "backend"))

	// The server sends a new resource without a request. It does not send a refused resource again.
	put(xds.NewResource(xds.Cluster, "canary", []byte("a Cluster that Envoy refuses")))
	envoy.NACK(envoy.Expect(xds.Cluster, "canary"), "no such extension")
	envoy.ExpectNothing()

	fmt.Println(envoy.Held(xds.Cluster))
	// Output: [backend]
}
