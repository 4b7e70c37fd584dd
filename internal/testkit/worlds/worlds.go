// Package worlds runs simulations: it plays many random worlds in parallel, or replays the world of
// one seed. It adds the flags -seed, -worlds, -from and -all to the test.
package worlds

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

var (
	seed  = flag.Int64("seed", -1, "simulate the world of this seed alone")
	count = flag.Int("worlds", 0, "how many worlds to simulate, in all tests together; 0: $WORLDS, or 200,000; 5,000 with -short, 500 with -race")
	from  = flag.Int("from", 0, "the first seed: worlds that nobody has seen yet")
	all   = flag.Bool("all", false, "go on after a world that fails, and list all that do")
)

// All reports whether a simulation continues after a world that fails.
func All() bool { return *all }

// Replays reports whether only the world of one seed is played.
func Replays() bool { return *seed >= 0 }

// Count is the number of worlds of all simulations together. A test plays a share of them. The race
// detector makes worlds slow, and nothing in them is concurrent.
func Count() int {
	n, _ := strconv.Atoi(os.Getenv("WORLDS"))
	switch {
	case *count > 0:
		return *count
	case n > 0:
		return n
	case RaceEnabled:
		return 500
	case testing.Short():
		return 5_000
	}
	return 200_000
}

// parts is the number of parallel parts of a simulation. With more parts than cores, no core is idle
// for long at the end.
const parts = 8

// failed is set when a world fails. Without -all, no other world begins then.
var failed atomic.Bool

// Play plays n worlds in parallel parts, or the world of -seed. The function f plays the world of a
// seed. Its parameter test is the value of -run that replays the world.
func Play(t *testing.T, name string, n int, f func(t *testing.T, test string, seed uint64)) {
	test := t.Name() + "/" + strings.ReplaceAll(name, " ", "_")
	if Replays() {
		t.Run(name, func(t *testing.T) { f(t, test, uint64(*seed)) })
		return
	}
	for part := range parts {
		t.Run(fmt.Sprintf("%s/%d", name, part), func(t *testing.T) {
			t.Parallel()
			defer func() { failed.Store(failed.Load() || t.Failed()) }()
			for seed := *from + part; seed < *from+n && (*all || !t.Failed() && !failed.Load()); seed += parts {
				f(t, test, uint64(seed))
			}
		})
	}
}
