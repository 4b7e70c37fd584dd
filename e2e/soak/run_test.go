package soak

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"

	"github.com/chancery-xds/chancery/xds"
)

// features that a run leaves out: alias, ttl, ondemand, phantom, single, sotw,
// delta.
type features map[string]bool

// A subject is what is judged.
type subject interface {
	dial() (*grpc.ClientConn, error)
	commit(w world) error
	catchUp()      // gives messages under way time to arrive
	patient() bool // time costs nothing
	aging() bool   // it ends connections when they are old
	alive() error  // why it is not
}

// A step is one thing that happens in a run. Each has a seed of its own, so that
// a story can be told without some of its steps.
type step struct {
	kind string
	who  int
	seed uint64
}

// A story is a random run.
type story struct {
	seed  uint64
	kinds []manner
	steps []step
}

// newStory makes the story of a seed.
func newStory(seed uint64, less features) story {
	r := rand.New(rand.NewPCG(seed, 1))
	t := story{seed: seed}
	for range 2 + r.IntN(4) {
		m := manner{delta: r.IntN(2) == 0, node: &core.Node{UserAgentName: one(r, []string{"soak", "soak", "envoy"})}, meek: r.IntN(2) == 0}
		m.delta = m.delta && !less["delta"] || less["sotw"]
		if r.IntN(4) == 0 && !less["single"] {
			for m.only == nil || m.only.Service == "" || !m.delta && m.only.Stream == "" {
				m.only = one(r, universe).typ
			}
		}
		if r.IntN(2) == 0 {
			m.node.ClientFeatures = append(m.node.ClientFeatures, "xds.config.supports-resource-ttl")
		}
		if r.IntN(2) == 0 {
			m.node.ClientFeatures = append(m.node.ClientFeatures, "xds.config.supports-resource-in-sotw")
		}
		t.kinds = append(t.kinds, m)
	}
	// How often each thing happens.
	often := strings.Fields("commit commit commit commit commit open open open change change change change babble answer answer answer newest cut pause")
	for range 1 + r.IntN(3) {
		for range 5 + r.IntN(40) {
			t.steps = append(t.steps, step{one(r, often), r.IntN(len(t.kinds)), r.Uint64()})
		}
		t.steps = append(t.steps, step{kind: "rest", seed: r.Uint64()})
	}
	return t
}

// A run is a story that is being told.
type run struct {
	subject
	story
	less    features
	town    string // is in the ids of nodes, where a server lives for more than one story
	began   time.Time
	world   world
	called  called
	renewed int
	clients []*client

	quiet bool // keeps no log
	mu    sync.Mutex
	log   []string
	out   *os.File // where the conversation is written, too, in case that the process dies
}

func (r *run) note(format string, args ...any) {
	if r.quiet {
		return
	}
	line := fmt.Sprintf("%9.3f ", time.Since(r.began).Seconds()) + fmt.Sprintf(format, args...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, line)
	if r.out != nil {
		fmt.Fprintln(r.out, line)
	}
}

// tell tells the story and returns what is wrong with the server; "" if nothing.
func (r *run) tell() (wrong string) {
	r.began, r.world, r.called = time.Now(), newWorld(), called{}
	r.note("seed %d", r.seed)
	for i, m := range r.kinds {
		r.clients = append(r.clients, r.newClient(string(rune('A'+i)), m, r.seed+uint64(i)))
	}
	defer func() {
		for _, c := range r.clients {
			c.close()
		}
	}()
	r.world.change(rand.New(rand.NewPCG(r.seed, 2)), r.less)
	if err := r.serve(); err != nil {
		return err.Error()
	}
	for _, s := range r.steps {
		if wrong := r.step(s); wrong != "" {
			return wrong
		}
		for _, c := range r.clients {
			if wrong := r.ended(c); wrong != "" {
				return wrong
			}
		}
		if err := r.alive(); err != nil {
			return err.Error()
		}
	}
	return ""
}

// serve commits the world.
func (r *run) serve() error {
	r.called.note(r.world)
	return r.commit(r.world)
}

