package groups

import (
	"fmt"
	"testing"

	"github.com/chancery-xds/chancery/xds"
)

// Half of all nodes are in a rollout to 50 percent, and all shares are between 0 and 100.
func TestSharesAreUniform(t *testing.T) {
	const nodes = 10_000
	below := [10]int{}
	for i := range nodes {
		s := hashPercent("r", fmt.Sprint("node-", i))
		if s < 0 || s > 100 {
			t.Fatalf("share %v", s)
		}
		below[min(int(s/10), 9)]++
	}
	for i, n := range below {
		if n < 850 || n > 1150 {
			t.Errorf("%d of %d nodes between %d and %d percent", n, nodes, 10*i, 10*i+10)
		}
	}
}

// When the counter of generations starts again, a group that was never a candidate may become one.
func TestQueryRoundsStartAgain(t *testing.T) {
	r, _ := New([]Definition{{Name: "g", Match: &Match{ID: Values{"a"}}}, {Name: Default}}, Options{})
	q := r.query(nil)
	q.states = make([]groupState, len(r.groups))
	q.generation = ^uint32(0)
	r.queries.Put(q)
	if d := r.Decide(&xds.Node{ID: "a"}); fmt.Sprint(d.Groups) != "[g]" {
		t.Error(d)
	}
}
