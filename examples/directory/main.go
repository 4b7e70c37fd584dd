// Command directory is an xDS server for several groups of nodes. Each directory below config has the
// resources of one group. A node gets the group with the name of its cluster. The server loads changed
// files again. Metrics are at http://127.0.0.1:9090/metrics.
//
//	go run . config
//	envoy -c ../quickstart-envoy.yaml --service-cluster edge
package main

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"

	"github.com/chancery-xds/chancery/metrics"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: directory CONFIG")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	l, err := net.Listen("tcp", "127.0.0.1:18000")
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("/metrics", promhttp.Handler())
	go func() { log.Print(http.ListenAndServe("127.0.0.1:9090", nil)) }()
	if err := serve(ctx, l, os.Args[1], prometheus.DefaultRegisterer); err != nil {
		log.Fatal(err)
	}
}

// group returns the group of a node. A group without a directory has no resources.
func group(n *xds.Node) string { return n.Cluster }

// serve serves each directory below root to its group, until ctx is done.
func serve(ctx context.Context, l net.Listener, root string, registry prometheus.Registerer) error {
	st := store.New(store.WithGroups(func(_ context.Context, n *xds.Node) ([]string, error) {
		return []string{group(n)}, nil
	}))
	m := metrics.New(metrics.Options{Registry: registry, Group: group, Snapshot: st.Snapshot})
	sources := map[string]*dir.Source{}
	srv := server.New(st, server.WithObserver(m),
		// The log has the position of a refused resource, and no passwords from it.
		server.WithPlaces(func(n *xds.Node, t *xds.Type, name string) string {
			if src := sources[group(n)]; src != nil {
				return src.Place(t, name)
			}
			return ""
		}),
		server.WithRedactor(func(n *xds.Node, t *xds.Type, text string) (string, bool) {
			if src := sources[group(n)]; src != nil {
				return src.Redacted(t, text)
			}
			return text, true
		}))
	m.Server(srv.Stats)

	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		loads := metrics.NewLoads(prometheus.WrapRegistererWith(prometheus.Labels{"source": e.Name()}, registry))
		src := dir.New(filepath.Join(root, e.Name()), st, dir.Options{
			Group: e.Name(), References: true, Done: loads.Loaded,
			Log: slog.Default().With(slog.String("group", e.Name())), // identifies the directory of a log line
		})
		loads.Source(src)
		report, err := src.Load()
		if err != nil {
			return fmt.Errorf("group %s:\n%w", e.Name(), err) // each error with its position
		}
		log.Printf("group %s: %d files", e.Name(), report.Files)
		sources[e.Name()] = src
	}
	for _, src := range sources { // the map is complete now
		running.Go(func() { src.Run(ctx) })
	}

	g := grpc.NewServer(append(server.GRPCOptions(), grpc.Creds(srv.Credentials(nil)), grpc.InTapHandle(srv.Tap))...)
	if err := srv.Register(g); err != nil {
		return err
	}
	running.Go(func() {
		<-ctx.Done()
		ending, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = srv.Drain(ending)
		g.Stop()
	})
	return g.Serve(l)
}
