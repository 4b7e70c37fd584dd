package protocoltest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// A world is some clients, each with its session, and one content. Every
// choice comes from two dice of one seed: plan decides what is committed and
// what the clients want, and is the same in both variants; chance decides who
// moves when, and who refuses what.
type world struct {
	cfg    Config
	open   Open
	plan   dice
	chance dice
	noise  dice // for hints alone
	hints  bool

	content *content
	ops     int // that the plan has left
	lanes   []*lane
	now     time.Time
	eager   bool // responses leave after each input, as a server does
	timed   bool // time passes while the clients are busy
	calm    bool

	sent  []*xds.Response // all responses, in order
	story *[]string       // nil: nobody listens
}

// A lane is one stream after the other between a client and its sessions.
type lane struct {
	*world
	id      int
	only    *xds.Type
	client  client
	session Session
	ledger  *ledger
	up      []xds.Request
	down    []*xds.Response
	pending []xds.Names // touched and not yet told to the session
	behind  bool        // the view has moved on
	mute    bool        // the client says nothing any more, or not yet
	forever bool        // it never will
	release bool        // the session lets go of its view when idle
	refused map[string]bool
	limit   int
	rejoins bool // it is not the first stream, and not all was told and answered yet
}

var epoch = time.Unix(1_700_000_000, 0)

func (w *world) logf(format string, args ...any) {
	*w.story = append(*w.story, fmt.Sprintf(format, args...))
}

// A broken is the panic with which a judgement ends a world.
type broken struct{ error }

func (w *world) fail(format string, args ...any) { panic(broken{fmt.Errorf(format, args...)}) }

func (n *lane) fail(err error) { n.world.fail("client %d: %w", n.id, err) }

// newWorld makes a world and connects its clients.
func newWorld(open Open, cfg Config, hints bool, story *[]string) *world {
	w := &world{cfg: cfg, open: open, hints: hints, now: epoch, story: story,
		plan: newDice(cfg.Seed, 0), chance: newDice(cfg.Seed, 1+uint64(cfg.Variant))}
	w.noise = newDice(cfg.Seed, 3)
	if cfg.Choices != nil {
		d := &bytesDice{slices.Clone(cfg.Choices)}
		w.plan, w.chance = d, d
	}
	who := cfg.Client
	if who == "" {
		who = []string{"generic", "generic", "generic", "separate", "envoy", "envoy", "grpc", "wild"}[w.plan.IntN(8)]
	}
	whole := (cfg.Whole || w.plan.IntN(3) == 0) && who != "wild"
	w.content = newContent(w.plan, whole)
	w.eager, w.timed = w.plan.IntN(4) > 0, w.plan.IntN(3) > 0
	clients := 1
	if who != "separate" && w.plan.IntN(4) == 0 {
		clients = 2
	}
	release := w.plan.IntN(4) == 0
	limit := 0
	if w.plan.IntN(4) == 0 {
		limit = 300 // two resources fill a message
	}
	if w.story != nil {
		w.logf("a world of %s clients (%s), whole=%v eager=%v timed=%v release=%v limit=%d", who, cfg.Variant, whole, w.eager, w.timed, release, limit)
	}
	add := func(c client, only *xds.Type) {
		n := &lane{world: w, id: len(w.lanes), client: c, only: only, release: release, limit: limit, refused: map[string]bool{}}
		w.lanes = append(w.lanes, n)
		n.connect()
	}
	if who == "separate" {
		for _, k := range kinds[:5] {
			add(newGeneric(w, []kind{k}), k.typ())
		}
	}
	for range clients {
		switch who {
		case "generic":
			add(newGeneric(w, kinds), nil)
		case "envoy":
			add(newEnvoy(w), nil)
		case "grpc":
			if cfg.Variant == xds.Delta {
				add(newGeneric(w, kinds), nil)
			} else {
				add(newGRPC(w), nil)
			}
		case "wild":
			if k := kinds[w.plan.IntN(len(kinds)-1)]; w.plan.IntN(4) == 0 {
				add(newWild(w, []kind{k}), k.typ())
			} else {
				add(newWild(w, kinds), nil)
			}
		}
		who = []string{who, "generic"}[w.plan.IntN(2)]
	}
	return w
}

func (n *lane) connect() {
	n.rejoins = n.session != nil
	n.up, n.down, n.pending, n.behind = nil, nil, nil, false
	refused := map[string]bool{}
	for url := range n.refused {
		refused[url] = true
	}
	before := func(t *xds.Type) bool { return refused[t.URL] }
	n.session = n.open(n.cfg.Variant, n.only, n.content.view, protocol.Options{Refused: before, MaxResponse: n.limit})
	n.ledger = newLedger(n.cfg.Variant, n.only, "", n.content.view, n.now, before)
	n.session.Advance(n.now)
	n.client.connected()
	if n.story != nil {
		n.logf("%d connects", n.id)
	}
}

