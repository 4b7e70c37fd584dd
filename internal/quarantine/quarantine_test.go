package quarantine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// watched makes a source of a store.
type watched struct{ *store.Store }

func (w watched) Watch(ctx context.Context, n *xds.Node) (server.Watch, error) {
	return w.Store.Watch(ctx, n)
}

// A fixture is a server with a quarantine source. The test chooses the results of Guilty.
type fixture struct {
	*testing.T
	st     *store.Store
	source *Source
	server *server.Server
	acks   []protocol.Event
	guilty []string                // faulty resources from now on
	blame  func(text string) Blame // nil: the text names guilty

	mu       sync.Mutex
	said     []Held
	sent     map[string]int // number of responses by node
	answered map[string]int
	nodes    map[*xdstest.Client]string // nodes other than n
	nacks    int
}

func (r *fixture) Opened(*server.Stream)        {}
func (r *fixture) Closed(*server.Stream, error) {}
func (r *fixture) Event(st *server.Stream, e protocol.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e.Kind {
	case protocol.Acked:
		r.acks = append(r.acks, e)
	case protocol.Sent:
		r.sent[st.Node.ID]++
	}
}

// answer answers all responses of a client until no more arrive. It refuses a response if refuses returns
// a text for one of its resources.
func (r *fixture) answer(c *xdstest.Client, why string, refuses func(got *xdstest.Response) bool) {
	r.Helper()
	for r.due(c) {
		if got := r.next(c); refuses(got) {
			r.nacks++
			c.NACK(got, why)
		} else {
			c.ACK(got)
		}
	}
}

func (r *fixture) id(c *xdstest.Client) string { return cmp.Or(r.nodes[c], node0.ID) }

// told returns the resources that were reported as in quarantine. The view of a client may change before
// the report.
func (r *fixture) told() []Held {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.said)
}

// due reports whether a client has an unread response.
func (r *fixture) due(c *xdstest.Client) bool {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sent[r.id(c)] > r.answered[r.id(c)]
}

func (r *fixture) next(c *xdstest.Client) *xdstest.Response {
	r.Helper()
	r.answered[r.id(c)]++
	return c.Next(xds.Cluster)
}

// bad refuses resources with the given names with the text "bad".
func bad(names ...string) func(*xdstest.Response) bool {
	return func(got *xdstest.Response) bool {
		return slices.ContainsFunc(names, func(name string) bool { return says(got, name, "bad") })
	}
}

// within runs f in a synctest bubble.
func within(t *testing.T, f func(r *fixture)) {
	synctest.Test(t, func(t *testing.T) {
		r := &fixture{T: t, st: store.New(), sent: map[string]int{}, answered: map[string]int{}, nodes: map[*xdstest.Client]string{}}
		r.source = New(watched{r.st}, Options{
			Guilty: func(_ context.Context, _ *server.Stream, _ *xds.Type, text string) Blame {
				if r.blame != nil {
					return r.blame(text)
				}
				return Blame{Names: r.guilty, Named: true}
			},
			Told: func(h Held, _ *server.Stream) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.said = append(r.said, h)
			},
		})
		r.server = server.New(r.source, server.WithObserver(server.Observers(r.source, r)), server.WithLogger(slog.New(slog.DiscardHandler)))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); r.source.Run(ctx) }()
		defer func() { cancel(); <-done }()
		f(r)
	})
}

// set sets resources, given as name and body in turns. An empty body removes a resource.
func (r *fixture) set(pairs ...string) {
	r.Helper()
	if _, err := r.st.Update(func(tx *store.Tx) error {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i+1] == "" {
				tx.Delete(xds.Cluster, pairs[i])
			} else {
				tx.Set(xds.NewResource(xds.Cluster, pairs[i], message(pairs[i], pairs[i+1])))
			}
		}
		return nil
	}); err != nil {
		r.Fatal(err)
	}
}

// holds checks the resources in quarantine over all streams.
func (r *fixture) holds(n int) {
	r.Helper()
	synctest.Wait()
	if got := r.source.Held(); got != n {
		r.Errorf("%d resources are in quarantine, want %d", got, n)
	}
}

var node0 = xds.Node{ID: "n"}

var node = xdstest.WithNode(node0)

// open opens a delta stream whose client accepts all current clusters.
func (r *fixture) open(conn grpc.ClientConnInterface, n xds.Node) *xdstest.Client {
	r.Helper()
	c := xdstest.Delta(r, conn, xdstest.WithNode(n))
	r.nodes[c] = n.ID
	c.Subscribe(xds.Cluster, "*")
	r.answer(c, "no", bad())
	return c
}

