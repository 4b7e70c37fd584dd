package protocol

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The content of a response: for a wildcard it is the difference of two tables, or all of one
// table. Items override the tables.
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
		{"a1 b1", "a1 b1", true, false, "", "a:a1>a1 b:b1>b1"}, // sent again, changed or not
		{"a1 c1", "a1 b1", true, false, "", "a:a1>a1 b:->b1 c:c1>-"},
		{"a1 b1", "a2 b2", false, false, "a:a1>", "b:b1>b2"}, // a waits, so its state is not sent
		{"a1", "a2", false, false, "a:a0>a2 z:z1>-", "a:a0>a2 z:z1>-"},
		{"", "", false, false, "a:->a1", "a:->a1"},
		{"a1 b1 c1", "a1 b2", false, true, "c:c1>-", "b:->b2 c:c1>-"}, // all but c are unsubscribed since
		{"a1 c1", "a1 b1", true, true, "", "a:->a1 b:->b1 c:->-"},
		{"a1", "a2", false, true, "a:>", ""},
	} {
		is := cargo{From: versionsOf(c.from), To: versionsOf(c.to), Whole: c.whole, Dropped: c.dropped, Items: itemsOf(c.items)}
		if c.whole && c.from == c.to {
			is.To = is.From // as when nothing has changed
		}
		if got := cargoText(&is); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
		// carries and before agree with each.
		var out []string
		for _, n := range []string{"a", "b", "c", "z"} {
			if st := is.Carries(n); st != nil {
				out = append(out, fmt.Sprintf("%s:%s>%s", n, textOf(is.Before(n)), textOf(st)))
			}
		}
		if got := strings.Join(out, " "); got != c.want {
			t.Errorf("%+v: one by one: %s", c, got)
		}
	}
}

// Items override the tables and stay in order, whatever is added and removed.
func TestCargoWithout(t *testing.T) {
	for _, c := range []struct {
		items, out string
		want       string // of from a1 b1 c1, to a2 b2 c2 d1
		left       string // names that have an item
	}{
		{"", "", "a:a1>a2 b:b1>b2 c:c1>c2 d:->d1", ""},
		{"", "b", "a:a1>a2 c:c1>c2 d:->d1", "b"},
		{"b:b0>b2", "b", "a:a1>a2 c:c1>c2 d:->d1", "b"},
		{"b:b0>b2", "a d", "b:b0>b2 c:c1>c2", "a b d"},
		{"z:->z1", "z", "a:a1>a2 b:b1>b2 c:c1>c2 d:->d1", "z"},
		{"", "z", "a:a1>a2 b:b1>b2 c:c1>c2 d:->d1", ""}, // it was not there
		{"", "d c b a", "", "a b c d"},
		{"", "b b", "a:a1>a2 c:c1>c2 d:->d1", "b"},
	} {
		is := cargo{From: versionsOf("a1 b1 c1"), To: versionsOf("a2 b2 c2 d1"), Items: itemsOf(c.items)}
		out := strings.Fields(c.out)
		is.Without(func(yield func(string, item) bool) {
			for i, n := range out {
				if !slices.Contains(out[:i], n) && !yield(n, item{}) {
					return
				}
			}
		})
		var left []string
		for _, it := range is.Items {
			left = append(left, it.Name)
		}
		if got := sorted(cargoText(&is)); got != c.want || strings.Join(left, " ") != c.left {
			t.Errorf("%q without %q: %s; items of %q", c.items, c.out, got, left)
		}
		if err := checkCargo(&is); err != nil {
			t.Error(err)
		}
	}
}

func sorted(text string) string {
	words := strings.Fields(text)
	slices.Sort(words)
	return strings.Join(words, " ")
}

// Added items are in order and are found.
func TestCargoAdd(t *testing.T) {
	var is cargo
	if is.Find("a") != nil || is.Carries("a") != nil || is.Before("a") != absent {
		t.Error("an empty cargo has content")
	}
	is.Add(nil)
	is.Add(itemsOf("c:->c1 b:b1>-"))
	is.Add(itemsOf("a:a1> d:->d1"))
	if got := sorted(cargoText(&is)); got != "b:b1>- c:->c1 d:->d1" {
		t.Error(got)
	}
	for _, n := range []string{"a", "b", "c", "d"} {
		if it := is.Find(n); it == nil || it.Name != n {
			t.Errorf("%q is not found", n)
		}
	}
	if is.Find("") != nil || is.Find("bb") != nil || is.Find("z") != nil {
		t.Error("a missing name is found")
	}
	if is.Carries("a") != nil || is.Before("a") == absent {
		t.Error("a counts as not reported, but was sent")
	}
}

// tellsNothing reports whether the client holds no resource of the name before and after the item.
// Then the name need not be remembered.
func TestTellsNothing(t *testing.T) {
	for text, want := range map[string]bool{
		"a:->-": true, "a:>": true, "a:->": true, "a:>-": true,
		"a:->a1": false, "a:a1>-": false, "a:a1>a2": false, "a:a1>": false,
	} {
		it := itemsOf(text)[0]
		if got := it.TellsNothing(); got != want {
			t.Errorf("%s: %v", text, got)
		}
		if it.Lapse(false); it.TellsNothing() {
			t.Errorf("%s: a lapsed item was a resource", text)
		}
	}
}