// step lets something happen.
func (w *world) step() {
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
		if w.story != nil {
			w.logf("%d mute=%v for ever=%v", n.id, n.mute, n.forever)
		}
	case k < 8:
		if w.timed {
			w.pass(w.duration())
		}
	case k < 20:
		if w.ops > 0 {
			w.op()
		}
	case k < 32:
		n.tell()
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

// op does the next thing of the plan: a commit or a client's whim.
func (w *world) op() {
	w.ops--
	if w.plan.IntN(5) < 3 {
		w.commit(w.content.commit())
		return
	}
	n := w.lanes[w.plan.IntN(len(w.lanes))]
	if what := n.client.act(); what != "" && w.story != nil {
		w.logf("%d %s", n.id, what)
	}
}

func (w *world) commit(touched xds.Names) {
	if w.story != nil {
		w.logf("commit %s", w.describe(touched))
	}
	for _, n := range w.lanes {
		n.behind = true
		n.pending = append(n.pending, touched)
	}
}

func (w *world) describe(touched xds.Names) string {
	var b strings.Builder
	for _, k := range kinds {
		for _, name := range touched[k.url] {
			if r := w.content.view.Table(k.typ()).Lookup(name); r != nil {
				fmt.Fprintf(&b, " %s %s", k.typ(), show(r))
			} else {
				fmt.Fprintf(&b, " %s -%s", k.typ(), name)
			}
		}
	}
	return b.String()
}

func (w *world) duration() time.Duration {
	return []time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second, 3 * time.Second, 5 * time.Second, 15 * time.Second, 21 * time.Second}[w.chance.IntN(7)]
}

// pass lets time pass for everybody, and wakes each session at its deadlines.
func (w *world) pass(d time.Duration) {
	until := w.now.Add(d)
	for range 1000 {
		next := until
		for _, n := range w.lanes {
			if at := n.session.Deadline(); !at.IsZero() && at.Before(next) {
				next = at
			}
		}
		w.now = next
		if w.story != nil {
			w.logf("it is %v", w.now.Sub(epoch))
		}
		for _, n := range w.lanes {
			n.client.advance(w.now)
			n.ledger.advance(w.now)
			at := n.session.Deadline()
			n.session.Advance(w.now)
			if w.eager || w.calm || !at.IsZero() && !at.After(w.now) {
				n.respond()
			}
		}
		if !w.now.Before(until) {
			return
		}
	}
	w.fail("deadlines follow each other for ever")
}

// tell tells the session of a new view.
func (n *lane) tell() {
	if !n.behind && !n.release {
		return
	}
	n.ledger.change(n.content.view)
	n.session.Advance(n.now)
	var touched []xds.Names
	if n.hints {
		touched = n.hint()
	}
	n.session.Change(n.content.view, touched)
	if n.story != nil && n.behind {
		n.logf("%d sees the view", n.id)
	}
	n.pending, n.behind = nil, false
	if n.eager {
		n.respond()
	}
}

// hint is what may have changed, in one step or several, and at times more.
func (n *lane) hint() []xds.Names {
	touched := slices.Clone(n.pending)
	if touched == nil {
		touched = []xds.Names{}
	}
	if n.noise.IntN(4) == 0 {
		k := kinds[n.noise.IntN(len(kinds))]
		touched = append(touched, xds.Names{k.url: {k.names[n.noise.IntN(len(k.names))]}})
	}
	return touched
}

// wake gives a session that let go of its view the newest, as it must have
// before any other input.
func (n *lane) wake() {
	n.session.Advance(n.now)
	if !n.release {
		return
	}
	eager := n.eager
	n.world.eager = false
	n.tell()
	n.world.eager = eager
}

// request lets the client say what it has to say.
func (n *lane) request() (progress bool) {
	if n.mute {
		return false
	}
	for _, r := range n.client.requests() {
		if n.story != nil {
			n.logf("%d > %s", n.id, describeRequest(r))
		}
		n.up, progress = append(n.up, r), true
	}
	return progress
}

func describeRequest(r xds.Request) string {
	var b strings.Builder
	if r.Type != nil {
		b.WriteString(r.Type.Short)
	}
	if r.Nonce != "" {
		fmt.Fprintf(&b, " nonce=%s", r.Nonce)
	}
	if r.Version != "" {
		fmt.Fprintf(&b, " version=%s", r.Version)
	}
	if r.Names != nil {
		fmt.Fprintf(&b, " names=%q", r.Names)
	}
	if r.Subscribe != nil {
		fmt.Fprintf(&b, " sub=%q", r.Subscribe)
	}
	if r.Unsubscribe != nil {
		fmt.Fprintf(&b, " unsub=%q", r.Unsubscribe)
	}
	if r.Initial != nil {
		fmt.Fprintf(&b, " init=%v", r.Initial)
	}
	if r.Error != nil {
		fmt.Fprintf(&b, " NACK")
	}
	if r.Node != nil {
		fmt.Fprintf(&b, " +node %s", r.Node.UserAgentName)
	}
	return b.String()
}

