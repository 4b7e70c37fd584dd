package chaos

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/e2e/harness"
)

const envoyPath = "../../.cache/envoy/envoy-1.40.0"

// A setup has the special needs of a row. The zero value is the default.
type setup struct {
	clients int                           // 500 if zero
	far     bool                          // all of them are behind the proxy, not a tenth
	server  func(t *testing.T, s *server) // changes how the server is run
}

// A rig is the server with its fleet, two Envoys and load. A tenth of the fleet and
// both Envoys are behind the proxy.
type rig struct {
	*server
	setup
	place
	fleet  *fleet
	proxy  *proxy
	envoys []*harness.Envoy // SotW, delta
	now    content          // the directory's

	traffic *http.Transport
	t       *testing.T // of the row that is played

	// Of that row.
	load   *harness.Load
	before harness.Usage
	begun  time.Time // of the fault
	notes  []string
}

// newRig starts everything and waits until all have the first generation.
func newRig(t *testing.T, s setup) *rig {
	t.Helper()
	if s.clients == 0 {
		s.clients = 500
	}
	harness.Needs(t, envoyPath)
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // for a server that is another user
		t.Fatal(err)
	}
	local := func() string { return fmt.Sprintf("127.0.0.1:%d", harness.FreePort(t)) }
	r := &rig{t: t, setup: s, server: &server{
		binary: binary, dir: filepath.Join(dir, "config"), state: filepath.Join(dir, "state"), log: filepath.Join(dir, "log"), addr: local(), Monitor: harness.Monitor(local()),
	}}
	for _, d := range []string{r.dir, r.state} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range []string{"a", "b"} {
		r.ports[i], r.upstreams[i] = harness.FreePort(t), harness.NewUpstream(t, name, nil).Port
	}
	if s.server != nil {
		s.server(t, r.server)
	}
	r.commit()
	r.must(r.start())
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the server's log:\n%s", harness.Tail(r.log, 40))
		}
	})
	var err error
	r.proxy, err = newProxy(r.addr)
	r.must(err)
	t.Cleanup(r.proxy.close)
	r.fleet, err = newFleet(s.clients, func(i int) string {
		if s.far || r.distant(i) {
			return r.proxy.Addr().String()
		}
		return r.addr
	})
	r.must(err)
	t.Cleanup(r.fleet.stop)
	for _, delta := range []bool{false, true} {
		r.envoys = append(r.envoys, r.envoy(delta))
	}
	r.traffic = &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(r.traffic.CloseIdleConnections)
	r.converges("at first")
	r.commit() // what a change leaves behind is there from now on
	return r
}

// distant reports whether the ith client is behind the proxy: a tenth of the clients are.
func (r *rig) distant(i int) bool { return i >= r.clients/10*9/perConn*perConn }

// envoy starts one with the bootstrap that the program makes.
func (r *rig) envoy(delta bool) *harness.Envoy {
	r.t.Helper()
	name := map[bool]string{false: "sotw", true: "delta"}[delta]
	boot, err := exec.Command(binary, "bootstrap", "envoy", "--node", "envoy-"+name, "--server", r.proxy.Addr().String(), "--admin", "127.0.0.1:0", fmt.Sprintf("--delta=%v", delta)).Output()
	r.must(err)
	file := filepath.Join(filepath.Dir(r.dir), name+".json")
	r.must(os.WriteFile(file, boot, 0o644))
	e := harness.RunEnvoy(r.t, envoyPath, file, time.Second)
	harness.Eventually(r.t, time.Minute, "an Envoy is live", e.Live)
	return e
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// next makes the next generation, without writing it.
func (r *rig) next() { r.now = r.content(r.t, r.now.generation+1) }

// write puts the generation into the directory.
func (r *rig) write() {
	r.t.Helper()
	for name, text := range r.now.files {
		r.must(put(r.dir, name, text))
	}
}

func (r *rig) commit() {
	r.t.Helper()
	r.next()
	r.write()
}

// patience is the limit for a condition to become true: Envoy reconnects after at most 30 s, and
// the machine may be busy.
const patience = 90 * time.Second

// A delay is how long it took until the content was everywhere.
type delay struct{ told, fleet, envoys time.Duration }

func (d delay) String() string {
	return fmt.Sprintf("fleet %.1f s (nothing stale %.1f s), Envoys %.1f s", d.told.Seconds(), d.fleet.Seconds(), d.envoys.Seconds())
}

// converges waits until the fleet and the Envoys have the generation, and nothing else.
func (r *rig) converges(when string) (took delay) {
	r.t.Helper()
	start := time.Now()
	slow := make(chan error, 1)
	go func() {
		for {
			err := r.haveEnvoys()
			took.envoys = time.Since(start)
			if err == nil || took.envoys > patience {
				slow <- err
				return
			}
			time.Sleep(20 * time.Millisecond) // between two looks
		}
	}()
	took.told = harness.Eventually(r.t, patience, "the fleet gets the newest content "+when, r.fleet.told(r.now, nil))
	took.fleet = took.told + harness.Eventually(r.t, patience, "the fleet has the newest content only "+when, r.fleet.have(r.now))
	if err := <-slow; err != nil {
		r.t.Fatalf("the Envoys have not the newest content %s: %v", when, err)
	}
	return took
}

// haveEnvoys is a condition: both Envoys route as the generation defines, and have its cluster and
// no older one.
func (r *rig) haveEnvoys() error {
	for _, e := range r.envoys {
		routes, err := e.Get("/config_dump?resource=dynamic_route_configs")
		if err != nil {
			return err
		}
		want := fmt.Sprintf(`"value": "%d"`, r.now.generation)
		if n := bytes.Count(routes, []byte(want)); n != len(r.ports) {
			return fmt.Errorf("%d of an Envoy's routes are of generation %d", n, r.now.generation)
		}
		clusters, err := e.Get("/clusters")
		if err != nil {
			return err
		}
		for i := range 3 {
			front := fmt.Sprint("front-", i)
			if has := bytes.Contains(clusters, []byte(front+"::")); has != (front == r.now.front) {
				return fmt.Errorf("an Envoy has %s: %v", front, has)
			}
		}
	}
	return nil
}

// get is one request through an Envoy.
func (r *rig) request(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", r.ports[0]), nil)
	if err != nil {
		return err
	}
	resp, err := r.traffic.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s", resp.Status, body)
	}
	return err
}

