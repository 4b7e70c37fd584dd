package protocoltest

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/protocol/internal/delay"
	"github.com/chancery-xds/chancery/xds"
)

// The time limits are those of the session.
var (
	// answerTimeout is how long an unanswered response holds back newer states of its type.
	answerTimeout = delay.Behind.Limit(0)

	// silentAfter is how long a type waits for the answer of another type.
	silentAfter = delay.Unanswered.Limit(0)

	// opensWithin is how long a resuming client may take to subscribe to clusters.
	opensWithin = delay.UnopenedClusters.Limit(0)
)

// maxTracked is how many responses a session tracks although nothing waits for their answers.
const maxTracked = 4

// A ledger records what one stream subscribed to, was sent and answered. It knows what the client should have by
// the view. It does not compute what a session must send in each situation: it checks only rules that have no
// exception in the recorded situation. So a rule may be checked less often than it holds.
type ledger struct {
	variant  xds.Variant
	only     *xds.Type
	opts     protocol.Options
	view     xds.View
	now      time.Time
	accounts []*account // by rank
	nonces   map[string]bool
	full     map[string][]*xds.Resource // the full-state responses of all streams, by type and version
	batch    int                        // number of batches of responses
	rank     int                        // the last rank of a response with news in this batch
	removing bool                       // this batch has a response with removals alone

	met   bool // the client has sent its node
	agent string
	ttl   bool // the client gets TTLs

	began   time.Time          // time of the first request
	resumes bool               // the client holds resources from an earlier stream
	warmed  map[[2]string]bool // by type URL and name: a cluster was sent that needs it
	blind   bool               // the client stated an unknown version: the session cannot know what it holds
	tardy   bool               // a client was silent for 15 s, so the order of types has ended
}

// An account is the ledger of one type. "Name" means a subscribed name or the name of a resource.
type account struct {
	typ   *xds.Type
	table *xds.Table // of the view
	full  bool       // SotW, full state: each response has all resources
	subscriptions

	lastSent map[string]fact
	acked    map[string]fact // the newest state that the client accepted on this stream
	refused  map[string]fact // in a refused response, and in no accepted one since
	dropped  map[string]fact // was in flight when the client unsubscribed: a client that subscribes again may hold it
	known    map[string]bool // was subscribed, sent or stated on this stream
	missing  map[string]bool // reported in resource_errors
	due      map[string]time.Time
	asked    map[string]time.Time // the last subscription
	lost     map[string]time.Time // the view was first seen without it
	ttlBegan map[string]time.Time

	flights  []*flight // unanswered, oldest first
	newest   *flight   // the last response, answered or not
	answered int       // seq of the newest answered response
	accepted int       // seq of the newest ACKed response
	moved    int       // the batch before which the table or the subscriptions last changed
	stated   string    // SotW: the version in the first request
	answer   bool      // an answer may be sent without news
	more     bool      // something was subscribed since the last response

	opened  time.Time // time of the first request
	settled time.Time // time of the first batch after the last answer, or of the last response
	unheard bool      // an answer came, and no batch since

	interest     map[string]bool // as the session states it
	interestStar bool
}

// A fact is what the client was sent about a name: a resource, its removal, or a version that the client stated.
type fact struct {
	res     *xds.Resource
	version string
	seq     int
	again   bool // it may be sent again, changed or not
	found   bool // no resource has the name, and it matches another one
	news    bool // it was another state than the one before
}

func (f fact) absent() bool { return f.res == nil && f.version == "" }

// is reports whether the fact equals r; a nil r means that the resource does not exist.
func (f fact) is(r *xds.Resource) bool {
	switch {
	case r == nil:
		return f.absent()
	case f.res != nil:
		return f.res.Sum == r.Sum
	}
	return f.version == r.Version
}

// A flight is a response that may still be answered.
type flight struct {
	nonce     string
	at        time.Time
	batch     int
	seq       int
	carried   map[string]fact
	beats     []string
	onlyBeats bool
	cold      bool // one of its clusters has no assignment, so that the ACK may never come
	excused   bool // the client subscribes to nothing any more
}

