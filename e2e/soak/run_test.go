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

// features is the set of features that a run leaves out: alias, ttl, ondemand, phantom,
// single, sotw, delta.
type features map[string]bool

// A subject is a server under test.
type subject interface {
	dial() (*grpc.ClientConn, error)
	commit(w world) error
	catchUp()      // waits until the messages in transit have arrived
	patient() bool // the clock is fake, so waiting takes no real time
	aging() bool   // the server ends old connections
	alive() error  // the reason why the server failed, or nil
}

// A step is one action of a run. Each step has its own seed, so removing a step does not
// change the others.
type step struct {
	kind string
	who  int
	seed uint64
}

// A story is the plan of a random run: its clients and its steps.
type story struct {
	seed  uint64
	kinds []manner
	steps []step
}

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
	// A kind of step is as frequent as its name in this list.
	often := strings.Fields("commit commit commit commit commit open open open change change change change babble answer answer answer newest cut pause")
	for range 1 + r.IntN(3) {
		for range 5 + r.IntN(40) {
			t.steps = append(t.steps, step{one(r, often), r.IntN(len(t.kinds)), r.Uint64()})
		}
		t.steps = append(t.steps, step{kind: "rest", seed: r.Uint64()})
	}
	return t
}

// A run is the state of a running story.
type run struct {
	subject
	story
	less    features
	town    string // a prefix of node ids, for a server that runs several stories
	began   time.Time
	world   world
	called  called
	renewed int
	clients []*client

	quiet bool // keeps no log
	mu    sync.Mutex
	log   []string
	out   *os.File // a copy of the log, in case the process dies
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

// tell runs the story, and returns the first failure of the server; "": none.
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

// ended returns the error with which the server wrongly ended a stream of the client; "": none.
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
			if dice.IntN(5) > 0 { // open the others later
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

// ask runs a step of one client.
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
	case "newest": // later answers go to older responses
		if n := len(s.pending); n > 0 {
			c.answer(s, n-1)
		}
	}
}

// rest waits until the clients have settled, and compares each with a new client. Then it
// renews all resources and compares again, now also the clients that sent a NACK.
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
	r.note("-- no difference")
	return ""
}

// settles is longer than each delay of a server. The longest is 20 s: the time until a
// starting client gets the news that a resource does not exist.
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
		if r.aging() { // streams may end at any time
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

// newcomer returns a new client with the subscriptions of another.
func (r *run) newcomer(c *client) *client {
	f := r.newClient("new "+c.id, c.manner, 0)
	f.polite = true
	r.ensure(f)
	f.same(c)
	return f
}

// answerAll opens all types of the clients, and sends all pending answers.
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

// attentive restarts all TTLs. The server sends no heartbeats while a response is
// unanswered, so an earlier expiry is not its mistake.
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

// expire drops the resources whose TTL has ended.
func (c *client) expire() {
	const slack = 2 * time.Second // for delays on a busy machine
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

// conversation returns the log. If no resource expired, it omits heartbeats and their ACKs.
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
