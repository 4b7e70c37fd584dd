package relay_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/relay"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// With random upstreams and clients the promises of docs/relay.md hold. Nothing is lost while the
// upstream is away, and nothing is sent that it never had. Emptiness is confirmed, and referenced
// resources stay. Unusable resources reach no client, versions are derived from the content, and in the
// end all clients have what the upstream has.
func TestRandomRelays(t *testing.T) {
	n := uint64(51) // seeds 4 and 50 found unconfirmed removals
	if testing.Short() {
		n = 10
	}
	for seed := range n {
		t.Run(fmt.Sprint("SAFE-10 seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newPlay(t, seed).run() })
		})
	}
}

// A play is one random run.
type play struct {
	*testing.T
	*rand.Rand
	up      *upstream
	delta   bool // the relay's variant upstream
	w       *testRelay
	has     map[*xds.Type]map[string]string // of the upstream now
	gone    map[string]time.Time            // when it has lost a cluster
	empty   time.Time                       // since when it is up without clusters; zero: not so
	down    bool
	ever    map[string]bool   // all content that it ever had
	version map[string]string // version by content
	clients []*player
	sent    sent
}

// sent are the types of responses that clients were sent and have not read, by node.
type sent struct {
	mu  sync.Mutex
	due map[string][]*xds.Type
}

func (*sent) Opened(*server.Stream)        {}
func (*sent) Closed(*server.Stream, error) {}
func (s *sent) Event(st *server.Stream, e protocol.Event) {
	if e.Kind == protocol.Sent {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.due[st.Node.ID] = append(s.due[st.Node.ID], e.Type)
	}
}

func (s *sent) take(node string) (t *xds.Type) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.due[node]; len(q) > 0 {
		t, s.due[node] = q[0], q[1:]
	}
	return t
}

// A player is a client that accepts all.
type player struct {
	*xdstest.Client
	node  string
	delta bool
	wants map[*xds.Type][]string
	has   map[*xds.Type]map[string]string
}

var played = []*xds.Type{xds.Cluster, xds.Endpoint, xds.Route}

func newPlay(t *testing.T, seed uint64) *play {
	p := &play{
		T: t, Rand: rand.New(rand.NewPCG(seed, 1)), up: newUpstream(t), has: map[*xds.Type]map[string]string{},
		gone: map[string]time.Time{}, ever: map[string]bool{}, version: map[string]string{}, sent: sent{due: map[string][]*xds.Type{}},
	}
	for _, typ := range played {
		p.has[typ] = map[string]string{}
	}
	p.delta = p.IntN(2) == 0
	p.w = relayWith(t, p.up, t.TempDir(), p.delta, func(r *xds.Resource) error {
		if strings.Contains(string(r.Body), "bad") {
			return fmt.Errorf("it is bad")
		}
		return nil
	}, func(*relay.Options) {})
	p.w.conn = xdstest.Serve(t, server.New(p.w.src, server.WithObserver(&p.sent)))
	return p
}

func (p *play) run() {
	p.change()
	for range 40 {
		switch p.IntN(8) {
		case 0:
			if !p.down {
				p.up.stop()
				p.down, p.empty = true, time.Time{}
			}
		case 1, 2:
			p.start()
		case 3:
			if len(p.clients) < 4 {
				p.join()
			}
		default:
			if !p.down {
				p.change()
			}
		}
		p.settle()
		time.Sleep(time.Duration(p.ExpFloat64() * float64(3*time.Second)))
		p.settle()
	}
	p.start()
	p.join()
	for range 10 {
		time.Sleep(time.Minute)
		p.settle()
	}
	p.equal()
}

// start starts an upstream, which may have lost its memory for a while.
func (p *play) start() {
	if !p.down {
		return
	}
	p.up.start()
	p.down = false
	if p.IntN(2) == 0 {
		all := p.has
		p.has = map[*xds.Type]map[string]string{xds.Cluster: {}, xds.Endpoint: {}, xds.Route: {}}
		for _, typ := range played {
			p.say(typ)
		}
		p.settle()
		time.Sleep(time.Duration(p.IntN(4)) * time.Second)
		p.settle()
		p.has = all
	}
	for _, typ := range played {
		p.say(typ)
	}
}

// change changes the upstream's resources of one type.
func (p *play) change() {
	typ := played[p.IntN(len(played))]
	has := map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		switch n := p.IntN(10); {
		case n < 2:
		case n < 3 && typ == xds.Endpoint: // a server that waits for the ACK of others waits forever
			has[name] = "bad"
		case n < 6 && typ == xds.Route:
			has[name] = "to:" + []string{"a", "b", "c"}[p.IntN(3)]
		case n < 8 && p.has[typ][name] != "":
			has[name] = p.has[typ][name]
		default:
			has[name] = fmt.Sprint("v", p.IntN(4))
		}
	}
	if p.IntN(6) == 0 {
		clear(has)
	}
	p.has[typ] = has
	p.say(typ)
}

