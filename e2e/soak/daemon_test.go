package soak

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/e2e/harness"
	"github.com/chancery-xds/chancery/xds"
)

// built builds the program once, and returns its path.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "chancery-soak-")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "chancery")
	return bin, harness.Build("../..", bin)
})

// A daemon is the program with a directory of files.
type daemon struct {
	dir, addr, log string
	monitor        harness.Monitor // empty: no metrics
	cmd            *exec.Cmd
	ended          chan struct{}
	old            bool // the program ends old connections

	commits int
	probe   *client // subscribes to tick
	read    int64   // bytes of the log that alive has examined
}

// tick is the name of a resource with the number of the commit.
const tick = "tick"

// startDaemon runs the program with a directory that has only the tick.
func startDaemon(t *testing.T, bin string, flags ...string) *daemon {
	t.Helper()
	d := &daemon{dir: t.TempDir(), addr: fmt.Sprint("127.0.0.1:", harness.FreePort(t)), ended: make(chan struct{})}
	d.log = filepath.Join(d.dir, "log")
	d.dir = filepath.Join(d.dir, "config")
	if err := os.Mkdir(d.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := d.write(newWorld()); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(d.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	d.cmd = exec.Command(bin, append([]string{"serve", d.dir, "--listen", d.addr, "--drain", "0s", "--first-request-timeout", "1h"}, flags...)...)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.Env = append(os.Environ(), "STATE_DIRECTORY="+filepath.Join(filepath.Dir(d.log), "state"), "CHANCERY_ADMIN_LISTEN=127.0.0.1:0",
		"CHANCERY_QUARANTINE=false" /* each client must get the content of the files */)
	harness.DieWithParent(d.cmd)
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = d.cmd.Wait(); close(d.ended) }()
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if c, err := net.Dial("tcp", d.addr); err == nil { //nolint:noctx // tests whether the program listens
			c.Close()
			break
		}
	}
	t.Cleanup(func() {
		_ = d.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-d.ended:
		case <-time.After(10 * time.Second):
			t.Error("the program does not end on SIGTERM")
			_ = d.cmd.Process.Kill()
			<-d.ended
		}
		if t.Failed() {
			log, _ := os.ReadFile(d.log)
			t.Logf("the program's log:\n%s", log[max(0, len(log)-4000):])
		}
		if code := d.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("the program's exit code is %d", code)
		}
	})
	return d
}

func (d *daemon) dial() (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+d.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

func (d *daemon) catchUp()      { time.Sleep(3 * time.Millisecond) }
func (d *daemon) patient() bool { return false }
func (d *daemon) aging() bool   { return d.old }

// alive searches the new part of the log for errors. It also reads the 16 bytes before that
// part, because a searched word may be split between two calls.
func (d *daemon) alive() error {
	const longest = 16
	file, err := os.Open(d.log)
	if err != nil {
		return err
	}
	defer file.Close()
	log, err := io.ReadAll(io.NewSectionReader(file, max(0, d.read-longest), math.MaxInt64-d.read))
	if err != nil {
		return err
	}
	d.read = max(0, d.read-longest) + int64(len(log))
	for _, bad := range []string{"panic", "fatal error", "DATA RACE", "level=ERROR"} {
		if i := bytes.Index(log, []byte(bad)); i >= 0 {
			return fmt.Errorf("the program's log:\n%s", log[i:min(len(log), i+4000)])
		}
	}
	select {
	case <-d.ended:
		return fmt.Errorf("the program ended: %v\n%s", d.cmd.ProcessState, harness.Tail(d.log, 40))
	default:
		return nil
	}
}

// commit replaces the file and waits until it is served.
func (d *daemon) commit(w world) error {
	if err := d.write(w); err != nil {
		return err
	}
	if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		return err
	}
	want := kindOf(xds.Runtime).body(tick, fmt.Sprint(d.commits), nil)
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); time.Sleep(2 * time.Millisecond) {
		if err := d.alive(); err != nil {
			return err
		}
		if d.probe == nil {
			d.probe = &client{manner: manner{delta: true, only: xds.Runtime, node: &core.Node{Id: "probe"}}, id: "probe", dial: d.dial, polite: true,
				note: func(string, ...any) {}, subs: []*sub{newSub(xds.Runtime, tick)}}
		}
		d.probe.mu.Lock()
		has, up := d.probe.subs[0].cache[tick], d.probe.stream != nil
		d.probe.mu.Unlock()
		got := kindOf(xds.Runtime).body("", "", nil)
		switch {
		case !up:
			if err := d.probe.connect(true); err != nil {
				return err
			}
			d.probe.mu.Lock()
			d.probe.say(d.probe.subs[0], says{subscribe: []string{tick}})
			d.probe.mu.Unlock()
		case proto.Unmarshal([]byte(has.body), got) == nil && proto.Equal(got, want):
			return nil
		}
	}
	return errors.New("the program does not serve the commit within 20 s")
}

// write replaces the file with the resources of a world.
func (d *daemon) write(w world) error {
	d.commits++
	var out bytes.Buffer
	add := func(name string, r resource, body proto.Message) {
		b, err := protojson.Marshal(pack(body))
		if err != nil {
			panic(err)
		}
		doc := map[string]any{"@type": "type.googleapis.com/envoy.service.discovery.v3.Resource", "name": name, "resource": json.RawMessage(b)}
		if len(r.aliases) > 0 {
			doc["aliases"] = r.aliases
		}
		if r.ttl > 0 {
			doc["ttl"] = fmt.Sprintf("%ds", int(r.ttl.Seconds()))
		}
		if r.onDemand {
			doc["x-chancery"] = map[string]any{"on_demand": true}
		}
		text, err := json.Marshal(doc)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(&out, "---\n%s\n", text)
	}
	add(tick, resource{}, kindOf(xds.Runtime).body(tick, fmt.Sprint(d.commits), nil))
	w.each(func(_ *kind, name string, r resource, body proto.Message) { add(name, r, body) })
	next := filepath.Join(filepath.Dir(d.dir), "next.yaml")
	if err := os.WriteFile(next, out.Bytes(), 0o600); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(d.dir, "world.yaml"))
}
