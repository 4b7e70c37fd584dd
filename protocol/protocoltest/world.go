package protocoltest

import (
	"errors"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// A world is a number of clients, each with its sessions, and one content. Every choice comes from
// two dice of one seed. The dice plan decide the commits and the subscriptions, and are the same in
// both variants. The dice chance decide the order of events and the refusals.
type world struct {
	*story
	cfg    Config
	open   Open
	plan   dice
	chance dice
	noise  dice // for hints only

	operator *operator // nil: no operator

	content *content
	ops     int // operations that the plan has left
	lanes   []*lane
	now     time.Time
	terms   protocol.Options
	eager   bool // responses are sent after each input, as by a server
	timed   bool // time passes while the clients are busy
	calm    bool
	prompt  bool // messages arrive at once

	deliveries, judged int // see [Result]

	sent []*xds.Response // all responses, in order
}

var epoch = time.Unix(1_700_000_000, 0)

func (n *lane) fail(err error) { n.world.fail("client %d: %w", n.id, err) }

// newWorld makes a world and connects its clients.
func newWorld(open Open, cfg Config, story *story) *world {
	w := &world{cfg: cfg, open: open, now: epoch, story: story,
		plan: newDice(cfg.Seed, 0), chance: newDice(cfg.Seed, 1+uint64(cfg.Variant))}
	w.noise = newDice(cfg.Seed, 3)
	w.operator = newOperator(cfg.Seed)
	if cfg.Choices != nil {
		w.operator = nil
		d := &bytesDice{slices.Clone(cfg.Choices)}
		w.plan, w.chance = d, d
	}
	who := cfg.Client
	if who == "" {
		who = []string{"generic", "generic", "generic", "separate", "envoy", "envoy", "grpc", "wild", "finder", "finder"}[w.plan.IntN(10)]
	}
	whole := (cfg.Whole || w.plan.IntN(3) == 0) && who != "wild" && who != "finder"
	rich := !whole && !cfg.Accept && (w.plan.IntN(2) == 0 || who == "finder")
	named := w.plan.IntN(3) == 0 && whole && !cfg.Accept && who == "generic" && cfg.Variant == xds.Delta
	w.content = newContent(w.plan, newDice(cfg.Seed, 7), whole, rich, named, flips(cfg, who, whole))
	w.content.faults = newDice(cfg.Seed, 5)
	w.terms = terms(cfg, w.plan, whole)
	w.eager, w.timed = w.plan.IntN(4) > 0, w.plan.IntN(3) > 0
	w.prompt = who != "wild" && w.plan.IntN(2) == 0
	w.populate(who)
	return w
}

// populate adds the clients of a world, and connects them.
func (w *world) populate(who string) {
	clients := 1
	if who != "separate" && w.plan.IntN(4) == 0 {
		clients = 2
	}
	release, sloppy := w.plan.IntN(4) == 0, w.plan.IntN(4) == 0
	limit := 0
	if w.plan.IntN(4) == 0 {
		limit = []int{300, 40}[w.plan.IntN(2)] // two resources fill a message, or one
	}
	w.logf("a world of %s clients (%s), whole=%v named=%v flips=%v rich=%v eager=%v timed=%v prompt=%v release=%v limit=%d %+v", who, w.cfg.Variant, w.content.whole, w.content.named, w.content.flips, w.content.rich, w.eager, w.timed, w.prompt, release, limit, w.terms)
	add := func(c client, only *xds.Type) {
		n := &lane{world: w, id: len(w.lanes), client: c, only: only, release: release, sloppy: sloppy, limit: limit, spread: uint64(w.plan.IntN(100)), refused: map[string]bool{}, full: map[string][]*xds.Resource{}}
		w.lanes = append(w.lanes, n)
		n.connect()
	}
	if who == "separate" {
		for i, k := range w.content.kinds {
			if t := k.typ(); i <= atRoutes || t.Service != "" && (!deltaOnly(t) || w.cfg.Variant == xds.Delta && !w.cfg.Accept) {
				add(newGeneric(w, []kind{k}), t)
			}
		}
	}
	for range clients {
		if who != "separate" {
			add(w.newClient(who))
		}
		who = []string{who, "generic"}[w.plan.IntN(2)]
	}
}

// newClient makes a client of a kind, and returns the type of its streams; nil: all.
func (w *world) newClient(who string) (client, *xds.Type) {
	sotw := w.cfg.Variant == xds.SotW
	switch {
	case who == "envoy":
		return newEnvoy(w), nil
	case who == "grpc" && sotw:
		return newGRPC(w), nil
	case who == "finder" && !sotw:
		return newFinder(w), nil
	case who == "wild":
		if k := kinds[w.plan.IntN(5)]; w.plan.IntN(4) == 0 {
			return newWild(w, []kind{k}), k.typ()
		}
		return newWild(w, w.content.kinds), nil
	}
	return newGeneric(w, w.content.kinds), nil
}

// flips returns the types of a whole world that have on-demand resources. All clients also
// subscribe to clusters by name, so they hold all clusters. Generic clients also subscribe to
// virtual hosts by name. Envoy loses a virtual host that becomes on demand.
func flips(cfg Config, who string, whole bool) []*xds.Type {
	switch {
	case !whole || cfg.Accept || who == "separate" || newDice(cfg.Seed, 4).IntN(4) > 0:
		return nil
	case cfg.Variant == xds.SotW:
		return []*xds.Type{xds.Cluster}
	}
	return []*xds.Type{xds.Cluster, xds.VirtualHost}
}

// terms chooses the options of the sessions.
func terms(cfg Config, d dice, whole bool) (o protocol.Options) {
	o.ForceTTL, o.Bodyless, o.ResourceErrors = d.IntN(4) == 0, d.IntN(4) == 0, d.IntN(3) == 0
	if !whole {
		o.Grace = []time.Duration{0, 0, time.Second, -1}[d.IntN(4)]
	}
	if cfg.Choices == nil && newDice(cfg.Seed, 6).IntN(4) == 0 {
		o.Retry = func(*xds.Type, int) bool { return true }
	}
	return o
}

// step makes one event happen.
func (w *world) step() {
	w.operator.act(w)
	n := w.lanes[w.chance.IntN(len(w.lanes))]
	switch k := w.chance.IntN(100); {
	case k < 2:
		if w.chance.IntN(2) == 0 {
			n.connect()
		}
	case k < 3:
		n.mute = n.forever || !n.mute
		if n.mute && w.chance.IntN(4) == 0 {
			n.forever = true
		}
		w.logf("%d mute=%v for ever=%v", n.id, n.mute, n.forever)
	case k < 8:
		if w.timed {
			w.pass(w.duration())
		}
	case k < 20:
		if w.ops > 0 {
			w.op()
		}
	case k < 32:
		n.giveView()
	case k < 50:
		n.request()
	case k < 66:
		n.deliverUp()
	case k < 80:
		if w.eager {
			n.deliverDown()
		} else {
			n.respond()
		}
	default:
		n.deliverDown()
	}
}

// op performs the next operation of the plan: a commit, or a change of a client's subscriptions.
func (w *world) op() {
	w.ops--
	if w.plan.IntN(5) < 3 {
		w.commit(w.content.commit())
		return
	}
	n := w.lanes[w.plan.IntN(len(w.lanes))]
	if what := n.client.act(); what != "" {
		w.logf("%d %s", n.id, what)
	}
}

func (w *world) commit(touched xds.Names) {
	w.logf("commit %s", commitText{w.content, touched})
	for _, n := range w.lanes {
		n.behind, n.still = true, time.Time{}
		n.pending = append(n.pending, touched)
	}
}

func (w *world) duration() time.Duration {
	return []time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second, 3 * time.Second, 5 * time.Second, 15 * time.Second, 21 * time.Second}[w.chance.IntN(7)]
}

// pass lets time pass for all clients, and wakes each session at its deadlines.
func (w *world) pass(d time.Duration) {
	until := w.now.Add(d)
	for range 1000 {
		if w.prompt {
			w.quiet()
		}
		next := until
		for _, n := range w.lanes {
			next = earlier(earlier(next, n.session.Deadline()), n.expires())
			if w.calm { // requests that a client sends by itself must be answered in time
				next = earlier(next, n.client.deadline())
			}
		}
		w.now = next
		w.logf("the time is %v", w.now.Sub(epoch))
		for _, n := range w.lanes {
			n.awake()
		}
		if !w.now.Before(until) {
			return
		}
	}
	w.fail("deadlines follow each other without end")
}

// awake gives a client and its session the time.
func (n *lane) awake() {
	n.client.advance(n.now)
	n.ledger.advance(n.now)
	at := n.session.Deadline()
	n.advance()
	if due := !at.IsZero() && !at.After(n.now); n.eager || n.calm || due {
		said := n.respond()
		if said && !due && n.eager && !n.release {
			n.fail(errors.New("the session sends a response because time passed, but had no deadline"))
		}
	}
	n.expire()
}

// earlier returns the earlier one of two times that are set, or the one that is set.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
