package protocol_test

import (
	"bytes"
	"fmt"
	"maps"
	"testing"

	"github.com/chancery-xds/chancery/internal/testkit/worlds"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/protocol/protocoltest"
	"github.com/chancery-xds/chancery/xds"
)

func session(v xds.Variant, only *xds.Type, view xds.View, opts protocol.Options) protocoltest.Session {
	return protocol.NewSession(v, only, view, opts)
}

// Both halves of the protocol against each other, with clients of all kinds, with and without
// hints. TestSimulation has half of all worlds, NeverBreaks two fifths, SotWEqualsDelta a tenth.
func TestSimulation(t *testing.T) {
	t.Parallel()
	seen := summary(t)
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		worlds.Play(t, v.String(), worlds.Count()/4, func(t *testing.T, test string, seed uint64) {
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
			worlds.Play(t, fmt.Sprintf("ADS-3 %s %s", who, v), worlds.Count()*2/25, func(t *testing.T, test string, seed uint64) {
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
		worlds.Play(t, who, worlds.Count()/40, func(t *testing.T, test string, seed uint64) {
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
