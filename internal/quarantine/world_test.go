package quarantine

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// Random changes, refusals and verdicts. When the system is idle, a client has the newest version of
// every resource that it does not refuse. Of a refused resource it has the version that it accepted last.
// An existing resource that the client accepted is never removed from it. After all resources are fixed,
// the client has all.
func TestRandomChanges(t *testing.T) {
	for seed := range uint64(40) {
		for name, dial := range map[string]func(r *fixture) *xdstest.Client{
			"delta": func(r *fixture) *xdstest.Client { return xdstest.Delta(r, xdstest.Serve(r, r.server), node) },
			"SotW":  func(r *fixture) *xdstest.Client { return xdstest.SotW(r, xdstest.Serve(r, r.server), node) },
		} {
			t.Run(fmt.Sprint(name, " ", seed), func(t *testing.T) { within(t, func(r *fixture) { expected(r, dial(r), name == "delta", seed) }) })
		}
	}
}

func expected(r *fixture, c *xdstest.Client, delta bool, seed uint64) {
	dice := rand.New(rand.NewPCG(seed, 1))
	all := names(12)
	is, has := map[string]string{}, map[string]string{} // the store, and the client
	n := 0
	take := func(got *xdstest.Response) bool {
		for _, name := range all {
			if says(got, name, "bad"+is[name]) {
				return true
			}
		}
		for _, name := range got.Removed {
			if is[name] != "" && has[name] != "" {
				r.Errorf("seed %d: %s is taken away", seed, name)
			}
			delete(has, name)
		}
		if !delta {
			for name := range has {
				if is[name] != "" && got.Resource(name) == nil {
					r.Errorf("seed %d: %s is taken away", seed, name)
				}
			}
			clear(has)
		}
		for _, name := range all {
			if res := got.Resource(name); res != nil {
				has[name] = string(res.Body)
			}
		}
		if dice.IntN(6) == 0 { // a resource changes while the client answers
			name, text := all[dice.IntN(len(all))], fmt.Sprint(n)
			n++
			if has[name] != "" {
				is[name] = text
				r.set(name, text)
			}
		}
		return false
	}
	c.Subscribe(xds.Cluster, "*")
	r.set("keep", "1")
	r.answer(c, "no", take)
	for range 12 {
		before := maps.Clone(has)
		var pairs, wrong []string
		for range 1 + dice.IntN(6) {
			name := all[dice.IntN(len(all))]
			if slices.Contains(wrong, name) || slices.Contains(pairs, name) {
				continue
			}
			n++
			switch text := fmt.Sprint(n); dice.IntN(6) {
			case 0:
				is[name], pairs = "", append(pairs, name, "")
			case 1, 2:
				is[name], wrong, pairs = text, append(wrong, name), append(pairs, name, "bad"+text)
			default:
				is[name], pairs = text, append(pairs, name, text)
			}
		}
		r.guilty = nil
		fresh := slices.ContainsFunc(all, func(name string) bool { return is[name] != "" && has[name] == "" })
		if !delta || fresh || dice.IntN(2) == 0 { // new resources are not searched
			r.guilty = all // all refused new resources, because a search cannot find them; SotW has no search
			if len(wrong) > 0 {
				r.guilty = wrong
			}
		}
		r.set(pairs...)
		r.answer(c, "no", take)
		for _, name := range all {
			now := r.st.Snapshot().View("default").Table(xds.Cluster).Lookup(name)
			switch {
			case now == nil && has[name] != "":
				r.Errorf("seed %d: %s is there still", seed, name)
			case now == nil:
			case string(now.Body) == string(message(name, "bad"+is[name])):
				if before[name] != "" && has[name] == "" {
					r.Errorf("seed %d: %s was accepted, and is taken away", seed, name)
				}
			case has[name] != string(now.Body):
				r.Errorf("seed %d: %s is held up", seed, name)
			}
		}
		if r.Failed() {
			return
		}
	}
	var pairs []string
	for _, name := range all {
		is[name] = "mended"
		pairs = append(pairs, name, "mended")
	}
	r.set(pairs...)
	r.answer(c, "no", take)
	for _, name := range all {
		if has[name] != string(message(name, is[name])) {
			r.Errorf("seed %d: %s is not mended", seed, name)
		}
	}
	r.holds(0)
}
