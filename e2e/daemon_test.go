package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/chancery-xds/chancery/e2e/harness"
)

// A daemon is the server under test with its directory of configuration. It
// keeps its address when it is killed and started again.
type daemon struct {
	t    *testing.T
	dir  string
	port int
	log  string // path

	layout  layout
	written int      // how often
	args    []string // more flags

	cmd   *exec.Cmd
	ended chan error
}

func newDaemon(t *testing.T, w world, l layout, args ...string) *daemon {
	t.Helper()
	dir := t.TempDir()
	d := &daemon{t: t, layout: l, args: args, dir: filepath.Join(dir, "config"), port: freePort(t), log: filepath.Join(dir, "chancery.log")}
	if err := os.Mkdir(d.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d.write(w)
	d.start()
	t.Cleanup(d.stop)
	return d
}

// twin starts a second daemon for the same directory, with its own flags.
func (d *daemon) twin(args ...string) *daemon {
	d.t.Helper()
	other := &daemon{t: d.t, dir: d.dir, layout: d.layout, args: args, port: freePort(d.t), log: filepath.Join(d.t.TempDir(), "chancery.log")}
	other.start()
	d.t.Cleanup(other.stop)
	return other
}

func (d *daemon) addr() string { return fmt.Sprintf("127.0.0.1:%d", d.port) }

// write replaces the whole world in one step.
func (d *daemon) write(w world) {
	d.t.Helper()
	d.written++
	if err := d.layout(d.dir, d.written, w); err != nil {
		d.t.Fatal(err)
	}
}

// A layout writes a world into a directory, for the nth time.
type layout func(dir string, n int, w world) error

// renamed is one file that is replaced by another.
func renamed(dir string, _ int, w world) error {
	next := filepath.Join(filepath.Dir(dir), "next.yaml")
	if err := os.WriteFile(next, w.documents(""), 0o644); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(dir, "world.yaml"))
}

// sourcedBy returns a layout whose resources name the source of the variant, instead of ADS, if the
// variant has its own streams.
func sourcedBy(v variant, l layout) layout {
	if !v.own {
		return l
	}
	source, err := json.Marshal(v.apiConfigSource())
	if err != nil {
		panic(err)
	}
	ads := regexp.MustCompile(`"ads": *\{\}`)
	return func(dir string, n int, w world) error {
		moved := newWorld()
		for k, m := range w {
			b, err := protojson.Marshal(m)
			if err != nil {
				return err
			}
			b = ads.ReplaceAllLiteral(b, append([]byte(`"api_config_source":`), source...))
			moved[k] = m.ProtoReflect().New().Interface()
			if err := protojson.Unmarshal(b, moved[k]); err != nil {
				return err
			}
		}
		return l(dir, n, moved)
	}
}

// mounted writes a file for each type, as Kubernetes mounts a ConfigMap: the files are links
// through the link ..data, which is replaced.
func mounted(dir string, n int, w world) error {
	revision := fmt.Sprintf("..%d", n)
	if err := os.Mkdir(filepath.Join(dir, revision), 0o755); err != nil {
		return err
	}
	for _, typ := range []string{"Cluster", "ClusterLoadAssignment", "Listener", "RouteConfiguration"} {
		file := typ + ".yaml"
		if err := os.WriteFile(filepath.Join(dir, revision, file), w.documents(typ), 0o644); err != nil {
			return err
		}
		if n == 1 {
			if err := os.Symlink(filepath.Join("..data", file), filepath.Join(dir, file)); err != nil {
				return err
			}
		}
	}
	next := filepath.Join(dir, "..data_tmp")
	if err := os.Symlink(revision, next); err != nil {
		return err
	}
	if err := os.Rename(next, filepath.Join(dir, "..data")); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..%d", n-1)))
}