func (r *run) newClient(id string, m manner, seed uint64) *client {
	n := &core.Node{Id: r.town + id, Cluster: "soak", UserAgentName: m.node.GetUserAgentName(), ClientFeatures: m.node.GetClientFeatures()}
	m.node = n
	return &client{manner: m, id: id, dial: r.dial, note: r.note, moody: rand.New(rand.NewPCG(seed, 3))}
}

// ended returns how the server ended a stream of a client without a right to.
func (r *run) ended(c *client) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, why := range c.lost {
		if !r.aging() || !strings.Contains(why, "Unavailable") {
			return c.id + ": " + why
		}
	}
	c.lost = nil
	return ""
}

func (r *run) step(s step) string {
	dice := rand.New(rand.NewPCG(s.seed, 4))
	c := r.clients[s.who]
	r.ensure(c)
	switch s.kind {
	case "commit":
		r.note("-- %s", r.world.change(dice, r.less))
		if err := r.serve(); err != nil {
			return err.Error()
		}
	case "rest":
		return r.rest(dice)
	case "pause":
		d := one(dice, []time.Duration{50 * time.Millisecond, 300 * time.Millisecond, time.Second, 2 * time.Second, 6 * time.Second, 16 * time.Second, 21 * time.Second})
		if !r.patient() {
			d = min(d, time.Second)
		}
		time.Sleep(d)
	case "cut":
		c.cut()
		if dice.IntN(2) == 0 {
			r.note("-- %s", r.world.change(dice, r.less))
			if err := r.serve(); err != nil {
				return err.Error()
			}
		}
		if err := c.connect(dice.IntN(4) == 0); err != nil {
			return err.Error()
		}
		c.mu.Lock()
		dice.Shuffle(len(c.subs), func(i, j int) { c.subs[i], c.subs[j] = c.subs[j], c.subs[i] })
		for _, s := range c.subs {
			if dice.IntN(5) > 0 { // the others later
				c.open(dice, s)
			}
		}
		c.mu.Unlock()
	default:
		r.ask(c, s.kind, dice)
	}
	if dice.IntN(4) > 0 {
		r.catchUp()
	}
	return ""
}

// ensure makes sure that the client has a stream.
func (r *run) ensure(c *client) {
	c.mu.Lock()
	has := c.stream != nil
	c.mu.Unlock()
	if !has {
		if err := c.connect(true); err != nil {
			c.mu.Lock()
			c.lost = append(c.lost, err.Error())
			c.mu.Unlock()
		}
	}
}

// ask is a step of one client.
func (r *run) ask(c *client, what string, dice *rand.Rand) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var late, open []*sub
	for _, s := range c.subs {
		if s.opened {
			open = append(open, s)
		} else {
			late = append(late, s)
		}
	}
	if what == "open" || len(open) == 0 {
		k := one(dice, universe)
		if c.only != nil {
			k = kindOf(c.only)
		}
		switch s := c.sub(k.typ); {
		case len(late) > 0:
			c.open(dice, one(dice, late))
		case s == nil && (c.delta || k.typ != xds.VirtualHost): // VHDS is delta only
			c.begins(dice, k)
		}
		return
	}
	s := one(dice, open)
	switch what {
	case "change":
		c.changes(dice, s, r.less)
	case "babble":
		c.babbles(dice, s)
	case "answer":
		if n := len(s.pending); n > 0 {
			c.answer(s, 0)
		}
	case "newest": // the older ones later
		if n := len(s.pending); n > 0 {
			c.answer(s, n-1)
		}
	}
}

// rest lets all come to rest and compares each client with a new one; then again
// after all was renewed, when those that refused something may be compared, too.
func (r *run) rest(dice *rand.Rand) string {
	r.note("-- rest")
	for _, c := range r.clients {
		c.mu.Lock()
		c.polite = true
		c.mu.Unlock()
	}
	for _, renewed := range []bool{false, true} {
		if renewed {
			r.renewed++
			r.world.renew(1000 + r.renewed)
			r.note("-- everything is renewed")
			if err := r.serve(); err != nil {
				return err.Error()
			}
		}
		if wrong := r.settle(dice, renewed); wrong != "" {
			return wrong
		}
	}
	for _, c := range r.clients {
		c.mu.Lock()
		c.polite = false
		for _, s := range c.subs {
			s.refused = false
		}
		c.mu.Unlock()
	}
	r.note("-- all is as it should be")
	return ""
}

