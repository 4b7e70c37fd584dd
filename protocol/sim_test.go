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
	"sync/atomic"
	"testing"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/protocol/protocoltest"
	"github.com/chancery-xds/chancery/xds"
)

var (
	seedFlag   = flag.Int64("seed", -1, "simulate the world of this seed alone")
	worldsFlag = flag.Int("worlds", 0, "how many worlds to simulate; 0: $WORLDS, or 50,000, or 2,000 with -short or -race")
)

// raceEnabled is set under the race detector, which makes worlds slow and has
// nothing to find in them: nothing here is concurrent.
var raceEnabled bool

func session(v xds.Variant, only *xds.Type, view xds.View, opts protocol.Options) protocoltest.Session {
	return protocol.NewSession(v, only, view, opts)
}

// worlds is how many worlds a run simulates.
func worlds() int {
	n, _ := strconv.Atoi(os.Getenv("WORLDS"))
	switch {
	case *worldsFlag > 0:
		return *worldsFlag
	case n > 0:
		return n
	case testing.Short() || raceEnabled:
		return 2_000
	}
	return 50_000
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
	for seed := part; seed < n && !t.Failed(); seed += parts {
		f(t, uint64(seed))
	}
}

// Both halves against each other, in worlds of all personalities, with and
// without hints.
func TestSimulation(t *testing.T) {
	const parts = 2
	var messages atomic.Int64
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		for part := range parts {
			t.Run(fmt.Sprintf("%s/%d", v, part), func(t *testing.T) {
				t.Parallel()
				seeds(t, worlds()/2, part, parts, func(t *testing.T, seed uint64) {
					r, err := protocoltest.Simulate(session, protocoltest.Config{Seed: seed, Variant: v})
					messages.Add(int64(r.Messages))
					report(t, "TestSimulation/"+v.String(), err)
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
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		for _, who := range []string{"generic", "envoy"} {
			t.Run(fmt.Sprintf("ADS-3 %s %s", who, v), func(t *testing.T) {
				t.Parallel()
				seeds(t, worlds()/4, 0, 1, func(t *testing.T, seed uint64) {
					_, err := protocoltest.Simulate(session, protocoltest.Config{Seed: seed, Variant: v, Client: who, Whole: true})
					report(t, t.Name(), err)
				})
			})
		}
	}
}

// The same commits and whims end in the same caches, whatever the variant;
// save what SotW cannot express.
func TestSimulationSotWEqualsDelta(t *testing.T) {
	for _, who := range []string{"generic", "separate"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			seeds(t, worlds()/20, 0, 1, func(t *testing.T, seed uint64) {
				a, err := protocoltest.Simulate(session, protocoltest.Config{Seed: seed, Variant: xds.SotW, Client: who, Accept: true})
				report(t, t.Name(), err)
				b, err := protocoltest.Simulate(session, protocoltest.Config{Seed: seed, Variant: xds.Delta, Client: who, Accept: true})
				report(t, t.Name(), err)
				if a.Held == nil || b.Held == nil {
					return // ended openly
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

func FuzzSession(f *testing.F) {
	for i, who := range []string{"", "generic", "separate", "envoy", "grpc"} {
		f.Add(uint64(i), i%2 == 0, who)
	}
	f.Fuzz(func(t *testing.T, seed uint64, delta bool, who string) {
		if !slices.Contains([]string{"", "generic", "separate", "envoy", "grpc"}, who) {
			t.Skip()
		}
		_, err := protocoltest.Simulate(session, protocoltest.Config{Seed: seed, Variant: variant(delta), Client: who})
		if f, ok := errors.AsType[*protocoltest.Failure](err); ok && open(f.Err) {
			return
		}
		report(t, "FuzzSession", err)
	})
}

// FuzzReceive throws requests at a session as the bytes say: any type, nonce,
// names and versions, in any order. It must not panic, and what it sends must
// obey all the same.
func FuzzReceive(f *testing.F) {
	f.Add([]byte("a client that was never written"), false)
	f.Add(bytes.Repeat([]byte{1, 7, 42, 99, 3, 16, 5, 77}, 30), true)
	f.Fuzz(func(t *testing.T, data []byte, delta bool) {
		if len(data) == 0 || len(data) > 2000 {
			t.Skip()
		}
		_, err := protocoltest.Simulate(session, protocoltest.Config{Choices: data, Variant: variant(delta), Client: "wild"})
		if f, ok := errors.AsType[*protocoltest.Failure](err); ok && open(f.Err) {
			return
		}
		report(t, "FuzzReceive", err)
	})
}

func variant(delta bool) xds.Variant {
	if delta {
		return xds.Delta
	}
	return xds.SotW
}

// open reports whether a verdict may stand open in few worlds: all but those on
// what make before break is for. The share of such worlds may only shrink.
func open(err error) bool { return !strings.Contains(err.Error(), "never breaks:") }

// one in so many worlds may end openly.
const openShare = 400

// tally counts the worlds that ended openly.
var tally atomic.Int64

func report(t *testing.T, test string, err error) {
	t.Helper()
	if f, ok := errors.AsType[*protocoltest.Failure](err); ok {
		if n := int64(worlds()); *seedFlag < 0 && open(f.Err) && tally.Add(1) <= 1+n/openShare {
			t.Logf("open: %v (replay: go test ./protocol -run '%s' -seed %d)", f.Err, test, f.Seed)
			return
		}
		for _, l := range f.Story {
			t.Log(l)
		}
		t.Fatalf("%v\nreplay: go test ./protocol -run '%s' -seed %d", f.Err, test, f.Seed)
	}
}
