package server

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// update commits to a store.
func update(t *testing.T, st *store.Store, f func(*store.Tx)) {
	t.Helper()
	if _, err := st.Update(func(tx *store.Tx) error { f(tx); return nil }); err != nil {
		t.Error(err)
	}
}

func put(t *testing.T, st *store.Store, typ *xds.Type, rs ...*xds.Resource) {
	t.Helper()
	update(t, st, func(tx *store.Tx) { tx.Set(of(typ, rs...)...) })
}

// A commit and a subscription cross. The client ends with the newest state, gets nothing twice, and never gets an older
// state.
func TestUpdateWhileSubscribing(t *testing.T) {
	const rounds, commits = 40, 5
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		within(t, "ADS-4 SOTW-11 an update while subscribing, "+v.String(), func(t *testing.T) {
			st := store.New()
			w := serveFrom(t, New(st))
			conn := w.dial(t)
			early := 0
			for round := range rounds {
				name := fmt.Sprint("e-", round)
				committed := make(chan struct{})
				go func() {
					defer close(committed)
					for i := range commits {
						put(t, st, xds.Endpoint, res(name, strconv.Itoa(i)))
					}
				}()
				var got []string
				next := func(value []byte) bool {
					got = append(got, string(value))
					return string(value) == strconv.Itoa(commits-1)
				}
				if v == xds.SotW {
					c := w.sotw(t, conn)
					c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: []string{name}})
					for done := false; !done; {
						r := c.want()
						done = next(r.Resources[0].Value)
						c.send(ack(r, name))
					}
					c.idle("the client has the newest state")
				} else {
					c := w.delta(t, conn)
					c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNamesSubscribe: []string{name}})
					for done := false; !done; {
						r := c.want()
						if len(r.Resources) == 1 {
							done = next(r.Resources[0].Resource.Value)
						} else if len(got) > 0 || len(r.RemovedResources) != 1 {
							t.Fatalf("after %v: %v", got, r)
						}
						c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResponseNonce: r.Nonce})
					}
					c.idle("the client has the newest state")
				}
				if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
					t.Errorf("told %v", got)
				}
				if len(got) > 1 {
					early++
				}
				<-committed
			}
			t.Logf("in %d of %d rounds the client got more than the last commit", early, rounds)
		})
	}
}

func TestUnsubscribeInFlight(t *testing.T) {
	within(t, "DELTA-3 unsubscribed while an answer is in flight, delta", func(t *testing.T) {
		st := store.New()
		put(t, st, xds.Endpoint, res("a", "1"), res("b", "1"))
		w := serveFrom(t, New(st))
		c := w.delta(t, w.dial(t))
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNamesSubscribe: []string{"a", "b"}})
		synctest.Wait() // the answer is in flight
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNamesUnsubscribe: []string{"a"}})
		r := c.want()
		if len(r.Resources) != 2 {
			t.Fatal(r)
		}
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResponseNonce: r.Nonce})
		synctest.Wait()
		put(t, st, xds.Endpoint, res("a", "2"))
		synctest.Wait()
		put(t, st, xds.Endpoint, res("b", "2"))
		if r = c.want(); len(r.Resources) != 1 || r.Resources[0].Name != "b" || len(r.RemovedResources) != 0 {
			t.Fatal(r)
		}
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResponseNonce: r.Nonce, ResourceNamesSubscribe: []string{"a"}})
		if r = c.want(); len(r.Resources) != 1 || string(r.Resources[0].Resource.Value) != "2" {
			t.Error(r)
		}
		c.idle("all is told")
	})
	within(t, "SOTW-3 unsubscribed while an answer is in flight, SotW", func(t *testing.T) {
		st := store.New()
		put(t, st, xds.Endpoint, res("a", "1"), res("b", "1"))
		w := serveFrom(t, New(st))
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: []string{"a", "b"}})
		synctest.Wait()
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: []string{"b"}}) // the client knows no nonce yet
		r := c.want()
		if len(r.Resources) != 2 {
			t.Fatal(r)
		}
		c.send(ack(r, "b"))
		synctest.Wait()
		put(t, st, xds.Endpoint, res("a", "2"))
		synctest.Wait()
		put(t, st, xds.Endpoint, res("b", "2"))
		if r = c.want(); len(r.Resources) != 1 || string(r.Resources[0].Value) != "2" {
			t.Fatal(r)
		}
		c.send(ack(r, "b"))
		c.send(ack(r, "a", "b"))
		if r = c.want(); len(r.Resources) != 1 || string(r.Resources[0].Value) != "2" {
			t.Error(r)
		}
		c.send(ack(r, "a", "b"))
		c.idle("all is told")
	})
}

