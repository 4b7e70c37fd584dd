// srv-gcp serves resources with go-control-plane. The flag -mode chooses the cache:
//   - snap: one snapshot for all clients, because the node hash is constant
//   - snap-pernode: IDHash; each update calls SetSnapshot for every known node, with the
//     same Snapshot object
//   - linear: a LinearCache
//   - mux: a MuxCache with a LinearCache for each type
package main

import (
	"context"
	"flag"
	"log"
	"strconv"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	xds "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"

	"github.com/chancery-xds/chancery/bench/ctl"
)

type constHash struct{}

func (constHash) ID(*corev3.Node) string { return "all" }

type adapter struct {
	mode    string
	srv     xds.Server
	snap    cache.SnapshotCache
	linear  map[string]*cache.LinearCache
	version int
	res     map[string]map[string]types.Resource // snapshot modes: current set by type

	one   *one // linear
	mu    sync.Mutex
	nodes map[string]bool
}

// one has the LinearCache of the last set type: a LinearCache has only one type.
type one struct{ cache.Cache }

func (a *adapter) Register(s *grpc.Server) {
	discovery.RegisterAggregatedDiscoveryServiceServer(s, a.srv)
}

// publish builds a snapshot from the current set, as a snapshot user must.
func (a *adapter) publish() error {
	a.version++
	m := map[string][]types.Resource{}
	for t, rs := range a.res {
		l := make([]types.Resource, 0, len(rs))
		for _, r := range rs {
			l = append(l, r)
		}
		m[t] = l
	}
	sn, err := cache.NewSnapshot(strconv.Itoa(a.version), m)
	if err != nil {
		return err
	}
	if a.mode == "snap" {
		return a.snap.SetSnapshot(context.Background(), "all", sn)
	}
	a.mu.Lock()
	nodes := make([]string, 0, len(a.nodes))
	for n := range a.nodes {
		nodes = append(nodes, n)
	}
	a.mu.Unlock()
	for _, n := range nodes {
		if err := a.snap.SetSnapshot(context.Background(), n, sn); err != nil {
			return err
		}
	}
	return nil
}

func (a *adapter) Set(t string, rs []ctl.Resource) error {
	m := map[string]types.Resource{}
	for _, r := range rs {
		m[r.Name] = r.Msg
	}
	if a.snap != nil {
		a.res = map[string]map[string]types.Resource{t: m}
		return a.publish()
	}
	if a.one != nil && a.linear[t] == nil {
		a.linear[t] = cache.NewLinearCache(t)
		a.one.Cache = a.linear[t]
	}
	a.linear[t].SetResources(m)
	return nil
}

func (a *adapter) Update(t string, rs []ctl.Resource) error {
	if a.snap != nil {
		for _, r := range rs {
			a.res[t][r.Name] = r.Msg
		}
		return a.publish()
	}
	if len(rs) == 1 {
		return a.linear[t].UpdateResource(rs[0].Name, rs[0].Msg)
	}
	m := map[string]types.Resource{}
	for _, r := range rs {
		m[r.Name] = r.Msg
	}
	return a.linear[t].UpdateResources(m, nil)
}

func (a *adapter) seen(n *corev3.Node) error {
	id := n.GetId()
	a.mu.Lock()
	known := a.nodes[id]
	a.nodes[id] = true
	a.mu.Unlock()
	if known || id == "" {
		return nil
	}
	sn, err := a.snap.GetSnapshot("all")
	if err != nil {
		return nil //nolint:nilerr // no update yet
	}
	return a.snap.SetSnapshot(context.Background(), id, sn)
}

func main() {
	ctl.Flags()
	mode := flag.String("mode", "snap", "snap, snap-pernode, linear or mux")
	flag.Parse()
	ctx := context.Background()
	a := &adapter{mode: *mode, nodes: map[string]bool{}}
	var cb xds.Callbacks
	var c cache.Cache
	switch *mode {
	case "snap":
		a.snap = cache.NewSnapshotCache(false, constHash{}, nil)
		c = a.snap
	case "snap-pernode":
		a.snap = cache.NewSnapshotCache(false, cache.IDHash{}, nil)
		a.nodes["all"] = true
		cb = xds.CallbackFuncs{
			StreamRequestFunc:      func(_ int64, r *discovery.DiscoveryRequest) error { return a.seen(r.GetNode()) },
			StreamDeltaRequestFunc: func(_ int64, r *discovery.DeltaDiscoveryRequest) error { return a.seen(r.GetNode()) },
		}
		c = a.snap
	case "linear":
		a.linear = map[string]*cache.LinearCache{}
		a.one = &one{}
		c = a.one
	case "mux":
		a.linear = map[string]*cache.LinearCache{ctl.CDS: cache.NewLinearCache(ctl.CDS), ctl.EDS: cache.NewLinearCache(ctl.EDS)}
		c = &cache.MuxCache{
			Classify:      func(r *cache.Request) string { return r.GetTypeUrl() },
			ClassifyDelta: func(r *cache.DeltaRequest) string { return r.GetTypeUrl() },
			Caches:        map[string]cache.Cache{ctl.CDS: a.linear[ctl.CDS], ctl.EDS: a.linear[ctl.EDS]},
		}
	default:
		log.Fatal("mode?")
	}
	a.srv = xds.NewServer(ctx, c, cb)
	ctl.Main(a)
}
