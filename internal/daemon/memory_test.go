package daemon

import (
	"context"
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/server"
)

// "Connections, streams … are bounded by bytes in all" (SAFE-14): the default numbers fit into the memory.
func TestCountsDerivedFromMemory(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	given := func(flag string) bool { return flag == "max-polls" }
	for _, c := range []struct {
		what                                 string
		m                                    cli.Memory
		streams, silent, others, polls, room int
	}{
		{"SAFE-14 little memory", cli.Memory{Bytes: 256 * mib}, 3276, 1024, 1000, 9000, 3276},
		{"SAFE-14 less memory", cli.Memory{Bytes: 128 * mib}, 1638, 512, 512, 9000, 1638},
		{"SAFE-14 more memory", cli.Memory{Bytes: 1024 * mib}, 13_107, 2000, 1000, 9000, 13_107},
		{"SAFE-14 much memory", cli.Memory{Bytes: 8192 * mib}, 100_000, 2000, 1000, 9000, 104_857},
		{"SAFE-14 no limit: half the memory of the machine", cli.Memory{Machine: 2048 * mib}, 13_107, 2000, 1000, 9000, 13_107},
		{"SAFE-14 hardly any memory", cli.Memory{Bytes: 1000}, 1, 1, 1, 9000, 1},
		{"the memory is unknown", cli.Memory{}, 100_000, 2000, 1000, 9000, math.MaxInt32},
	} {
		b := limitFlags{Limits: server.DefaultLimits(), given: given}
		b.Polls = 9000
		b.deriveFrom(c.m)
		if b.Streams != c.streams || b.Silent != c.silent || b.Others != c.others || b.Polls != c.polls || b.room != c.room {
			t.Errorf("%s: %d streams, %d silent, %d others, %d polls, room for %d connections", c.what, b.Streams, b.Silent, b.Others, b.Polls, b.room)
		}
	}
	b := limitFlags{Limits: server.DefaultLimits()}
	b.deriveFrom(cli.Memory{Bytes: 256 * mib})
	if b.Polls != 2048 {
		t.Errorf("%d polls", b.Polls)
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
		m                         cli.Memory
		held, unfinished, request int // value of the flag; 0: the flag is not given

		wantHeld, wantUnfinished, wantRequest int
	}{
		{"SAFE-9 much memory", cli.Memory{Bytes: 4096 * mib}, 0, 0, 0, 1024 * mib, 48 * mib, 32 * mib},
		{"SAFE-9 little memory", cli.Memory{Bytes: 128 * mib}, 0, 0, 0, 32 * mib, 16 * mib, 16 * mib},
		{"SAFE-9 very little", cli.Memory{Bytes: 16 * mib}, 0, 0, 0, 4 * mib, 8 * mib, 8 * mib},
		{"SAFE-9 no limit: half the memory of the machine", cli.Memory{Machine: 8192 * mib}, 0, 0, 0, 1024 * mib, 48 * mib, 32 * mib},
		{"the memory is unknown", cli.Memory{}, 0, 0, 0, 0, 48 * mib, 32 * mib},
		{"given limits stay", cli.Memory{Bytes: 128 * mib}, 7 * mib, 40 * mib, 0, 7 * mib, 40 * mib, 32 * mib},
		{"--max-unfinished is at least the given --max-request", cli.Memory{Bytes: 128 * mib}, 0, 0, 20 * mib, 32 * mib, 20 * mib, 20 * mib},
		{"the same with a larger --max-request", cli.Memory{Bytes: 4096 * mib}, 0, 0, 64 * mib, 1024 * mib, 96 * mib, 64 * mib},
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