// start returns a client that has accepted a and b.
func (r *fixture) start(c *xdstest.Client) {
	r.Helper()
	r.set("a", "1", "b", "1")
	c.Subscribe(xds.Cluster, "*")
	c.ACK(c.Expect(xds.Cluster, "a", "b"))
}

// message returns a cluster with a name and a text.
func message(name, text string) []byte {
	b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name)
	return protowire.AppendString(protowire.AppendTag(b, 1000, protowire.BytesType), text)
}

// says reports whether a response has a text for a name.
func says(r *xdstest.Response, name, text string) bool {
	is := r.Resource(name)
	return is != nil && bytes.Equal(is.Body, message(name, text))
}

func TestQuarantine(t *testing.T) {
	for name, dial := range map[string]func(r *fixture) *xdstest.Client{
		"delta": func(r *fixture) *xdstest.Client { return xdstest.Delta(r, xdstest.Serve(r, r.server), node) },
		"SotW":  func(r *fixture) *xdstest.Client { return xdstest.SotW(r, xdstest.Serve(r, r.server), node) },
	} {
		wanted := func(delta []string, all ...string) []string { // the expected resources of a response
			if name == "SotW" {
				return all
			}
			return delta
		}
		t.Run(name+" keeps what was accepted last, and the others flow", func(t *testing.T) {
			within(t, func(r *fixture) {
				c := dial(r)
				r.start(c)
				r.guilty = []string{"b"}
				r.set("a", "2", "b", "bad", "new", "1")
				c.NACK(c.Expect(xds.Cluster, "a", "b", "new"), "no")
				again := c.Expect(xds.Cluster, "a", "b", "new")
				if !says(again, "b", "1") {
					t.Errorf("told %v", again)
				}
				c.ACK(again)
				r.holds(1)
				if last := r.acks[len(r.acks)-1]; !last.Refuses {
					t.Error("the client is said to accept what it has refused")
				}
				if told := r.told(); len(told) != 1 || told[0].Name != "b" || told[0].Instead == "" || told[0].Refused == told[0].Instead {
					t.Errorf("told %+v", told)
				}

				r.set("a", "3") // others are still updated
				c.ACK(c.Expect(xds.Cluster, wanted([]string{"a"}, "a", "b", "new")...))
				r.holds(1)
				r.set("b", "3") // a change ends the quarantine
				c.ACK(c.Expect(xds.Cluster, wanted([]string{"b"}, "a", "b", "new")...))
				r.holds(0)
				if last := r.acks[len(r.acks)-1]; last.Refuses {
					t.Error("the client is said to refuse what it has accepted")
				}
			})
		})
		t.Run(name+" leaves out what is new, until it changes", func(t *testing.T) {
			within(t, func(r *fixture) {
				c := dial(r)
				r.start(c)
				r.guilty = []string{"new"}
				r.set("a", "2", "new", "bad")
				c.NACK(c.Expect(xds.Cluster, wanted([]string{"a", "new"}, "a", "b", "new")...), "no")
				again := c.Next(xds.Cluster)
				if again.Resource("new") != nil || again.Resource("a") == nil {
					t.Errorf("told %v", again)
				}
				c.ACK(again)
				r.holds(1)
				r.set("new", "good")
				c.ACK(c.Expect(xds.Cluster, wanted([]string{"new"}, "a", "b", "new")...))
				r.holds(0)
			})
		})
		t.Run(name+" ends when the resource is removed", func(t *testing.T) {
			within(t, func(r *fixture) {
				c := dial(r)
				r.start(c)
				r.guilty = []string{"b"}
				r.set("b", "bad")
				c.NACK(c.Expect(xds.Cluster, wanted([]string{"b"}, "a", "b")...), "no")
				c.ACK(c.Next(xds.Cluster))
				r.holds(1)
				r.set("b", "")
				c.ACK(c.Next(xds.Cluster))
				r.holds(0)
			})
		})
		t.Run(name+" ends with the stream", func(t *testing.T) {
			within(t, func(r *fixture) {
				c := dial(r)
				r.start(c)
				r.guilty = []string{"b"}
				r.set("b", "bad")
				c.NACK(c.Expect(xds.Cluster, wanted([]string{"b"}, "a", "b")...), "no")
				r.holds(1)
				c.Close()
				r.holds(0)
				r.source.watches.Range(func(any, any) bool { t.Error("a watch is remembered"); return false })
			})
		})
		t.Run(name+" takes a second one that is refused then", func(t *testing.T) {
			within(t, func(r *fixture) {
				c := dial(r)
				r.start(c)
				r.guilty = []string{"a"}
				r.set("a", "bad", "b", "bad", "new", "1")
				c.NACK(c.Expect(xds.Cluster, "a", "b", "new"), "a is bad")
				again := c.Next(xds.Cluster)
				r.guilty = []string{"b"}
				c.NACK(again, "b is bad")
				again = c.Next(xds.Cluster)
				if !says(again, "b", "1") || again.Resource("new") == nil {
					t.Errorf("told %v", again)
				}
				c.ACK(again)
				r.holds(2)
			})
		})
		t.Run(name+" does nothing for who is not at fault", func(t *testing.T) {
			within(t, func(r *fixture) {
				c := dial(r)
				r.start(c)
				if name == "delta" {
					return // this case needs a search: see TestSearch
				}
				for _, r.guilty = range [][]string{nil, {"nobody"}} {
					text := "bad" + string(rune('0'+len(r.guilty)))
					r.set("a", text, "b", text)
					c.NACK(c.Expect(xds.Cluster, "a", "b"), "no")
					c.ExpectNothing()
					r.holds(0)
				}
			})
		})
		t.Run(name+" leaves alone what the client has just as it is", func(t *testing.T) {
			within(t, func(r *fixture) {
				c := dial(r)
				r.start(c)
				r.guilty = []string{"a"}
				r.set("b", "bad")
				c.NACK(c.Expect(xds.Cluster, wanted([]string{"b"}, "a", "b")...), "no")
				again := c.Expect(xds.Cluster, wanted([]string{"b"}, "a", "b")...)
				if told := r.told(); !says(again, "b", "1") || len(told) != 1 || told[0].Name != "b" || told[0].By != Found {
					t.Errorf("told %v, %+v", again, told)
				}
				r.holds(1)
			})
		})
		t.Run(name+" leaves alone what has changed since", func(t *testing.T) {
			within(t, func(r *fixture) {
				c := dial(r)
				r.start(c)
				r.guilty = []string{"b"}
				r.set("b", "bad")
				refused := c.Expect(xds.Cluster, wanted([]string{"b"}, "a", "b")...)
				r.set("b", "good")
				c.NACK(refused, "no")
				again := c.Expect(xds.Cluster, wanted([]string{"b"}, "a", "b")...)
				if !says(again, "b", "good") {
					t.Errorf("told %v", again)
				}
				r.holds(0)
				c.ACK(again)
				c.ExpectNothing()
			})
		})
		t.Run(name+" never takes away what works", func(t *testing.T) {
			within(t, func(r *fixture) {
				c := dial(r)
				r.start(c)
				r.guilty = []string{"b"}
				r.set("b", "bad")
				refused := c.Expect(xds.Cluster, wanted([]string{"b"}, "a", "b")...)
				time.Sleep(24 * time.Hour)
				r.set("a", "2") // no cache has the old version of b
				c.NACK(refused, "no")
				synctest.Wait()
				r.holds(0)
				if slices.ContainsFunc(c.Held(xds.Cluster), func(name string) bool { return name == "b" }) == false {
					t.Error("the client has lost what it had")
				}
			})
		})
		t.Run(name+" tells who asks by name", func(t *testing.T) {
			within(t, func(r *fixture) {
				c := dial(r)
				r.set("a", "1", "b", "1")
				c.Subscribe(xds.Cluster, "a", "b")
				c.ACK(c.Expect(xds.Cluster, "a", "b"))
				r.guilty = []string{"b"}
				r.set("a", "2", "b", "bad")
				c.NACK(c.Expect(xds.Cluster, "a", "b"), "no")
				again := c.Expect(xds.Cluster, "a", "b")
				if !says(again, "b", "1") || !says(again, "a", "2") {
					t.Errorf("told %v", again)
				}
				c.ACK(again)
				r.set("b", "good")
				c.ACK(c.Expect(xds.Cluster, wanted([]string{"b"}, "a", "b")...))
				r.holds(0)
			})
		})
	}
}

