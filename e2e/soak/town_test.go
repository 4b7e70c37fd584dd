package soak

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/chancery-xds/chancery/e2e/harness"
	"github.com/chancery-xds/chancery/xds"
)

var samples = flag.String("samples", "", "write the memory, goroutines and files of the program at rest to this `file`, one line for each sample")

// A town is one server that runs for the whole test, with clients that stay connected (the
// residents). Between two samples a story runs, and other clients (guests) come and go. At each
// sample the server has the same resources and the same clients.
type town struct {
	*daemon
	run       *run // creates clients
	residents []*client
	still     world
	out       io.Writer

	lowest       harness.Usage // the lowest number of goroutines and files in any sample
	streams      int           // number of ended streams
	heap, needed level
	warm         int  // number of samples during the warm-up
	full         bool // the store remembered its maximum of commits when the warm-up ended
}

const (
	residents = 20 // half of them SotW, half delta
	guests    = 2  // of each resident
)

// townFlags limit the history of ended streams, which the server keeps for an hour: four
// responses for each allowed stream. So this history is full when the warm-up ends.
var townFlags = []string{"--removal-grace", "300ms", "--max-streams", "80"}

func newTown(t *testing.T, bin string) *town {
	t.Helper()
	m := harness.Monitor(fmt.Sprintf("127.0.0.1:%d", harness.FreePort(t)))
	v := &town{daemon: startDaemon(t, bin, append(townFlags, "--metrics-listen", string(m))...), still: newWorld(), out: io.Discard}
	v.monitor = m
	if *samples != "" {
		out, err := os.Create(*samples)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { out.Close() })
		v.out = out
	}
	v.run = &run{subject: v.daemon, less: left(), began: time.Now(), called: called{}, quiet: true}
	for _, k := range universe {
		for _, name := range k.names {
			v.still[k][name] = resource{generation: 1}
		}
	}
	if err := v.commit(v.still); err != nil {
		t.Fatal(err)
	}
	for i := range residents {
		c := v.run.newClient(fmt.Sprintf("resident %02d", i), manner{delta: i%2 == 1, node: &core.Node{UserAgentName: "soak"}}, uint64(i))
		c.polite = true
		if err := c.connect(true); err != nil {
			t.Fatal(err)
		}
		v.residents = append(v.residents, c)
		c.mu.Lock()
		for _, k := range universe {
			if !c.delta && k.typ == xds.VirtualHost {
				continue // VHDS is delta only
			}
			s := newSub(k.typ, slices.Concat(k.names, []string{xds.Wildcard})...)
			c.subs = append(c.subs, s)
			c.say(s, says{subscribe: slices.Concat(k.names, []string{xds.Wildcard})})
		}
		c.mu.Unlock()
	}
	t.Cleanup(func() {
		for _, c := range v.residents {
			c.close()
		}
	})
	return v
}

// remembered is the number of commits that fill the store's record of changes. The store
// keeps the last 1,024 commits, in arrays that may be a quarter longer.
const remembered = 1300

// silent returns only the commits and rests of a story, which take little time.
func (t story) silent() story {
	t.steps = slices.DeleteFunc(t.steps, func(s step) bool { return s.kind != "commit" && s.kind != "rest" })
	return t
}

// story runs a story against the server. The residents get all its changes.
func (v *town) story(s story) error {
	r := &run{subject: v.daemon, story: s, less: left(), town: fmt.Sprintf("%010d ", s.seed)}
	wrong := r.tell()
	for _, c := range r.clients {
		v.streams += c.n
	}
	if wrong != "" {
		return fmt.Errorf("%s\n%s", r.conversation(), wrong)
	}
	return nil
}

// visit restores the resources, and compares each resident with guests that have the same
// subscriptions. Then half of the guests end their streams, and half close only the connection.
func (v *town) visit() error {
	if err := v.commit(v.still); err != nil {
		return err
	}
	var all [][]*client
	defer func() {
		for _, came := range all {
			for i, c := range came {
				if i%2 == 0 && c.conn != nil {
					c.conn.Close()
				}
				c.close()
				v.streams += c.n
			}
		}
	}()
	for _, c := range v.residents {
		var came []*client
		for range guests {
			came = append(came, v.run.newcomer(c))
		}
		all = append(all, came)
	}
	for until := time.Now().Add(settles); ; time.Sleep(20 * time.Millisecond) {
		wrong := v.differ(all)
		if err := v.alive(); err != nil {
			return err
		}
		if wrong == nil || time.Now().After(until) {
			return wrong
		}
	}
}

// differ returns the first difference between a resident and its guests.
func (v *town) differ(all [][]*client) error {
	for i, c := range v.residents {
		if w := v.run.ended(c); w != "" {
			return errors.New(w)
		}
		for _, f := range all[i] {
			if w := v.run.ended(f); w != "" {
				return errors.New(w)
			}
			if d := c.differs(f, judging{called: v.run.called}); d != "" {
				return fmt.Errorf("%s: %s", c.id, d)
			}
		}
	}
	return nil
}

