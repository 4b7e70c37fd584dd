package protocol_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/protocol/protocoltest"
	"github.com/chancery-xds/chancery/xds"
)

var (
	seedFlag   = flag.Int64("seed", -1, "simulate the world of this seed alone")
	worldsFlag = flag.Int("worlds", 0, "how many worlds to simulate, in all tests together; 0: $WORLDS, or 200,000, or 5,000 with -short or -race")
	fromFlag   = flag.Int("from", 0, "the first seed: worlds that nobody has seen yet")
	allFlag    = flag.Bool("all", false, "go on after a world that fails, and list all that do")
)

// raceEnabled is set under the race detector, which makes worlds slow and has
// nothing to find in them: nothing here is concurrent.
var raceEnabled bool

func session(v xds.Variant, only *xds.Type, view xds.View, opts protocol.Options) protocoltest.Session {
	return protocol.NewSession(v, only, view, opts)
}

// worlds is how many worlds a run of all simulations tries. Half of them are
// TestSimulation's, two fifths NeverBreaks', a tenth SotWEqualsDelta's.
func worlds() int {
	n, _ := strconv.Atoi(os.Getenv("WORLDS"))
	switch {
	case *worldsFlag > 0:
		return *worldsFlag
	case n > 0:
		return n
	case testing.Short() || raceEnabled:
		return 5_000
	}
	return 200_000
}

// seeds calls f with each seed of one of parts shares of n worlds, or with the
// one that -seed asks for.
func seeds(t *testing.T, n, part, parts int, f func(t *testing.T, seed uint64)) {
	if *seedFlag >= 0 {
		if part == 0 {
			f(t, uint64(*seedFlag))
		}
		return
	}
	for seed := *fromFlag + part; seed < *fromFlag+n && (*allFlag || !t.Failed()); seed += parts {
		f(t, uint64(seed))
	}
}

// Both halves against each other, in worlds of all personalities, with and
// without hints.
func TestSimulation(t *testing.T) {
	const parts = 2
	summary(t)
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		for part := range parts {
			t.Run(fmt.Sprintf("%s/%d", v, part), func(t *testing.T) {
				t.Parallel()
				seeds(t, worlds()/4, part, parts, func(t *testing.T, seed uint64) {
					r, err := protocoltest.Simulate(session, protocoltest.Config{Seed: seed, Variant: v})
					report(t, "TestSimulation/"+v.String(), seed, r, err)
				})
			})
		}
	}
}

// "Make before break": in worlds whose commits are whole, no client that answers
// ever holds a listener or route whose cluster it lacks or, if it warms clusters,
// was never warm: through reconnects, refused listeners and routes, and whatever
// it asks for, as long as no deadline passes.
func TestSimulationNeverBreaks(t *testing.T) {
	summary(t)
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		for _, who := range []string{"generic", "envoy", "grpc"} {
			if who == "grpc" && v == xds.Delta {
				continue // it speaks SotW only
			}
			t.Run(fmt.Sprintf("ADS-3 %s %s", who, v), func(t *testing.T) {
				t.Parallel()
				seeds(t, worlds()*2/25, 0, 1, func(t *testing.T, seed uint64) {
					r, err := protocoltest.Simulate(session, protocoltest.Config{Seed: seed, Variant: v, Client: who, Whole: true})
					report(t, t.Name(), seed, r, err)
				})
			})
		}
	}
}

// The same commits and whims end in the same caches, whatever the variant;
// save what SotW cannot express.
func TestSimulationSotWEqualsDelta(t *testing.T) {
	summary(t)
	for _, who := range []string{"generic", "separate"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			seeds(t, worlds()/40, 0, 1, func(t *testing.T, seed uint64) {
				a, err := protocoltest.Simulate(session, protocoltest.Config{Seed: seed, Variant: xds.SotW, Client: who, Accept: true})
				report(t, t.Name()+" sotw", seed, a, err)
				b, err := protocoltest.Simulate(session, protocoltest.Config{Seed: seed, Variant: xds.Delta, Client: who, Accept: true})
				report(t, t.Name()+" delta", seed, b, err)
				if a.Held == nil || b.Held == nil {
					return // a world that was told of already, or cannot be decided
				}
				for i := range a.Held {
					if a.Held[i] != nil && b.Held[i] != nil && !maps.Equal(a.Held[i], b.Held[i]) {
						t.Fatalf("seed %d: client %d holds\n%v in SotW, and in delta\n%v", seed, i, a.Held[i], b.Held[i])
					}
				}
			})
		})
	}
}

