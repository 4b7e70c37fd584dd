package daemon

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/chancery-xds/chancery/server"
)

func TestMemoryLimitComesFromVariableOrCgroup(t *testing.T) {
	t.Parallel()
	odd := errors.New("odd")
	for _, c := range []struct {
		what    string
		env     string
		inForce int64
		cgroup  uint64
		err     error
		want    memory
	}{
		{"SAFE-9 nine tenths of the limit of the cgroup", "", math.MaxInt64, 1000, nil, memory{bytes: 900, by: "cgroup"}},
		{"SAFE-9 GOMEMLIMIT wins", "500B", 500, 1000, nil, memory{bytes: 500, by: "GOMEMLIMIT"}},
		{"GOMEMLIMIT=off wins, too", "off", math.MaxInt64, 1000, nil, memory{bytes: 0, by: "GOMEMLIMIT"}},
		{"a cgroup without a limit", "", math.MaxInt64, 0, memlimit.ErrNoLimit, memory{bytes: 0, by: "none"}},
		{"a cgroup of version 1 without a limit", "", math.MaxInt64, 1<<63 - 4096, nil, memory{bytes: 0, by: "none"}},
		{"no cgroup", "", math.MaxInt64, 0, memlimit.ErrNoCgroup, memory{bytes: 0, by: "none"}},
		{"a cgroup that cannot be read", "", math.MaxInt64, 0, odd, memory{bytes: 0, by: "none"}},
	} {
		got, err := memoryOf(c.env, c.inForce, func() (uint64, error) { return c.cgroup, c.err })
		if got != c.want || errors.Is(err, odd) != errors.Is(c.err, odd) {
			t.Errorf("%s: %+v, %v, want %+v", c.what, got, err, c.want)
		}
	}
}

// "Connections, streams … are bounded by bytes in all" (SAFE-14): the default numbers fit into the memory.
func TestCountsDerivedFromMemory(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	given := func(flag string) bool { return flag == "max-polls" }
	for _, c := range []struct {
		what                                 string
		m                                    memory
		streams, silent, others, polls, room int
	}{
		{"SAFE-14 little memory", memory{bytes: 256 * mib}, 3276, 1024, 1000, 9000, 3276},
		{"SAFE-14 more memory", memory{bytes: 1024 * mib}, 13_107, 2000, 1000, 9000, 13_107},
		{"SAFE-14 much memory", memory{bytes: 8192 * mib}, 100_000, 2000, 1000, 9000, 104_857},
		{"SAFE-14 no limit: half the memory of the machine", memory{machine: 2048 * mib}, 13_107, 2000, 1000, 9000, 13_107},
		{"SAFE-14 hardly any memory", memory{bytes: 1000}, 1, 1, 1, 9000, 1},
		{"the memory is unknown", memory{}, 100_000, 2000, 1000, 9000, math.MaxInt32},
	} {
		b := limitFlags{Limits: server.DefaultLimits(), given: given}
		b.Polls = 9000
		b.deriveFrom(c.m)
		if b.Streams != c.streams || b.Silent != c.silent || b.Others != c.others || b.Polls != c.polls || b.room != c.room {
			t.Errorf("%s: %d streams, %d silent, %d others, %d polls, room for %d connections", c.what, b.Streams, b.Silent, b.Others, b.Polls, b.room)
		}
	}
	b := limitFlags{Limits: server.DefaultLimits()}
	b.deriveFrom(memory{bytes: 256 * mib})
	if b.Polls != 2048 {
		t.Errorf("%d polls", b.Polls)
	}
}

// An upstream of a relay cannot take all memory.
func TestUpstreamLimitsDerivedFromMemory(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, c := range []struct {
		what                      string
		m                         memory
		given, upstream, response int
	}{
		{"SAFE-14 little memory", memory{bytes: 256 * mib}, 0, 64 * mib, 16 * mib},
		{"SAFE-14 hardly any memory", memory{bytes: 16 * mib}, 0, 4 * mib, 4 * mib},
		{"SAFE-14 much memory", memory{bytes: 8192 * mib}, 0, 2048 * mib, 256 * mib},
		{"SAFE-14 no limit: half the memory of the machine", memory{machine: 2048 * mib}, 0, 256 * mib, 64 * mib},
		{"SAFE-14 given limits stay", memory{bytes: 256 * mib}, mib, mib, mib},
		{"the memory is unknown", memory{}, 0, 0, 256 * mib},
	} {
		b := limitFlags{Limits: server.DefaultLimits(), upstream: c.given, upstreamResponse: c.given}
		b.deriveFrom(c.m)
		if b.upstream != c.upstream || b.upstreamResponse != c.response {
			t.Errorf("%s: %d and %d bytes", c.what, b.upstream, b.upstreamResponse)
		}
	}
}