// A client keeps a resource that it has from another server, because this server does not have that
// version.
func TestResourceFromAnotherServer(t *testing.T) {
	for name, dial := range map[string]func(t xdstest.T, conn grpc.ClientConnInterface, opts ...xdstest.Option) *xdstest.Client{"delta": xdstest.Delta, "SotW": xdstest.SotW} {
		t.Run(name, func(t *testing.T) {
			within(t, func(r *fixture) {
				other := store.New()
				if _, err := other.Update(func(tx *store.Tx) error {
					tx.Set(xds.NewResource(xds.Cluster, "a", message("a", "0")), xds.NewResource(xds.Cluster, "b", message("b", "0")))
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				was := dial(r, xdstest.Serve(r, server.New(watched{other}, server.WithLogger(slog.New(slog.DiscardHandler)))), node)
				was.Subscribe(xds.Cluster, "*")
				was.ACK(was.Next(xds.Cluster))
				was.Close()

				r.set("a", "1", "b", "bad")
				r.guilty = []string{"b"}
				c := dial(r, xdstest.Serve(r, r.server), node)
				c.Resume(xds.Cluster, was)
				c.NACK(c.Next(xds.Cluster), "b")
				c.ExpectNothing()
				r.holds(0)
				if told := r.told(); len(told) > 0 {
					t.Errorf("told %+v", told)
				}
			})
		})
	}
}

// Two clients with one node ID do not affect each other.
func TestSameNodeID(t *testing.T) {
	within(t, func(r *fixture) {
		conn := xdstest.Serve(r, r.server)
		c, other := xdstest.Delta(r, conn, node), xdstest.Delta(r, conn, node)
		r.start(c)
		other.Subscribe(xds.Cluster, "*")
		other.ACK(other.Expect(xds.Cluster, "a", "b"))
		r.guilty = []string{"b"}
		r.set("b", "new")
		other.ACK(other.Expect(xds.Cluster, "b"))
		c.NACK(c.Expect(xds.Cluster, "b"), "no")
		if again := c.Expect(xds.Cluster, "b"); !says(again, "b", "1") {
			t.Errorf("told %v", again)
		}
		r.holds(1)
		other.ExpectNothing()
	})
}

// For a client that refuses everything, the number of resources in quarantine is limited.
func TestQuarantineIsBounded(t *testing.T) {
	within(t, func(r *fixture) {
		c := xdstest.Delta(r, xdstest.Serve(r, r.server), node)
		c.Subscribe(xds.Cluster, "*")
		var pairs []string
		for i := range 3 * maxHeld {
			name := "c" + string(rune('a'+i/26%26)) + string(rune('a'+i%26))
			pairs = append(pairs, name, "bad")
			r.guilty = append(r.guilty, name)
		}
		slices.Sort(r.guilty)
		r.guilty = slices.Compact(r.guilty)
		r.set(pairs...)
		c.NACK(c.Next(xds.Cluster), "no")
		r.holds(maxHeld)
		if n := len(r.source.Refused(10)); n != 10 {
			t.Errorf("%d of 10 are said to be refused", n)
		}
	})
}

// SAFE-1: an owner with many refusals on any number of streams does not hide those of other owners.
func TestRefusedTakesTurns(t *testing.T) {
	s := New(nil, Options{})
	stream := func(owner string, names ...string) {
		w := &Watch{owner: owner}
		for _, n := range names {
			w.holds = append(w.holds, held{typ: xds.Cluster, name: n, by: Named, text: n})
		}
		s.watches.Store(new(xds.Node), w)
	}
	for range 3 {
		stream("liar", names(100)...)
	}
	stream("honest", "z1", "z2", "c0001")
	stream("other", "c0000")
	var got []string
	for _, r := range s.Refused(8) {
		got = append(got, r.Name)
	}
	if want := []string{"c0000", "c0001", "c0002", "c0003", "c0004", "c0005", "z1", "z2"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if n := len(s.Refused(1000)); n != 102 {
		t.Errorf("%d are refused", n)
	}
}

// An error of the wrapped source is returned.
func TestWatchError(t *testing.T) {
	want := errors.New("no")
	s := New(refusing{want}, Options{})
	if _, err := s.Watch(t.Context(), nil); !errors.Is(err, want) {
		t.Error(err)
	}
}

type refusing struct{ error }

func (r refusing) Watch(context.Context, *xds.Node) (server.Watch, error) { return nil, r.error }

// The next retry of a resource and its proof do not change what the client is shown. So the table stays the same.
func TestRetryTimeKeepsTable(t *testing.T) {
	base, err := xds.NewTable(xds.Cluster).With([]*xds.Resource{cluster("a", "bad")})
	if err != nil {
		t.Fatal(err)
	}
	view := xds.Tables{xds.Cluster.URL: base}
	var m tables
	h := held{typ: xds.Cluster, name: "a", refused: base.Lookup("a").Sum, body: base.Lookup("a"), old: cluster("a", "1")}
	table := func() *xds.Table {
		v := &substituted{of: view, holds: m.group([]held{h}, nil, nil), made: &m}
		return v.Table(xds.Cluster)
	}
	first := table()
	h.by, h.proven, h.nonce, h.text, h.tries, h.retryAt = Found, true, 7, "no", 3, time.Now()
	if table() != first {
		t.Error("HEAL-2: the time of a retry makes another table")
	}
	h.trying = true
	if is := table(); is == first || string(is.Lookup("a").Body) != string(base.Lookup("a").Body) {
		t.Error("HEAL-2: a retry does not show the refused version")
	}
}
