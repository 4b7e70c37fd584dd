package fair

import (
	"math/rand/v2"
	"slices"
	"testing"
)

type number struct {
	Rank
	n int
}

func (a *number) Before(b *number) bool { return a.n < b.n }

// The first item of a ranking is the first item of a sorted list.
func TestRankingQuick(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 2))
		var r Ranking[*number]
		var all []*number
		for range 200 {
			switch k := random.IntN(4); {
			case k == 0 || len(all) == 0:
				all = append(all, &number{n: random.IntN(50)})
				r.Put(all[len(all)-1])
			case k == 1:
				x := all[random.IntN(len(all))]
				x.n = random.IntN(50)
				r.Put(x)
			default:
				i := random.IntN(len(all))
				r.Remove(all[i])
				r.Remove(all[i]) // the item is not in the ranking any more
				if all[i].Ranked() {
					t.Fatalf("seed %d: a removed item is still in the ranking", seed)
				}
				all = slices.Delete(all, i, i+1)
			}
			if r.Len() != len(all) {
				t.Fatalf("seed %d: %d, want %d", seed, r.Len(), len(all))
			}
			if len(all) == 0 {
				continue
			}
			least := slices.MinFunc(all, func(a, b *number) int { return a.n - b.n })
			if got := r.First(); got.n != least.n || !got.Ranked() {
				t.Fatalf("seed %d: %d comes first, want %d", seed, got.n, least.n)
			}
		}
	}
}
