package listen

import "math"

// Files is how many files the process may have open, each connection being one.
type Files struct {
	Soft, Hard uint64 // in force, and how far it could be raised; 0: not known
}

const (
	// few files are less than what a fleet needs.
	few = 65_536

	// What the daemon needs itself is kept back from clients: an eighth, from least to
	// most, and never more than half.
	least = 64
	most  = 1024
)

// Few reports whether the limit is below 65,536.
func (f Files) Few() bool { return f.Soft != 0 && f.Soft < few }

// Reserve is how many files are kept back for what must go on however many clients
// there are: configuration, health, metrics, logs, the control socket.
func (f Files) Reserve() int { return int(min(max(f.Soft/8, least), most, f.Soft/2)) }

// Clients is how many connections of clients there is room for; 0 if not known.
// A client that uses ADS has one connection and one stream on it.
func (f Files) Clients() int { return int(min(f.Soft, math.MaxInt32)) - f.Reserve() }
