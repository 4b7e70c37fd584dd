package protocoltest

import (
	"cmp"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

const (
	// answerTimeout is how long an unanswered response holds back newer states of its type.
	answerTimeout = 5 * time.Second

	// silentAfter is how long a type waits for the answer of another type.
	silentAfter = 15 * time.Second

	// maxTracked is how many unanswered responses are tracked: an answer to one of them settles exactly that one.
	maxTracked = 4
)

// A ledger is the second opinion on one stream. It sees the requests and responses of the session,
// and records which names were sent, must be sent and may be sent. A ledger may be slow, and shares
// no code with the implementation.
type ledger struct {
	*trial
	variant xds.Variant
	only    *xds.Type
	opts    protocol.Options           // the options of the session
	worlds  map[string][]*xds.Resource // the content of each version of a full-state type when it was sent
	sends   map[string][]sending       // SotW: the responses of all streams, by type
	past    past                       // resources that the client holds from earlier streams
	view    xds.View
	now     time.Time

	met   bool // the client has sent its node
	agent string
	ttl   bool // the client gets TTLs

	accounts []*account // by rank
	nonces   map[string]int
	// warm has the names that may be sent again because a response carried a resource that they warm, by type
	// and name.
	warm map[[2]string]bool

	changes     int // number of views
	batch       int // number of batches of responses
	removalRank int // rank of the newest response of this batch that only removes
	rank        int // rank of the newest response of this batch with news

	sending *xds.Type // type of the newest response of this batch, if it carries resources, or is a part of a response that does

	began   time.Time // time of the first request
	resumes bool      // the client holds resources from an earlier stream
	blind   bool      // it is unknown which referred resources the client holds, so it may lose some of them
	tardy   bool      // a client was silent for 15 s, so the order of types is not judged
}

// An account is the ledger of one type. "Name" in its comments is a subscribed name or the name of a resource.
type account struct {
	*trial
	typ      *xds.Type
	table    *xds.Table      // of the view
	born     int             // number of views before the type was opened
	names    map[string]bool // subscribed names, without "*"
	wildcard bool
	implicit bool // the client has never subscribed to a name

	byAlias      bool            // names also match by alias and collection: delta only
	matched      map[string]bool // resources that the names match, delta only
	matchedSince map[string]bool // names that matched a resource since the last response about them, or since they were subscribed
	scopes       map[string]bool // the collections that the wildcard covers; nil: all

	lastSent        map[string]fact
	acked           map[string]fact
	refused         map[string][]fact    // refused; the client has accepted none of them since
	doubted         map[string][]fact    // refused, but the client has since accepted, or seems to have accepted, a response that may no longer be tracked
	mustSend        map[string]bool      // must be sent, whatever the client holds
	maySend         map[string]bool      // may be sent, whatever the client holds
	firstSubscribed map[string]time.Time // when it was first subscribed
	lastSubscribed  map[string]time.Time // when it was last subscribed
	waitsSince      map[string]time.Time // since when it waits for clusters
	heard           map[string]bool      // was sent, or stated as held
	heldBefore      map[string]bool      // SotW: the client may hold something from an earlier stream
	unsure          map[string]bool      // SotW: the same, because it refused a response that a later ACK seemed to cover
	unheard         map[string]bool      // SotW: the same, because the response that it accepted since may no longer be tracked
	stray           map[string]fact      // stated and not subscribed; absent: the client need not hold it
	reportedMissing map[string]bool      // reported missing in resource_errors
	follows         map[string]following // must be removed in this batch, because an alias of the resource was removed

	opened          time.Time            // time of the first request
	drained         time.Time            // when the session was first asked for responses about it
	unansweredSince time.Time            // since when a response is unanswered
	repeated        time.Time            // when the client last repeated a request: this does not count as an answer
	processedAt     time.Time            // when the last response or answer was processed
	unsettled       bool                 // a response was sent or answered since then
	ttlBegan        map[string]time.Time // when its TTL began

	version string // last sent, or stated and current
	stated  string // SotW: stated by the first request
	resumed bool   // SotW, not full state: the first request was for "*" and stated a version
	opaque  bool   // SotW: the first request did not show what the client holds
	vague   bool   // SotW: the client holds a state that the session need not know

	answer         bool // an answer is due, even an empty one
	mayAnswerEmpty bool // the answer may be empty
	subscribedMore bool // something was subscribed since the last response

	flights  []*flight // unanswered, oldest first
	newest   *flight   // the last one, answered or not
	answered int       // seq of the newest answered response
	accepted int       // seq of the newest ACKed response
	passed   int       // seq of the newest response that was ACKed with all its parts while it was tracked
	groups   []*group
	nacked   bool // the client refused a response (NACK) and has accepted none since

	removed map[string]removal // removed from the view, and may still be kept for the client
	world   bool               // SotW, full state: each response has all resources

	sentBuffer  []string // buffer of everSent
	holds, open []fact   // buffers of mayHold

	// as stated by the session
	interest     map[string]bool
	interestStar bool
}

// A following names an alias whose removal requires the removal of its resource.
type following struct {
	alias    string
	precedes bool // the alias may be removed first
}

// A fact is what the client was sent about a name: a resource, its removal, or a version that the client
// stated.
type fact struct {
	res     *xds.Resource
	version string
	seq     int
	dropped bool // the client unsubscribed the name before it answered
	merged  bool // accepted at a time when its response may no longer have been tracked
	late    bool // accepted at a time when its response had been merged with a later one
	loose   bool // the session need not know that the client holds it
	found   bool // the resource does not exist, and its name matches other resources
	own     bool // the client holds the resource only because of its own name, and not because of a route of the wildcard
	unsaid  bool // assumed accepted because a later response was refused; otherwise the client holds nothing
	left    bool // the view removed the resource and nothing kept it, but no response could remove it
}

// is reports whether the fact equals r; a nil r means that the resource does not exist.
func (f fact) is(r *xds.Resource) bool {
	switch {
	case r == nil:
		return f.res == nil && f.version == ""
	case f.res != nil:
		return f.res.Sum == r.Sum
	}
	return f.version == r.Version
}

func (f fact) absent() bool { return f.res == nil && f.version == "" }

// A flight is one response that may still be answered.
type flight struct {
	nonce   string
	at      time.Time
	batch   int
	seq     int
	carried map[string]fact
	beats   map[string]fact // heartbeats
	news    map[string]bool // names with news
	fresh   map[string]bool // names with news, or that were subscribed
	stuck   bool            // one of its clusters had no assignment
	lacks   []string        // missing assignments of clusters with news

	found map[string]bool // removed names that match other resources

	dropped map[string]fact // unsubscribed in flight

	// joined has states that may be in force although a later response was answered: the states
	// before responses that may have been merged with this one. If the later response was refused,
	// joined has the states before this response.
	joined map[string][]fact

	// was, refused and undone restore this response if the client refuses it after a later ACK that covers it:
	// the state in force, the earlier refusals, and the names that the client may hold from an earlier stream.
	was     map[string][]fact
	refused map[string][]fact
	undone  []string

	forward    bool // it has news, or names that were subscribed
	done       bool // answered
	superseded bool // SotW: a later response was answered
	mixed      bool // another part of the response was refused
	excused    bool // the client subscribes to nothing any more
	moved      bool // the client has unsubscribed from some of its names
}

// A group is the content of one refused response, which is not sent again while none of it changes.
type group struct {
	was   map[string]*xds.Resource // nil: a removal
	found map[string]bool          // removed names that matched other resources
	rest  map[string]bool          // names not sent since
	moved bool                     // may be sent again
	at    time.Time                // time of the NACK
	apart bool                     // a withheld name, which is held back alone

	warmed int // the batch in which a part of the group was sent again with its cluster
}

type removal struct {
	res  *xds.Resource   // nil: the client stated the resource, and its content is unknown
	at   time.Time       // time of the removal; if asked is set, the time when the session was first asked for responses after the removal
	last []*xds.Resource // other states of the resource that may be sent

	asked   bool // the session was asked for responses since
	free    bool // at some time no resource referred to it, so it may be removed
	bound   bool // a resource may have referred to it when this batch began
	waits   bool // the same, when an earlier batch began
	resumed bool // the client stated it
	loose   bool // the session need not know that the client holds it
}

func newLedger(v xds.Variant, only *xds.Type, view xds.View, now time.Time, opts protocol.Options, worlds map[string][]*xds.Resource, sends map[string][]sending, p past) *ledger {
	switch {
	case opts.Grace == 0:
		opts.Grace = 5 * time.Second
	case opts.Grace < 0:
		opts.Grace = 0
	}
	return &ledger{trial: newTrial(""), variant: v, only: only, opts: opts, worlds: worlds, sends: sends, past: p, view: view, now: now, nonces: map[string]int{}, warm: map[[2]string]bool{},
		ttl: v == xds.Delta && opts.ForceTTL}
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
	a := &account{trial: l.trial, typ: t, table: l.view.Table(t), opened: l.now, born: l.changes, unsettled: true, byAlias: l.variant == xds.Delta, implicit: true, names: map[string]bool{}, matched: map[string]bool{}, matchedSince: map[string]bool{}, lastSent: map[string]fact{}, acked: map[string]fact{}, refused: map[string][]fact{}, doubted: map[string][]fact{},
		mustSend: map[string]bool{}, maySend: map[string]bool{}, firstSubscribed: map[string]time.Time{}, lastSubscribed: map[string]time.Time{}, waitsSince: map[string]time.Time{}, heard: map[string]bool{}, heldBefore: map[string]bool{}, unsure: map[string]bool{}, unheard: map[string]bool{},
		stray: map[string]fact{}, reportedMissing: map[string]bool{}, follows: map[string]following{}, ttlBegan: map[string]time.Time{}, removed: map[string]removal{}, interest: map[string]bool{}, world: l.variant == xds.SotW && t.FullState}
	l.accounts = append(l.accounts, a)
	slices.SortStableFunc(l.accounts, func(a, b *account) int { return cmp.Compare(a.typ.Rank(), b.typ.Rank()) })
	return a
}

// keepsRemoved reports whether resources of the type may be kept for the client after the view removes them.
func (l *ledger) keepsRemoved(a *account) bool {
	if len(a.typ.ReferredBy()) == 0 {
		return false
	}
	return l.only == nil || l.opts.Grace > 0 && (l.variant == xds.Delta || a.world)
}

// advance sets the time.
func (l *ledger) advance(now time.Time) {
	l.now = now
	for _, a := range l.accounts {
		l.tardy = l.tardy || l.silent(a)
		for _, f := range a.flights {
			l.tardy = l.tardy || !f.done && f.seq >= a.answered && now.Sub(f.at) >= silentAfter
		}
	}
	l.tardy = l.tardy || l.opensLate()
}

// opensLate reports whether a client that resumes has opened a type too late. If a type is not open
// within the grace period after a reconnect, the order of types ignores it.
func (l *ledger) opensLate() bool {
	after := l.now.Sub(l.began)
	return l.resumes && (after >= l.opts.Grace && (l.account(xds.Listener) == nil || l.account(xds.Route) == nil) || after >= silentAfter && l.account(xds.Cluster) == nil)
}

// change sets the next view of the session.
func (l *ledger) change(view xds.View) {
	lost, kept := map[*account]map[string]*xds.Resource{}, map[*account]bool{}
	for _, a := range l.accounts {
		lost[a] = map[string]*xds.Resource{}
		kept[a] = view.Table(a.typ) == a.table
		if kept[a] {
			continue // the table is unchanged
		}
		for r := range a.table.All() {
			lost[a][r.Name] = l.shown(a, r.Name)
		}
	}
	l.view = view
	l.changes++
	for _, a := range l.accounts {
		a.table = view.Table(a.typ)
	}
	for _, a := range l.accounts {
		is := a.table
		l.rematch(a)
		for n := range a.reportedMissing {
			a.matchedSince[n] = a.matchedSince[n] || l.shown(a, n) != nil
		}
		for n, r := range lost[a] {
			if r != nil && l.shown(a, n) == nil && l.keepsRemoved(a) {
				// A resource that exists and is no longer shown may be kept, too.
				a.removed[n] = removal{res: r, at: l.now, loose: a.lastSent[n].loose}
			}
		}
		for n, v := range a.removed {
			if l.shown(a, n) == nil {
				continue
			}
			if k, told := a.lastSent[n]; told && v.free && l.variant == xds.SotW && !a.world {
				k.left = true
				a.lastSent[n] = k
			}
			delete(a.removed, n)
		}
		for n, f := range a.lastSent {
			// A state that came and went between two views may be the one that was sent.
			if r := is.Departed(n); r != nil && l.keepsRemoved(a) && is.Lookup(n) == nil && !f.absent() && !a.outsideRoutes(n) {
				v, ok := a.removed[n]
				if !ok {
					v = removal{res: r, at: l.now}
				}
				v.last = append(v.last, r)
				a.removed[n] = v
			}
		}
		if l.variant == xds.SotW && !a.world {
			for n := range a.lastSent {
				if lost[a][n] == nil && !kept[a] || l.shown(a, n) == nil {
					// No response can remove the resource, so it is sent again if it returns.
					a.maySend[n] = true
				}
			}
		}
		l.markMoved(a)
		l.withhold(a)
	}
}

// withholds reports whether the view withholds a name. In a full-state response, a resource that the view has is
// not withheld.
func (l *ledger) withholds(a *account, n string) bool {
	v, ok := l.view.(xds.Withholding)
	return ok && slices.Contains(v.Withheld(a.typ), n) && (!a.world || l.shown(a, n) == nil)
}

// withhold separates the withheld names from the other names of their refusals (HEAL-1): the others may be sent
// again. A name that is no longer withheld may be sent again, too.
func (l *ledger) withhold(a *account) {
	for _, g := range a.groups {
		if g.apart {
			for n := range g.was {
				g.moved = g.moved || !l.withholds(a, n)
			}
			continue
		}
		for n, r := range g.was {
			if g.rest[n] && r != nil && l.withholds(a, n) {
				a.groups = append(a.groups, &group{was: map[string]*xds.Resource{n: r}, rest: map[string]bool{n: true}, at: g.at, apart: true})
				delete(g.was, n)
				delete(g.rest, n)
				g.moved = true
			}
		}
	}
	a.groups = slices.DeleteFunc(a.groups, func(g *group) bool { return len(g.rest) == 0 })
}

func same(a, b *xds.Resource) bool { return a == b || a != nil && b != nil && a.Sum == b.Sum }
