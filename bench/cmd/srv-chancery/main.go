// srv-chancery uses Chancery as an embedder does: with a store, resources made from
// messages, and its own grpc.Server.
package main

import (
	"flag"
	"log"

	"google.golang.org/grpc"

	"github.com/chancery-xds/chancery/bench/ctl"
	"github.com/chancery-xds/chancery/internal/admin/clients"
	"github.com/chancery-xds/chancery/metrics"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

type adapter struct {
	store  *store.Store
	server *server.Server
}

func resources(t *xds.Type, from []ctl.Resource) ([]*xds.Resource, error) {
	to := make([]*xds.Resource, len(from))
	for i, r := range from {
		var err error
		to[i], err = wire.NewResource(t, r.Name, r.Msg)
		if err != nil {
			return nil, err
		}
	}
	return to, nil
}

func (a *adapter) Set(url string, rs []ctl.Resource) error {
	t := xds.TypeOf(url)
	to, err := resources(t, rs)
	if err != nil {
		return err
	}
	_, err = a.store.Update(func(tx *store.Tx) error { tx.Replace(t, to...); return nil })
	return err
}

func (a *adapter) Update(url string, rs []ctl.Resource) error {
	t := xds.TypeOf(url)
	to, err := resources(t, rs)
	if err != nil {
		return err
	}
	_, err = a.store.Update(func(tx *store.Tx) error { tx.Set(to...); return nil })
	return err
}

func (a *adapter) Register(s *grpc.Server) {
	if err := a.server.Register(s); err != nil {
		log.Fatal(err)
	}
}

func (a *adapter) ServerOptions() []grpc.ServerOption {
	return append(server.GRPCOptions(), grpc.Creds(a.server.Credentials(nil)))
}

func main() {
	ctl.Flags()
	observed := flag.Bool("observed", false, "record metrics and the state of clients, as the command serve does")
	flag.Parse()
	st := store.New()
	var opts []server.Option
	if *observed {
		m := metrics.New(metrics.Options{Snapshot: st.Snapshot, Newest: st.Newest})
		opts = append(opts, server.WithObserver(server.Observers(m, clients.New(clients.Options{}))))
	}
	ctl.Main(&adapter{store: st, server: server.New(st, opts...)})
}
