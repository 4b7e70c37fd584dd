package protocol_test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
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
	worldsFlag = flag.Int("worlds", 0, "how many worlds to simulate, in all tests together; 0: $WORLDS, or 200,000; 5,000 with -short, 500 with -race")
	fromFlag   = flag.Int("from", 0, "the first seed: worlds that nobody has seen yet")
	allFlag    = flag.Bool("all", false, "go on after a world that fails, and list all that do")
)

// raceEnabled is set under the race detector. It makes worlds slow and has nothing to find in
// them, for nothing here is concurrent.
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
	case raceEnabled:
		return 500
	case testing.Short():
		return 5_000
	}
	return 200_000
}

// parts into which each sort of world is split, so that no core idles for long at the end.
const parts = 8

// failed is set when a world fails. Without -all, no other world begins then.
var failed atomic.Bool

// play tries n worlds of a sort, or the one that -seed asks for, in parallel parts.
func play(t *testing.T, name string, n int, f func(t *testing.T, test string, seed uint64)) {
	test := t.Name() + "/" + strings.ReplaceAll(name, " ", "_")
	if *seedFlag >= 0 {
		t.Run(name, func(t *testing.T) { f(t, test, uint64(*seedFlag)) })
		return
	}
	for part := range parts {
		t.Run(fmt.Sprintf("%s/%d", name, part), func(t *testing.T) {
			t.Parallel()
			defer func() { failed.Store(failed.Load() || t.Failed()) }()
			for seed := *fromFlag + part; seed < *fromFlag+n && (*allFlag || !t.Failed() && !failed.Load()); seed += parts {
				f(t, test, uint64(seed))
			}
		})
	}
}

// Both halves of the protocol against each other, with clients of all kinds, with and without
// hints.
func TestSimulation(t *testing.T) {
	t.Parallel()
	seen := summary(t)
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		play(t, v.String(), worlds()/4, func(t *testing.T, test string, seed uint64) {
			r, err := protocoltest.Simulate(session, protocoltest.Config{Seed: seed, Variant: v})
			seen.report(t, test, seed, r, err)
		})
	}
}

// "Make before break": in worlds with consistent commits, no client that answers ever holds a
// listener or route without its cluster. If it warms clusters, the cluster has been warm. This
// holds through reconnects, refused listeners and routes, and any subscriptions, as long as no
// deadline passes.
func TestSimulationNeverBreaks(t *testing.T) {
	t.Parallel()
	seen := summary(t)
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		for _, who := range []string{"generic", "envoy", "grpc"} {
			if who == "grpc" && v == xds.Delta {
				continue // it speaks SotW only
			}
			play(t, fmt.Sprintf("ADS-3 %s %s", who, v), worlds()*2/25, func(t *testing.T, test string, seed uint64) {
				r, err := protocoltest.Simulate(session, protocoltest.Config{Seed: seed, Variant: v, Client: who, Whole: true})
				seen.report(t, test, seed, r, err)
			})
		}
	}
}

// The same commits and client choices end in the same resources in both variants, except for those
// that SotW cannot express.
func TestSimulationSotWEqualsDelta(t *testing.T) {
	t.Parallel()
	seen := summary(t)
	for _, who := range []string{"generic", "separate"} {
		play(t, who, worlds()/40, func(t *testing.T, test string, seed uint64) {
			a, err := protocoltest.Simulate(session, protocoltest.Config{Seed: seed, Variant: xds.SotW, Client: who, Accept: true})
			seen.report(t, test+" sotw", seed, a, err)
			b, err := protocoltest.Simulate(session, protocoltest.Config{Seed: seed, Variant: xds.Delta, Client: who, Accept: true})
			seen.report(t, test+" delta", seed, b, err)
			if a.Held == nil || b.Held == nil {
				return // this world was reported already
			}
			for i := range a.Held {
				if a.Held[i] != nil && b.Held[i] != nil && !maps.Equal(a.Held[i], b.Held[i]) {
					t.Fatalf("seed %d: client %d holds\n%v in SotW, and in delta\n%v", seed, i, a.Held[i], b.Held[i])
				}
			}
		})
	}
}

// FuzzReceive sends arbitrary requests to a session: any type, nonce, names and versions, in any
// order.
func FuzzReceive(f *testing.F) {
	f.Add([]byte("a client that was never written"), false)
	f.Add(bytes.Repeat([]byte{1, 7, 42, 99, 3, 16, 5, 77}, 30), true)
	f.Fuzz(func(t *testing.T, data []byte, delta bool) {
		if len(data) == 0 || len(data) > 2000 {
			t.Skip()
		}
		if _, err := protocoltest.Simulate(session, protocoltest.Config{Choices: data, Variant: variant(delta), Client: "wild"}); err != nil {
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
