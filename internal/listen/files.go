package listen

import "math"

// Files are the limits of open files of the process. Each connection is one.
type Files struct {
	Soft, Hard uint64 // the limit in force, and the largest that can be set; 0: unknown
}

const (
	// few is a limit that is too small for a large fleet.
	few = 65_536

	// The daemon reserves an eighth of the limit for itself: at least least, at most most, and never more
	// than half.
	least = 64
	most  = 1024
)

// Few reports whether the limit is below 65,536.
func (f Files) Few() bool { return f.Soft != 0 && f.Soft < few }

// Reserve returns how many files are not available to clients. They are for configuration, health,
// metrics, logs and the control socket.
func (f Files) Reserve() int { return int(min(max(f.Soft/8, least), most, f.Soft/2)) }

// Clients returns how many connections clients may have; 0 if it is unknown. A client that uses ADS
// has one connection with one stream.
func (f Files) Clients() int { return int(min(f.Soft, math.MaxInt32)) - f.Reserve() }