// perSecond is how many requests there are in a second.
const perSecond = 500

// plays runs a row: the fault, and then the checks. All clients must get the next generation, no
// request may fail, no client may get a wrong removal, and the idle server must use the same
// resources as before.
func (r *rig) plays(t *testing.T, fault func()) {
	t.Helper()
	r.t, r.notes = t, nil
	r.converges("before the fault")
	var err error
	r.before, err = r.Usage()
	r.must(err)
	r.fleet.counts()
	r.load = harness.NewLoad(t, perSecond, r.request, nil)
	r.begun = time.Now()
	fault()
	seen := r.fleet.counts()
	took := time.Since(r.begun)
	r.commit()
	converged := r.converges("after the fault")
	after := r.rests()
	if heavier(after, r.before) {
		// A leak grows again with a repeated fault. Memory that Go reuses, such as descriptors of
		// goroutines, and the remembered state of clients do not.
		r.note("the fault was repeated, since the heap had grown from %.1f to %.1f MiB", r.before.Heap, after.Heap)
		first := after
		fault()
		r.commit()
		r.converges("after the fault again")
		if after = r.rests(); heavier(after, first) {
			t.Errorf("the heap grows: %.1f MiB, %.1f after the fault, %.1f when it was repeated", r.before.Heap, first.Heap, after.Heap)
		}
	}
	if err := r.fleet.err(); err != nil {
		t.Error(err)
	}
	r.load.Unharmed(t)
	t.Logf("\n  fault    %.1f s, %v\n  during   %s\n  after    a commit: %v\n  requests %d, failed %d\n  before   %v\n  at rest  %v",
		took.Seconds(), seen, cmp.Or(strings.Join(r.notes, "; "), "nothing"), converged,
		r.load.OK.Load()+r.load.Failed.Load(), r.load.Failed.Load(), r.before, after)
}

// rests waits until the usage of the server is as before the fault, and returns it.
func (r *rig) rests() (u harness.Usage) {
	r.t.Helper()
	harness.Eventually(r.t, patience, "the usage of the server is as before", func() (err error) {
		if u, err = r.Usage(); err != nil {
			return err
		}
		return beyond(u, r.before)
	})
	return u
}

// note adds a figure to what the row prints.
func (r *rig) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// goesOn lets a fault last for a time in which nothing should happen.
func (r *rig) goesOn(d time.Duration) { time.Sleep(d) }

// notices commits, and waits until the fleet, except the excused clients, has the commit in spite
// of the fault. It returns how long that took.
func (r *rig) notices(within time.Duration, excused func(*client) bool) time.Duration {
	r.t.Helper()
	r.commit()
	return harness.Eventually(r.t, within, "clients get the changes during the fault", r.fleet.told(r.now, excused))
}

// untouched checks that no stream of the fleet was lost since the row began.
func (r *rig) untouched() {
	r.t.Helper()
	r.fleet.mu.Lock()
	defer r.fleet.mu.Unlock()
	if len(r.fleet.ended) > 0 {
		r.t.Errorf("streams of clients that did nothing wrong ended: %v", r.fleet.ended)
	}
}

// served checks that the server answers health requests.
func (r *rig) served() {
	r.t.Helper()
	if _, err := r.Get("/healthz"); err != nil {
		r.t.Error(err)
	}
	if err := r.ready(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		r.t.Error(err)
	}
}
