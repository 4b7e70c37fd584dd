package protocol_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/chancery-xds/chancery/internal/testkit/worlds"
	"github.com/chancery-xds/chancery/protocol/protocoltest"
)

// A tally describes the worlds of a test.
type tally struct {
	mu sync.Mutex
	protocoltest.Result
	worlds int
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
	c.sum(r)
}

func (c *tally) sum(r protocoltest.Result) {
	c.Messages += r.Messages
	c.Deliveries += r.Deliveries
	c.Judged += r.Judged
}

// all describes the worlds of the whole simulation, and the tests that are part of it.
var all = struct {
	*tally
	tests []string
}{tally: &tally{}}

// summary counts the worlds of a test, and describes them at its end: with -v, and in the file
// $SIM_SUMMARY, which `make sim` prints. At the end of the last of the three tests, it describes
// all worlds.
func summary(t *testing.T) *tally {
	c := &tally{}
	t.Cleanup(func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		all.tests, all.worlds = append(all.tests, t.Name()), all.worlds+c.worlds
		all.sum(c.Result)
		text := fmt.Sprintf("%s: %s", t.Name(), c)
		if len(all.tests) == 3 && !worlds.Replays() {
			text += fmt.Sprintf("the simulation: %s", all.tally)
			all.tests, all.tally = nil, &tally{} // with -count there is another run
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
	return fmt.Sprintf("%d worlds, %d messages; \"never breaks\" judged %d of %d deliveries of whole worlds (%.0f%%)\n",
		c.worlds, c.Messages, c.Judged, c.Deliveries, 100*float64(c.Judged)/float64(max(c.Deliveries, 1)))
}