func newLedger(v xds.Variant, only *xds.Type, view xds.View, now time.Time, opts protocol.Options, full map[string][]*xds.Resource) *ledger {
	switch {
	case opts.Grace == 0:
		opts.Grace = 5 * time.Second
	case opts.Grace < 0:
		opts.Grace = 0
	}
	return &ledger{variant: v, only: only, opts: opts, view: view, now: now, full: full, nonces: map[string]bool{}, warmed: map[[2]string]bool{}, ttl: v == xds.Delta && opts.ForceTTL}
}

func (l *ledger) account(t *xds.Type) *account {
	for _, a := range l.accounts {
		if a.typ.Is(t) {
			return a
		}
	}
	return nil
}

func (l *ledger) open(t *xds.Type) *account {
	a := &account{typ: t, table: l.view.Table(t), opened: l.now, unheard: true, full: l.variant == xds.SotW && t.FullState, subscriptions: newSubscriptions(l.variant),
		lastSent: map[string]fact{}, acked: map[string]fact{}, refused: map[string]fact{}, dropped: map[string]fact{}, known: map[string]bool{}, missing: map[string]bool{},
		due: map[string]time.Time{}, asked: map[string]time.Time{}, lost: map[string]time.Time{}, ttlBegan: map[string]time.Time{}, interest: map[string]bool{}}
	l.accounts = append(l.accounts, a)
	slices.SortStableFunc(l.accounts, func(a, b *account) int { return cmp.Compare(a.typ.Rank(), b.typ.Rank()) })
	return a
}

// advance sets the time.
func (l *ledger) advance(now time.Time) {
	l.now = now
	for _, a := range l.accounts {
		l.tardy = l.tardy || l.silent(a)
	}
	l.tardy = l.tardy || l.opensLate()
}

// sentOrAcked yields the last states that were sent, and the last states that were accepted.
func (a *account) sentOrAcked(yield func(string, fact) bool) {
	for _, facts := range []map[string]fact{a.lastSent, a.acked} {
		for n, k := range facts {
			if !yield(n, k) {
				return
			}
		}
	}
}

// waitsTooLong reports whether a response has not been answered for 15 s, answered later ones included.
func (l *ledger) waitsTooLong(a *account) bool {
	return slices.ContainsFunc(a.flights, func(f *flight) bool { return l.now.Sub(f.at) >= silentAfter })
}

// silent reports whether a response has not been answered for 15 s.
func (l *ledger) silent(a *account) bool {
	return slices.ContainsFunc(a.flights, func(f *flight) bool { return f.seq >= a.answered && !f.excused && l.now.Sub(f.at) >= silentAfter })
}

// opensLate reports whether a client that resumes has opened a type too late: the order of types ignores it.
func (l *ledger) opensLate() bool {
	after := l.now.Sub(l.began)
	return l.resumes && (after >= l.opts.Grace && (l.account(xds.Listener) == nil || l.account(xds.Route) == nil) || after >= opensWithin && l.account(xds.Cluster) == nil)
}

// beginBatch notes that the session is asked for its responses.
func (l *ledger) beginBatch() {
	l.batch++
	l.rank, l.removing = 0, false
	for _, a := range l.accounts {
		if a.unheard {
			a.settled, a.unheard = l.now, false
		}
	}
}

// change sets the next view of the session.
func (l *ledger) change(view xds.View) {
	l.view = view
	for _, a := range l.accounts {
		was := a.table
		a.table = view.Table(a.typ)
		l.rematch(a)
		_, withholds := view.(xds.Withholding)
		if a.table == was && !withholds {
			continue
		}
		a.moved = l.batch + 1
		maps.DeleteFunc(a.lost, func(n string, _ time.Time) bool { return l.shown(a, n) != nil })
		for n, k := range a.lastSent {
			_, refused := a.refused[n]
			lost := !l.removes(a) && l.shown(a, n) == nil
			a.repeat(n, refused || lost || k.absent() && len(l.matchedBy(a, n)) > 0)
		}
	}
}