// deliverUp gives the oldest request on its way to the session.
func (n *lane) deliverUp() bool {
	if len(n.up) == 0 {
		return false
	}
	req := n.up[0]
	n.up = n.up[1:]
	n.wake()
	if n.story != nil {
		n.logf("%d arrives: %s", n.id, describeRequest(req))
	}
	t := req.Type
	if t == nil {
		t = n.only
	}
	err := n.session.Receive(req)
	if t == nil || n.only != nil && !t.Is(n.only) {
		if err == nil {
			n.fail(errors.New("TYP-5: a request of no type, or of one that does not belong here, is accepted"))
		}
		n.connect()
		return true
	}
	if err != nil {
		n.fail(fmt.Errorf("receive: %w", err))
	}
	settled := protocol.Stale
	for e := range n.session.Events() {
		if (e.Kind == protocol.Acked || e.Kind == protocol.Nacked) && e.Nonce == req.Nonce && e.Type.Is(t) && e.Error == req.Error {
			settled = e.Kind
		}
	}
	n.heard(t, req, settled, n.ledger.receive(req, settled == protocol.Stale))
	if s, ok := n.session.(idler); ok {
		for i := range s.Interests() {
			n.ledger.interests(i)
		}
	}
	if n.eager {
		n.respond()
	}
	return true
}

// heard checks what the session made of a request that answers a response (nil:
// none), and remembers refusals beyond the stream.
func (n *lane) heard(t *xds.Type, req xds.Request, settled protocol.EventKind, answered *flight) {
	want := protocol.Acked
	switch {
	case answered == nil:
		want = protocol.Stale
	case req.Error != nil:
		want = protocol.Nacked
		n.refused[t.URL] = true
	case answered == n.ledger.account(t).newest:
		delete(n.refused, t.URL)
	}
	if settled != want {
		n.fail(fmt.Errorf("SOTW-3, SOTW-4: nonce %q is taken as %v, want %v", req.Nonce, settled, want))
	}
}

// respond lets the session say what it has to say, and judges it.
func (n *lane) respond() (progress bool) {
	n.wake()
	n.ledger.begun()
	sent := 0
	for r := range n.session.Responses() {
		if n.story != nil {
			n.logf("%d < %s", n.id, describeResponse(r))
		}
		if err := n.ledger.sent(r); err != nil {
			n.fail(err)
		}
		sent++
		n.sent = append(n.sent, r)
		n.down, progress = append(n.down, r), true
	}
	if left := n.ledger.waiting(); left != "" {
		n.fail(fmt.Errorf("should have left: %s", left))
	}
	if d := n.session.Deadline(); !d.IsZero() && !d.After(n.now) {
		n.fail(fmt.Errorf("the deadline %v is not in the future, after all responses have left", d.Sub(epoch)))
	}
	if s, ok := n.session.(idler); ok && n.release {
		s.Release()
	}
	for e := range n.session.Events() {
		if e.Kind == protocol.Sent {
			sent--
		}
	}
	if sent != 0 {
		n.fail(fmt.Errorf("%d responses without an event", sent))
	}
	return progress
}

func describeResponse(r *xds.Response) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s nonce=%s version=%s [", r.Type.Short, r.Nonce, r.Version)
	for i, x := range r.Upserts {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(show(x))
	}
	b.WriteString("]")
	if len(r.Removed) > 0 {
		fmt.Fprintf(&b, " removed=%q", r.Removed)
	}
	return b.String()
}

// deliverDown gives the oldest response on its way to the client.
func (n *lane) deliverDown() bool {
	if len(n.down) == 0 {
		return false
	}
	r := n.down[0]
	n.down = n.down[1:]
	if n.story != nil {
		n.logf("%d gets %s nonce=%s", n.id, r.Type, r.Nonce)
	}
	n.client.receive(r)
	// What changed between two streams is told type by type, in the order in
	// which the client opens them again.
	n.rejoins = n.rejoins && !n.ledger.even()
	if n.content.whole && !n.ledger.tardy && !n.rejoins {
		if what := n.client.broken(); what != "" {
			n.fail(fmt.Errorf("never breaks: %s", what))
		}
	}
	return true
}

