package quarantine

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// A record is an observer that records the ends of refusals and the answers to retries.
type record struct {
	mu                  sync.Mutex
	recovered, answered int
}

func (o *record) Opened(*server.Stream)        {}
func (o *record) Closed(*server.Stream, error) {}
func (o *record) Event(_ *server.Stream, e protocol.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case e.Kind == protocol.Recovered:
		o.recovered++
	case e.Kind != protocol.Sent && e.Retry:
		o.answered++
	}
}

func (o *record) counts() (recovered, answered int) {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.recovered, o.answered
}

// retrying runs f for each variant with a server that retries, and checks that the log has one line of a NACK.
func retrying(t *testing.T, name string, f func(r *fixture, c *xdstest.Client, o *record, delta bool)) {
	for _, v := range []struct {
		name string
		dial func(xdstest.T, grpc.ClientConnInterface, ...xdstest.Option) *xdstest.Client
	}{{"delta", xdstest.Delta}, {"SotW", xdstest.SotW}} {
		t.Run("HEAL-2 "+v.name+" "+name, func(t *testing.T) {
			within(t, func(r *fixture) {
				var o record
				var log bytes.Buffer
				exams := 0
				r.source.opts.Guilty = func(context.Context, *server.Stream, *xds.Type, string) Blame {
					exams++
					return Blame{Names: r.guilty, Named: true}
				}
				srv := server.New(r.source, server.WithRetryRefused(), server.WithObserver(server.Observers(r.source, r, &o)),
					server.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				f(r, v.dial(r, xdstest.Serve(r, srv), node, xdstest.WithTimeout(time.Hour)), &o, v.name == "delta")
				synctest.Wait()
				if n := strings.Count(log.String(), "client refused a response (NACK)"); n != 1 || exams != 1 || len(r.told()) != 1 {
					t.Errorf("%d lines, %d examinations, %d reports for one refused version:\n%s", n, exams, len(r.told()), &log)
				}
			})
		})
	}
}

// A client that refuses a version for some time accepts it in the end, without a change of the resource.
func TestReplacedResourceIsRetried(t *testing.T) {
	retrying(t, "after a replacement", func(r *fixture, c *xdstest.Client, o *record, delta bool) {
		names := []string{"a", "b"}
		if delta {
			names = names[1:]
		}
		r.start(c)
		r.guilty = []string{"b"}
		r.set("b", "bad")
		began := time.Now()
		for try := range 8 {
			got := c.Expect(xds.Cluster, names...)
			if !says(got, "b", "bad") {
				r.Fatalf("try %d: sent %v", try, got)
			}
			before := time.Now()
			c.NACK(got, "no")
			back := c.Expect(xds.Cluster, names...)
			if !says(back, "b", "1") || time.Since(before) > 0 {
				r.Errorf("try %d: after %v sent %v", try, time.Since(before), back)
			}
			c.ACK(back)
			r.holds(1)
			if last := r.acks[len(r.acks)-1]; !last.Refuses {
				r.Error("HEAL-5: the client counts as accepting between the retries")
			}
		}
		if took := time.Since(began); took != 0 && (took < 615*time.Second || took > 7*time.Second+615*time.Second*6/5) {
			r.Errorf("7 retries took %v", took)
		}
		got := c.Expect(xds.Cluster, names...)
		if recovered, answered := o.counts(); recovered != 0 || answered != 7 {
			r.Errorf("HEAL-5: %d ends of the refusal while a retry is in flight, %d answers to retries", recovered, answered)
		}
		r.holds(1)
		r.nextRetries(1)
		c.ACK(got)
		r.holds(0)
		r.nextRetries(0)
		if recovered, answered := o.counts(); recovered != 1 || answered != 8 {
			r.Errorf("%d ends of the refusal, %d answers to retries", recovered, answered)
		}
		time.Sleep(time.Hour)
		c.ExpectNothing()
	})
}

// A full state lacks a refused resource that is new to the client. Its retry has it.
func TestOmittedResourceIsRetried(t *testing.T) {
	retrying(t, "after an omission", func(r *fixture, c *xdstest.Client, o *record, delta bool) {
		names := []string{"a", "b", "new"}
		if delta {
			names = names[2:]
		}
		r.start(c)
		r.guilty = []string{"new"}
		r.set("new", "bad")
		began := time.Now()
		c.NACK(c.Expect(xds.Cluster, names...), "no")
		for try, after := range []time.Duration{5 * time.Second, 10 * time.Second} {
			got := c.Next(xds.Cluster)
			if !delta && got.Resource("new") == nil { // the full state without the resource
				c.ACK(got)
				got = c.Next(xds.Cluster)
			}
			if took := time.Since(began); !says(got, "new", "bad") || took < after || took > after*6/5+time.Second {
				r.Fatalf("try %d: after %v sent %v", try, took, got)
			}
			r.holds(1)
			if try == 0 {
				began = time.Now()
				c.NACK(got, "no")
			} else {
				c.ACK(got)
			}
		}
		r.holds(0)
		if recovered, answered := o.counts(); recovered != 1 || answered != 2 {
			r.Errorf("%d ends of the refusal, %d answers to retries", recovered, answered)
		}
		time.Sleep(time.Hour)
		c.ExpectNothing()
	})
}

// The reason of a violated constraint cannot pass by itself.
func TestPermanentReasonIsRetriedSlowly(t *testing.T) {
	retrying(t, "with a reason that cannot pass", func(r *fixture, c *xdstest.Client, _ *record, _ bool) {
		r.start(c)
		r.guilty = []string{"b"}
		r.set("b", "bad")
		c.NACK(c.Next(xds.Cluster), "Proto constraint validation failed (x)")
		c.ACK(c.Next(xds.Cluster))
		began := time.Now()
		c.ACK(c.Next(xds.Cluster))
		if took := time.Since(began); took < 5*time.Minute {
			r.Errorf("retried after %v", took)
		}
		r.holds(0)
	})
}

// A retry has one resource of a type. The others keep their replacements, and a new version of another
// resource does not end the retry.
func TestRetriesOfATypeTakeTurns(t *testing.T) {
	retrying(t, "one at a time", func(r *fixture, c *xdstest.Client, _ *record, delta bool) {
		r.set("a", "1", "b", "1", "d", "1")
		c.Subscribe(xds.Cluster, "*")
		c.ACK(c.Next(xds.Cluster))
		r.guilty = []string{"a", "b"}
		r.set("a", "bad", "b", "bad")
		c.NACK(c.Next(xds.Cluster), "no")
		c.ACK(c.Next(xds.Cluster))
		r.holds(2)
		r.source.opts.Told = nil
		r.said = r.said[:1]
		first := c.Next(xds.Cluster)
		if says(first, "a", "bad") == says(first, "b", "bad") {
			r.Errorf("sent %v", first)
		}
		time.Sleep(time.Minute) // without an answer, no other retry begins
		c.ExpectNothing()
		r.set("d", "2")
		other := c.Next(xds.Cluster)
		if delta {
			c.ACK(other)
			r.holds(2)
			c.ACK(first)
		} else { // SotW clients answer in order
			c.ACK(first)
			c.ACK(other)
		}
		r.holds(1)
		c.ACK(c.Next(xds.Cluster))
		r.holds(0)
	})
}

// While a retry has no answer, the client refuses another resource of the type. This resource comes into
// quarantine, too.
func TestRefusalDuringRetry(t *testing.T) {
	within(t, func(r *fixture) {
		c := xdstest.Delta(r, xdstest.Serve(r, server.New(r.source, server.WithRetryRefused(), server.WithObserver(server.Observers(r.source, r)))), node, xdstest.WithTimeout(time.Hour))
		r.set("a", "1", "b", "1")
		c.Subscribe(xds.Cluster, "*")
		c.ACK(c.Next(xds.Cluster))
		r.guilty = []string{"b"}
		r.set("b", "bad")
		c.NACK(c.Next(xds.Cluster), "no")
		c.ACK(c.Next(xds.Cluster))
		retry := c.Next(xds.Cluster)
		if !says(retry, "b", "bad") {
			t.Fatalf("sent %v", retry)
		}
		r.guilty = []string{"a"}
		r.set("a", "bad")
		other := c.Next(xds.Cluster)
		c.NACK(other, "no")
		if back := c.Next(xds.Cluster); !says(back, "a", "1") {
			t.Errorf("HEAL-2: after %v was refused during a retry: sent %v", other, back)
		} else {
			c.ACK(back)
		}
		c.ACK(retry)
		r.holds(1)
	})
}

// nextRetries checks how many streams have a next retry in the source.
func (r *fixture) nextRetries(n int) {
	r.Helper()
	synctest.Wait()
	r.source.mu.Lock()
	defer r.source.mu.Unlock()
	if len(r.source.retries) != n {
		r.Errorf("%d streams have a next retry, want %d", len(r.source.retries), n)
	}
}

func TestNextRetryEndsWithTheStream(t *testing.T) {
	retrying(t, "not after its stream", func(r *fixture, c *xdstest.Client, _ *record, _ bool) {
		r.start(c)
		r.nextRetries(0)
		r.guilty = []string{"b"}
		r.set("b", "bad")
		c.NACK(c.Next(xds.Cluster), "no")
		c.ACK(c.Next(xds.Cluster))
		r.nextRetries(1)
		c.Close()
		r.nextRetries(0)
	})
}

// listener returns a listener with a text that refers to a cluster and takes an address.
func listener(name, text, cluster, port string) *xds.Resource {
	r := xds.NewResource(xds.Listener, name, message(name, text))
	r.Refs = []xds.Ref{{Type: xds.Cluster, Name: cluster}}
	r.Addresses = &[]xds.Address{{Port: port}}
	return r
}

func (r *fixture) setAll(all ...*xds.Resource) {
	r.Helper()
	if _, err := r.st.Update(func(tx *store.Tx) error {
		for _, is := range all {
			tx.Set(is)
		}
		return nil
	}); err != nil {
		r.Fatal(err)
	}
}

// A client that runs on an earlier version accepts a resource to which the refused version refers, or another
// resource that releases its address.
func TestAcceptedReferenceHastensRetry(t *testing.T) {
	for name, reason := range map[string]*xds.Resource{
		"cluster": xds.NewResource(xds.Cluster, "later", message("later", "1")),
		"address": listener("other", "2", "a", "1002"),
	} {
		retrying(t, "after an accepted "+name, func(r *fixture, c *xdstest.Client, _ *record, _ bool) {
			r.start(c)
			r.setAll(listener("l", "1", "a", "1000"), listener("other", "1", "a", "1001"))
			c.Subscribe(xds.Listener, "*")
			c.ACK(c.Next(xds.Listener))
			r.guilty = []string{"l"}
			r.setAll(listener("l", "bad", "later", "1001"))
			c.NACK(c.Next(xds.Listener), "Proto constraint validation failed") // retried every 5 min
			refused := time.Now()
			c.ACK(c.Next(xds.Listener))
			time.Sleep(time.Minute)
			r.setAll(reason)
			c.ACK(c.Next(reason.Type))
			began := time.Now()
			got := c.Next(xds.Listener)
			if took := time.Since(began); !says(got, "l", "bad") || took < time.Second || took > 2*time.Second {
				t.Errorf("after %v sent %v", took, got)
			}
			c.NACK(got, "Proto constraint validation failed")
			c.ACK(c.Next(xds.Listener))
			got = c.Next(xds.Listener)
			if took := time.Since(refused); !says(got, "l", "bad") || took < 5*time.Minute || took > 6*time.Minute+time.Second {
				t.Errorf("%v after the first refusal sent %v, want the retry that was planned then", took, got)
			}
			c.ACK(got)
			r.holds(0)
		})
	}
}

// Two listeners exchange their ports, and the client refuses both. The replacement of each releases the port that
// the other takes. This starts no retry.
func TestReplacementHastensNoRetry(t *testing.T) {
	for name, dial := range map[string]func(xdstest.T, grpc.ClientConnInterface, ...xdstest.Option) *xdstest.Client{"delta": xdstest.Delta, "SotW": xdstest.SotW} {
		t.Run("HEAL-2 "+name, func(t *testing.T) {
			within(t, func(r *fixture) {
				c := dial(r, xdstest.Serve(r, server.New(r.source, server.WithRetryRefused(), server.WithObserver(server.Observers(r.source, r)))), node, xdstest.WithTimeout(time.Hour))
				r.setAll(listener("l", "1", "a", "1000"), listener("m", "1", "a", "1001"))
				c.Subscribe(xds.Listener, "*")
				c.ACK(c.Next(xds.Listener))
				r.answered[node0.ID]++
				r.guilty = []string{"l", "m"}
				r.setAll(listener("l", "bad", "a", "1001"), listener("m", "bad", "a", "1000"))
				began, retries := time.Now(), 0
				for time.Since(began) < time.Hour {
					switch got := c.Next(xds.Listener); {
					case says(got, "l", "bad") || says(got, "m", "bad"):
						retries++
						c.NACK(got, "no")
					default:
						c.ACK(got)
					}
				}
				if retries < 24 || retries > 40 {
					t.Errorf("%d retries in an hour", retries)
				}
			})
		})
	}
}

// Without WithRetryRefused nothing is sent again.
func TestNoRetryByDefault(t *testing.T) {
	within(t, func(r *fixture) {
		c := xdstest.Delta(r, xdstest.Serve(r, r.server), node)
		r.start(c)
		r.guilty = []string{"b"}
		r.set("b", "bad")
		c.NACK(c.Expect(xds.Cluster, "b"), "no")
		c.ACK(c.Expect(xds.Cluster, "b"))
		time.Sleep(time.Hour)
		c.ExpectNothing()
		r.holds(1)
	})
}

// A client that refuses the newest version also refuses the three versions that others accepted. It gets each of
// them once, and then the newest version at each step of the back-off.
func TestRetriesAfterEarlierVersions(t *testing.T) {
	for name, dial := range variants {
		for what, guilty := range map[string][]string{"named": {"b"}, "unnamed": nil} {
			t.Run("HEAL-2 HEAL-3 "+name+" "+what, func(t *testing.T) {
				within(t, func(r *fixture) {
					srv := server.New(r.source, server.WithRetryRefused(), server.WithObserver(server.Observers(r.source, r)), server.WithLogger(slog.New(slog.DiscardHandler)))
					conn := xdstest.Serve(r, srv)
					r.guilty = guilty
					r.set("a", "1", "b", "1")
					old := r.accepts(dial, conn, "old", "envoy")
					for _, text := range []string{"2", "3", "4"} {
						r.set("b", text)
						r.answer(old, "no", bad())
					}
					r.set("b", "bad")
					c := r.join(dial, conn, "new", "envoy")
					last, waits := time.Now(), []time.Duration{0, 5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second}
					sent := map[string]int{}
					for began := last; time.Since(began) < 100*time.Second; time.Sleep(time.Second / 4) {
						for r.due(c) {
							got := r.next(c)
							b := got.Resource("b")
							if b == nil {
								c.ACK(got)
								continue
							}
							c.NACK(got, "no")
							sent[string(b.Body)]++
							if !says(got, "b", "bad") {
								continue
							}
							if n := sent[string(b.Body)]; n > len(waits) {
								t.Errorf("sent %d times", n)
							} else if took := time.Since(last); took < waits[n-1] || took > waits[n-1]*6/5+time.Second+time.Second/4 {
								t.Errorf("try %d: after %v, want %v", n, took, waits[n-1])
							}
							last = time.Now()
						}
						r.answer(old, "no", bad("b"))
					}
					for _, text := range []string{"2", "3", "4"} {
						if n := sent[string(message("b", text))]; n != 1 {
							t.Errorf("version %s was sent %d times", text, n)
						}
					}
					if n := sent[string(message("b", "bad"))]; n != len(waits) {
						t.Errorf("the newest version was sent %d times, want %d", n, len(waits))
					}
				})
			})
		}
	}
}

// A client that reconnects still refuses a resource that is new to it. It gets the changes of the others.
func TestResourceRefusedAgainAfterReconnect(t *testing.T) {
	for name, dial := range variants {
		t.Run("SOTW-18 "+name, func(t *testing.T) {
			within(t, func(r *fixture) {
				conn := xdstest.Serve(r, r.server)
				r.guilty = []string{"b"}
				r.set("a", "1")
				before := r.accepts(dial, conn, "n", "envoy")
				r.set("b", "bad")
				r.answer(before, "no", bad("b"))
				before.Close()
				synctest.Wait()
				r.sent["n"], r.answered["n"] = 0, 0
				c := dial(r, conn, xdstest.WithNode(xds.Node{ID: "n", UserAgentName: "envoy"}))
				r.nodes[c] = "n"
				c.Resume(xds.Cluster, before)
				r.answer(c, "no", bad("b"))
				r.holds(1)
				r.set("a", "2")
				r.gets(c, "", "2")
			})
		})
	}
}

// A version that no client has accepted is held back because a client blames an accepted version, such as for the
// same address. The client gets it when the conflict is over.
func TestConflictIsRetried(t *testing.T) {
	for name, dial := range variants {
		t.Run("HEAL-2 "+name, func(t *testing.T) {
			within(t, func(r *fixture) {
				srv := server.New(r.source, server.WithRetryRefused(), server.WithObserver(server.Observers(r.source, r)), server.WithLogger(slog.New(slog.DiscardHandler)))
				conn := xdstest.Serve(r, srv)
				r.set("a", "1", "b", "1")
				old := r.accepts(dial, conn, "old", "envoy")
				r.guilty = []string{"aa"}
				r.set("aa", "bad")
				r.answer(old, "no", bad("aa"))
				old.Close()
				synctest.Wait()
				r.guilty = []string{"b"}
				c := r.join(dial, conn, "new", "envoy")
				c.NACK(r.next(c), "b has the address of aa")
				r.answer(c, "b has the address of aa", bad("aa"))
				r.holds(1)
				time.Sleep(10 * time.Second)
				r.answer(c, "", bad())
				if held := c.Held(xds.Cluster); len(held) != 3 {
					t.Errorf("the client has %q", held)
				}
				r.holds(0)
			})
		})
	}
}

// A full state to a client that judges each resource by itself has the refused resource again. If the client accepts
// it, the refusal ends.
func TestRefusedResourceAcceptedWithAnother(t *testing.T) {
	for name, dial := range variants {
		t.Run("HEAL-5 "+name, func(t *testing.T) {
			within(t, func(r *fixture) {
				r.guilty = []string{"b"}
				r.set("a", "1")
				c := r.accepts(dial, xdstest.Serve(r, r.server), "n", "gRPC Go")
				r.set("b", "bad")
				c.NACK(r.next(c), "no")
				r.holds(1)
				r.set("a", "2")
				got := r.next(c)
				c.ACK(got)
				if says(got, "b", "bad") {
					r.holds(0)
				} else {
					r.holds(1)
				}
			})
		})
	}
}