// sample waits until only the streams of the residents are open, and records the memory of
// the server. The numbers of goroutines and files depend only on the connected clients, so
// both must be as low as in any earlier sample.
func (v *town) sample(warm bool) error {
	for until := time.Now().Add(settles); ; time.Sleep(50 * time.Millisecond) {
		u, err := v.monitor.Usage()
		if err != nil {
			return err
		}
		first := len(v.heap) == 0
		switch {
		case u.Streams != residents+1: // one stream is that of the probe
			err = fmt.Errorf("%d streams are open, want %d", u.Streams, residents+1)
		case !first && u.Goroutines > v.lowest.Goroutines:
			err = fmt.Errorf("%d goroutines, want at most %d as in an earlier sample", u.Goroutines, v.lowest.Goroutines)
		case !first && u.Files > v.lowest.Files:
			err = fmt.Errorf("%d files are open, want at most %d as in an earlier sample", u.Files, v.lowest.Files)
		default:
			resident, err := harness.Memory(v.cmd.Process.Pid, "RssAnon")
			v.note(u, resident, warm)
			return err
		}
		if time.Now().After(until) {
			stacks, _ := v.monitor.Get("/debug/pprof/goroutine?debug=1")
			return fmt.Errorf("at rest after %d streams: %w\n%s", v.streams, err, stacks)
		}
	}
}

func (v *town) note(u harness.Usage, resident float64, warm bool) {
	if len(v.heap) == 0 {
		v.lowest = u
	}
	v.lowest.Goroutines, v.lowest.Files = min(v.lowest.Goroutines, u.Goroutines), min(v.lowest.Files, u.Files)
	v.heap, v.needed = append(v.heap, u.Heap), append(v.needed, resident-u.Pages-u.Profiler+u.Heap)
	if !warm {
		v.warm = len(v.heap)
	}
	fmt.Fprintf(v.out, "%.0f\twarm=%v\tstreams=%d\tgoroutines=%d\tfiles=%d\theap=%.4f\tresident=%.3f\tneeded=%.3f\n",
		time.Since(v.run.began).Seconds(), warm, v.streams, u.Goroutines, u.Files, u.Heap, resident, v.needed[len(v.needed)-1])
}

// profile writes a heap profile to a file.
func (v *town) profile(file string) error {
	b, err := v.monitor.Get("/debug/pprof/heap?gc=1")
	if err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o600)
}

// lives runs stories until the time is over, then checks the memory of the server.
func (v *town) lives(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "chancery-soak-heap-")
	if err != nil {
		t.Fatal(err)
	}
	first, last := filepath.Join(dir, "first"), filepath.Join(dir, "last")
	t.Cleanup(func() {
		if !t.Failed() {
			os.RemoveAll(dir)
			return
		}
		_ = v.profile(last)
		t.Logf("the growth of the heap since the warm-up:\n\tgo tool pprof -top -sample_index=inuse_space -base %s %s", first, last)
	})
	next := firstSeed()
	t.Logf("the first seed is %d", next)
	begun := time.Now()
	for warm := false; time.Since(begun) < *lasts; next++ {
		s := newStory(next, left())
		if !warm && v.commits < remembered && next%4 != 0 {
			s = s.silent()
		}
		err := v.story(s)
		if err == nil {
			err = v.visit()
		}
		if err == nil {
			err = v.sample(warm)
		}
		v.full = v.full || v.commits >= remembered && !warm
		if took := time.Since(begun); err == nil && !warm && took > min(warmUp, *lasts/3) && (v.full || took > *lasts/2) {
			warm, err = true, v.profile(first)
		}
		if err != nil {
			t.Fatalf("seed %d: %v", next, err)
		}
	}
	t.Logf("%d samples, %d of them during the warm-up; %d streams have ended; at rest there are %d goroutines and %d open files",
		len(v.heap), v.warm, v.streams, v.lowest.Goroutines, v.lowest.Files)
	if err := v.flat(func(format string, args ...any) {
		t.Logf(format, args...)
		fmt.Fprintf(v.out, "# "+format+"\n", args...)
	}); err != nil {
		t.Error(err)
	}
}

// flat returns an error if the memory of the server grows: its live heap, or the live heap plus
// all other resident memory. It does not count the unused pages of the heap, which vary by a
// tenth and more with the last garbage. It does not count the memory of the profiler either: the
// profiler keeps each call path to an allocation, and random clients find new paths all the time.
//
// A short run ends before the caches of the server are full. It can only show whether the server
// leaks whole streams, of about 20 KB each.
func (v *town) flat(tell func(format string, args ...any)) error {
	heap, needed := v.heap[v.warm:], v.needed[v.warm:]
	if n := len(v.heap); len(heap) < enough || !v.full {
		each := (v.heap[n-1] - v.heap[0]) * (1 << 10) / float64(max(1, v.streams))
		tell("the run is too short to detect slow growth of memory: %d samples after the warm-up, %d commits; the heap has grown by %.1f KiB for each stream", len(heap), v.commits, each)
		if each > 8 {
			return fmt.Errorf("the heap has grown from %.1f to %.1f MiB, by %.1f KiB for each ended stream, want at most 8 KiB", v.heap[0], v.heap[n-1], each)
		}
		return nil
	}
	var wrong error
	for _, x := range []struct {
		what string
		level
	}{{"the heap", heap}, {"the needed memory", needed}} {
		by, of := x.rise()
		tell("%s: %.2f MiB, %+.3f MiB from the first to the last of %d samples, %+.2f %%", x.what, of, by, len(x.level), 100*by/of)
		wrong = errors.Join(wrong, x.flat(x.what, 0.01))
	}
	return wrong
}
