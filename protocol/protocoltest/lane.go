package protocoltest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// A lane is a client with its sessions: one stream after the other.
type lane struct {
	*world
	id       int
	only     *xds.Type
	client   client
	session  *twins
	ledger   *ledger
	up       []xds.Request
	down     []*xds.Response
	pending  []xds.Names // touched names that the session was not given yet
	behind   bool        // the session does not have the newest view
	mute     bool        // the client sends nothing now
	forever  bool        // the client will never send again
	release  bool        // the session releases its view when idle
	refused  map[string]bool
	full     map[string][]*xds.Resource // SotW: the full-state responses of all streams, by type and version
	limit    int
	sloppy   bool // delta: answers get lost if a later one follows, or change places
	quiet    bool // the client holds clusters from an earlier stream, and need not state them
	unjudged bool // "never breaks" is not judged until everything is settled
	spread   uint64
	still    time.Time // when the session last had nothing to send; zero after an input
	checked  time.Time // time at which the session was last checked, after its last input
	told     [2]Memory // the responses to the client on all streams: of the session with hints, and of the session without hints

	unaccepted map[string]bool     // clusters that were sent to the client and not accepted
	crossed    map[string]bool     // clusters that the client subscribed to after a full-state response without them was sent
	clocks     map[[2]string]clock // resources with a TTL at the client, by type and name
	drops      int
	drains     int
	expired    map[[2]string]bool  // resources that the client dropped; true: the server cannot know that
	late       []xds.Request       // answers that the client holds back
	names      map[string][]string // SotW: names of the last request of this stream, by type
}

func (n *lane) connect() {
	n.unjudged = n.unjudged || n.ledger != nil && n.ledger.tardy
	n.up, n.down, n.pending, n.behind, n.late, n.names, n.still = nil, nil, nil, false, nil, map[string][]string{}, time.Time{}
	refused := map[string]bool{}
	for url := range n.refused {
		refused[url] = true
	}
	opts := n.terms
	opts.Refused = func(t *xds.Type) bool { return refused[t.URL] }
	opts.Recent = func(t *xds.Type) []*xds.Table { return n.content.recent[t.URL] }
	opts.MaxResponse, opts.Spread = n.limit, n.spread
	n.session = newTwins(func(told *Memory) Session {
		opts := opts
		opts.Told = told.World
		return n.open(n.cfg.Variant, n.only, n.content.seen(), opts)
	}, &n.told[0], &n.told[1])
	n.ledger = newLedger(n.cfg.Variant, n.only, n.content.seen(), n.now, opts, n.full)
	n.checked = time.Time{}
	n.advance()
	n.quiet = len(n.client.held(xds.Cluster)) > 0
	n.client.connected()
	n.logf("%d connects", n.id)
}

// giveView gives the session the new view.
func (n *lane) giveView() {
	if !n.behind && !n.release {
		return
	}
	n.ledger.change(n.content.seen())
	n.still = time.Time{}
	n.advance()
	n.session.Change(n.content.seen(), n.hint())
	if n.behind {
		n.logf("%d gets the view", n.id)
	}
	n.pending, n.behind = nil, false
	n.check()
	n.noteInterests()
	if n.eager {
		n.respond()
	}
}

// hint returns the names that may have changed, in one step or several, and sometimes more.
func (n *lane) hint() []xds.Names {
	touched := slices.Clone(n.pending)
	if touched == nil {
		touched = []xds.Names{}
	}
	if n.noise.IntN(4) == 0 {
		k := n.content.kinds[n.noise.IntN(len(n.content.kinds))]
		touched = append(touched, xds.Names{k.url: {k.names[n.noise.IntN(len(k.names))]}})
	}
	return touched
}

// wake gives a session that released its view the newest view, which it needs before any other input.
func (n *lane) wake() {
	n.advance()
	if !n.release {
		return
	}
	eager := n.eager
	n.world.eager = false
	n.giveView()
	n.world.eager = eager
}

// advance gives the session the time. After that its invariants are checked.
func (n *lane) advance() {
	n.session.Advance(n.now)
	if !n.checked.Equal(n.now) {
		n.check()
	}
}

// check asks a session that supports it to check its own invariants.
func (n *lane) check() {
	n.checked = n.now
	if err := n.session.Check(); err != nil {
		n.fail(fmt.Errorf("invariant: %w", err))
	}
}

// request lets the client send its requests.
func (n *lane) request() (progress bool) {
	if n.mute {
		return false
	}
	requests := n.disturbAnswers(n.client.requests())
	for _, r := range requests {
		n.logf("%d > %s", n.id, requestText(r))
		n.up, progress = append(n.up, r), true
	}
	return progress
}

