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

var samples = flag.String("samples", "", "a `file` that what the program takes at rest is written to, a line for each sample")

// A town is one server that lives for the whole time, with clients that stay as long.
// Between two samples a story is told, and guests come and go. At each sample all is as
// it was at the one before: the resources, the residents, nobody else.
type town struct {
	*daemon
	run       *run // makes clients
	residents []*client
	still     world
	out       io.Writer

	lowest       harness.Usage // goroutines and files: what any sample had
	streams      int           // that have come and gone
	heap, needed level
	warm         int  // samples before the warm-up was over
	full         bool // by then the store remembered as many commits as it will
}

const (
	residents = 20 // half of them SotW, half delta
	guests    = 2  // for each resident
)

// townFlags bound what the server remembers of clients that are gone, by design for an
// hour, so that it has as much of it after the warm-up as it will ever have: four
// answers for each stream that there may be.
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

// remembered is how many commits fill what the store keeps of them: it tells streams what
// the last 1,024 touched, in arrays that grow a quarter beyond that.
const remembered = 1300

// silent returns the story's commits and rests alone, which take no time.
func (t story) silent() story {
	t.steps = slices.DeleteFunc(t.steps, func(s step) bool { return s.kind != "commit" && s.kind != "rest" })
	return t
}

// story tells one to the server, whose residents hear all of it.
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

// visit makes all as it was, compares each resident with guests that ask for the same,
// and has them leave: half of them by their streams, half without a word.
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

// differ compares residents with their guests.
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

// sample waits until nothing is open that belongs to nobody, and notes what the server
// takes then. Goroutines and files must be as few as they have ever been: how many
// there are depends on who is connected, and on nothing else.
func (v *town) sample(warm bool) error {
	for until := time.Now().Add(settles); ; time.Sleep(50 * time.Millisecond) {
		u, err := v.monitor.Usage()
		if err != nil {
			return err
		}
		first := len(v.heap) == 0
		switch {
		case u.Streams != residents+1: // one is the probe's
			err = fmt.Errorf("%d streams are open, of %d clients", u.Streams, residents+1)
		case !first && u.Goroutines > v.lowest.Goroutines:
			err = fmt.Errorf("%d goroutines, and %d at an earlier rest", u.Goroutines, v.lowest.Goroutines)
		case !first && u.Files > v.lowest.Files:
			err = fmt.Errorf("%d files are open, and %d at an earlier rest", u.Files, v.lowest.Files)
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

// profile keeps what the heap consists of.
func (v *town) profile(file string) error {
	b, err := v.monitor.Get("/debug/pprof/heap?gc=1")
	if err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o600)
}

// lives tells stories until the time is over, and judges what the server takes.
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
		t.Logf("what the heap has more of than after the warm-up:\n\tgo tool pprof -top -sample_index=inuse_space -base %s %s", first, last)
	})
	next := firstSeed()
	t.Logf("begins with seed %d", next)
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
	t.Logf("%d samples, %d of them before the warm-up was over; %d streams have come and gone; at rest %d goroutines and %d files are open",
		len(v.heap), v.warm, v.streams, v.lowest.Goroutines, v.lowest.Files)
	if err := v.flat(func(format string, args ...any) {
		t.Logf(format, args...)
		fmt.Fprintf(v.out, "# "+format+"\n", args...)
	}); err != nil {
		t.Error(err)
	}
}

// flat judges memory: the heap, and with it what else is resident. The pages that the
// heap has of the system are not counted, but what lives in them: how many it has
// depends on when there was garbage last, by a tenth and more. Nor is what the profiler has, which
// is asked at each sample: it remembers each way through the program to an allocation, which
// random clients find one after the other. Within some seconds nothing is flat: what the server
// remembers on purpose is filling. What can be told then is whether it keeps whole streams, of about
// 20 KB each.
func (v *town) flat(tell func(format string, args ...any)) error {
	heap, needed := v.heap[v.warm:], v.needed[v.warm:]
	if n := len(v.heap); len(heap) < enough || !v.full {
		each := (v.heap[n-1] - v.heap[0]) * (1 << 10) / float64(max(1, v.streams))
		tell("too short to judge whether memory is flat: %d samples after the warm-up, %d commits; the heap has grown by %.1f KiB for each stream", len(heap), v.commits, each)
		if each > 8 {
			return fmt.Errorf("the heap has grown from %.1f to %.1f MiB, by %.1f KiB for each stream that came and went", v.heap[0], v.heap[n-1], each)
		}
		return nil
	}
	var wrong error
	for _, x := range []struct {
		what string
		level
	}{{"the heap", heap}, {"memory that is needed", needed}} {
		by, of := x.rise()
		tell("%s: %.2f MiB, %+.3f MiB from the first to the last of %d samples, %+.2f %%", x.what, of, by, len(x.level), 100*by/of)
		wrong = errors.Join(wrong, x.flat(x.what, 0.01))
	}
	return wrong
}
