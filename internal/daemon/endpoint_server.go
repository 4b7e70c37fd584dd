package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cluster/etcdkv"
	"github.com/chancery-xds/chancery/internal/disk/lastgood"
	"github.com/chancery-xds/chancery/internal/endpoints"
	"github.com/chancery-xds/chancery/internal/endpoints/etcd"
	"github.com/chancery-xds/chancery/store"
)

// endpointFlags are the flags of registered endpoints.
type endpointFlags struct {
	on bool
}

// An endpointServer serves the endpoints that programs register with the admin API.
type endpointServer struct {
	endpointFlags

	registry *endpoints.Registry // nil: endpoints cannot be registered
}

func (r *endpointFlags) flags(f *pflag.FlagSet) {
	f.BoolVar(&r.on, "endpoints", false, "allow authenticated callers of the admin API (unix socket, token or client certificate) to register endpoints")
}

// check returns a usage error.
func (r *endpointFlags) check(upstream bool, dir string, admin bool) error {
	switch {
	case r.on && upstream:
		return errors.New("--endpoints needs a directory or a store, and " + dir + " is another xDS server")
	case r.on && !admin:
		return errors.New("--endpoints needs --admin-listen")
	}
	return nil
}

// store returns the options that the store needs for registered endpoints.
func (r *endpointFlags) store() []store.Option {
	if r.on {
		return []store.Option{store.WithOverlays(), store.WithOverlayOf(groups.BaseOf)}
	}
	return nil
}

// open starts to serve registered endpoints. It is called before a client gets an answer.
func (r *endpointServer) open(ctx context.Context, log *slog.Logger, src source, keeper *lastgood.Keeper, st *store.Store, running *sync.WaitGroup) error {
	if !r.on {
		return nil
	}
	engine, closes, where, err := r.engine(log, src, keeper)
	if err != nil {
		return err
	}
	r.registry = endpoints.New(engine, st, endpoints.Options{Log: log, Known: func(group string) bool {
		if group == store.DefaultGroup {
			return true
		}
		_, known := src.files().Summary().ByGroup[group]
		return known
	}})
	running.Go(func() {
		r.registry.Run(ctx)
		closes()
	})
	select {
	case <-r.registry.Loaded():
		log.Info("registered endpoints are served", "clusters", len(r.registry.List("", "")), "kept", where)
	case <-time.After(longestLoad):
		log.Error("registered endpoints are not known yet, serving without them", "kept", where, "after", longestLoad.String())
	}
	return nil
}

// longestLoad is the time for which a start waits for the registered endpoints.
const longestLoad = 10 * time.Second

// longestSilence is the time for which a server waits for etcd before it serves the registered
// endpoints on its disk.
const longestSilence = 3 * time.Second

// engine opens the storage of the endpoints, and returns its place.
func (r *endpointServer) engine(log *slog.Logger, src source, keeper *lastgood.Keeper) (e endpoints.Engine, closes func(), where string, err error) {
	dir := ""
	if keeper != nil {
		dir = filepath.Join(keeper.Dir(), lastgood.EndpointsName)
	}
	if d, ok := src.(*storeSource); ok {
		if conn, ok := d.engineCloser.(*etcdkv.Conn); ok {
			shared := etcd.New(conn, log)
			if dir == "" {
				return shared, func() {}, d.dir, nil
			}
			kept, err := endpoints.NewDiskShadow(shared, dir, longestSilence, log)
			if err != nil {
				return nil, nil, "", cli.Fail(err, "--state-dir chooses another directory")
			}
			return kept, func() { _ = kept.Close() }, d.dir, nil
		}
	}
	if dir == "" {
		log.Warn("registered endpoints are kept in memory only: a restart loses them", "hint", "--state-dir")
	}
	local, err := endpoints.Open(dir, log)
	if err != nil {
		return nil, nil, "", cli.Fail(err, "--state-dir chooses another directory")
	}
	return local, func() { _ = local.Close() }, dir, nil
}

// registered returns a function that describes, for explain, the registered endpoints of a cluster. It
// returns nil if endpoints cannot be registered.
func (r *endpointServer) registered() func(group, name string) (text string, n int, ok bool) {
	if r.registry == nil {
		return nil
	}
	return func(group, name string) (string, int, bool) {
		all, leased, ok := r.registry.Counts(endpoints.Cluster{Group: groups.BaseOf(group), Name: name}) // a lane of a group has the endpoints of the group
		if all == 0 && ok {
			return "registered by the admin API: none", 0, true
		}
		return fmt.Sprintf("registered by the admin API: %d, %d of them with a lease", all, leased), all, ok
	}
}