// deliverUp delivers the oldest request in flight to the session.
func (n *lane) deliverUp() bool {
	if len(n.up) == 0 {
		return false
	}
	req := n.up[0]
	n.up = n.up[1:]
	n.wake()
	n.logf("%d arrives: %s", n.id, requestText(req))
	t := n.typeOf(req)
	n.still = time.Time{}
	err := n.session.Receive(req)
	if t == nil || n.only != nil && !t.Is(n.only) {
		if err == nil {
			n.fail(errors.New("TYP-5: a request without a type, or with a type that the stream does not carry, is accepted"))
		}
		n.connect()
		return true
	}
	if err != nil {
		n.fail(fmt.Errorf("receive: %w", err))
	}
	n.check()
	settled := n.classified(t, req)
	n.checkAnswer(t, req, settled, n.ledger.receive(req, settled == protocol.Stale))
	n.noteInterests()
	if n.eager {
		n.respond()
	}
	return true
}

// classified returns how the session classifies a request: as an ACK, as a NACK or as stale.
func (n *lane) classified(t *xds.Type, req xds.Request) protocol.EventKind {
	settled := protocol.Stale
	for e := range n.session.Events() {
		if (e.Kind == protocol.Acked || e.Kind == protocol.Nacked) && e.Nonce == req.Nonce && e.Type.Is(t) && e.Error == req.Error {
			settled = e.Kind
		}
	}
	return settled
}

// noteInterests records the interests of the session.
func (n *lane) noteInterests() {
	for i := range n.session.Interests() {
		n.ledger.recordInterest(i)
	}
}

// checkAnswer checks how the session classified a request: as an ACK or NACK of answered, or as stale if answered is
// nil. It remembers refusals beyond the stream.
func (n *lane) checkAnswer(t *xds.Type, req xds.Request, settled protocol.EventKind, answered *flight) {
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
	if settled != want && (settled != protocol.Stale || !n.ledger.mayForget(n.ledger.account(t), answered)) {
		n.fail(fmt.Errorf("SOTW-3, SOTW-4: nonce %q counts as %v, want %v", req.Nonce, settled, want))
	}
}

// respond lets the session send its responses, and judges them. A session without responses is asked again
// after its next input or when time has passed.
func (n *lane) respond() (progress bool) {
	if n.still.Equal(n.now) {
		return false
	}
	n.wake()
	n.noteInterests()
	n.ledger.beginBatch()
	sent := 0
	for r := range n.session.Responses() {
		n.logf("%d < %s", n.id, (*responseText)(r))
		if err := n.ledger.judgeResponse(r); err != nil {
			n.fail(err)
		}
		sent++
		n.sent = append(n.sent, r)
		n.down, progress = append(n.down, r), true
	}
	n.checkDrained()
	if n.release {
		n.session.Release()
	}
	var events []protocol.Event
	for e := range n.session.Events() {
		events = append(events, e)
		if e.Kind != protocol.Sent {
			n.logf("%d ! %s %s %s", n.id, e.Kind, e.Type, e.Name)
		}
	}
	if err := n.judge(events, n.sent[len(n.sent)-sent:]); err != nil {
		n.fail(err)
	}
	n.check()
	if !progress {
		n.still = n.now
	}
	return progress
}

// checkDrained checks the session when it has sent everything.
func (n *lane) checkDrained() {
	if err := n.session.Err(); err != nil {
		n.fail(fmt.Errorf("the session ends the stream: %w", err))
	}
	if left := n.ledger.overdue(); left != "" {
		n.fail(fmt.Errorf("the session should have sent: %s", left))
	}
	if d := n.session.Deadline(); !d.IsZero() && !d.After(n.now) {
		n.fail(fmt.Errorf("the deadline %v is not in the future although all responses were sent", d.Sub(epoch)))
	}
	if err := n.states(); err != nil {
		n.fail(fmt.Errorf("states: %w", err))
	}
}

// deliverDown delivers the oldest response in flight to the client.
func (n *lane) deliverDown() bool {
	if len(n.down) == 0 {
		return false
	}
	r := n.down[0]
	n.down = n.down[1:]
	n.logf("%d gets %s nonce=%s", n.id, r.Type, r.Nonce)
	n.client.receive(r)
	n.noteUnaccepted(r)
	lapsed := len(n.expired) > 0 // an expired resource that is sent again must warm first
	n.restartTTLs(r)
	n.judgeUnbroken(lapsed)
	return true
}
