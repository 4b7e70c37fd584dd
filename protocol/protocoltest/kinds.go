package protocoltest

import "fmt"

// A Kind is a sort of world that the protocol itself does not decide: two
// servers that obey every rule may end it differently, and no client could tell
// which is right. A world that ends so is counted by its kind, and says nothing
// against a session. The list is closed: whatever else breaks an obligation is
// a failure, of the session or of the judge.
type Kind string

// Kinds are all there are. docs/simulation.md has the reason of each.
func Kinds() []Kind { return nil }

// undecided is the verdict on a world of a kind.
type undecided struct {
	kind Kind
	what string
}

func (u undecided) Error() string { return fmt.Sprintf("%s: %s", u.kind, u.what) }
