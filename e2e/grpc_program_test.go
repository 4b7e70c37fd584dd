package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/xds"

	"github.com/chancery-xds/chancery/e2e/harness"
)

// An implementation is a gRPC implementation, with the peculiarities of its xDS client.
type implementation struct {
	name    string
	command []string // runs it; none if it is part of this process
	env     string
	needs   string // by install.sh

	agent    string   // user_agent_name and version, on Linux
	features []string // client_features
	always   bool     // the client sends its node in every message, not only in the first
	binds    string   // address in the name of the listener that its server requests
	partial  bool     // a NACK states the refused version if something in it was good
	drops    []string // types without a subscription after its listener was deleted
	forgets  bool     // a server without its listener asks for no routes
	blind    bool     // does not notice that a deleted resource is back, unless its content changed

	forgive func(error) bool // excuses failed calls for which the client is responsible when routes change
}

// Client features.
const (
	noOverprovisioning = "envoy.lb.does_not_support_overprovisioning"
	wrapped            = "xds.config.resource-in-sotw"
)

const installed = "../.cache"

var (
	golang = implementation{
		name: "go", agent: "gRPC Go 1.85.0", features: []string{noOverprovisioning, wrapped},
		drops:   []string{"RDS"},
		forgets: true,
		binds:   "127.0.0.1",
		forgive: switching,
	}
	python = implementation{
		name:    "python",
		command: []string{"python3", "clients/python/greeter.py"},
		env:     "PYTHONPATH=" + installed + "/python",
		needs:   installed + "/python",
		partial: true,
		agent:   "gRPC C-core linux Python C-core 58.0.0 Python 1.85.1", features: []string{noOverprovisioning, wrapped},
		binds: "127.0.0.1",
	}
	node = implementation{
		name:    "node",
		command: []string{"node", "clients/node/greeter.js"},
		env:     "NODE_PATH=" + installed + "/node/node_modules",
		needs:   installed + "/node",
		partial: true,
		blind:   true,
		agent:   "gRPC Node Pure JS 1.14.1", features: []string{noOverprovisioning},
		drops:   []string{"RDS"},
		forgets: true,
		binds:   "127.0.0.1",
	}
	java = implementation{
		name: "java",
		// The program runs for seconds only, so optimizing compilation in the JVM does not pay.
		command: []string{"java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "Greeter"},
		env:     "CLASSPATH=" + installed + "/java/classes:" + installed + "/java/lib/*",
		needs:   installed + "/java",
		agent:   "gRPC Java 1.85.1", features: []string{noOverprovisioning, wrapped},
		always: true,
		drops:  []string{"RDS", "CDS", "EDS"},
		binds:  "0.0.0.0", // whatever it listens at
	}
)

// everyGRPC runs a test once with each implementation.
func everyGRPC(t *testing.T, f func(t *testing.T, g implementation)) {
	for _, g := range []implementation{golang, python, node, java} {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			if g.needs != "" {
				harness.Needs(t, g.needs)
			}
			f(t, g)
		})
	}
}

// grpcBootstrap returns a bootstrap for the management server at a loopback port, made by chancery
// bootstrap.
func grpcBootstrap(t *testing.T, id string, port int) []byte {
	t.Helper()
	b, err := exec.Command(binary, "bootstrap", "grpc", "--node", id, "--cluster", "e2e", "--server", fmt.Sprintf("127.0.0.1:%d", port)).Output()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// dial returns a caller over a client of xds:///greeter.local, which runs until hangUp or the end
// of the test.
func (g implementation) dial(t *testing.T, id string, port int) (call caller, hangUp func()) {
	t.Helper()
	if g.command != nil {
		p := g.run(t, grpcBootstrap(t, id, port), "dial")
		return p.call, p.end
	}
	builder, err := xds.NewXDSResolverWithConfigForTesting(grpcBootstrap(t, id, port))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("xds:///greeter.local", grpc.WithResolvers(builder), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	hangUp = sync.OnceFunc(func() { conn.Close() })
	t.Cleanup(hangUp)
	return greet(conn), hangUp
}

// A program is an implementation in a process of its own: clients/README.md.
type program struct {
	in  io.WriteCloser
	end func()

	mu    sync.Mutex
	calls int
	open  map[int]chan reply // nil when it has ended
}

type reply struct {
	ID    int
	From  string
	Code  codes.Code
	Error string
}

// run starts a program that lives until its end is called or the test's.
func (g implementation) run(t *testing.T, bootstrap []byte, args ...string) *program {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), g.name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	args = append(g.command[1:len(g.command):len(g.command)], args...)
	cmd := exec.Command(g.command[0], args...)
	cmd.Env = append(os.Environ(), g.env, "GRPC_XDS_BOOTSTRAP_CONFIG="+string(bootstrap))
	cmd.Stderr = log
	harness.DieWithParent(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &program{in: in, open: map[int]chan reply{}}
	ended := make(chan error, 1)
	go func() {
		err := p.read(out)
		ended <- errors.Join(err, cmd.Wait())
	}()
	p.end = sync.OnceFunc(func() {
		select {
		case err := <-ended:
			t.Errorf("%s ended by itself: %v", g.name, err)
		default:
			in.Close()
			select {
			case err := <-ended:
				if err != nil {
					t.Errorf("%s at its end: %v", g.name, err)
				}
			case <-time.After(10 * time.Second):
				t.Errorf("%s does not end", g.name)
				cmd.Process.Kill()
				<-ended
			}
		}
		if t.Failed() {
			t.Logf("%s's log:\n%s", g.name, harness.Tail(log.Name(), 30))
		}
	})
	t.Cleanup(p.end)
	return p
}

// read passes replies to the waiting callers, until the output ends.
func (p *program) read(out io.Reader) error {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, c := range p.open {
			close(c)
		}
		p.open = nil
	}()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var r reply
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("%q: %w", lines.Text(), err)
		}
		p.mu.Lock()
		c := p.open[r.ID]
		delete(p.open, r.ID)
		p.mu.Unlock()
		if c == nil {
			return fmt.Errorf("%q answers no call", lines.Text())
		}
		c <- r
	}
	return lines.Err()
}

// call is a caller.
func (p *program) call(ctx context.Context) (answer, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return answer{}, errors.New("a call without a deadline")
	}
	done := make(chan reply, 1)
	p.mu.Lock()
	if p.open == nil {
		p.mu.Unlock()
		return answer{}, errors.New("the client has ended")
	}
	p.calls++
	p.open[p.calls] = done
	_, err := fmt.Fprintln(p.in, p.calls, time.Until(deadline).Milliseconds())
	p.mu.Unlock()
	if err != nil {
		return answer{}, err
	}
	r, ok := <-done // the deadline is the program's to keep
	if !ok {
		return answer{}, errors.New("the client has ended")
	}
	return answer{from: r.From}, status.Error(r.Code, r.Error) // nil if the code is OK
}
