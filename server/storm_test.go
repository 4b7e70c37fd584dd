package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A storm describes the clients that connect at once, from another process.
type storm struct {
	Server  string
	Clients int
	Names   int  // resources of 300 bytes that each client gets
	All     bool // all resources by wildcard; false: by name, out of ten times as many
}

// The cost of 5,000 clients that reconnect at once, with and without the limit of first answers. Each has 1,000 names and a node
// as large as that of Envoy:
//
//	go test -run '^$' -bench Storm -benchtime 1x ./server
func BenchmarkStorm(b *testing.B) {
	const names = 1000
	st := store.New()
	var set []*xds.Resource
	for i := range 10 * names {
		set = append(set, res(fmt.Sprintf("cluster-%05d-of-some-namespace", i), string(make([]byte, 300))))
	}
	if _, err := st.Update(func(tx *store.Tx) error {
		tx.Set(of(xds.Endpoint, set...)...)
		tx.Set(of(xds.Runtime, set[:names]...)...)
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	for _, all := range []bool{false, true} {
		for _, bound := range []int{-1, 50} {
			b.Run(fmt.Sprintf("all=%v/bound=%d", all, bound), func(b *testing.B) {
				for b.Loop() {
					var done served
					srv := New(st, WithLimits(Limits{FirstAnswers: bound}), WithObserver(&done))
					g := grpc.NewServer(GRPCOptions()...)
					if err := srv.Register(g); err != nil {
						panic(err)
					}
					lis, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a listener in a test
					if err != nil {
						b.Fatal(err)
					}
					go g.Serve(lis)
					storm{lis.Addr().String(), 5000, names, all}.rage(b, &done)
					g.Stop()
				}
			})
		}
	}
}

// rage starts the clients, lets them connect, and reports their waiting times and the resources that the server needed.
func (s storm) rage(b *testing.B, done *served) {
	b.Helper()
	told, _ := json.Marshal(s)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "STORM="+string(told))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	lines.Scan() // all are connected
	debug.FreeOSMemory()
	peakMemory(b)
	before := peakMemory(b)
	start := cpuTime()
	stdin.Write([]byte("go\n"))
	if !lines.Scan() {
		b.Fatal("the clients died")
	}
	var waits []time.Duration
	if err := json.Unmarshal(lines.Bytes(), &waits); err != nil {
		b.Fatal(err)
	}
	after := peakMemory(b)
	stdin.Close()
	cmd.Wait()
	for _, q := range []struct {
		name string
		of   float64
	}{{"p50", .5}, {"p99", .99}, {"last", 1}} {
		b.ReportMetric(waits[int(q.of*float64(len(waits)-1))].Seconds(), q.name+"-s")
	}
	b.ReportMetric(float64(before)/(1<<20), "before-MB")
	b.ReportMetric(float64(after)/(1<<20), "peak-MB")
	// Other programs may use the machine, so the CPU time of the server is measured.
	done.mu.Lock()
	defer done.mu.Unlock()
	slices.Sort(done.at)
	b.ReportMetric((done.at[len(done.at)/2] - start).Seconds(), "half-cpu-s")
	b.ReportMetric((done.at[len(done.at)-1] - start).Seconds(), "last-cpu-s")
	b.ReportMetric(0, "ns/op")
}

// peakMemory returns the largest resident memory of the process since the last call, or 0 if the system does not report it.
func peakMemory(b *testing.B) int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if m == nil || os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) != nil {
		return 0
	}
	kb, err := strconv.Atoi(string(m[1]))
	if err != nil {
		b.Fatal(err)
	}
	return kb << 10
}

// stormyClients is the other process: it connects, waits for a command, and then subscribes on all connections at once. It prints
// how long each client waited for its first answer, sorted.
func stormyClients() {
	var s storm
	fail := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	fail(json.Unmarshal([]byte(os.Getenv("STORM")), &s))
	var extensions []*corev3.Extension
	for i := range 516 {
		extensions = append(extensions, &corev3.Extension{Name: fmt.Sprintf("envoy.filters.http.number-%d", i), Category: "envoy.filters.http", TypeUrls: []string{fmt.Sprintf("envoy.extensions.filters.http.number_%d.v3.Filter", i)}})
	}
	var conns []*grpc.ClientConn
	for range s.Clients {
		c, err := grpc.NewClient("passthrough:///"+s.Server, grpc.WithTransportCredentials(insecure.NewCredentials()), rawAnswers)
		fail(err)
		c.Connect()
		conns = append(conns, c)
	}
	for _, c := range conns {
		for state := c.GetState(); state.String() != "READY"; state = c.GetState() {
			c.WaitForStateChange(context.Background(), state)
		}
	}
	encoded := func(m proto.Message) *message {
		b, err := proto.Marshal(m)
		fail(err)
		return raw(string(b))
	}
	requests := make([]*message, s.Clients)
	for i := range requests {
		req := &discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, Node: &corev3.Node{Id: fmt.Sprint("node-", i), Extensions: extensions}}
		if s.All {
			req.TypeUrl, req.ResourceNamesSubscribe = xds.Runtime.URL, []string{xds.Wildcard}
		}
		for j := range s.Names {
			if s.All {
				break
			}
			req.ResourceNamesSubscribe = append(req.ResourceNamesSubscribe, fmt.Sprintf("cluster-%05d-of-some-namespace", (i*7+j)%(10*s.Names)))
		}
		requests[i] = encoded(req)
	}
	typ := xds.Endpoint
	if s.All {
		typ = xds.Runtime
	}
	accepted := encoded(&discovery.DeltaDiscoveryRequest{TypeUrl: typ.URL, ResponseNonce: "1"})
	fmt.Println("connected")
	word := bufio.NewScanner(os.Stdin)
	word.Scan()
	waits := make([]time.Duration, s.Clients)
	var all sync.WaitGroup
	start := time.Now()
	for i, c := range conns {
		all.Go(func() {
			stream, err := c.NewStream(context.Background(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, adsDelta)
			fail(err)
			fail(stream.SendMsg(requests[i]))
			fail(stream.RecvMsg(&message{}))
			waits[i] = time.Since(start)
			fail(stream.SendMsg(accepted))
		})
	}
	all.Wait()
	slices.Sort(waits)
	fail(json.NewEncoder(os.Stdout).Encode(waits))
	word.Scan() // until the end of input
}

var rawAnswers = grpc.WithDefaultCallOptions(rawCodec, grpc.MaxCallRecvMsgSize(1<<30))

// cpuTime returns the CPU time of the process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// served records the CPU time of the server when each client had its answer.
type served struct {
	mu sync.Mutex
	at []time.Duration
}

func (s *served) Opened(*Stream)        {}
func (s *served) Closed(*Stream, error) {}
func (s *served) Event(_ *Stream, e protocol.Event) {
	if e.Kind == protocol.Acked {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.at = append(s.at, cpuTime())
	}
}
