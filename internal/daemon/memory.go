package daemon

import (
	"errors"
	"log/slog"
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// memory is the amount of memory that the process may use, and the origin of this limit.
type memory struct {
	bytes int64  // 0: no limit, or an unknown limit
	by    string // "GOMEMLIMIT", "cgroup" or "none"

	machine int64 // memory of the machine; 0: unknown
}

// memoryOf returns the limit that GOMEMLIMIT has set. Otherwise it returns nine tenths of the limit
// of the cgroup: the kernel also counts memory that Go does not, such as the code of the program. The
// argument env is the value of GOMEMLIMIT, and inForce is the limit of the runtime.
func memoryOf(env string, inForce int64, cgroup func() (uint64, error)) (memory, error) {
	if env != "" {
		if inForce == math.MaxInt64 { // GOMEMLIMIT=off
			inForce = 0
		}
		return memory{bytes: inForce, by: "GOMEMLIMIT"}, nil
	}
	n, err := cgroup()
	switch {
	case errors.Is(err, memlimit.ErrNoLimit), errors.Is(err, memlimit.ErrNoCgroup), errors.Is(err, memlimit.ErrCgroupsNotSupported):
		return memory{by: "none"}, nil
	case err != nil:
		return memory{by: "none"}, err
	case n > math.MaxInt64/2: // cgroup v1 has a huge number for "no limit"
		return memory{by: "none"}, nil
	}
	return memory{bytes: int64(n / 10 * 9), by: "cgroup"}, nil
}

// limitMemory sets the memory limit of Go to nine tenths of that of the cgroup, unless GOMEMLIMIT is
// set. The kernel kills a container that exceeds the cgroup's limit.
func limitMemory(log *slog.Logger) memory {
	m, err := memoryOf(os.Getenv("GOMEMLIMIT"), debug.SetMemoryLimit(-1), memlimit.FromCgroup)
	if err != nil {
		log.Warn("cannot read the memory limit of the cgroup", "error", err)
	}
	if n, err := memlimit.FromSystem(); err == nil && n <= math.MaxInt64 {
		m.machine = int64(n)
	}
	if m.by == "cgroup" {
		debug.SetMemoryLimit(m.bytes)
	}
	switch {
	case m.bytes > 0:
		log.Info("memory limit", "by", m.by, "bytes", m.bytes)
	case err == nil:
		log.Info("no memory limit is set: the program may use all memory of the machine", "hint", "set a memory limit for the container, or GOMEMLIMIT")
	}
	return m
}