// FuzzReceive throws requests at a session as the bytes say: any type, nonce,
// names and versions, in any order.
func FuzzReceive(f *testing.F) {
	f.Add([]byte("a client that was never written"), false)
	f.Add(bytes.Repeat([]byte{1, 7, 42, 99, 3, 16, 5, 77}, 30), true)
	f.Fuzz(func(t *testing.T, data []byte, delta bool) {
		if len(data) == 0 || len(data) > 2000 {
			t.Skip()
		}
		r, err := protocoltest.Simulate(session, protocoltest.Config{Choices: data, Variant: variant(delta), Client: "wild"})
		if counted.add(r); err != nil {
			t.Fatal(err)
		}
	})
}

func variant(delta bool) xds.Variant {
	if delta {
		return xds.Delta
	}
	return xds.SotW
}

// report fails the test if an obligation was not met. A world that the protocol
// cannot decide says so by its kind, and is counted.
func report(t *testing.T, test string, seed uint64, r protocoltest.Result, err error) {
	t.Helper()
	counted.add(r)
	if err == nil {
		return
	}
	f, ok := errors.AsType[*protocoltest.Failure](err)
	if !ok {
		t.Fatal(err)
	}
	listed := test
	test, _, _ = strings.Cut(test, " ")
	replay := fmt.Sprintf("%v\nreplay: go test ./protocol -run '%s' -seed %d", f.Err, test, f.Seed)
	if *allFlag {
		what, _, _ := strings.Cut(f.Err.Error(), "\n")
		t.Errorf("failed: %s %d: %s\n%s", listed, seed, what, replay)
		return
	}
	for _, l := range f.Story {
		t.Log(l)
	}
	t.Fatal(replay)
}

// counted is what all worlds of this run were.
var counted tally

type tally struct {
	mu sync.Mutex
	protocoltest.Result
	worlds int
}

func (c *tally) add(r protocoltest.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.worlds++
	c.Messages += r.Messages
	c.Deliveries += r.Deliveries
	c.Judged += r.Judged
	if c.Undecided == nil {
		c.Undecided = map[protocoltest.Kind]int{}
	}
	for k, n := range r.Undecided {
		c.Undecided[k] += n
	}
	if c.Excused == nil {
		c.Excused = map[string]int{}
	}
	for why, n := range r.Excused {
		c.Excused[why] += n
	}
}

// summary says what the simulations have seen, after the last of them: with -v,
// and in the file $SIM_SUMMARY, which `make sim` prints.
func summary(t *testing.T) {
	t.Cleanup(func() {
		c := &counted
		c.mu.Lock()
		defer c.mu.Unlock()
		var b strings.Builder
		fmt.Fprintf(&b, "%s: %d worlds, %d messages; \"never breaks\" judged %d of %d deliveries of whole worlds (%d%%)\n",
			t.Name(), c.worlds, c.Messages, c.Judged, c.Deliveries, 100*c.Judged/max(c.Deliveries, 1))
		for _, why := range slices.Sorted(maps.Keys(c.Excused)) {
			fmt.Fprintf(&b, "  not judged, since %s: %d (%.1f%%)\n", why, c.Excused[why], 100*float64(c.Excused[why])/float64(max(c.Deliveries, 1)))
		}
		for _, k := range protocoltest.Kinds() {
			fmt.Fprintf(&b, "  undecided: %s: %d worlds\n", k, c.Undecided[k])
		}
		t.Log(b.String())
		c.Result, c.worlds = protocoltest.Result{}, 0
		if path := os.Getenv("SIM_SUMMARY"); path != "" {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteString(b.String()); err != nil {
				t.Fatal(err)
			}
		}
	})
}
