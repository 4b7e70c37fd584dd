package cli

import (
	"errors"
	"log/slog"
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// Memory is the amount of memory that the process may use, and the origin of this limit.
type Memory struct {
	Bytes int64  // 0: no limit, or an unknown limit
	By    string // "GOMEMLIMIT", "cgroup" or "none"

	Machine int64 // memory of the machine; 0: unknown
}

// Total returns the bytes from which limits are derived; 0: unknown. Without a limit it is half the memory of the
// machine, because other programs also need memory.
func (m Memory) Total() int64 {
	if m.Bytes == 0 {
		return m.Machine / 2
	}
	return m.Bytes
}

// memoryOf returns the limit that GOMEMLIMIT has set. Otherwise it returns nine tenths of the limit
// of the cgroup: the kernel also counts memory that Go does not, such as the code of the program. The
// argument env is the value of GOMEMLIMIT, and inForce is the limit of the runtime.
func memoryOf(env string, inForce int64, cgroup func() (uint64, error)) (Memory, error) {
	if env != "" {
		if inForce == math.MaxInt64 { // GOMEMLIMIT=off
			inForce = 0
		}
		return Memory{Bytes: inForce, By: "GOMEMLIMIT"}, nil
	}
	n, err := cgroup()
	switch {
	case errors.Is(err, memlimit.ErrNoLimit), errors.Is(err, memlimit.ErrNoCgroup), errors.Is(err, memlimit.ErrCgroupsNotSupported):
		return Memory{By: "none"}, nil
	case err != nil:
		return Memory{By: "none"}, err
	case n > math.MaxInt64/2: // cgroup v1 has a huge number for "no limit"
		return Memory{By: "none"}, nil
	}
	return Memory{Bytes: int64(n / 10 * 9), By: "cgroup"}, nil
}

// pagesOfProgram is about the memory of the program's code and constants in use, which Go does not count.
const pagesOfProgram = 40 << 20

// forGo returns the memory limit of Go for a process that may use a tenth more than limit. From 400 MiB on, this tenth
// has room for the pages of the program. Below, Go gets less than limit, but at least three quarters.
func forGo(limit int64) int64 {
	return min(limit, max(limit+limit/10-pagesOfProgram, limit/4*3))
}

// LimitMemory sets the memory limit of Go by GOMEMLIMIT, or else by nine tenths of the limit of the cgroup. The
// kernel kills a container that exceeds the cgroup's limit.
func LimitMemory(log *slog.Logger) Memory {
	m, err := memoryOf(os.Getenv("GOMEMLIMIT"), debug.SetMemoryLimit(-1), memlimit.FromCgroup)
	if err != nil {
		log.Warn("cannot read the memory limit of the cgroup", "error", err)
	}
	if n, err := memlimit.FromSystem(); err == nil && n <= math.MaxInt64 {
		m.Machine = int64(n)
	}
	if m.Bytes > 0 {
		debug.SetMemoryLimit(forGo(m.Bytes))
	}
	switch {
	case m.Bytes > 0:
		log.Info("memory limit", "by", m.By, "bytes", m.Bytes)
	case err == nil:
		log.Info("no memory limit is set: the program may use all memory of the machine", "hint", "set a memory limit for the container, or GOMEMLIMIT")
	}
	return m
}
