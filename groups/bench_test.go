package groups_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/groups/cel"
	"github.com/chancery-xds/chancery/xds"
)

var fleets = []struct {
	name string
	cels int
	rule func(i int) groups.Match
}{
	{"cluster", 0, func(i int) groups.Match { return groups.Match{Cluster: groups.Values{fmt.Sprint("cluster-", i)}} }},
	{"prefix", 0, func(i int) groups.Match {
		return groups.Match{ID: groups.Values{fmt.Sprint("node-", i, "-*")}, Cluster: groups.Values{"web"}}
	}},
	{"metadata", 0, func(i int) groups.Match {
		return groups.Match{Metadata: []groups.MetadataMatch{
			{Path: []string{"env"}, Values: groups.Values{"prod"}},
			{Path: []string{"labels", "team"}, Values: groups.Values{fmt.Sprint("team-", i)}},
		}}
	}},
	{"mixed", 100, func(i int) groups.Match {
		switch i % 3 {
		case 0:
			return groups.Match{Cluster: groups.Values{fmt.Sprint("cluster-", i)}}
		case 1:
			return groups.Match{ID: groups.Values{fmt.Sprint("node-", i, "-*")}}
		}
		return groups.Match{Metadata: []groups.MetadataMatch{{Path: []string{"labels", "team"}, Values: groups.Values{fmt.Sprint("team-", i)}}}}
	}},
}

func rulesOf(t testing.TB, n, cels int, rule func(int) groups.Match) *groups.Rules {
	var defs []groups.Definition
	for i := range n {
		m := rule(i)
		if i < cels {
			m = groups.Match{CEL: fmt.Sprintf(`node.cluster == "cluster-%d" && node.metadata.env == "prod"`, i)}
		}
		defs = append(defs, groups.Definition{Name: fmt.Sprint("g", i), Match: &m, Include: []string{groups.Default}})
	}
	r, problems := groups.New(defs, groups.Options{CEL: cel.Compile})
	if r == nil {
		t.Fatal(told(problems))
	}
	return r
}

func nodeOf(t testing.TB) *xds.Node {
	return &xds.Node{ID: "node-4999-abc", Cluster: "cluster-4998", Region: "eu-1", UserAgentName: "envoy", Metadata: meta(t, `{"env":"prod","labels":{"team":"team-5000","app":"pay","version":"3"},"weight":5,"list":["a","b","c"]}`)}
}

func BenchmarkDecide(b *testing.B) {
	for _, f := range fleets {
		b.Run(f.name, func(b *testing.B) {
			r, n := rulesOf(b, 10_000, f.cels, f.rule), nodeOf(b)
			if f.name == "prefix" {
				n.Cluster = "web"
			}
			if d := r.Decide(n); d.Groups[0] == groups.Default {
				b.Fatal(d)
			}
			b.ReportAllocs()
			for b.Loop() {
				r.Decide(n)
			}
		})
	}
}

// Decide takes less than 50 µs among 10,000 groups. The test allows more, for a busy machine and the
// race detector.
func TestDecideIsFast(t *testing.T) {
	for _, f := range fleets {
		r, n := rulesOf(t, 10_000, 0, f.rule), nodeOf(t)
		best := time.Hour
		for range 50 {
			start := time.Now()
			r.Decide(n)
			best = min(best, time.Since(start))
		}
		if best > 500*time.Microsecond {
			t.Errorf("%s: %v", f.name, best)
		}
	}
}