// SAFE-14: after a burst the program returns memory, although it is too idle to collect.
func TestMemoryReturn(t *testing.T) {
	t.Parallel()
	var r memoryReturn
	for i, step := range []struct {
		now  memoryUse
		left uint64 // bytes after a return; 0: none is due
	}{
		{memoryUse{100, 1, 10}, 0},   // a collection since the start
		{memoryUse{100, 1, 10}, 100}, // the first of two
		{memoryUse{100, 1, 10}, 100}, // the second
		{memoryUse{120, 1, 10}, 0},   // not more than a fifth
		{memoryUse{121, 1, 10}, 100},
		{memoryUse{100, 2, 10}, 0}, // between the first and the second
		{memoryUse{100, 2, 10}, 100},
		{memoryUse{110, 4, 10}, 0}, // hardly busy
		{memoryUse{110, 4, 10}, 0},
		{memoryUse{110, 5, 10}, 0},
		{memoryUse{110, 5, 10}, 110}, // busy
		{memoryUse{110, 5, 10}, 110},
		{memoryUse{110, 5, 100}, 0},
		{memoryUse{110, 5, 80}, 0},
		{memoryUse{110, 5, 79}, 110}, // a fifth of the goroutines has ended
		{memoryUse{110, 5, 79}, 87},  // the second gives a fifth: a third follows
		{memoryUse{87, 5, 79}, 80},
		{memoryUse{80, 5, 79}, 0},
	} {
		if got := r.due(step.now); got != (step.left > 0) {
			t.Errorf("step %d: %v", i, got)
		}
		if step.left > 0 {
			r.returned(step.now, memoryUse{step.left, step.now.collections, step.now.goroutines})
		}
	}
	if now := readMemory(); now.bytes == 0 || now.bytes > 1<<40 || now.goroutines == 0 {
		t.Errorf("%+v", now)
	}
}

// SAFE-14: the program that waits for clients returns the memory of garbage.
func TestIdleServerReturnsMemory(t *testing.T) {
	garbage := make([]byte, 128<<20)
	for i := 0; i < len(garbage); i += 4096 {
		garbage[i] = 1
	}
	before := readMemory().bytes
	runtime.KeepAlive(garbage)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		for _, p := range new(daemon).parts(nil, nil) {
			if p.name != "memory" {
				continue
			}
			if err := p.start(ctx, &running); err != nil {
				t.Fatal(err)
			}
		}
		for range 10 {
			time.Sleep(returnEvery)
			synctest.Wait()
		}
		if now := readMemory().bytes; now > before-64<<20 {
			t.Errorf("%d bytes before, %d now", before, now)
		}
	})
}

// Limits of memory are derived from the memory limit, unless they are given.
func TestLimitsDerivedFromMemory(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, c := range []struct {
		what                      string
		m                         memory
		held, unfinished, request int // value of the flag; 0: the flag is not given

		wantHeld, wantUnfinished, wantRequest int
	}{
		{"SAFE-9 much memory", memory{bytes: 4096 * mib}, 0, 0, 0, 1024 * mib, 48 * mib, 32 * mib},
		{"SAFE-9 little memory", memory{bytes: 128 * mib}, 0, 0, 0, 32 * mib, 16 * mib, 16 * mib},
		{"SAFE-9 very little", memory{bytes: 16 * mib}, 0, 0, 0, 4 * mib, 8 * mib, 8 * mib},
		{"SAFE-9 no limit: half the memory of the machine", memory{machine: 8192 * mib}, 0, 0, 0, 1024 * mib, 48 * mib, 32 * mib},
		{"the memory is unknown", memory{}, 0, 0, 0, 0, 48 * mib, 32 * mib},
		{"given limits stay", memory{bytes: 128 * mib}, 7 * mib, 40 * mib, 0, 7 * mib, 40 * mib, 32 * mib},
		{"--max-unfinished is at least the given --max-request", memory{bytes: 128 * mib}, 0, 0, 20 * mib, 32 * mib, 20 * mib, 20 * mib},
		{"the same with a larger --max-request", memory{bytes: 4096 * mib}, 0, 0, 64 * mib, 1024 * mib, 96 * mib, 64 * mib},
	} {
		b := limitFlags{request: 32 * mib, requestGiven: c.request != 0}
		if c.request != 0 {
			b.request = c.request
		}
		b.HeldInAll, b.Unfinished = c.held, c.unfinished
		b.deriveFrom(c.m)
		if b.HeldInAll != c.wantHeld || b.Unfinished != c.wantUnfinished || b.request != c.wantRequest {
			t.Errorf("%s: %d, %d and %d bytes", c.what, b.HeldInAll, b.Unfinished, b.request)
		}
	}
}
