package protocol_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chancery-xds/chancery/internal/testkit/worlds"
	"github.com/chancery-xds/chancery/protocol/protocoltest"
	"github.com/chancery-xds/chancery/xds"
)

// A tally describes the worlds of a test.
type tally struct {
	mu sync.Mutex
	protocoltest.Result
	worlds int
	turned map[protocoltest.Excuse]int // worlds in which an excuse turned a verdict
}

func newTally() *tally {
	return &tally{turned: map[protocoltest.Excuse]int{}, Result: protocoltest.Result{
		Unjudged: map[protocoltest.Excuse]int{}, Excused: map[protocoltest.Excuse]int{}}}
}

// report fails the test if an obligation was not met.
func (c *tally) report(t *testing.T, test string, seed uint64, r protocoltest.Result, err error) {
	t.Helper()
	c.add(r)
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
	if worlds.All() {
		what, _, _ := strings.Cut(f.Err.Error(), "\n")
		t.Errorf("failed: %s %d: %s\n%s", listed, seed, what, replay)
		return
	}
	for _, l := range f.Story {
		t.Log(l)
	}
	t.Fatal(replay)
}

func (c *tally) add(r protocoltest.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.worlds++
	for x := range r.Excused {
		c.turned[x]++
	}
	c.sum(r)
}

func (c *tally) sum(r protocoltest.Result) {
	c.Messages += r.Messages
	c.Deliveries += r.Deliveries
	c.Judged += r.Judged
	for x, n := range r.Unjudged {
		c.Unjudged[x] += n
	}
	for x, n := range r.Excused {
		c.Excused[x] += n
	}
}

// all describes the worlds of the whole simulation, and the tests that are part of it.
var all = struct {
	*tally
	tests []string
}{tally: newTally()}

// summary counts the worlds of a test, and describes them at its end: with -v, and in the file
// $SIM_SUMMARY, which `make sim` prints. At the end of the last of the three tests, it describes
// all worlds, and fails if an excuse was used too often.
func summary(t *testing.T) *tally {
	c := newTally()
	t.Cleanup(func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		all.tests, all.worlds = append(all.tests, t.Name()), all.worlds+c.worlds
		for x, n := range c.turned {
			all.turned[x] += n
		}
		all.sum(c.Result)
		text := fmt.Sprintf("%s: %s", t.Name(), c)
		if len(all.tests) == 3 && !worlds.Replays() {
			text += fmt.Sprintf("the simulation: %s%s", all.tally, all.excuses())
			for _, what := range all.excess() {
				t.Error(what)
			}
			all.tests, all.tally = nil, newTally() // with -count there is another run
		}
		t.Log(text)
		if path := os.Getenv("SIM_SUMMARY"); path != "" {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteString(text); err != nil {
				t.Fatal(err)
			}
		}
	})
	return c
}

func (c *tally) String() string {
	var b strings.Builder
	share := func(n int) float64 { return 100 * float64(n) / float64(max(c.Deliveries, 1)) }
	fmt.Fprintf(&b, "%d worlds, %d messages; \"never breaks\" judged %d of %d deliveries of whole worlds (%.0f%%)\n",
		c.worlds, c.Messages, c.Judged, c.Deliveries, share(c.Judged))
	for _, x := range slices.Sorted(maps.Keys(c.Unjudged)) {
		fmt.Fprintf(&b, "  not judged, since %s: %d (%.1f%%)\n", x, c.Unjudged[x], share(c.Unjudged[x]))
	}
	return b.String()
}

// excuses returns how often each excuse has changed a verdict from a failure.
func (c *tally) excuses() string {
	var b strings.Builder
	for _, x := range protocoltest.Excuses() {
		fmt.Fprintf(&b, "  excused by %s alone: %d times, in %d worlds of a million (at most %d)\n",
			x.Excuse, c.Excused[x.Excuse], perMillion(c.turned[x.Excuse], c.worlds), x.PerMillion)
	}
	return b.String()
}

func perMillion(n, of int) int { return int(math.Ceil(1e6 * float64(n) / float64(max(of, 1)))) }

// excess returns the excuses that are unknown, or changed the verdict in more worlds than allowed.
// With few worlds, chance allows more: three standard deviations, and three.
func (c *tally) excess() (out []string) {
	bounds := map[protocoltest.Excuse]int{}
	for _, x := range protocoltest.Excuses() {
		bounds[x.Excuse] = x.PerMillion
	}
	for _, x := range slices.Sorted(maps.Keys(c.turned)) {
		most, listed := bounds[x]
		due := float64(most) * float64(c.worlds) / 1e6
		switch n := c.turned[x]; {
		case !listed:
			out = append(out, fmt.Sprintf("%s: an excuse that docs/simulation-excuses.md does not list", x))
		case float64(n) > due+3*math.Sqrt(due)+3:
			out = append(out, fmt.Sprintf("%s: turned the verdict in %d of %d worlds: at most %d of a million are allowed", x, n, c.worlds, most))
		}
	}
	return out
}

// An excuse changes a verdict only from a failure: without this excuse the world fails. Without an
// excuse that changed nothing, the world ends as before.
func TestExcusesTurnVerdicts(t *testing.T) {
	tried, seeds := map[protocoltest.Excuse]int{}, uint64(150)
	if worlds.RaceEnabled {
		seeds = 40
	}
	for seed := range seeds {
		for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
			cfg := protocoltest.Config{Seed: seed, Variant: v}
			r, err := protocoltest.Simulate(session, cfg)
			if err != nil {
				t.Fatal(err)
			}
			for x := range r.Excused {
				if x == "several" {
					continue // one of them is left
				}
				cfg.Without = x
				if _, err := protocoltest.Simulate(session, cfg); err == nil {
					t.Errorf("seed %d, %s: %s is counted, but the world succeeds without it", seed, v, x)
				}
				tried[x]++
			}
			if cfg.Without = protocoltest.Excuses()[0].Excuse; r.Excused[cfg.Without] > 0 {
				continue
			}
			if _, err := protocoltest.Simulate(session, cfg); err != nil {
				t.Errorf("seed %d, %s: without %s, which changed no verdict: %v", seed, v, cfg.Without, err)
			}
		}
	}
	if len(tried) < 5 {
		t.Errorf("tried excuses: %v", tried)
	}
}
