package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statusgrpc "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/credentials/insecure"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/xds"
)

// unread starts a server whose log is read only until it serves, and returns the log.
func unread(t *testing.T, flags ...string) (d *runningServer, port string, log *os.File) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "a.yaml", cluster("a"))
	port = freePort(t)
	log, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	d = &runningServer{T: t, ctx: ctx, dir: dir, cmd: exec.CommandContext(ctx, binary, append([]string{"serve", dir, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:" + port, "--drain", "100ms"}, flags...)...)}
	d.cmd.Stderr = w
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	for lines := bufio.NewScanner(log); lines.Scan(); {
		var line struct{ Msg, Xds string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "serving" {
			d.dial(line.Xds, insecure.NewCredentials())
			return d, port, log
		}
	}
	t.Fatal("the log ended")
	return nil, "", nil
}

// serves commits a change, which writes a log line, and ends the server.
func (d *runningServer) serves(port string) {
	d.Helper()
	write(d.T, d.dir, "b.yaml", cluster("b"))
	d.tells(port, "/metrics", `xds_server_resources{group="default",type="cds"} 2`+"\n")
	d.signal(syscall.SIGTERM)
	if err := d.cmd.Wait(); err != nil {
		d.Errorf("ended with %v", err)
	}
}

// "Nobody locked out": the reader of the log may end, like head or a restarted collector, and the server
// continues without it. (SAFE-9)
func TestServerSurvivesClosedLog(t *testing.T) {
	d, port, log := unread(t)
	log.Close()
	d.signal(syscall.SIGHUP) // a line of the log
	time.Sleep(100 * time.Millisecond)
	d.serves(port)
}

// A reader of the log that does not read does not stop streams, reloads or the end of the server.
func TestSlowLogReaderDoesNotDelayServer(t *testing.T) {
	d, port, _ := unread(t)
	d.chats(port)
	chancery(t, cli.OK, "ok: 1 resource", "reload", d.dir)
	d.serves(port)
}

// It does not stop the second signal either, which ends the program at once with a reason.
func TestSlowLogReaderDoesNotDelaySecondSignal(t *testing.T) {
	d, port, _ := unread(t, "--drain-delay", "1h")
	d.chats(port)
	d.signal(syscall.SIGTERM)
	d.healthy(healthgrpc.HealthCheckResponse_NOT_SERVING)
	d.signal(syscall.SIGTERM)
	if _ = d.cmd.Wait(); d.cmd.ProcessState.ExitCode() != cli.Failed {
		d.Error(d.cmd.ProcessState)
	}
}

// chats fills the log; a pipe holds less.
func (d *runningServer) chats(port string) {
	t := d.T
	for i := range 100 { // lines of a KiB, more than a pipe holds
		stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(d.conn).StreamAggregatedResources(d.ctx)
		if err != nil {
			t.Fatal(err)
		}
		s := subscriber{d, stream}
		s.send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: fmt.Sprint("n", i)}, TypeUrl: xds.Cluster.URL})
		r, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		s.send(&discoveryv3.DiscoveryRequest{TypeUrl: xds.Cluster.URL, ResponseNonce: r.Nonce, ErrorDetail: &statusgrpc.Status{Message: string([]rune{rune('a' + i/26), rune('a' + i%26)}) + strings.Repeat("x", 1000)}})
	}
	d.tells(port, "/metrics", `xds_server_nacks_total{group="default",type="cds"} 100`+"\n")
}
