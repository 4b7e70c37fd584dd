package protocol

import (
	"fmt"
	"strings"
	"testing"
)

// What a response carried: by way of the wildcard the difference of two tables,
// or all of one; items override.
func TestCargo(t *testing.T) {
	for _, c := range []struct {
		from, to string
		whole    bool
		dropped  bool
		items    string
		want     string
	}{
		{"", "", false, false, "", ""},
		{"", "a1 b1", false, false, "", "a:->a1 b:->b1"},
		{"a1 b1 c1", "a1 b2", false, false, "", "b:b1>b2 c:c1>-"},
		{"a1 b1", "a1 b1", true, false, "", "a:a1>a1 b:b1>b1"}, // told anew, changed or not
		{"a1 c1", "a1 b1", true, false, "", "a:a1>a1 b:->b1 c:c1>-"},
		{"a1 b1", "a2 b2", false, false, "a:a1>", "b:b1>b2"}, // of a nothing was said: it waits
		{"a1", "a2", false, false, "a:a0>a2 z:z1>-", "a:a0>a2 z:z1>-"},
		{"", "", false, false, "a:->a1", "a:->a1"},
		{"a1 b1 c1", "a1 b2", false, true, "c:c1>-", "b:->b2 c:c1>-"}, // given up since, but for c
		{"a1 c1", "a1 b1", true, true, "", "a:->a1 b:->b1 c:->-"},
		{"a1", "a2", false, true, "a:>", ""},
	} {
		is := cargo{from: versionsOf(c.from), to: versionsOf(c.to), whole: c.whole, dropped: c.dropped, items: itemsOf(c.items)}
		if c.whole && c.from == c.to {
			is.to = is.from // as when nothing has changed
		}
		if got := cargoText(&is); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
		// carries and before say the same of single names.
		var out []string
		for _, n := range []string{"a", "b", "c", "z"} {
			if st := is.carries(n); st != nil {
				out = append(out, fmt.Sprintf("%s:%s>%s", n, textOf(is.before(n)), textOf(st)))
			}
		}
		if got := strings.Join(out, " "); got != c.want {
			t.Errorf("%+v: one by one: %s", c, got)
		}
	}
}
