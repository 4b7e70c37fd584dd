// Package endpoints stores endpoints that programs register at run time, and serves them as EDS
// assignments. Registrations need neither a file nor a revision of the configuration.
//
//	st := store.New(store.WithOverlays())
//	engine, err := endpoints.Open("", nil) // or in a directory, or package endpoints/etcd
//	reg := endpoints.New(engine, st, endpoints.Options{})
//	go reg.Run(ctx)
//	_, err = reg.Put(ctx, endpoints.Cluster{Name: "backend"}, []endpoints.Registered{{ID: "a", Endpoint: endpoints.Endpoint{Address: "10.0.0.1", Port: 80}}}, 30*time.Second)
//
// A [Set] computes the assignments (ClusterLoadAssignment) from the registrations. It is a value without
// I/O, clock or goroutine. The bytes depend on the registrations alone, and not on their history, so all
// servers serve equal versions. An [Engine] stores the registrations, for one server or for several. A
// [Registry] connects an engine to a store.
package endpoints
