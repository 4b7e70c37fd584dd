package cli

import (
	"errors"
	"math"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
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
		want    Memory
	}{
		{"SAFE-9 nine tenths of the limit of the cgroup", "", math.MaxInt64, 1000, nil, Memory{Bytes: 900, By: "cgroup"}},
		{"SAFE-9 GOMEMLIMIT wins", "500B", 500, 1000, nil, Memory{Bytes: 500, By: "GOMEMLIMIT"}},
		{"GOMEMLIMIT=off wins, too", "off", math.MaxInt64, 1000, nil, Memory{Bytes: 0, By: "GOMEMLIMIT"}},
		{"a cgroup without a limit", "", math.MaxInt64, 0, memlimit.ErrNoLimit, Memory{Bytes: 0, By: "none"}},
		{"a cgroup of version 1 without a limit", "", math.MaxInt64, 1<<63 - 4096, nil, Memory{Bytes: 0, By: "none"}},
		{"no cgroup", "", math.MaxInt64, 0, memlimit.ErrNoCgroup, Memory{Bytes: 0, By: "none"}},
		{"a cgroup that cannot be read", "", math.MaxInt64, 0, odd, Memory{Bytes: 0, By: "none"}},
	} {
		got, err := memoryOf(c.env, c.inForce, func() (uint64, error) { return c.cgroup, c.err })
		if got != c.want || errors.Is(err, odd) != errors.Is(c.err, odd) {
			t.Errorf("%s: %+v, %v, want %+v", c.what, got, err, c.want)
		}
	}
}

// With the pages of the program, the process stays below 1.1 times the limit.
func TestMemoryLimitOfGo(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int64]int64{
		64 << 20:  48 << 20, // too small for that
		200 << 20: 180 << 20,
		400 << 20: 400 << 20,
		1 << 30:   1 << 30,
	} {
		if got := forGo(limit); got != want {
			t.Errorf("SAFE-14 %d MiB: %d MiB, want %d MiB", limit>>20, got>>20, want>>20)
		}
	}
}

// Without a limit, limits are derived from half the memory of the machine.
func TestTotalMemory(t *testing.T) {
	t.Parallel()
	for m, want := range map[Memory]int64{{Bytes: 300, Machine: 1000}: 300, {Machine: 1000}: 500, {}: 0} {
		if got := m.Total(); got != want {
			t.Errorf("SAFE-9 %+v: %d, want %d", m, got, want)
		}
	}
}
