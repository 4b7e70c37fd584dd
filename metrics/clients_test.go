package metrics

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/chancery-xds/chancery/xds"
)

func TestClients(t *testing.T) {
	var all []Standing
	m := made(Options{})
	m.Clients(func(yield func(Standing) bool) {
		for _, s := range all {
			if !yield(s) {
				return
			}
		}
	})
	got := moved(t, m, func() {
		all = []Standing{
			{Group: "edge", State: "synced"}, {Group: "edge", State: "synced"}, {Group: "edge", State: "odd"},
			{Group: "core", State: "stale", Stale: []*xds.Type{xds.Route, xds.TypeOf("x/Y"), xds.TypeOf("x/Z")}},
		}
	})
	none := 0 // of the other states of both groups
	got = slices.DeleteFunc(got, func(s string) bool {
		zero := strings.HasSuffix(s, "} 0")
		if zero && strings.HasPrefix(s, "clients{") { // other metrics of a new group begin with this scrape or the next
			none++
		}
		return zero
	})
	want := []string{
		`clients_stale{group="core",type="other"} 1`, `clients_stale{group="core",type="rds"} 1`,
		`clients{group="core",state="stale"} 1`, `clients{group="edge",state="other"} 1`, `clients{group="edge",state="synced"} 2`,
	}
	if !slices.Equal(got, want) || none != 2*len(States())-2 {
		t.Errorf("%s, and %d of none", strings.Join(got, "; "), none)
	}
	families, err := gatherer(m).Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, prefix) {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 * MaxGroups {
		all = append(all, Standing{Group: fmt.Sprint(i), State: fmt.Sprint(i)})
	}
	n := 0
	for name := range scrape(t, m) {
		if strings.HasPrefix(name, prefix+"clients{") {
			n++
		}
	}
	if most := (MaxGroups + 1) * (len(states) + 1); n > most {
		t.Errorf("%d series, more than %d", n, most)
	}
	m.Clients(nil)
}
