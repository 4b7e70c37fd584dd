package client_test

import (
	"errors"
	"testing"

	"github.com/chancery-xds/chancery/internal/testkit/worlds"
	"github.com/chancery-xds/chancery/protocol/protocoltest"
	"github.com/chancery-xds/chancery/xds"
)

// The client against servers of all kinds: CLI-2, CLI-3, CLI-4, CLI-6, CLI-7, CLI-8, CLI-12 and
// CLI-14 hold, whatever the server does.
func TestSimulation(t *testing.T) {
	t.Parallel()
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		for _, server := range protocoltest.Servers {
			worlds.Play(t, server+" "+v.String(), worlds.Count()/100, func(t *testing.T, test string, seed uint64) {
				_, err := protocoltest.SimulateClient(protocoltest.ClientConfig{Seed: seed, Variant: v, Server: server})
				reportFailure(t, test, err)
			})
		}
	}
}

func reportFailure(t *testing.T, test string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	f, ok := errors.AsType[*protocoltest.Failure](err)
	if !ok {
		t.Fatal(err)
	}
	if !worlds.All() {
		for _, l := range f.Story {
			t.Log(l)
		}
	}
	t.Errorf("%v\nreplay: go test ./protocol/internal/client -run '%s' -seed %d", f.Err, test, f.Seed)
}

// FuzzClient sends arbitrary responses to a client, judged as in TestSimulation: no panic,
// nothing held without a subscription, at most one verdict for each response.
func FuzzClient(f *testing.F) {
	f.Add([]byte("a server that was never written, and says what it likes to whoever asks"), false)
	f.Add([]byte("another one, which speaks delta and has nothing of what it is asked for"), true)
	f.Fuzz(func(t *testing.T, data []byte, delta bool) {
		if len(data) == 0 || len(data) > 2000 {
			t.Skip()
		}
		v := xds.SotW
		if delta {
			v = xds.Delta
		}
		if _, err := protocoltest.SimulateClient(protocoltest.ClientConfig{Choices: data, Variant: v, Server: "wild"}); err != nil {
			t.Fatal(err)
		}
	})
}
