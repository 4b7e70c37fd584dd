package daemon

import (
	"errors"
	"log/slog"
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// A memory is how much of it the process may use, and who says so.
type memory struct {
	bytes int64  // 0: there is no limit, or none that is known
	by    string // "GOMEMLIMIT", "cgroup" or "nobody"

	machine int64 // what the machine has; 0: it is not known
}

// memoryOf returns the limit that GOMEMLIMIT has set, or else the one to set: nine
// tenths of the cgroup's. The kernel counts what Go does not, such as the program
// itself. env is what the variable says, inForce the limit that the runtime has.
func memoryOf(env string, inForce int64, cgroup func() (uint64, error)) (memory, error) {
	if env != "" {
		if inForce == math.MaxInt64 { // "off"
			inForce = 0
		}
		return memory{bytes: inForce, by: "GOMEMLIMIT"}, nil
	}
	n, err := cgroup()
	switch {
	case errors.Is(err, memlimit.ErrNoLimit), errors.Is(err, memlimit.ErrNoCgroup), errors.Is(err, memlimit.ErrCgroupsNotSupported):
		return memory{by: "nobody"}, nil
	case err != nil:
		return memory{by: "nobody"}, err
	case n > math.MaxInt64/2: // how cgroups of version 1 say that there is none
		return memory{by: "nobody"}, nil
	}
	return memory{bytes: int64(n / 10 * 9), by: "cgroup"}, nil
}

// limitMemory has the garbage collector keep to the limit of the cgroup, unless
// GOMEMLIMIT says another: a container is killed that does not.
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
