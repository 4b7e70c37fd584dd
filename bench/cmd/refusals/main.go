// Command refusals measures the CPU of a server whose clients refuse a resource for ever. The server is the
// program itself, in a process of its own. The clients refuse the resource with a reason that cannot pass, so
// the server sends the resource again at the slowest step, every 5 to 6 minutes.
//
// The idle CPU, before the change that the clients refuse, is measured first. The first refusals are spread
// over -spread, so that the retries are spread, too, as they are after some hours.
package main

import (
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
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	status "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

var (
	binary   = flag.String("bin", "../bin/chancery", "the program")
	n        = flag.Int("n", 10_000, "clients")
	perConn  = flag.Int("streams", 100, "streams of a connection")
	size     = flag.Int("size", 5<<10, "bytes of the refused resource")
	isNew    = flag.Bool("new", false, "the clients have accepted no earlier version of the resource")
	retries  = flag.Bool("retry", true, "the server sends the refused resource again")
	idle     = flag.Duration("idle", 2*time.Minute, "how long to measure the idle server")
	spread   = flag.Duration("spread", 330*time.Second, "time within which the clients refuse the resource first")
	after    = flag.Duration("after", 6*time.Minute, "from the change until the measurement")
	length   = flag.Duration("for", 4*time.Minute, "how long to measure the retries")
	profile  = flag.String("profile", "", "a file for the server's CPU profile during the retries")
	refusals atomic.Int64 // sent by all clients
	answers  atomic.Int64 // ACKs and refusals
)

const (
	typ  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	name = "refused"
	text = "Error adding/updating cluster(s) " + name + ": Proto constraint validation failed (ClusterValidationError.ConnectTimeout: value must be greater than 0s)"
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	dir, err := os.MkdirTemp("", "refusals")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := start(dir)
	if err != nil {
		return err
	}
	defer s.stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	failed := make(chan error, *n)
	for i := 0; i < *n; i += *perConn {
		conn, err := grpc.NewClient(s.xds, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer conn.Close()
		for j := i; j < min(i+*perConn, *n); j++ {
			go func() { failed <- serve(ctx, conn, j) }()
		}
	}
	wait := func(d time.Duration) error {
		select {
		case err := <-failed:
			return err
		case <-time.After(d):
			return nil
		}
	}
	for answers.Load() < int64(*n) {
		if err := wait(100 * time.Millisecond); err != nil {
			return err
		}
	}
	if err := wait(10 * time.Second); err != nil {
		return err
	}
	measure := func(what string, d time.Duration) error {
		began, cpu, sent, logged := time.Now(), s.cpu(), refusals.Load(), s.logged.Load()
		if err := wait(d); err != nil {
			return err
		}
		took := time.Since(began).Seconds()
		cpu, sent, logged = s.cpu()-cpu, refusals.Load()-sent, s.logged.Load()-logged
		fmt.Printf("%s: %.2f s of CPU in %.0f s, %.2f %% of a core; %.1f refusals/s; %d bytes of log\n", what, cpu, took, 100*cpu/took, float64(sent)/took, logged)
		return nil
	}
	if err := measure("idle", *idle); err != nil {
		return err
	}
	if err := s.configure(true); err != nil {
		return err
	}
	if err := wait(*after); err != nil {
		return err
	}
	if *profile != "" {
		go func() {
			if err := s.profile(*profile, *length-time.Second); err != nil {
				log.Print(err)
			}
		}()
	}
	return measure("retries", *length)
}

// serve is one client until ctx is done.
func serve(ctx context.Context, conn *grpc.ClientConn, i int) error {
	s, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	req := &discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: fmt.Sprint("bench-", i), UserAgentName: "envoy"}, TypeUrl: typ, ResourceNamesSubscribe: []string{"*"}}
	for refused := false; ; {
		if err := s.Send(req); err != nil {
			return err
		}
		m, err := s.Recv()
		if err != nil {
			return err
		}
		req = &discovery.DeltaDiscoveryRequest{TypeUrl: typ, ResponseNonce: m.Nonce}
		answers.Add(1)
		for _, r := range m.Resources {
			if r.Name != name || bytes.Contains(r.Resource.Value, []byte("good")) {
				continue
			}
			req.ErrorDetail = &status.Status{Code: 13, Message: text}
			if !refused {
				refused = true
				time.Sleep(rand.N(*spread))
			}
			refusals.Add(1)
		}
	}
}

// A server is a running server.
type server struct {
	cmd    *exec.Cmd
	config string // directory
	socket string // of metrics
	xds    string
	logged atomic.Int64 // bytes
}

// start starts a server, and waits until it serves.
func start(dir string) (*server, error) {
	s := &server{config: filepath.Join(dir, "config"), socket: filepath.Join(dir, "metrics.sock")}
	if err := os.Mkdir(s.config, 0o700); err != nil {
		return nil, err
	}
	if err := s.configure(false); err != nil {
		return nil, err
	}
	s.cmd = exec.Command(*binary, "serve", s.config, "--listen", "127.0.0.1:0", "--admin-listen", "unix://"+filepath.Join(dir, "admin.sock"), "--metrics-listen", "unix://"+s.socket, "--state-dir", filepath.Join(dir, "state"), fmt.Sprintf("--retry-refused=%v", *retries))
	out, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	log := &serverLog{bytes: &s.logged, address: make(chan string, 1)}
	go func() { _, _ = io.Copy(log, out) }()
	select {
	case s.xds = <-log.address:
		return s, nil
	case <-time.After(10 * time.Second):
		s.stop()
		return nil, errors.New("the server does not serve in time")
	}
}

func (s *server) stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// configure writes the configuration, with or without the version that the clients refuse.
func (s *server) configure(refused bool) error {
	cluster := func(name, version string, size int) error {
		body := fmt.Sprintf(`{"@type": "%s", "name": %q, "connect_timeout": "5s", "type": "STATIC", "alt_stat_name": %q}`, typ, name, version+strings.Repeat("x", size))
		temp := filepath.Join(filepath.Dir(s.config), "new")
		return errors.Join(os.WriteFile(temp, []byte(body), 0o600), os.Rename(temp, filepath.Join(s.config, name+".json")))
	}
	switch {
	case refused:
		return cluster(name, "bad", *size)
	case *isNew:
		return cluster("other", "good", *size)
	}
	return cluster(name, "good", *size)
}

// cpu returns the CPU seconds that the server has used.
func (s *server) cpu() (sum float64) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	for _, i := range []int{11, 12} {
		ticks, _ := strconv.Atoi(f[i])
		sum += float64(ticks) / 100
	}
	return sum
}

func (s *server) profile(path string, d time.Duration) error {
	c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.socket)
	}}}
	resp, err := c.Get(fmt.Sprintf("http://localhost/debug/pprof/profile?seconds=%.0f", d.Seconds()))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, resp.Body)
	return errors.Join(err, f.Close())
}

// A serverLog counts the bytes of a server's log, and finds the address in it. It shows the log until then.
type serverLog struct {
	bytes   *atomic.Int64
	address chan string
	begin   []byte
	found   bool
}

func (l *serverLog) Write(p []byte) (int, error) {
	l.bytes.Add(int64(len(p)))
	if l.found {
		return len(p), nil
	}
	l.begin = append(l.begin, p...)
	if _, rest, ok := bytes.Cut(l.begin, []byte(`"xds":"`)); ok {
		if address, _, ok := bytes.Cut(rest, []byte(`"`)); ok {
			l.found = true
			l.address <- string(address)
			return len(p), nil
		}
	}
	return os.Stderr.Write(p)
}
