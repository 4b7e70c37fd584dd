package xds

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// The table agrees with a plain map, and comparing two tables with comparing
// two maps, however they came to be.
func TestTableAgreesWithMap(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		tab, m := &Table{}, map[string]string{}
		var tabs []*Table
		var maps []map[string]string
		for range 100 {
			name := fmt.Sprint("n", rng.IntN(60))
			if rng.IntN(3) == 0 {
				tab = tab.With(nil, name)
				delete(m, name)
			} else {
				body := fmt.Sprint(rng.IntN(4))
				tab = tab.With([]*Resource{NewResource(name, []byte(body))})
				m[name] = body
			}
			c := map[string]string{}
			for k, v := range m {
				c[k] = v
			}
			tabs, maps = append(tabs, tab), append(maps, c)
		}
		for range 200 {
			i, j := rng.IntN(len(tabs)), rng.IntN(len(tabs))
			a, b := tabs[i], tabs[j]
			var got, want []string
			for _, r := range b.Since(a.Versions()).Upserts {
				got = append(got, "+"+r.Name+string(r.Body))
			}
			for _, n := range b.Since(a.Versions()).Removed {
				got = append(got, "-"+n)
			}
			for k, v := range maps[j] {
				if old, ok := maps[i][k]; !ok || old != v {
					want = append(want, "+"+k+v)
				}
			}
			for k := range maps[i] {
				if _, ok := maps[j][k]; !ok {
					want = append(want, "-"+k)
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d: %d→%d: got %v want %v", seed, i, j, got, want)
			}
			if a.Len() != len(maps[i]) {
				t.Fatalf("len %d, want %d", a.Len(), len(maps[i]))
			}
		}
		rebuilt := &Table{}
		for k, v := range m {
			rebuilt = rebuilt.With([]*Resource{NewResource(k, []byte(v))})
		}
		if rebuilt.Version() != tab.Version() {
			t.Fatalf("seed %d: version depends on history", seed)
		}
	}
}

func TestTreeCollisions(t *testing.T) {
	var n *node[int]
	for i := range 5 {
		n = n.with(42, 0, slot[int]{name: fmt.Sprint(i), value: i})
	}
	count := 0
	n.walk(func(string, int) bool { count++; return true })
	if count != 5 {
		t.Fatalf("%d of 5 names whose hashes are equal", count)
	}
}

func BenchmarkSet(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tab := &Table{}
			var set []*Resource
			for i := range n {
				set = append(set, NewResource(fmt.Sprint("cluster-", i), []byte("x")))
			}
			tab = tab.With(set)
			i := 0
			for b.Loop() {
				i++
				next := tab.With([]*Resource{NewResource(fmt.Sprint("cluster-", i%n), fmt.Append(nil, i))})
				next.Since(tab.Versions())
				tab = next
			}
		})
	}
}
