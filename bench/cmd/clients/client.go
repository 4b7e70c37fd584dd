package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	gcp "github.com/envoyproxy/go-control-plane/pkg/client/sotw/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/xds" // xds:///
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/client/tree"
	"github.com/chancery-xds/chancery/xds"
)

// clients are the measured clients. Each runs until its standard input ends.
var clients = map[string]func(address string) error{
	"clusters-chancery-delta":        func(a string) error { return watchClusters(a, true) },
	"clusters-chancery-sotw":         func(a string) error { return watchClusters(a, false) },
	"clusters-go-control-plane-sotw": fetchClusters,
	"tree-chancery-delta":            func(a string) error { return watchTree(a, true) },
	"tree-chancery-sotw":             func(a string) error { return watchTree(a, false) },
	"tree-grpc-sotw":                 dial,
}

func newClient(address string, delta bool) (*client.Client, error) {
	t, err := client.GRPC(address, client.GRPCOptions{Credentials: insecure.NewCredentials(), Delta: delta})
	if err != nil {
		return nil, err
	}
	return client.New(client.Config{Node: &xds.Node{ID: "bench"}, Servers: []client.Server{{Transport: t}}})
}

func watchClusters(address string, delta bool) error {
	c, err := newClient(address, delta)
	if err != nil {
		return err
	}
	defer c.Close()
	go func() {
		for _, err := range c.Watch(context.Background(), xds.Cluster, xds.Wildcard) {
			if err != nil {
				return
			}
		}
	}()
	return serveParent()
}

func watchTree(address string, delta bool) error {
	c, err := newClient(address, delta)
	if err != nil {
		return err
	}
	defer c.Close()
	go func() {
		for _, err := range tree.Watch(context.Background(), c, listener, tree.Options{}) {
			if err != nil {
				return
			}
		}
	}()
	return serveParent()
}

// fetchClusters keeps the last response, because the library does not.
func fetchClusters(address string) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(256<<20)))
	if err != nil {
		return err
	}
	c := gcp.NewADSClient(context.Background(), &corev3.Node{Id: "bench"}, xds.Cluster.URL)
	if err := c.InitConnect(conn); err != nil {
		return err
	}
	go func() {
		var has []*anypb.Any
		for {
			r, err := c.Fetch()
			if err != nil {
				return
			}
			has = r.Resources
			if err := c.Ack(); err != nil {
				return
			}
			runtime.KeepAlive(has)
		}
	}()
	return serveParent()
}

// dial opens a channel of gRPC, which contains an xDS client.
func dial(address string) error {
	conn, err := grpc.NewClient("xds:///"+listener, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.Connect()
	return serveParent()
}

// serveParent answers requests of the parent until the parent closes the standard input.
func serveParent() error {
	in := bufio.NewReader(os.Stdin)
	for {
		if _, err := in.ReadString('\n'); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		time.Sleep(500 * time.Millisecond) // until watchers have received the last resources
		runtime.GC()                       // the first of two collections: a pool survives one
		debug.FreeOSMemory()               // the second collection
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		rss, err := resident()
		if err != nil {
			return err
		}
		if *profile != "" {
			f, err := os.Create(filepath.Join(*profile, *as+".heap.pb.gz"))
			if err != nil {
				return err
			}
			err = pprof.WriteHeapProfile(f)
			if err := errors.Join(err, f.Close()); err != nil {
				return err
			}
		}
		fmt.Println(float64(m.HeapAlloc)/1e6, rss)
	}
}

// resident returns the resident memory of this process in MB.
func resident() (float64, error) {
	all, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(all)) {
		var kb float64
		if _, err := fmt.Sscanf(line, "VmRSS: %f kB", &kb); err == nil {
			return kb / 1e3, nil
		}
	}
	return 0, fmt.Errorf("/proc/self/status: no VmRSS")
}
