package lazy

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// In random worlds, streams finally get the true state and never get "absent" for an existing name,
// although names come and go, resolvers fail and other programs write to the store.
func TestSimulation(t *testing.T) {
	questions, absences, lies := 0, 0, 0
	for seed := range uint64(300) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 1))
				calm := seed%2 == 0                    // nothing fails or takes too long
				slow := rand.New(rand.NewPCG(seed, 2)) // guarded by the backend
				be := &backend{has: map[string]*xds.Resource{}}
				b := &bench{T: t, be: be, st: store.New(store.WithEmptyGroups(), store.WithLog(1+rng.IntN(4)), store.WithGroups(func(_ context.Context, n *xds.Node) ([]string, error) { return []string{n.ID}, nil }))}
				parallel := 64
				if !calm {
					parallel = 1 + rng.IntN(4)
				}
				const names, most = 12, 5 // so many are subscribed to in each of two groups
				b.Source = made(b.st, func(ctx context.Context, q Query) (*xds.Resource, error) {
					be.mu.Lock()
					be.takes = time.Duration(slow.Int64N(int64(2 * time.Second)))
					be.mu.Unlock()
					return be.resolve(ctx, q)
				}, []*xds.Type{xds.VirtualHost}, WithLimit(2*most), WithParallel(parallel), WithLogger(slog.New(slog.DiscardHandler)))
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); b.Source.Run(ctx) }()
				defer func() { cancel(); <-done }()

				name := func() string { return fmt.Sprint("r/", rng.IntN(names)) }
				groups := []string{store.DefaultGroup, "edge"}
				static := map[string]map[string]bool{groups[0]: {}, groups[1]: {}}
				var stable []string // exist from the beginning to the end, and nowhere else
				for i := range 3 {
					n := fmt.Sprint("r/", i)
					be.set(n, res(n, "stable"))
					stable = append(stable, n)
				}
				shop := res("r/9", "shop", "r/10")
				be.set("r/9 r/10", shop)
				stable = append(stable, "r/9", "r/10")

				subscribed := map[string]map[string]int{groups[0]: {}, groups[1]: {}}
				var all []*stream
				for range 4 {
					all = append(all, b.stream(groups[rng.IntN(2)]))
				}
				drop := func(s *stream, n string) {
					in := subscribed[s.w.Group()]
					in[n]--
					if in[n] == 0 {
						delete(in, n)
					}
				}
				for range 60 {
					i := rng.IntN(len(all))
					s := all[i]
					in := subscribed[s.w.Group()]
					switch n := name(); rng.IntN(10) {
					case 0, 1, 2, 3:
						if _, has := s.told[n]; !has && (in[n] > 0 || len(in) < most) {
							in[n]++
							s.subscribe(n)
						}
					case 4, 5:
						if _, has := s.told[n]; has {
							drop(s, n)
							s.unsubscribe(n)
						}
					case 6:
						for n := range s.told {
							drop(s, n)
						}
						s.w.Close()
						all[i] = b.stream(groups[rng.IntN(2)])
					case 7: // the world of the resolver
						if n := fmt.Sprint("r/", 3+rng.IntN(6)); rng.IntN(3) > 0 {
							be.set(n, res(n, fmt.Sprint(rng.IntN(100))))
							b.Refresh(groups[0], xds.VirtualHost, n)
							b.Refresh(groups[1], xds.VirtualHost, n)
						} else {
							be.set(n, nil)
							b.Refresh(groups[0], xds.VirtualHost, n)
							b.Refresh(groups[1], xds.VirtualHost, n)
						}
					case 8: // others
						g, n := groups[rng.IntN(2)], fmt.Sprint("r/", 3+rng.IntN(6))
						b.update(func(tx *store.Tx) {
							static[g][n] = rng.IntN(2) == 0
							if static[g][n] {
								tx.Group(g).Set(of(xds.VirtualHost, res(n, "static"))...)
							} else {
								tx.Group(g).Delete(xds.VirtualHost, n)
							}
						})
					default:
						if calm {
							break
						}
						be.fail([]error{nil, nil, errDown}[rng.IntN(3)])
					}
					if rng.IntN(2) == 0 {
						b.sleep(time.Duration(rng.Int64N(int64(1500 * time.Millisecond))))
						for _, s := range all {
							if rng.IntN(3) > 0 {
								s.hear()
							}
						}
					}
					for _, s := range all {
						for _, n := range stable {
							if s.told[n] != "absent" {
								continue
							}
							lies++
							if calm {
								t.Fatalf("%s: told absent, which exists", n)
							}
						}
					}
					if n := b.remembers(); n > 2*most {
						t.Fatalf("%d names", n)
					}
				}
				be.fail(nil)
				for _, s := range all {
					s.hear() // may have something looked for
				}
				b.sleep(2 * time.Minute) // until failed names were retried and absent names resolved again
				for _, s := range all {
					s.hear()
					for _, n := range slices.Sorted(maps.Keys(s.told)) {
						want := "absent"
						if static[s.w.Group()][n] {
							want = "static"
						} else if r := be.has[n]; r != nil {
							want = string(r.Body)
						}
						if s.told[n] != want {
							t.Errorf("%s %s: told %q, want %q", s.w.Group(), n, s.told[n], want)
						}
						if s.told[n] == "absent" {
							absences++
						}
					}
				}
				// Each remembered name has a reason.
				for _, g := range groups {
					for r := range b.st.Snapshot().Effective(g).Table(xds.VirtualHost).All() {
						if h := b.stored[key{g, xds.VirtualHost.URL, r.Name}]; r.OnDemand && (h == nil || len(h.names) == 0) {
							t.Errorf("%s %s is in the store, and nobody's", g, r.Name)
						}
					}
				}
				questions += len(be.asked)
				for _, s := range all {
					s.w.Close()
				}
				if n := b.remembers(); b.idle.Len() != n {
					t.Errorf("%d of %d names are idle after all streams have left", b.idle.Len(), n)
				}
			})
		})
	}
	t.Log(questions, "questions,", absences, "absent in the end,", lies, "times absent though it exists, which took too long")
	if !t.Failed() && (absences == 0 || lies == 0) {
		t.Error("the worlds are dull")
	}
}
