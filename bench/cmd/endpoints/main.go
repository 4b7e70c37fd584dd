// Command endpoints measures the time from the line that registers an endpoint until an xDS client has the endpoint. One
// stream of the admin API sends the changes. Each server has one delta client.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/chancery-xds/chancery/bench/process"
)

var (
	binary   = flag.String("bin", "../bin/chancery", "the program")
	replicas = flag.Int("replicas", 1, "number of servers; more than one need -store")
	store    = flag.String("store", "", "flags of a store, separated by spaces; empty: each server has a directory")
	clusters = flag.Int("clusters", 1000, "clusters")
	each     = flag.Int("each", 100, "endpoints of each cluster")
	rate     = flag.Int("rate", 5000, "changes a second")
	length   = flag.Duration("for", 20*time.Second, "how long")
)

// The number of a change is the host name of its endpoint.
const mark, digits = "@seq", 9

type server struct {
	*process.Server
	sock string
}

func main() {
	flag.Parse()
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	dir, err := os.MkdirTemp("", "endpoints")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var servers []*server
	defer func() {
		for _, s := range servers {
			s.Kill()
		}
	}()
	for i := range *replicas {
		s, err := start(dir, i)
		if err != nil {
			return err
		}
		servers = append(servers, s)
	}
	// Some seconds more than the run, because late deliveries count.
	total := *clusters**each + int(length.Seconds())**rate
	sent := make([]atomic.Int64, total+1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var clients []*client
	var running sync.WaitGroup
	for _, s := range servers {
		c := &client{sent: sent, seen: make([]int64, total+1)}
		clients = append(clients, c)
		running.Go(func() { c.err = c.run(ctx, s.XDS) })
	}
	p, err := connect(ctx, servers[0].sock)
	if err != nil {
		return err
	}
	seq, last := 0, make([]int, *clusters**each)
	put := func(n int) error {
		seq++
		last[n] = seq
		sent[seq].Store(time.Now().UnixNano())
		return p.line(fmt.Sprintf(`{"cluster":"c%d","put":{"id":"%d","address":"10.%d.%d.%d","port":80,"hostname":"%s%0*d"}}`+"\n", n / *each, n, n>>16, n>>8&255, n&255, mark, digits, seq))
	}
	began := time.Now()
	for n := range last {
		if err := put(n); err != nil {
			return err
		}
	}
	if err := p.flush(); err != nil {
		return err
	}
	if err := arrive(clients, last); err != nil {
		return err
	}
	fmt.Printf("%d endpoints of %d clusters registered and at %d clients in %.1f s\n", len(last), *clusters, len(clients), time.Since(began).Seconds())
	first := seq + 1
	before := cpu(servers)
	began = time.Now()
	for t := time.NewTicker(time.Millisecond); time.Since(began) < *length; <-t.C {
		due := int(time.Since(began).Seconds() * float64(*rate))
		for seq-first+1 < due && seq < total {
			if err := put(rand.IntN(len(last))); err != nil {
				return err
			}
		}
		if err := p.flush(); err != nil {
			return err
		}
	}
	took := time.Since(began)
	if err := arrive(clients, last); err != nil {
		return err
	}
	fmt.Printf("%d changes in %.1f s: %.0f a second; CPU of the servers %.0f %% of one core\n", seq-first+1, took.Seconds(), float64(seq-first+1)/took.Seconds(), 100*(cpu(servers)-before)/took.Seconds())
	for i, c := range clients {
		var all []time.Duration
		for n := first; n <= seq; n++ {
			if c.seen[n] != 0 { // 0: a later change replaced it before the client got it
				all = append(all, time.Duration(c.seen[n]-sent[n].Load()))
			}
		}
		slices.Sort(all)
		at := func(p float64) time.Duration { return all[int(p*float64(len(all)-1))].Round(100 * time.Microsecond) }
		fmt.Printf("client %d: got %d of them; p50 %v, p90 %v, p99 %v, p99.9 %v, max %v\n", i, len(all), at(.5), at(.9), at(.99), at(.999), at(1))
	}
	cancel()
	p.close()
	running.Wait()
	return nil
}

// arrive waits until all clients have the last change of each endpoint.
func arrive(clients []*client, last []int) error {
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		missing := 0
		for _, c := range clients {
			c.mu.Lock()
			if c.err != nil {
				return c.err
			}
			for _, n := range last {
				if c.seen[n] == 0 {
					missing++
				}
			}
			c.mu.Unlock()
		}
		if missing == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the clients lack %d endpoints", missing)
		}
	}
}

