// Command compare is go-control-plane's snapshot cache behind the command line
// of chancery serve, so that the tests of package e2e can judge it:
//
//	E2E_SERVER=/path/to/compare go test -run 'TestMakeBeforeBreak$' -v .
//
// It serves DIR/world.yaml as the tests write it. COMPARE, a list separated by
// commas, says how: "ads" makes the cache that of an aggregated stream, which
// also decides the order of delta responses; "ordered" is sotw.WithOrderedADS;
// "pause=100ms" does by hand what the cache does not: each change in three
// snapshots, that long after each other.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"maps"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/config"
	"github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
)

func main() {
	if len(os.Args) != 5 || os.Args[1] != "serve" || os.Args[3] != "--listen" {
		log.Fatal("usage: compare serve DIR --listen ADDR")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	signal.Ignore(syscall.SIGHUP) // it looks all the time
	if err := serve(ctx, filepath.Join(os.Args[2], "world.yaml"), os.Args[4]); err != nil {
		log.Fatal(err)
	}
}

func serve(ctx context.Context, path, addr string) error {
	var ads bool
	var opts []config.XDSOption
	p := &publisher{world: world{}}
	for s := range strings.SplitSeq(os.Getenv("COMPARE"), ",") {
		name, value, _ := strings.Cut(s, "=")
		var err error
		switch name {
		case "":
		case "ads":
			ads = true
		case "ordered":
			opts = append(opts, sotw.WithOrderedADS())
		case "pause":
			p.pause, err = time.ParseDuration(value)
		default:
			err = fmt.Errorf("COMPARE: %q is not known", s)
		}
		if err != nil {
			return err
		}
	}
	p.cache = cache.NewSnapshotCache(ads, everybody{}, nil)
	g := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(g, server.NewServer(ctx, p.cache, nil, opts...))
	w, info, err := read(path)
	if err == nil {
		err = p.set(ctx, w)
	}
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	go func() { <-ctx.Done(); g.Stop() }()
	go func() {
		look := time.NewTicker(2 * time.Millisecond)
		for range look.C {
			is, err := os.Stat(path)
			if errors.Is(err, fs.ErrNotExist) || err == nil && os.SameFile(is, info) {
				continue
			}
			w, info, err = read(path)
			if err == nil {
				err = p.set(ctx, w)
			}
			if err != nil {
				log.Print(err)
			}
		}
	}()
	return g.Serve(l)
}

// everybody gets the same snapshot.
type everybody struct{}

func (everybody) ID(*corev3.Node) string { return "everybody" }

// A world is resources by type and name.
type world map[string]map[string]types.Resource

// read reads documents of JSON, one resource each.
func read(path string) (world, fs.FileInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	var all bytes.Buffer
	if _, err := all.ReadFrom(f); err != nil {
		return nil, nil, err
	}
	w := world{}
	for doc := range bytes.SplitSeq(all.Bytes(), []byte("---\n")) {
		if len(doc) == 0 {
			continue
		}
		var a anypb.Any
		if err := protojson.Unmarshal(doc, &a); err != nil {
			return nil, nil, err
		}
		m, err := a.UnmarshalNew()
		if err != nil {
			return nil, nil, err
		}
		if w[a.GetTypeUrl()] == nil {
			w[a.GetTypeUrl()] = map[string]types.Resource{}
		}
		w[a.GetTypeUrl()][cache.GetResourceName(m)] = m
	}
	return w, info, nil
}

// with returns the world with the types of another laid over it.
func (w world) with(over world, urls ...string) world {
	u := maps.Clone(w)
	for _, url := range urls {
		u[url] = maps.Clone(u[url])
		if u[url] == nil {
			u[url] = map[string]types.Resource{}
		}
		maps.Copy(u[url], over[url])
	}
	return u
}

// A publisher makes snapshots.
type publisher struct {
	cache   cache.SnapshotCache
	pause   time.Duration
	world   world
	version int
}

// set makes a world that of all clients.
func (p *publisher) set(ctx context.Context, w world) error {
	steps := []world{w}
	if p.pause > 0 && p.version > 0 {
		made := p.world.with(w, resource.ClusterType, resource.EndpointType)
		moved := w.with(made, resource.ClusterType, resource.EndpointType)
		steps = []world{made, moved, w}
	}
	p.world = w
	for i, s := range steps {
		if i > 0 {
			time.Sleep(p.pause)
		}
		p.version++
		all := map[string][]types.Resource{}
		for url, rs := range s {
			all[url] = slices.Collect(maps.Values(rs))
		}
		snapshot, err := cache.NewSnapshot(strconv.Itoa(p.version), all)
		if err != nil {
			return err
		}
		if err := p.cache.SetSnapshot(ctx, "everybody", snapshot); err != nil {
			return err
		}
	}
	return nil
}