// settle ends the chaos: everybody answers, and all must fall silent within a
// minute of the world's time.
func (w *world) settle() {
	w.calm = true
	for _, n := range w.lanes {
		n.mute = n.forever
		n.client.calm()
		n.tell()
		n.respond()
	}
	until := w.now.Add(time.Minute)
	for range 40 {
		w.quiet()
		w.cold()
		next := time.Time{}
		for _, n := range w.lanes {
			for _, d := range []time.Time{n.session.Deadline(), n.client.deadline()} {
				if !d.IsZero() && (next.IsZero() || d.Before(next)) {
					next = d
				}
			}
		}
		if next.IsZero() {
			w.rest()
			return
		}
		if next.After(until) {
			w.fail("not silent after a minute: something waits until %v", next.Sub(epoch))
		}
		w.pass(max(next.Sub(w.now), 0))
	}
	w.fail("never falls silent: deadlanes follow each other")
}

// cold checks that no cluster warms in vain.
func (w *world) cold() {
	for _, n := range w.lanes {
		if e, ok := n.client.(*envoy); ok && !n.forever {
			if what := e.cold(n.ledger); what != "" {
				n.fail(errors.New(what))
			}
		}
	}
}

// quiet lets everybody speak until nobody has anything to say.
func (w *world) quiet() {
	for range 400 {
		progress := false
		for _, n := range w.lanes {
			progress = n.request() || progress
			progress = n.deliverUp() || progress
			progress = n.respond() || progress
			progress = n.deliverDown() || progress
		}
		if !progress {
			return
		}
	}
	w.fail("never falls silent: messages follow each other")
}

// rest checks what must hold when all is silent.
func (w *world) rest() {
	w.pass(time.Minute)
	for _, n := range w.lanes {
		if len(n.down) > 0 {
			n.fail(fmt.Errorf("%s was sent by time alone, and no deadline told of it", describeResponse(n.down[0])))
		}
		_, idles := n.session.(idler)
		if err := n.ledger.settled(!n.forever, idles); err != nil {
			n.fail(err)
		}
		if !n.forever { // what it refused it did not say
			n.converged()
		}
		if err := n.client.idle(n.ledger); !n.forever && err != nil {
			n.fail(err)
		}
	}
}

// converged compares the client with the view.
func (n *lane) converged() {
	for _, a := range n.ledger.accounts {
		held := n.client.held(a.typ)
		if held == nil {
			continue
		}
		table := n.content.view.Table(a.typ)
		for _, name := range n.ledger.known(a) {
			is, has := table.Lookup(name), held[name]
			switch {
			case n.ledger.standing(a, name) || n.ledger.tiedToRefused(a, name) || is == nil && n.ledger.spurned(a):
			case !a.covers(name):
			case is == nil && n.cfg.Variant == xds.SotW && !a.world: // removal cannot be expressed
			case !same(is, has):
				n.fail(fmt.Errorf("%s: the client holds %v of %s, the view has %v", a.typ, textOf(has), name, textOf(is)))
			}
			delete(held, name)
		}
		for name, r := range held {
			if table.Lookup(name) == nil && (n.cfg.Variant == xds.Delta || a.world) && !n.ledger.standing(a, name) && !n.ledger.spurned(a) {
				n.fail(fmt.Errorf("%s: the client holds %s, which is gone", a.typ, show(r)))
			}
			if !a.covers(name) {
				n.fail(fmt.Errorf("%s: the client holds %s, which it did not subscribe to", a.typ, show(r)))
			}
		}
	}
}

func textOf(r *xds.Resource) string {
	if r == nil {
		return "nothing"
	}
	return show(r)
}

// run lives a whole world.
func (w *world) run() {
	steps := w.steps()
	w.ops = steps / 8
	for range steps {
		w.step()
	}
	for w.ops > 0 {
		w.op()
	}
	w.settle()
	refused := map[string][]string{}
	for _, n := range w.lanes {
		for url, names := range n.ledger.outstanding() {
			for _, name := range names {
				if !slices.Contains(refused[url], name) {
					refused[url] = append(refused[url], name)
				}
			}
		}
	}
	if len(refused) == 0 {
		return
	}
	// Whatever was refused is mended: now everybody must have everything.
	for url := range refused {
		slices.Sort(refused[url])
	}
	w.commit(w.content.freshen(refused))
	w.settle()
	for _, n := range w.lanes {
		if left := n.ledger.outstanding(); len(left) > 0 {
			n.fail(fmt.Errorf("still held back after all of it changed: %v", left))
		}
	}
}

func (w *world) steps() int {
	if w.cfg.Choices != nil {
		return len(w.cfg.Choices)
	}
	return 20 + w.plan.IntN(20)*w.plan.IntN(20)
}