// start runs the daemon and waits until it takes connections.
func (d *daemon) start() {
	d.t.Helper()
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer log.Close()
	d.cmd = exec.Command(binary, append([]string{"serve", d.dir, "--listen", d.addr()}, d.args...)...)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	harness.DieWithParent(d.cmd)
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	cmd, ended := d.cmd, make(chan error, 1)
	d.ended = ended
	go func() { ended <- cmd.Wait(); close(ended) }()
	eventually(d.t, 20*time.Second, "the daemon takes connections", func() error {
		select {
		case err := <-ended:
			d.t.Fatalf("the daemon ended: %v\n%s", err, harness.Tail(d.log, 40))
		default:
		}
		for _, a := range d.listeners() {
			c, err := net.Dial(a.Network(), a.String())
			if err != nil {
				return err
			}
			c.Close()
		}
		return nil
	})
}

// listeners returns the addresses that the daemon listens on. It opens them one after another, xDS first, and a test may
// use any of them at once.
func (d *daemon) listeners() []net.Addr {
	all := []net.Addr{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: d.port}}
	for i, flag := range d.args {
		if flag != "--admin-listen" && flag != "--rest-listen" {
			continue
		}
		at := d.args[i+1]
		if path, ok := strings.CutPrefix(at, "unix://"); ok {
			all = append(all, &net.UnixAddr{Name: path, Net: "unix"})
		} else if tcp, err := net.ResolveTCPAddr("tcp", at); err == nil {
			all = append(all, tcp)
		}
	}
	return all
}

// serves is a condition: a new client gets exactly these clusters.
func (d *daemon) serves(clusters ...string) func() error {
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		conn, err := grpc.NewClient(d.addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer conn.Close()
		stream, err := clusterservice.NewClusterDiscoveryServiceClient(conn).StreamClusters(ctx)
		if err != nil {
			return err
		}
		if err := stream.Send(&discovery.DiscoveryRequest{Node: &core.Node{Id: "probe"}}); err != nil {
			return err
		}
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		got := map[string]bool{}
		for _, a := range r.GetResources() {
			var c cluster.Cluster
			if err := a.UnmarshalTo(&c); err != nil {
				return err
			}
			got[c.GetName()] = true
		}
		if !sameNames(got, clusters) {
			return fmt.Errorf("serves %v", got)
		}
		return nil
	}
}

// logged returns the lines of the log with a message.
func (d *daemon) logged(message string) (found []map[string]any) {
	d.t.Helper()
	log, err := os.ReadFile(d.log)
	if err != nil {
		d.t.Fatal(err)
	}
	for line := range bytes.Lines(log) {
		var fields map[string]any
		if json.Unmarshal(line, &fields) == nil && fields["msg"] == message {
			found = append(found, fields)
		}
	}
	return found
}

// kill sends SIGKILL to the daemon.
func (d *daemon) kill() {
	d.t.Helper()
	if err := d.cmd.Process.Kill(); err != nil {
		d.t.Fatal(err)
	}
	<-d.ended
	d.cmd = nil
}

// stop ends the daemon as an operator does. Its clients have ended before.
func (d *daemon) stop() {
	if d.cmd != nil {
		select {
		case err := <-d.ended:
			d.t.Errorf("the daemon ended by itself: %v", err)
		default:
			d.cmd.Process.Signal(syscall.SIGTERM)
			select {
			case err := <-d.ended:
				if err != nil {
					d.t.Errorf("the daemon on SIGTERM: %v", err)
				}
			case <-time.After(10 * time.Second):
				d.t.Error("the daemon does not end on SIGTERM")
				d.cmd.Process.Kill()
				<-d.ended
			}
		}
	}
	if log, err := os.ReadFile(d.log); err != nil || bytes.Contains(log, []byte("DATA RACE")) {
		d.t.Error("a data race in the daemon", err)
	}
	if d.t.Failed() {
		d.t.Logf("the daemon's log:\n%s", harness.Tail(d.log, 60))
	}
}