// say publishes the upstream's resources of a type.
func (p *play) say(typ *xds.Type) {
	p.Helper()
	has := p.has[typ]
	p.Logf("%v upstream %s %v", time.Now().Format("04:05"), typ, has)
	if typ == xds.Cluster {
		if len(has) > 0 {
			p.empty = time.Time{}
		} else if p.empty.IsZero() {
			p.empty = time.Now()
		}
		for _, name := range []string{"a", "b", "c"} {
			if has[name] != "" {
				delete(p.gone, name)
			} else if p.gone[name].IsZero() {
				p.gone[name] = time.Now()
			}
		}
	}
	if _, err := p.up.store.Update(func(tx *store.Tx) error {
		var all []*xds.Resource
		for name, more := range has {
			r := resource(typ, name, more)
			r.Refs = []xds.Ref{} // without make before break
			p.ever[typ.Short+name+string(r.Body)] = true
			all = append(all, r)
		}
		tx.MarkKnown()
		tx.Replace(typ, all...)
		return nil
	}); err != nil {
		p.Fatal(err)
	}
}

func (p *play) join() {
	c := &player{node: fmt.Sprint("n", len(p.clients)), delta: p.IntN(2) == 0, wants: map[*xds.Type][]string{}, has: map[*xds.Type]map[string]string{}}
	with := xdstest.WithNode(xds.Node{ID: c.node})
	if c.delta {
		c.Client = xdstest.Delta(p, p.w.conn, with)
	} else {
		c.Client = xdstest.SotW(p, p.w.conn, with)
	}
	for _, typ := range played {
		c.has[typ] = map[string]string{}
		switch {
		case typ == xds.Cluster && p.IntN(4) > 0:
			c.wants[typ] = []string{"*"}
		default:
			c.wants[typ] = []string{"a", "b", "c"}[p.IntN(3):]
		}
		c.Subscribe(typ, c.wants[typ]...)
	}
	p.clients = append(p.clients, c)
}

// settle makes all clients read what they were sent.
func (p *play) settle() {
	p.Helper()
	for again := true; again; {
		again = false
		for _, c := range p.clients {
			for typ := p.sent.take(c.node); typ != nil; typ = p.sent.take(c.node) {
				again = true
				r := c.Next(typ)
				p.take(c, typ, r)
				c.ACK(r)
			}
		}
	}
}

// take checks a response.
func (p *play) take(c *player, typ *xds.Type, r *xdstest.Response) {
	p.Helper()
	p.Logf("%v %s %v gets %v of %v", time.Now().Format("04:05"), c.node, c.delta, r, c.wants[typ])
	was := c.has[typ]
	is := maps.Clone(was)
	if !c.delta && typ == xds.Cluster {
		is = map[string]string{}
	}
	for _, of := range r.Resources {
		key := typ.Short + of.Name + string(of.Body)
		if !p.ever[key] || strings.Contains(string(of.Body), "bad") {
			p.Fatalf("%s gets %s %q", c.node, typ, of.Body)
		}
		if c.delta {
			if v := p.version[key]; v != "" && v != of.Version {
				p.Fatalf("%q has the versions %s and %s", key, v, of.Version)
			}
			p.version[key] = of.Version
		}
		is[of.Name] = string(of.Body)
	}
	for _, name := range r.Removed {
		delete(is, name)
	}
	c.has[typ] = is
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if is[name] != "" {
			continue
		}
		if p.down && p.has[typ][name] != "" {
			p.Fatalf("%s loses %s %q while the upstream is away", c.node, typ, name)
		}
		for _, body := range c.has[xds.Route] {
			if typ == xds.Cluster && strings.Contains(body, "to:"+name) && time.Since(p.gone[name]) < 5*time.Second {
				p.Fatalf("%s loses cluster %q after %v, although one of its routes refers to it", c.node, name, time.Since(p.gone[name]))
			}
		}
	}
	if typ == xds.Cluster && len(was) > 0 && len(is) == 0 && c.wants[typ][0] == "*" && (p.empty.IsZero() || time.Since(p.empty) < 5*time.Second) {
		p.Fatalf("%s loses all clusters; the upstream has none since %v", c.node, p.empty)
	}
}

// equal checks that all clients have what the upstream has.
func (p *play) equal() {
	p.Helper()
	for _, c := range p.clients {
		for _, typ := range played {
			for _, name := range []string{"a", "b", "c"} {
				if c.wants[typ][0] != "*" && !slices.Contains(c.wants[typ], name) {
					continue
				}
				want, got := p.has[typ][name], c.has[typ][name]
				switch {
				case want == "bad": // the client has the last good resource
				case want == "" && typ != xds.Cluster && (!p.delta || !c.delta): // no response reports it
				case want == "" && got != "":
					p.Errorf("%s has %s %q = %q, the upstream has none", c.node, typ, name, got)
				case want != "" && got != string(resource(typ, name, want).Body):
					p.Errorf("%s has %s %q = %q, want %q", c.node, typ, name, got, want)
				}
			}
		}
	}
	if p.Failed() {
		p.Logf("%v %v", p.w.cl.Servers(), p.w.cl.Dump())
	}
}