// repeat allows a name to be sent again.
func (a *account) repeat(n string, allowed bool) {
	if k, told := a.lastSent[n]; told && allowed {
		k.again = true
		a.lastSent[n] = k
	}
}

// repeatAll allows everything that was sent to be sent again.
func (a *account) repeatAll() {
	for n := range a.lastSent {
		a.repeat(n, true)
	}
}

// receive records a request and returns the response that it answers, or nil. The names of a request apply before
// its ACK. Set stale if the session does not know the response.
func (l *ledger) receive(req xds.Request, stale bool) *flight {
	t := cmp.Or(req.Type, l.only)
	if l.began.IsZero() {
		l.began = l.now
	}
	a := l.account(t)
	first := a == nil
	if first {
		a = l.open(t)
	}
	if req.Node != nil && !l.met {
		l.recordNode(req.Node)
	}
	if l.variant == xds.SotW {
		l.replaceNames(a, req.Names)
	} else {
		l.subscribe(a, req.Subscribe)
		l.unsubscribe(a, req.Unsubscribe)
	}
	var answered *flight
	if first {
		l.firstRequest(a, req)
	} else {
		answered = l.settle(a, req, stale)
	}
	for _, b := range l.accounts {
		l.updateScopes(b)
	}
	return answered
}

// recordNode records the node of the client.
func (l *ledger) recordNode(n *xds.Node) {
	l.met, l.agent = true, n.UserAgentName
	has := func(f string) bool { return slices.Contains(n.ClientFeatures, f) }
	l.ttl = has("xds.config.supports-resource-ttl")
	if l.variant == xds.Delta {
		l.ttl = l.ttl || l.opts.ForceTTL
	} else {
		l.ttl = l.ttl && (has("xds.config.supports-resource-in-sotw") || has("xds.config.resource-in-sotw"))
	}
}

// firstRequest records the first request of a type.
func (l *ledger) firstRequest(a *account, req xds.Request) {
	if a.implicit && a.typ.Implicit && len(req.Unsubscribe) == 0 {
		a.wildcard = true
	}
	a.implicit = a.implicit && a.wildcard
	a.answer, a.stated = true, req.Version
	l.resumes = l.resumes || req.Version != "" || len(req.Initial) > 0
	l.tardy = l.tardy || l.opensLate() // the client may have been silent before, and shows only now that it resumes
	if a.full && req.Version != "" {
		l.resumeVersion(a, req.Version)
	}
	warming := slices.ContainsFunc(l.accounts, func(b *account) bool { return a.typ.Is(b.typ.Warms) && len(b.flights) > 0 })
	if l.variant == xds.SotW {
		return
	}
	for _, v := range req.Initial {
		l.resumeName(a, v, warming)
	}
}

// resumeName records a resource that a delta client states.
func (l *ledger) resumeName(a *account, v xds.Version, warming bool) {
	k := fact{version: v.Version, again: warming}
	if r := l.shown(a, v.Name); !k.is(r) {
		k.again = true
	} else if a.names[v.Name] || a.wildcard { // else a name that matches it was subscribed: it is sent
		k.res = r
	}
	a.lastSent[v.Name], a.acked[v.Name], a.known[v.Name] = k, k, true
}

// resumeVersion records the resources that a SotW client states by the version of a full-state response.
func (l *ledger) resumeVersion(a *account, version string) {
	all := l.full[a.typ.URL+version]
	for _, t := range append(l.opts.Recent(a.typ), a.table) {
		if t.Hashed() && t.Version() == version {
			all = slices.Collect(t.All())
		}
	}
	l.blind = l.blind || all == nil
	for _, r := range all {
		if a.names[r.Name] || a.coversAll() && !r.OnDemand {
			k := fact{res: r, again: true}
			a.lastSent[r.Name], a.acked[r.Name], a.known[r.Name] = k, k, true
		}
	}
}