func TestDeleteAndRecreate(t *testing.T) {
	for name, body := range map[string]string{"as it was": "1", "changed": "2"} {
		within(t, "DELTA-12 deleted and created in one commit, "+name, func(t *testing.T) {
			st := store.New()
			put(t, st, xds.Cluster, res("a", "1"), res("b", "1"))
			w := serveFrom(t, New(st))
			conn := w.dial(t)
			d, s := w.delta(t, conn), w.sotw(t, conn)
			d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL})
			d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL, ResponseNonce: d.want().Nonce})
			s.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
			s.send(ack(s.want()))
			synctest.Wait()
			update(t, st, func(tx *store.Tx) {
				tx.Delete(xds.Cluster, "a")
				tx.Set(of(xds.Cluster, res("a", body))...)
			})
			if body == "2" {
				r := d.want()
				if len(r.Resources) != 1 || r.Resources[0].Name != "a" || len(r.RemovedResources) != 0 {
					t.Fatal(r)
				}
				d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL, ResponseNonce: r.Nonce})
				all := s.want()
				if len(all.Resources) != 2 {
					t.Fatal(all)
				}
				s.send(ack(all))
			}
			d.idle("nothing else differs")
			s.idle("nothing else differs")
		})
	}
}

func TestTwoStreamsOfANode(t *testing.T) {
	within(t, "ADS-5 two streams of one node", func(t *testing.T) {
		var s story
		st := store.New()
		put(t, st, xds.Endpoint, res("a", "1"))
		w := serveFrom(t, New(st, WithObserver(&s), new(logbook).at(slog.LevelWarn)))
		node := &corev3.Node{Id: "n"}
		conn := w.dial(t)
		one := w.sotw(t, conn)
		synctest.Wait() // so that it is stream 1
		two := w.sotw(t, conn)
		first := map[*sotwClient]*discovery.DiscoveryResponse{}
		for _, c := range []*sotwClient{one, two} {
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: []string{"a"}, Node: node})
			first[c] = c.want()
			synctest.Wait()
		}
		// One stream refuses, the other accepts. Each stream gets the next response, and only its
		// own nonces count.
		one.send(nack(first[one], "no", "a"))
		two.send(ack(first[two], "a"))
		synctest.Wait()
		put(t, st, xds.Endpoint, res("a", "2"))
		for _, c := range []*sotwClient{one, two} {
			r := c.want()
			if string(r.Resources[0].Value) != "2" || r.Nonce == first[c].Nonce {
				t.Error(r)
			}
			c.send(ack(r, "a"))
		}
		synctest.Wait()
		if n := w.Stats().Open; n != 2 {
			t.Errorf("%d streams are open", n)
		}
		one.s.CloseSend()
		one.end()
		synctest.Wait()
		put(t, st, xds.Endpoint, res("a", "3"))
		if r := two.want(); string(r.Resources[0].Value) != "3" {
			t.Error(r)
		}
		for _, want := range []string{"1 opened by n", "2 opened by n", "1 EDS nacked: no", "2 EDS acked", "1 closed: <nil>"} {
			if !strings.Contains(s.b.String(), want) {
				t.Errorf("%q is not seen in\n%s", want, &s.b)
			}
		}
	})
}

func TestReconnectInSplitAnswer(t *testing.T) {
	const n = 50
	within(t, "DELTA-13 DELTA-9 a reconnect in the middle of a split answer", func(t *testing.T) {
		st := store.New()
		for i := range n {
			put(t, st, xds.Endpoint, res(fmt.Sprintf("e-%02d", i), strings.Repeat("x", 300)))
		}
		w := serveFrom(t, New(st, WithLimits(Limits{Response: 2000})))
		held := map[string]string{}
		take := func(r *discovery.DeltaDiscoveryResponse) {
			for _, u := range r.Resources {
				if held[u.Name] != "" {
					t.Errorf("%s came twice", u.Name)
				}
				held[u.Name] = u.Version
			}
		}
		// The client gets and accepts some of the parts, gets one more, and its stream breaks. That
		// repeats until the client has all parts.
		for broken := 0; len(held) < n; broken++ {
			c := w.delta(t, w.dial(t))
			c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNamesSubscribe: []string{"*"}, InitialResourceVersions: held})
			for i := range 3 {
				if len(held) == n {
					break
				}
				r := c.want()
				take(r)
				if i < 2 {
					c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResponseNonce: r.Nonce})
				}
			}
			if broken > n {
				t.Fatalf("the client has %d of %d resources", len(held), n)
			}
			c.s.CloseSend()
		}
		c := w.delta(t, w.dial(t))
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNamesSubscribe: []string{"*"}, InitialResourceVersions: held})
		c.idle("it has all")
	})
	within(t, "DELTA-13 a change in the middle of a split answer", func(t *testing.T) {
		st := store.New()
		for i := range n {
			put(t, st, xds.Endpoint, res(fmt.Sprintf("e-%02d", i), strings.Repeat("x", 300)))
		}
		w := serveFrom(t, New(st, WithLimits(Limits{Response: 2000})))
		c := w.delta(t, w.dial(t))
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNamesSubscribe: []string{"*"}})
		held := map[string]string{}
		start := time.Now()
		for i := 0; len(held) < n || held["e-00"] != "new" || held["e-49"] != ""; i++ {
			r := c.want()
			for _, u := range r.Resources {
				held[u.Name] = string(u.Resource.Value)
			}
			for _, name := range r.RemovedResources {
				held[name] = ""
			}
			c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResponseNonce: r.Nonce})
			if i == 2 {
				update(t, st, func(tx *store.Tx) {
					tx.Set(of(xds.Endpoint, res("e-00", "new"))...)
					tx.Delete(xds.Endpoint, "e-49")
				})
			}
		}
		if d := time.Since(start); d > 0 {
			t.Errorf("it took %v", d)
		}
		c.idle("it has all")
	})
}
