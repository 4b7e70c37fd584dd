package relay_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/internal/auth/access"
	"github.com/chancery-xds/chancery/internal/relay"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// rules are access rules for the names that clients may see.
func rules(t *testing.T, text string) *access.Policy {
	t.Helper()
	p, problems := access.Parse("access.yaml", []byte(text))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return p
}

const everybody = "rules:\n- identity: {kind: none}\n  node: {id: \"**\"}\n"

// SAFE-6: an invisible name is not requested from the upstream, and does not exist for the client; once
// visible, it is requested.
func TestInvisibleNameIsNotRequested(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		up := newUpstream(t)
		up.set(xds.Endpoint, "mine", "others")
		up.set(xds.Cluster, "a")
		w := relayWith(t, up, "", delta, nil, func(*relay.Options) {})
		src := access.New(w.src, rules(t, everybody+"  types: [EDS, RDS]\n  names: {EDS: [mine, \"my-*\"]}\n"), access.Options{})
		conn := xdstest.Serve(t, server.New(src))
		time.Sleep(2 * time.Minute) // the names requested at the start are dropped
		c := xdstest.Delta(t, conn)
		c.Subscribe(xds.Endpoint, "mine", "others", "no-1", "no-2")
		r := c.Next(xds.Endpoint)
		c.ACK(r)
		if got := append(slices.Sorted(slices.Values(r.Removed)), names(r)...); !slices.Equal(got, []string{"no-1", "no-2", "others"}) && !slices.Equal(got, []string{"no-1", "no-2", "others", "mine"}) {
			t.Errorf("%v", r)
		}
		c.Subscribe(xds.Cluster, "*") // the client may see none of them
		synctest.Wait()
		if got := slices.Concat(dumped(w.cl, xds.Endpoint), dumped(w.cl, xds.Cluster)); !slices.Equal(got, []string{"mine"}) {
			t.Errorf("the upstream is asked for %q", got)
		}

		src.SetPolicy(rules(t, everybody+"  names: {EDS: [others]}\n"))
		time.Sleep(2 * time.Minute)
		if got := dumped(w.cl, xds.Endpoint); !slices.Equal(got, []string{"others"}) {
			t.Errorf("by other rules the upstream is asked for %q", got)
		}
		if got := c.Held(xds.Endpoint); slices.Contains(got, "no-1") {
			t.Errorf("it has %q", got)
		}
		src.SetPolicy(nil)
		synctest.Wait()
		if got := dumped(w.cl, xds.Endpoint); len(got) != 4 {
			t.Errorf("without rules the upstream is asked for %q", got)
		}
	})
}

func names(r *xdstest.Response) (all []string) {
	for _, of := range r.Resources {
		all = append(all, of.Name)
	}
	return all
}

// While a stream that must end still exists, no other stream ends.
func TestOneStreamEndsAtATime(t *testing.T) {
	t.Run("SAFE-1 three streams want more than the limit", func(t *testing.T) {
		both(t, func(t *testing.T, delta bool) {
			up := newUpstream(t)
			w := relayWith(t, up, "", delta, nil, func(o *relay.Options) { o.Limits = relay.Limits{Names: 20} })
			var all []*relay.Watch
			for i := range 3 {
				c := watchOf(t, w)
				all = append(all, c)
				var asked []string
				for n := range 15 + i { // so that the last stream wants most
					asked = append(asked, fmt.Sprint(i, "-", n))
				}
				c.Interested(xds.Endpoint, false, asked, nil)
				synctest.Wait()
			}
			ended := 0
			for _, c := range all {
				if _, _, err := c.Next(); err != nil {
					ended++
				}
			}
			if ended != 1 {
				t.Errorf("%d streams end", ended)
			}
		})
	})
}

// SAFE-1: a client that requests more than the upstream allows for one stream loses its own stream, not
// that of all. The others get what they request.
func TestStreamBeyondLimitsEnds(t *testing.T) {
	many := func(n int, prefix string) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprint(prefix, i))
		}
		return all
	}
	for _, tt := range []struct {
		what   string
		limits relay.Limits
		asks   func(w *relay.Watch, i int)
	}{
		{"names of EDS", relay.Limits{Names: 20}, func(w *relay.Watch, i int) {
			w.Interested(xds.Endpoint, false, many(15, fmt.Sprint("no-", i, "-")), nil)
		}},
		{"resource types", relay.Limits{Types: 6}, func(w *relay.Watch, i int) {
			for n := range 4 {
				w.Interested(xds.TypeOf(fmt.Sprint("type.googleapis.com/no.", i, ".", n)), false, []string{"x"}, nil)
			}
		}},
		{"bytes", relay.Limits{Held: 4000}, func(w *relay.Watch, i int) {
			w.Interested(xds.Endpoint, false, many(2, strings.Repeat(fmt.Sprint("no-", i), 200)), nil)
		}},
	} {
		t.Run(tt.what, func(t *testing.T) {
			both(t, func(t *testing.T, delta bool) {
				up := &upstream{t: t, limits: server.DefaultLimits()}
				for of, is := range map[*int]int{&up.limits.Names: tt.limits.Names, &up.limits.Types: tt.limits.Types, &up.limits.Held: tt.limits.Held} {
					if is > 0 {
						*of = is
					}
				}
				up.limits.Held += 1000 // the node counts, too
				t.Cleanup(up.stop)
				up.start()
				up.set(xds.Endpoint, "e", "f")
				w := relayWith(t, up, "", delta, nil, func(o *relay.Options) { o.Limits = tt.limits })
				conn := xdstest.Serve(t, server.New(w.src))
				honest := xdstest.Delta(t, conn)
				honest.Subscribe(xds.Endpoint, "e")
				honest.Await(xds.Endpoint, "e")
				ended := 0
				var open []*relay.Watch
				for i := range 5 {
					if i < 3 {
						c := watchOf(t, w)
						tt.asks(c, i)
						open = append(open, c)
					}
					synctest.Wait()
					open = slices.DeleteFunc(open, func(c *relay.Watch) bool {
						_, _, err := c.Next()
						if err == nil {
							return false
						}
						if c.Close(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), tt.what) {
							t.Error(err)
						}
						ended++
						return true
					})
				}
				time.Sleep(20 * time.Second)
				honest.Subscribe(xds.Endpoint, "f")
				honest.Await(xds.Endpoint, "e", "f")
				// A type counts while the stream lasts, even without requested names.
				if s := up.srv.Stats(); s.Streams != 1 && tt.limits.Types == 0 {
					t.Errorf("%d streams upstream", s.Streams)
				}
				if ended == 0 {
					t.Error("no stream has ended")
				}
			})
		})
	}
}
