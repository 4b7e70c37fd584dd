package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/e2e/harness"
	"github.com/chancery-xds/chancery/e2e/tap"
)

// binary is the daemon under test.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	// Tests mostly wait, so more of them than processors run at a time.
	if !isSet("test.parallel") {
		flag.Set("test.parallel", "4")
	}
	dir, err := os.MkdirTemp("", "chancery-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	os.Setenv("CHANCERY_QUARANTINE", "false")                 // transcripts record the plain protocol; TestQuarantine uses the default
	os.Setenv("STATE_DIRECTORY", filepath.Join(dir, "state")) // do not use the state directory of the user
	os.Setenv("CHANCERY_ADMIN_LISTEN", "127.0.0.1:0")         // several servers run at a time
	binary = filepath.Join(dir, "chancery")
	if err := harness.Build("..", binary); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func isSet(name string) bool {
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

// A rig is a daemon with a tap before it.
type rig struct {
	*tap.Tap
	t      *testing.T
	world  world
	write  func(world) // makes the server serve it, in one step
	daemon *daemon

	provoked string // how the violation begins that the files provoke; "": none may be
}

// newRig starts a daemon that serves the world, with more flags if given. When the test ends, the
// conversation is checked against the rules that always hold, and printed if
// the test has failed.
func newRig(t *testing.T, w world, l layout, args ...string) *rig {
	t.Helper()
	d := newDaemon(t, w, l, args...)
	r := tapped(t, w, d.addr())
	r.daemon, r.write = d, d.write
	return r
}

// tapped is a rig with its tap before the server at an address.
func tapped(t *testing.T, w world, addr string) *rig {
	t.Helper()
	tp, err := tap.New(addr)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Tap: tp, t: t, world: w}
	t.Cleanup(func() {
		tp.Close()
		all := tp.Since(0)
		for _, v := range all.Violations() {
			if r.provoked == "" || !strings.HasPrefix(v, r.provoked) {
				t.Error(v)
			}
		}
		if t.Failed() {
			t.Logf("between client and server:\n%s", all)
		}
	})
	return r
}

// commit changes the world in one step and returns the point in the
// conversation just before.
func (r *rig) commit(what string, change func(world)) tap.Point {
	r.t.Helper()
	change(r.world)
	p := r.Mark("%s", what)
	r.write(r.world)
	return p
}

// kill ends the daemon under its clients.
func (r *rig) kill() {
	r.t.Helper()
	r.Mark("server killed")
	r.daemon.kill()
	r.Cut()
}

// restart runs the daemon again and returns the point just before.
func (r *rig) restart() tap.Point {
	r.t.Helper()
	r.daemon.start()
	p := r.Mark("server restarted")
	r.Restore()
	return p
}

// quiet waits until every response is answered and returns the point.
func (r *rig) quiet() tap.Point {
	r.t.Helper()
	eventually(r.t, soon, "every response is answered", func() error {
		if !r.Since(0).Quiet() {
			return errors.New("one is not")
		}
		return nil
	})
	return r.Here()
}

// sees waits until the conversation since p fulfils a condition, and returns it.
func (r *rig) sees(p tap.Point, within time.Duration, what string, ok func(tap.Records) bool) tap.Records {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	rs, seen := r.Await(ctx, p, ok)
	if !seen {
		r.t.Fatalf("%s: not seen within %v", what, within)
	}
	return rs
}

// exactly fails the test if there are not n records.
func exactly(t *testing.T, n int, what string, rs tap.Records) {
	t.Helper()
	if len(rs) != n {
		t.Errorf("%d × %s, want %d:\n%s", len(rs), what, n, rs)
	}
}