// start starts a server, and waits until it serves.
func start(root string, i int) (*server, error) {
	dir := filepath.Join(root, strconv.Itoa(i))
	if err := os.MkdirAll(filepath.Join(dir, "config"), 0o700); err != nil {
		return nil, err
	}
	s := &server{sock: filepath.Join(dir, "admin.sock")}
	var args []string
	if *store == "" {
		args = append(args, filepath.Join(dir, "config"))
		text := `{"@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration", "name": "r"}`
		if err := os.WriteFile(filepath.Join(dir, "config", "r.json"), []byte(text), 0o600); err != nil {
			return nil, err
		}
	} else {
		args = append(args, strings.Fields(*store)...)
	}
	args = append(args, "--endpoints", "--admin-listen", "unix://"+s.sock, "--state-dir", filepath.Join(dir, "state"))
	var err error
	s.Server, err = process.Start(*binary, args...)
	return s, err
}

// cpu returns the CPU seconds that the servers have used.
func cpu(servers []*server) (sum float64) {
	for _, s := range servers {
		sum += process.CPU(s.Server)
	}
	return sum
}

// A putter sends lines to the admin API on one stream.
type putter struct {
	pipe *io.PipeWriter
	out  *bufio.Writer
	done chan struct{}
	bad  atomic.Pointer[string]
}

func connect(ctx context.Context, sock string) (*putter, error) {
	r, w := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/api/v1/endpoints", r)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", sock)
	}}}
	resp, err := c.Do(req) //nolint:bodyclose // the reader closes the body
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, errors.New(resp.Status)
	}
	p := &putter{pipe: w, out: bufio.NewWriterSize(w, 64<<10), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		defer resp.Body.Close()
		for in := bufio.NewScanner(resp.Body); in.Scan(); {
			if strings.Contains(in.Text(), "errors") {
				p.bad.Store(new(in.Text()))
			}
		}
	}()
	return p, nil
}

func (p *putter) line(s string) error { _, err := p.out.WriteString(s); return err }

func (p *putter) flush() error {
	if bad := p.bad.Load(); bad != nil {
		return errors.New(*bad)
	}
	return p.out.Flush()
}

func (p *putter) close() { _ = p.pipe.Close(); <-p.done }

// A client is an xDS client that subscribes to the endpoints of all clusters.
type client struct {
	sent []atomic.Int64
	err  error

	mu   sync.Mutex
	seen []int64 // time of receipt, by number of the change
}

func (c *client) run(ctx context.Context, addr string) error {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(256<<20)))
	if err != nil {
		return err
	}
	defer conn.Close()
	s, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	const typ = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	req := &discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "bench"}, TypeUrl: typ}
	for i := range *clusters {
		req.ResourceNamesSubscribe = append(req.ResourceNamesSubscribe, fmt.Sprint("c", i))
	}
	for {
		if err := s.Send(req); err != nil {
			return ended(ctx, err)
		}
		m, err := s.Recv()
		if err != nil {
			return ended(ctx, err)
		}
		now := time.Now().UnixNano()
		c.mu.Lock()
		for _, r := range m.Resources {
			for b := r.Resource.Value; ; {
				_, after, ok := bytes.Cut(b, []byte(mark))
				if !ok || len(after) < digits {
					break
				}
				n, err := strconv.Atoi(string(after[:digits]))
				if err == nil && c.seen[n] == 0 {
					c.seen[n] = now
				}
				b = after[digits:]
			}
		}
		c.mu.Unlock()
		req = &discovery.DeltaDiscoveryRequest{TypeUrl: typ, ResponseNonce: m.Nonce}
	}
}

func ended(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}
