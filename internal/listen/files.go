package listen

// Files is how many files the process may have open, each connection being one.
type Files struct {
	Soft, Hard uint64 // in force, and how far it could be raised; 0: not known
}

const (
	// few files are less than what a fleet needs.
	few = 65_536

	// own is what the daemon itself may need: configuration, logs, watches,
	// other listeners' connections.
	own = 256
)

// Few reports whether the limit is below 65,536.
func (f Files) Few() bool { return f.Soft != 0 && f.Soft < few }

// Clients is how many connections of clients there is room for; 0 if not known.
// A client that uses ADS has one connection and one stream on it.
func (f Files) Clients() uint64 {
	if f.Soft <= own {
		return 0
	}
	return f.Soft - own
}