// settle records an answer and returns the response that it answers.
func (l *ledger) settle(a *account, req xds.Request, stale bool) *flight {
	i := slices.IndexFunc(a.flights, func(f *flight) bool { return f.nonce == req.Nonce })
	if i < 0 {
		if req.Error != nil && l.nonces[req.Nonce] {
			a.repeatAll() // a nonce of another type, or of an answered response, may refuse an earlier response
		}
		return nil
	}
	f := a.flights[i]
	switch {
	case req.Error != nil && stale && l.mayForget(a, f):
		a.repeatAll()
	case req.Error != nil:
		l.refuse(a, f)
	default:
		l.acceptUpTo(a, i)
	}
	a.answered, a.unheard = max(a.answered, f.seq), true
	a.flights = slices.Delete(a.flights, i, i+1)
	return f
}

// acceptUpTo records that the client accepted a response, and has processed the earlier ones.
func (l *ledger) acceptUpTo(a *account, i int) {
	for _, f := range a.flights[:i] {
		a.accept(f, l.variant == xds.SotW)
	}
	a.accept(a.flights[i], true)
	a.accepted = max(a.accepted, a.flights[i].seq)
}

// refuse records that the client refused a response. What it refused together with a name that changed, that the view
// withholds, or that is only kept, may be sent again.
func (l *ledger) refuse(a *account, f *flight) {
	moved := f != a.newest || a.moved >= f.batch
	for n, k := range f.carried {
		moved = moved || l.withholds(a, n) || k.res != nil && l.shown(a, n) == nil
	}
	for n, k := range f.carried {
		a.repeat(n, moved)
		if a.acked[n].seq <= k.seq {
			a.refused[n] = k
		}
	}
	for _, n := range f.beats {
		a.repeat(n, moved)
		a.refused[n] = a.lastSent[n] // as if the heartbeat were the resource
	}
}

// accept records that the client has the content of a response. Set whole if that ends earlier refusals.
func (a *account) accept(f *flight, whole bool) {
	for n, k := range f.carried {
		if a.acked[n].seq <= k.seq {
			a.acked[n] = k
		}
		if whole && a.refused[n].seq <= k.seq {
			delete(a.refused, n)
		}
	}
	for _, n := range f.beats {
		if whole {
			delete(a.refused, n)
		}
	}
}

// mayForget reports whether the session may have forgotten a response because nothing waits for its answer.
func (l *ledger) mayForget(a *account, f *flight) bool {
	return f != nil && f != a.newest && (f.seq < a.accepted && len(l.nonces)-f.seq >= maxTracked || f.onlyBeats)
}

// waitsForAnswer reports whether a response before this batch is unanswered, and holds back newer states.
func (l *ledger) waitsForAnswer(a *account) bool {
	return slices.ContainsFunc(a.flights, func(f *flight) bool { return f.batch != l.batch && l.now.Sub(f.at) < answerTimeout })
}

// recordInterest records the interests that the session states.
func (l *ledger) recordInterest(i protocol.Interest) {
	a := l.account(i.Type)
	a.interestStar = i.Wildcard
	for _, n := range i.Added {
		a.interest[n] = true
	}
	delete(a.interest, "") // no resource has the empty name, but a client that subscribes to it may get its removal
	for _, n := range i.Removed {
		delete(a.interest, n)
	}
}

// resend records that an operator has the session send resources again.
func (l *ledger) resend(t *xds.Type, name string) {
	a := l.account(t)
	if a == nil {
		return
	}
	if _, refused := a.refused[name]; name == "" || refused {
		a.repeatAll() // together with the rest of a refused response
	}
	a.repeat(name, true)
}

func same(a, b *xds.Resource) bool { return a == b || a != nil && b != nil && a.Sum == b.Sum }
