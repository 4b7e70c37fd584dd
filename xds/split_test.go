package xds

import (
	"fmt"
	"strings"
	"testing"
)

// Only a resource that is too large by itself makes a part that is.
func TestSplitSizes(t *testing.T) {
	const limit = 4000
	for name, sizes := range map[string][]int{
		"small bodies":             {500, 500, 500, 500, 500, 500, 500, 500, 500, 500, 500, 500, 500},
		"one that is too large":    {500, 5000, 500, 3000, 3000},
		"long names":               make([]int, 100),
		"nothing but large ones":   {5000, 5000, 5000},
		"a large one at the end":   {10, 10, 9000},
		"as much as there is room": {1000, 1000, 1000, 1000},
	} {
		t.Run("DELTA-13 "+name, func(t *testing.T) {
			c := &Changes{}
			for i, n := range sizes {
				c.Upserts = append(c.Upserts, named(fmt.Sprintf("%0100d", i), strings.Repeat("x", n)))
			}
			parts := c.Split(limit)
			if len(parts) < 2 {
				t.Errorf("%d parts", len(parts))
			}
			for i, p := range parts {
				size := 0
				for _, r := range p.Upserts {
					size += len(r.Name) + len(r.Body)
				}
				if size > limit && len(p.Upserts) > 1 {
					t.Errorf("part %d has %d bytes in %d resources", i, size, len(p.Upserts))
				}
			}
		})
	}
}
