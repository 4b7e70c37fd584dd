package abuse

import (
	"bytes"
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/chancery-xds/chancery/e2e/harness"
	"github.com/chancery-xds/chancery/internal/testkit/tlstest"
)

var (
	whole   = flag.Bool("whole", false, "run all attacks at all limits, from an address of their own and from that of the good clients")
	length  = flag.Duration("attack-for", 60*time.Second, "how long an attack takes, with -whole")
	only    = flag.String("attacks", "", "names of attacks, separated by commas; empty: all")
	limits  = flag.String("limits", "256,460,1024", "memory limits in MiB, with -whole")
	results = flag.String("results", "", "a file for the results, as a table")
)

var program string // under test

// The environment of the attacker, which is this program in another process.
const envAttack, envFrom, envTo, envFor = "ABUSE_ATTACK", "ABUSE_FROM", "ABUSE_TO", "ABUSE_FOR"

func TestMain(m *testing.M) {
	if name := os.Getenv(envAttack); name != "" {
		d, err := time.ParseDuration(os.Getenv(envFor))
		i := slices.IndexFunc(attacks, func(a attack) bool { return a.name == name })
		if err != nil || i < 0 {
			panic(fmt.Sprint(name, err))
		}
		a := &attacker{attack: attacks[i], from: os.Getenv(envFrom), to: os.Getenv(envTo)}
		a.main(d)
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	flag.Parse()
	dir, err := os.MkdirTemp("", "chancery-abuse-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "chancery")
	if err := harness.Build("../..", program); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

const (
	resources = 1000
	clients   = 100

	noticeWithin = 2 * time.Second
	serveWithin  = 5 * time.Second
	calmAfter    = 30 * time.Second

	theirs = "127.0.0.1" // the address of the good clients
)

// TestAbuse attacks the program under a memory limit. The short form has the worst attacks.
func TestAbuse(t *testing.T) {
	d, mib, names := 4*time.Second, []string{"256"}, []string{"streams", "headers", "idle"}
	from := []string{theirs}
	if *whole {
		d, mib, names, from = *length, strings.Split(*limits, ","), nil, []string{"127.0.0.2", theirs}
	}
	if *only != "" {
		names = strings.Split(*only, ",")
	}
	for _, a := range attacks {
		if names != nil && !slices.Contains(names, a.name) {
			continue
		}
		for _, limit := range mib {
			for _, address := range from {
				n, err := strconv.Atoi(limit)
				if err != nil {
					t.Fatal(err)
				}
				t.Run(fmt.Sprintf("SAFE-14 %s at %d MiB from %s", a.name, n, address), func(t *testing.T) {
					abuse(t, a, float64(n), address, d)
				})
			}
		}
	}
}

// A daemon is the program under test.
type daemon struct {
	harness.Monitor
	at         map[listener]string
	dir, log   string
	cmd        *exec.Cmd
	generation int
}

func newDaemon(t *testing.T, limit float64, secure bool) *daemon {
	t.Helper()
	local := func() string { return fmt.Sprintf("127.0.0.1:%d", harness.FreePort(t)) }
	base := t.TempDir()
	d := &daemon{dir: filepath.Join(base, "config"), log: filepath.Join(base, "log"), at: map[listener]string{}}
	for _, l := range []listener{onXDS, onREST, onMetrics, onAdmin} {
		d.at[l] = local()
	}
	d.at[onTLS], d.Monitor = d.at[onXDS], harness.Monitor(d.at[onMetrics])
	args := []string{"serve", d.dir, "--listen", d.at[onXDS], "--rest-listen", d.at[onREST], "--metrics-listen", d.at[onMetrics], "--admin-listen", d.at[onAdmin], "--state-dir", filepath.Join(base, "state"), "--log-format", "json"}
	if secure {
		pair := tlstest.NewAuthority(t, "CA").Issue("server", "127.0.0.1")
		cert, key := filepath.Join(base, "cert.pem"), filepath.Join(base, "key.pem")
		for name, b := range map[string][]byte{cert: pair.Cert, key: pair.Key} {
			if err := os.WriteFile(name, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		args = append(args, "--tls-cert", cert, "--tls-key", key)
	}
	if err := os.Mkdir(d.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	for i := range resources - 1 {
		all.Write(harness.Document(harness.EDSCluster(fmt.Sprintf("cluster-%04d", i), time.Second)))
	}
	if err := os.WriteFile(filepath.Join(d.dir, "clusters.yaml"), all.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	d.commit(t)
	log, err := os.Create(d.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	d.cmd = exec.Command(program, args...)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.Env = append(os.Environ(), fmt.Sprintf("GOMEMLIMIT=%dMiB", int(limit)))
	harness.DieWithParent(d.cmd)
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = d.cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = d.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(15 * time.Second):
			t.Error("the program does not end on SIGTERM")
			_ = d.cmd.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("the program's log:\n%s", harness.Tail(d.log, 5))
		}
	})
	harness.Eventually(t, 20*time.Second, "the program is ready", func() error {
		_, err := d.Get("/readyz")
		return err
	})
	return d
}

// commit writes the cluster that has the next generation, and its assignment: a load with a missing reference waits.
func (d *daemon) commit(t *testing.T) {
	t.Helper()
	d.generation++
	next := filepath.Join(filepath.Dir(d.dir), "next")
	name := fmt.Sprintf("%s%d", tick, d.generation)
	err := os.WriteFile(next, slices.Concat(harness.Document(harness.EDSCluster(name, time.Second)), harness.Document(harness.Assignment(name))), 0o600)
	if err == nil {
		err = os.Rename(next, filepath.Join(d.dir, "tick.yaml"))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (d *daemon) memory(name string) float64 {
	n, _ := harness.Memory(d.cmd.Process.Pid, name)
	return n
}

// unreturned returns the MiB that the runtime cannot return: its tables, and the free parts of pages that have objects.
func (d *daemon) unreturned(t *testing.T) float64 {
	m, err := d.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	of := func(name string) float64 { return m["go_memstats_"+name+"_bytes"] / (1 << 20) }
	return of("sys") - of("heap_sys") - of("stack_sys") + of("heap_inuse") - of("heap_alloc")
}

// descriptor is the MiB of the descriptor that the runtime keeps for each goroutine that ran at the same time.
const descriptor = 480.0 / (1 << 20)

// cpu returns the processor time of the program.
func (d *daemon) cpu() time.Duration {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.cmd.Process.Pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// abuse plays one attack.
func abuse(t *testing.T, a attack, limit float64, from string, length time.Duration) {
	d := newDaemon(t, limit, a.on == onTLS)
	creds := insecure.NewCredentials()
	if a.on == onTLS {
		creds = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
	}
	f := newFleet(d.at[onXDS], clients, creds)
	defer f.stop()
	notices := func() time.Duration { // commits, and returns when all good clients have it
		d.commit(t)
		return harness.Eventually(t, 20*time.Second, "the good clients get a change", func() error {
			if n := f.behind(d.generation); n > 0 {
				return fmt.Errorf("%d lack generation %d", n, d.generation)
			}
			return nil
		})
	}
	notices()
	notices()
	pause(context.Background(), 2*time.Second)
	before, unreturned, cpuBefore := d.memory("VmRSS"), d.unreturned(t), d.cpu()

	strike := exec.Command(os.Args[0])
	strike.Env = append(os.Environ(), "GOMAXPROCS=1", envAttack+"="+a.name, envFrom+"="+from, envTo+"="+d.at[a.on], envFor+"="+length.String())
	harness.DieWithParent(strike)
	var out bytes.Buffer
	strike.Stdout, strike.Stderr = &out, os.Stderr
	if err := strike.Start(); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() { _ = strike.Wait(); close(over) }()
	var slowest, newest time.Duration
	goroutines := 0.0
	look := func() {
		slowest = max(slowest, notices())
		took, err := f.newcomer()
		if err != nil {
			t.Errorf("a new client: %v", err)
		}
		newest = max(newest, took)
		m, err := d.Metrics()
		if err != nil {
			t.Errorf("metrics: %v", err)
		}
		goroutines = max(goroutines, m["go_goroutines"])
	}
	for running := true; running; {
		look()
		select {
		case <-over:
			running = false
		case <-time.After(time.Second):
		}
	}
	ended, cpu := time.Now(), d.cpu()-cpuBefore
	var after float64
	var calm time.Duration
	for {
		after, calm = d.memory("VmRSS"), time.Since(ended)
		if after <= before*1.2 || calm > calmAfter {
			break
		}
		pause(context.Background(), 200*time.Millisecond)
	}
	kept := d.unreturned(t)
	look()
	peak := d.memory("VmHWM")
	steps, failed, _ := strings.Cut(strings.TrimSpace(out.String()), " ")
	if *whole {
		t.Logf("%s steps on %d connections at a time, %s connections ended early; a step is %s", steps, a.conns, failed, a.step)
	}
	row := fmt.Sprintf("| %s | %.0f MiB | %s | %.0f MiB | %.0f MiB | %.0f MiB after %.0f s | %.2f s | %.2f s | %d | %.0f | %.0f s, then %.0f s |",
		a.name, limit, map[bool]string{false: "own", true: "theirs"}[from == theirs], before, peak, after, calm.Seconds(), slowest.Seconds(), newest.Seconds(), f.lost.Load(), goroutines, cpu.Seconds(), (d.cpu() - cpuBefore - cpu).Seconds())
	t.Log(row)
	if *results != "" {
		file, err := os.OpenFile(*results, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(file, row)
		file.Close()
	}
	if peak > limit*1.1 {
		t.Errorf("the peak of memory is %.0f MiB, more than 1.1 × %.0f MiB", peak, limit)
	}
	if kept := goroutines*descriptor + max(0, kept-unreturned); after > before*1.2+kept {
		t.Errorf("%v after the attack the memory is %.0f MiB with %.0f MiB that Go keeps, and it was %.0f MiB before", calmAfter, after, kept, before)
	}
	if slowest > noticeWithin {
		t.Errorf("a change reached the good clients only after %v", slowest)
	}
	if newest > serveWithin {
		t.Errorf("a new client was served only after %v", newest)
	}
	if n := f.lost.Load(); n > 0 {
		t.Errorf("good clients lost %d streams", n)
		f.first.Range(func(k, v any) bool { t.Logf("client %v: %v", v, k); return true })
	}
}
