package protocol_test

import (
	"errors"
	"testing"

	"github.com/chancery-xds/chancery/protocol/protocoltest"
	"github.com/chancery-xds/chancery/xds"
)

// The client against servers of all kinds: CLI-2, CLI-3, CLI-4, CLI-6, CLI-7, CLI-8, CLI-12 and
// CLI-14 hold, whatever the server does.
func TestSimulationOfClient(t *testing.T) {
	t.Parallel()
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		for _, server := range protocoltest.Servers {
			play(t, server+" "+v.String(), worlds()/100, func(t *testing.T, test string, seed uint64) {
				_, err := protocoltest.SimulateClient(protocoltest.ClientConfig{Seed: seed, Variant: v, Server: server})
				tellClient(t, test, err)
			})
		}
	}
}

func tellClient(t *testing.T, test string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	f, ok := errors.AsType[*protocoltest.Failure](err)
	if !ok {
		t.Fatal(err)
	}
	if !*allFlag {
		for _, l := range f.Story {
			t.Log(l)
		}
	}
	t.Errorf("%v\nreplay: go test ./protocol -run '%s' -seed %d", f.Err, test, f.Seed)
}

// FuzzClient sends arbitrary responses to a client, judged as in TestSimulationOfClient: no panic,
// nothing held without a subscription, at most one verdict for each response.
func FuzzClient(f *testing.F) {
	f.Add([]byte("a server that was never written, and says what it likes to whoever asks"), false)
	f.Add([]byte("another one, which speaks delta and has nothing of what it is asked for"), true)
	f.Fuzz(func(t *testing.T, data []byte, delta bool) {
		if len(data) == 0 || len(data) > 2000 {
			t.Skip()
		}
		if _, err := protocoltest.SimulateClient(protocoltest.ClientConfig{Choices: data, Variant: variant(delta), Server: "wild"}); err != nil {
			t.Fatal(err)
		}
	})
}
