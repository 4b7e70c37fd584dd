// Package endpoints keeps endpoints that programs register while they run, and has them served: the
// fast plane beside the configuration, which needs no revision and no file.
//
//	st := store.New(store.WithOverlays())
//	engine, err := endpoints.Open("", nil) // or in a directory, or package endpoints/etcd
//	reg := endpoints.New(engine, st, endpoints.Options{})
//	go reg.Run(ctx)
//	_, err = reg.Put(ctx, endpoints.Cluster{Name: "backend"}, []endpoints.Registered{{ID: "a", Endpoint: endpoints.Endpoint{Address: "10.0.0.1", Port: 80}}}, 30*time.Second)
//
// What a set of registrations makes of assignments (ClusterLoadAssignment) is a [Set]: a value without
// I/O, clock or goroutine. The bytes depend on the set alone, and not on how it came about, so
// each of several servers serves equal versions. An [Engine] keeps the registrations, for one
// server or for several; a [Registry] ties both to a store.
package endpoints
