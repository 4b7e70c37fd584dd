package export

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/types/known/durationpb"
)

// stepsOf exports two lists of resources and returns a description and the files after each step.
func stepsOf(t *testing.T, s *site, from, to resourceList) ([]string, []files) {
	t.Helper()
	build := func(w resourceList) files {
		f, _, err := s.build(w.view(t))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	all := s.Format.steps(build(from), build(to))
	var descriptions []string
	for _, step := range all {
		descriptions = append(descriptions, describe(step))
	}
	return descriptions, all
}

// describe lists the clusters, the clusters that routes refer to, and the other files.
func describe(all files) string {
	var names, other []string
	for _, p := range all["cds.yaml"].pieces {
		names = append(names, p.name)
	}
	for _, path := range slices.Sorted(maps.Keys(all)) {
		if strings.Contains(path, "/") {
			other = append(other, strings.TrimSuffix(path, ".yaml"))
		}
	}
	return fmt.Sprintf("%s | %s | %s", strings.Join(names, " "), strings.Join(reachable(all, all), " "), strings.Join(other, " "))
}

// reachable returns the clusters that the listeners of one state refer to, with the routes of another
// state if it has them.
func reachable(listeners, routes files) []string {
	found := map[string]bool{}
	for _, p := range listeners["lds.yaml"].pieces {
		for _, n := range p.needs {
			path := "rds/" + n.Name + ".yaml"
			for _, c := range after(string(cmp.Or(routes[path], listeners[path]).data), "        cluster: ") {
				found[c] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func TestSteps(t *testing.T) {
	slow := func(name string) *clusterv3.Cluster {
		c := eds(name)
		c.ConnectTimeout = durationpb.New(time.Hour)
		return c
	}
	a, b := resourceList{eds("a"), assignment("a", 1)}, resourceList{eds("b"), assignment("b", 2)}
	l := resourceList{rds(t, "l", "r")}
	join := func(all ...resourceList) resourceList { return slices.Concat(all...) }
	for _, tt := range []struct {
		name     string
		from, to resourceList
		want     []string
	}{
		{"nothing", join(a, l), join(a, l), nil},
		{"a changed endpoint", join(a, l), join(resourceList{eds("a"), assignment("a", 3)}, l), []string{"a |  | eds/a rds/r"}},
		{"a route moves between existing clusters", join(a, b, l, resourceList{routes("r", "a")}), join(a, b, l, resourceList{routes("r", "b")}), []string{"a b | b | eds/a eds/b rds/r"}},
		{"a new cluster without a route", join(a, l, resourceList{routes("r", "a")}), join(a, b, l, resourceList{routes("r", "a")}), []string{"a b | a | eds/a eds/b rds/r"}},
		{"a new cluster with a route", join(a, l, resourceList{routes("r", "a")}), join(a, b, l, resourceList{routes("r", "a", "b")}),
			[]string{"a b | a | eds/a eds/b rds/r", "a b | a b | eds/a eds/b rds/r"}},
		{"a removed cluster without a route", join(a, b, l, resourceList{routes("r", "a")}), join(a, l, resourceList{routes("r", "a")}), []string{"a | a | eds/a eds/b rds/r", "a | a | eds/a rds/r"}},
		{"a removed cluster with its route", join(a, b, l, resourceList{routes("r", "a", "b")}), join(a, l, resourceList{routes("r", "a")}),
			[]string{"a b | a | eds/a eds/b rds/r", "a | a | eds/a eds/b rds/r", "a | a | eds/a rds/r"}},
		{"one cluster replaces another", join(a, l, resourceList{routes("r", "a")}), join(b, l, resourceList{routes("r", "b")}),
			[]string{"a b | a | eds/a eds/b rds/r", "a b | b | eds/a eds/b rds/r", "b | b | eds/a eds/b rds/r", "b | b | eds/b rds/r"}},
		{"a changed cluster with a changed route", join(a, l, resourceList{routes("r", "a")}), join(resourceList{slow("a"), assignment("a", 1)}, l, resourceList{routes("r", "a", "a")}),
			[]string{"a | a | eds/a rds/r", "a | a | eds/a rds/r"}},
		{"a removed listener with its routes", join(a, l, resourceList{routes("r", "a")}), a, []string{"a |  | eds/a rds/r", "a |  | eds/a"}},
		{"a new listener with its routes", a, join(a, l, resourceList{routes("r", "a")}), []string{"a | a | eds/a rds/r"}},
		{"changed certificates", join(a, resourceList{secret("s", "1"), secret("t", "1")}), join(a, resourceList{secret("s", "2")}), []string{"a |  | eds/a sds/s sds/t", "a |  | eds/a sds/s"}},
	} {
		t.Run("FILE-5 "+tt.name, func(t *testing.T) {
			s := open(t, t.TempDir(), Options{})
			if got, _ := stepsOf(t, s, tt.from, tt.to); !slices.Equal(got, tt.want) {
				t.Errorf("steps\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}

	t.Run("the pause is between the steps", func(t *testing.T) {
		s := open(t, t.TempDir(), Options{Settle: 30 * time.Millisecond})
		s.export(join(a, l, resourceList{routes("r", "a")}))
		start := time.Now()
		if r := s.export(join(b, l, resourceList{routes("r", "b")})); r.Steps != 4 || time.Since(start) < 90*time.Millisecond {
			t.Errorf("%+v in %v", r, time.Since(start))
		}
		if got := s.read(); got["eds/a.yaml"] != "" || strings.Contains(got["cds.yaml"], "name: a\n") {
			t.Errorf("%q", got)
		}
	})

	t.Run("without a pause there is one step", func(t *testing.T) {
		s := open(t, t.TempDir(), Options{})
		s.export(join(a, l, resourceList{routes("r", "a")}))
		if r := s.export(join(b, l, resourceList{routes("r", "b")})); r.Steps != 1 {
			t.Errorf("%+v", r)
		}
	})
}

// After a swap, Envoy reads the files in any order. So every mixture of two consecutive states must
// work.
func TestStepsInAnyOrder(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		from, to := randomResources(t, r), randomResources(t, r)
		live, _, err := s.build(from.view(t))
		if err != nil {
			t.Fatal(err)
		}
		_, all := stepsOf(t, s, from, to)
		if len(all) > 4 {
			t.Fatalf("seed %d: %d steps", seed, len(all))
		}
		was := live
		for i, step := range all {
			for mixture := range 8 {
				of := func(bit int) files { return []files{was, step}[mixture>>bit&1] }
				for _, c := range reachable(of(0), of(1)) {
					if !hasCluster(of(2), c) {
						t.Fatalf("seed %d: in step %d a route refers to the missing cluster %q\nfrom %s\nto   %s", seed, i+1, c, describe(was), describe(step))
					}
				}
			}
			for _, p := range slices.Concat(step["cds.yaml"].pieces, step["lds.yaml"].pieces) {
				for _, n := range p.needs {
					if step[s.Format.pathOf(n.Type, n.Name)] == nil {
						t.Fatalf("seed %d: in step %d the file of %s %q is missing", seed, i+1, n.Type, n.Name)
					}
				}
			}
			was = step
		}
		if want, _, _ := s.build(to.view(t)); !was.equal(want) {
			t.Fatalf("seed %d: ends with %s, want %s", seed, describe(was), describe(want))
		}
	}
}

func hasCluster(all files, name string) bool {
	return slices.ContainsFunc(all["cds.yaml"].pieces, func(p *piece) bool { return p.name == name })
}

// randomResources has some of five clusters, and routes to some of these.
func randomResources(t *testing.T, r *rand.Rand) resourceList {
	var w resourceList
	var have []string
	for _, c := range []string{"a", "b", "c", "d", "e"} {
		if r.IntN(2) == 0 {
			have = append(have, c)
			w = append(w, eds(c), assignment(c, r.Uint32N(3)+1))
		}
	}
	for _, name := range []string{"r", "s"} {
		if r.IntN(4) == 0 {
			continue
		}
		var to []string
		for _, c := range have {
			if r.IntN(2) == 0 {
				to = append(to, c)
			}
		}
		w = append(w, routes(name, to...), rds(t, name, name))
	}
	return w
}
