package quarantine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// names returns n names, in order.
func names(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("c%04d", i))
	}
	return all
}

// fill sets names to a text, with exceptions.
func (r *fixture) fill(all []string, text string, except ...string) {
	r.Helper()
	var pairs []string
	for _, name := range all {
		if slices.Contains(except, name) {
			pairs = append(pairs, name, "bad")
		} else {
			pairs = append(pairs, name, text)
		}
	}
	r.set(pairs...)
}

// found returns the resources that were reported as in quarantine.
func (r *fixture) found() string {
	var all []string
	for _, h := range r.told() {
		all = append(all, h.Name+": "+h.By.String())
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// searches checks the numbers of running searches and of waiting streams.
func (r *fixture) searches(running, wait int) {
	r.Helper()
	ss := &r.source.searches
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if len(ss.running) != running || len(ss.waits) != wait {
		r.Errorf("%d searches, %d wait, want %d and %d", len(ss.running), len(ss.waits), running, wait)
	}
}

// If the text has no name, the search finds the faulty resources by halves, and the client gets all
// others. Resources that the client had accepted stay, in their old or new version. For new resources see
// TestLyingClientLosesNothing.
func TestSearch(t *testing.T) {
	for _, n := range []int{2, 3, 7, 100, 1000} {
		for _, culprits := range [][]int{{0}, {n - 1}, {n / 2}, {0, n - 1}} {
			within(t, func(r *fixture) {
				all := names(n)
				var wrong []string
				for _, i := range culprits {
					wrong = append(wrong, all[i])
				}
				c := xdstest.Delta(r, xdstest.Serve(r, r.server), node)
				r.set("same", "1")
				r.fill(all, "1")
				c.Subscribe(xds.Cluster, "*")
				r.answer(c, "no", bad())
				r.fill(all, "2", wrong...)
				r.answer(c, "no", func(got *xdstest.Response) bool {
					if len(got.Removed) > 0 {
						t.Errorf("removed: %v", got.Removed)
					}
					return bad(wrong...)(got)
				})
				r.holds(len(wrong))
				want := wrong[0] + ": found by bisecting"
				if len(wrong) == 2 {
					want += ", " + wrong[1] + ": found by bisecting"
				}
				if got := r.found(); got != want {
					t.Fatalf("found %s, want %s", got, want)
				}
				if held := c.Held(xds.Cluster); len(held) != n+1 {
					t.Errorf("the client has %d, not %d", len(held), n+1)
				}
				if most := 1 + 2*len(wrong)*bits(n); r.nacks > most {
					t.Errorf("%d of %d were found by %d refusals, not %d", len(wrong), n, r.nacks, most)
				}
				r.fill(wrong, "3") // fixed
				r.answer(c, "no", bad(wrong...))
				r.holds(0)
			})
		}
	}
}

func bits(n int) (b int) {
	for ; n > 0; n /= 2 {
		b++
	}
	return b
}

// A resource that changes during a search takes part in it.
func TestChangeDuringSearch(t *testing.T) {
	within(t, func(r *fixture) {
		all := names(8)
		c := xdstest.Delta(r, xdstest.Serve(r, r.server), node)
		r.fill(all, "1")
		c.Subscribe(xds.Cluster, "*")
		r.answer(c, "no", bad())
		r.fill(all, "2", "c0003")
		n := 0
		r.answer(c, "no", func(got *xdstest.Response) bool {
			switch n++; n {
			case 2:
				r.set("c0006", "bad")
			case 4:
				r.set("c0001", "3", "c0005", "")
			}
			return bad(all...)(got)
		})
		if got := r.found(); got != "c0003: found by bisecting, c0006: found by bisecting" {
			t.Error(got)
		}
		r.holds(2)
	})
}

// A client that does not answer or disconnects ends only the search on its own stream. Then another
// stream is searched.
func TestSearchOfSilentClient(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		within(t, func(r *fixture) {
			conn := xdstest.Serve(r, r.server)
			r.fill(names(8), "1")
			silent, other := r.open(conn, xds.Node{ID: "silent"}), r.open(conn, xds.Node{ID: "other"})
			r.fill(names(8), "2", "c0003")
			for _, c := range []*xdstest.Client{silent, other} {
				c.NACK(r.next(c), "no")
				synctest.Wait()
			}
			r.searches(1, 1)
			r.next(silent) // the first half
			if leaves {
				silent.Close()
			} else {
				time.Sleep(stepTime + 2*time.Second)
			}
			r.answer(other, "no", bad("c0003"))
			if got := r.found(); got != "c0003: found by bisecting" {
				t.Error(got)
			}
			r.holds(1)
			r.searches(0, 0)
		})
	}
}

// Only one of the streams that refused the same content is searched. The clients of the others refuse
// once.
func TestSearchOnceForManyClients(t *testing.T) {
	within(t, func(r *fixture) {
		conn := xdstest.Serve(r, r.server)
		r.fill(names(100), "1")
		var all []*xdstest.Client
		for i := range 20 {
			all = append(all, r.open(conn, xds.Node{ID: fmt.Sprint(i)}))
		}
		r.fill(names(100), "2", "c0042")
		for i, c := range all {
			c.NACK(r.next(c), fmt.Sprint("no ", i))
			synctest.Wait()
		}
		for range 2 { // the first stream is searched; then the clients of all others have refused
			for i, c := range all {
				r.answer(c, fmt.Sprint("no ", i), bad("c0042"))
			}
		}
		r.holds(len(all))
		if r.nacks > 2*bits(100) {
			t.Errorf("%d refusals to find it", r.nacks)
		}
		if n := len(r.source.searches.results); n != 1 {
			t.Errorf("%d results", n)
		}
	})
}

// A client that lies about its refusals affects only itself: other clients get the hint, refuse again,
// and are then searched on their own streams.
func TestSearchOfLyingClient(t *testing.T) {
	within(t, func(r *fixture) {
		conn := xdstest.Serve(r, r.server)
		r.fill(names(8), "1")
		liar, honest := r.open(conn, xds.Node{ID: "liar"}), r.open(conn, xds.Node{ID: "honest"})
		r.fill(names(8), "2", "c0003")
		liar.NACK(r.next(liar), "no")
		r.answer(liar, "no", func(got *xdstest.Response) bool { return says(got, "c0006", "2") })
		if got := r.found(); got != "c0006: found by bisecting" {
			t.Fatal(got)
		}
		honest.NACK(r.next(honest), "no")
		r.answer(honest, "no", bad("c0003"))
		if got := r.found(); got != "c0003: found by bisecting, c0006: found by bisecting, c0006: found by bisecting" {
			t.Error(got)
		}
		r.holds(2) // one for each
	})
}

// A resource is not faulty if the client refused the other resources without it, even if the error text
// names the resource again.
func TestClearedResourceStays(t *testing.T) {
	within(t, func(r *fixture) {
		c := r.open(xdstest.Serve(r, r.server), xds.Node{ID: "a"})
		r.nodes[c] = "a"
		r.fill(names(4), "1")
		for r.due(c) {
			c.ACK(r.next(c))
		}
		r.guilty = []string{"c0001"}
		r.fill(names(4), "2", "c0002")
		for range 2 { // all, then all others
			c.NACK(r.next(c), "c0001 is bad")
			synctest.Wait()
		}
		r.searches(1, 0)
		got := r.next(c)
		time.Sleep(stepTime + 2*time.Second) // the search finds no faulty resource: all are shown
		c.NACK(got, "c0001 is bad")
		r.answer(c, "c0001 is bad", anything)
		r.holds(0)
	})
}

// A new search result replaces the oldest one.
func TestNewResultsReplaceOldest(t *testing.T) {
	var ss searches
	now := time.Now()
	for i := range maxResults + 10 {
		x := &search{typ: xds.Cluster, key: searchKey{agent: fmt.Sprint(i)}, bad: []held{{name: "a"}}, moved: now}
		ss.running = map[searchKey]*running{x.key: {search: x}}
		ss.end(x, true)
	}
	if n := len(ss.results); n != maxResults || len(ss.found) != n {
		t.Errorf("%d results, %d in order", n, len(ss.found))
	}
	for i, want := range map[int]bool{9: false, 10: true, maxResults + 9: true} {
		if _, is := ss.results[searchKey{agent: fmt.Sprint(i)}]; is != want {
			t.Errorf("result %d: remembered %v", i, is)
		}
	}
}