// What a server may wait for takes 20 s at the most: until a client that is
// starting is told that something does not exist.
const settles = 45 * time.Second

func (r *run) settle(dice *rand.Rand, renewed bool) string {
	r.catchUp()
	r.answerAll(dice)
	if r.patient() {
		time.Sleep(2 * time.Second)
	}
	for _, c := range r.clients {
		c.attentive()
	}
	if r.patient() {
		time.Sleep(settles)
	}
	var fresh []*client
	defer func() {
		for _, f := range fresh {
			f.close()
		}
	}()
	for _, c := range r.clients {
		fresh = append(fresh, r.newcomer(c))
	}
	for until := time.Now().Add(settles); ; {
		if r.patient() {
			time.Sleep(settles)
		} else {
			time.Sleep(100 * time.Millisecond)
		}
		wrong := ""
		for i, c := range r.clients {
			c.expire()
			fresh[i].expire()
			if w := r.ended(c); w != "" {
				return w
			}
			if w := r.ended(fresh[i]); w != "" {
				return w
			}
			if d := c.differs(fresh[i], judging{renewed, r.aging(), r.called}); d != "" && wrong == "" {
				wrong = c.id + ": " + d
			}
		}
		if err := r.alive(); err != nil {
			return err.Error()
		}
		if wrong == "" || r.patient() || time.Now().After(until) {
			return wrong
		}
		if r.aging() { // streams end at any time
			r.answerAll(dice)
			for i, f := range fresh {
				f.mu.Lock()
				gone := f.stream == nil
				f.mu.Unlock()
				if gone {
					f.close()
					fresh[i] = r.newcomer(r.clients[i])
				}
			}
		}
	}
}

// newcomer is a new client that asks for the same as another.
func (r *run) newcomer(c *client) *client {
	f := r.newClient("new "+c.id, c.manner, 0)
	f.polite = true
	r.ensure(f)
	f.same(c)
	return f
}

// answerAll opens all that a client wants, and gives all answers that are due.
func (r *run) answerAll(dice *rand.Rand) {
	for _, c := range r.clients {
		r.ensure(c)
		c.mu.Lock()
		for _, s := range c.subs {
			if !s.opened {
				c.open(dice, s)
			}
			for len(s.pending) > 0 {
				c.answer(s, 0)
			}
		}
		c.mu.Unlock()
	}
}

// attentive makes TTLs begin anew: what ended while the client did not answer
// was its own fault.
func (c *client) attentive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.subs {
		for name, h := range s.cache {
			if h.ttl > 0 {
				h.expires = time.Now().Add(h.ttl)
				s.cache[name] = h
			}
		}
	}
}

// expire drops what the client has not been told of for its TTL.
func (c *client) expire() {
	const slack = 2 * time.Second // on a busy machine
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.subs {
		for name, h := range s.cache {
			if h.ttl > 0 && time.Since(h.expires) > slack {
				c.note("%s: %s %s expires", c.id, s.typ, name)
				delete(s.cache, name)
			}
		}
	}
}

// without returns the story without the steps from i to j.
func (t story) without(i, j int) story {
	t.steps = slices.Concat(t.steps[:i], t.steps[j:])
	return t
}

// conversation is the log, without heartbeats if none was missed.
func (r *run) conversation() string {
	all := strings.Join(r.log, "\n")
	if strings.Contains(all, "expires") {
		return all
	}
	var out []string
	beats := map[string]bool{}
	for _, line := range r.log {
		f := strings.Fields(line)
		head, rest, _ := strings.Cut(line, "nonce=")
		nonce, told, _ := strings.Cut(rest, " ")
		switch key := fmt.Sprint(strings.NewReplacer("<", "", ">", "").Replace(head[10:]), nonce); {
		case strings.Contains(head, "<") && strings.HasPrefix(told, "~") && strings.Count(told, "~") == strings.Count(told, " ")+1 && strings.Contains(told, "s"):
			beats[key] = true
		case strings.Contains(head, ">") && beats[key] && len(f) == 5:
		default:
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}
