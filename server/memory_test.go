package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// The memory of an idle stream in the server, in heap and stacks, with its clients in another process:
//
//	go test -run '^$' -bench Idle -benchtime 1x ./server
func BenchmarkIdle(b *testing.B) {
	const total = 2000
	for _, names := range []int{1, 100} {
		for _, conns := range []int{1, total} {
			b.Run(fmt.Sprintf("names=%d/conns=%d", names, conns), func(b *testing.B) {
				st := store.New()
				var set []*xds.Resource
				for i := range names {
					set = append(set, res(fmt.Sprint("cluster-", i), "an assignment"))
				}
				if _, err := st.Update(func(tx *store.Tx) error { tx.Set(of(xds.Endpoint, set...)...); return nil }); err != nil {
					b.Fatal(err)
				}
				for b.Loop() {
					srv := New(st)
					g := grpc.NewServer(GRPCOptions()...)
					if err := srv.Register(g); err != nil {
						panic(err)
					}
					lis, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a listener in a test
					if err != nil {
						b.Fatal(err)
					}
					go g.Serve(lis)
					before := inUse()
					cmd := exec.Command(os.Args[0])
					cmd.Env = append(os.Environ(), "IDLE_SERVER="+lis.Addr().String(), fmt.Sprint("IDLE_STREAMS=", total), fmt.Sprint("IDLE_CONNS=", conns), fmt.Sprint("IDLE_NAMES=", names))
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
					io.ReadFull(stdout, make([]byte, 1)) // all streams are answered
					time.Sleep(time.Second)

					after := inUse()
					b.ReportMetric(float64(after.HeapInuse-before.HeapInuse)/total, "heap-B/stream")
					b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/total, "live-B/stream")
					b.ReportMetric(float64(after.StackInuse-before.StackInuse)/total, "stack-B/stream")
					if n := srv.Stats().Open; n != total {
						b.Errorf("%d streams are open", n)
					}
					stdin.Close()
					cmd.Wait()
					g.Stop()
				}
			})
		}
	}
}

func inUse() (m runtime.MemStats) {
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}

// idleClients is the other process: it opens streams, waits until each is idle, and waits for the end of its input.
func idleClients() {
	number := func(key string) int { n, _ := strconv.Atoi(os.Getenv(key)); return n }
	var list []string
	for i := range number("IDLE_NAMES") {
		list = append(list, fmt.Sprint("cluster-", i))
	}
	fail := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	var conns []*grpc.ClientConn
	for range number("IDLE_CONNS") {
		c, err := grpc.NewClient("passthrough:///"+os.Getenv("IDLE_SERVER"), grpc.WithTransportCredentials(insecure.NewCredentials()))
		fail(err)
		conns = append(conns, c)
	}
	for i := range number("IDLE_STREAMS") {
		s, err := discovery.NewAggregatedDiscoveryServiceClient(conns[i%len(conns)]).StreamAggregatedResources(context.Background())
		fail(err)
		fail(s.Send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: list, Node: &corev3.Node{Id: fmt.Sprint("node-", i), Cluster: "c", UserAgentName: "envoy"}}))
		r, err := s.Recv()
		fail(err)
		fail(s.Send(ack(r, list...)))
	}
	os.Stdout.WriteString("!")
	io.Copy(io.Discard, os.Stdin)
}
