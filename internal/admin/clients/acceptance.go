package clients

import (
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// An Acceptance counts the clients that have accepted their responses, that refuse one, and that have
// not answered yet.
type Acceptance struct {
	Clients, Acked, Refused, Waiting int
	Regressions                      []Regression // at most 100
}

// A Regression is a node that refuses a resource of a type, although it accepted resources of this
// type before, or stated them in its first request.
type Regression struct {
	Node  string
	Type  *xds.Type
	Names []string // refused resources: those in the error text, else all of the response if it had at most 5
	Of    int      // number of resources in the refused response
	Text  string   // error text, secrets removed
}

// Acceptance counts the connected clients that get one of the groups. It also lists the nodes that
// regressed in these groups at or after a time, including nodes that have disconnected. A node has
// not regressed if it already refused the type at that time, or if it refused the type in other
// groups first.
func (t *Tracker) Acceptance(groups []string, since time.Time) (k Acceptance) {
	all := t.gather(nil, false).all
	for i := range all {
		s := &all[i]
		if !slices.ContainsFunc(t.grouped(s).groups, func(g string) bool { return slices.Contains(groups, g) }) {
			continue
		}
		k.Clients++
		switch {
		case s.state == nacked:
			k.Refused++
		case s.state >= synced:
			k.Acked++
		default:
			k.Waiting++
		}
	}
	k.Regressions = t.history.regressions(groups, since.UnixNano())
	return k
}
