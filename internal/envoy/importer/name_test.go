package importer

import (
	"fmt"
	"strings"
	"testing"
)

// The search for a free name stays cheap when many resources have the same name.
func TestFreeNamesAreCheap(t *testing.T) {
	const n = 3000
	asked, used, seen := 0, usedNames{}, map[string]bool{}
	fold := func(s string) string {
		asked++
		return strings.ToLower(s)
	}
	for i := range n {
		name := used.free([]string{"a", "A", "b"}[i%3], fold)
		if folded := strings.ToLower(name); seen[folded] {
			t.Fatalf("duplicate name %s", name)
		} else {
			seen[folded] = true
		}
	}
	if asked > 10*n {
		t.Errorf("%d names tried for %d resources", asked, n)
	}
	if got := fmt.Sprint(used.free("a-2", fold), " ", used.free("c", fold), " ", used.free("C", fold)); got != "a-2-2 c C-2" {
		t.Error(got)
	}
}
