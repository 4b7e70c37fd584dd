package protocoltest

import (
	"cmp"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

const (
	// patience: a response unanswered for this long no longer holds back the
	// newest state of its type.
	patience = 5 * time.Second

	// silence: what waits for the answer of another type waits no longer.
	silence = 15 * time.Second

	// listed: an answer to one of the last so many responses finds its own.
	listed = 4
)

// A ledger is the second opinion on one stream: it sees what the session sees
// and what the session says, and keeps, without any thought of cost, what was
// told, what is owed and what may be said at all. It shares no code with the
// implementation.
type ledger struct {
	*trial
	variant xds.Variant
	only    *xds.Type
	opts    protocol.Options           // as the session has them
	worlds  map[string][]*xds.Resource // what a version of a full-state type was when it was told
	sends   map[string][]sending       // SotW: what was told, on all streams, by type
	past    past                       // what the client has from earlier streams
	view    xds.View
	now     time.Time

	met   bool // the client has said who it is:
	agent string
	ttl   bool // it is told TTLs

	accounts []*account // by rank
	nonces   map[string]int
	// warm: what may be sent again because a response carried what is warmed by it,
	// by type and name.
	warm map[[2]string]bool

	changes int // counts views
	drain   int // counts drains
	falling int // rank of the newest response that only removes, in this drain
	rank    int // of the newest response that told something new, in this drain

	telling *xds.Type // of the newest response of this drain, if it is one, or a part of one, that told of resources

	began   time.Time // the first request came
	resumes bool      // the client has something from an earlier stream
	blind   bool      // nobody knows what it has of what others refer to, so it may lose some of that
	tardy   bool      // somebody was silent for so long that order was given up
}

// An account is the ledger of one type.
type account struct {
	*trial
	typ      *xds.Type
	table    *xds.Table      // what the view has
	born     int             // changes before it was opened
	names    map[string]bool // without "*"
	wildcard bool
	implicit bool // nothing was ever named

	finds  bool            // names find by alias and collection, too: delta only
	reach  map[string]bool // resources that the names find, delta only
	turned map[string]bool // names that have found something since they were told of, or asked for
	scopes map[string]bool // the collections that the wildcard is of; nil: it is of all

	told    map[string]fact
	acked   map[string]fact
	refused map[string][]fact    // by the client, which has accepted none since
	doubted map[string][]fact    // likewise, but that it has accepted a response since that need not be listed any more, or seemed to have
	owe     map[string]bool      // must be told, whatever the client holds
	may     map[string]bool      // may be told, whatever the client holds
	since   map[string]time.Time // it was asked for
	lately  map[string]time.Time // it was asked for last
	tied    map[string]time.Time // it waits for clusters since
	heard   map[string]bool      // was told, or claimed to be held
	before  map[string]bool      // SotW: the client may have something from an earlier stream
	unsure  map[string]bool      // SotW: the same, for it has refused what it was taken to have accepted with a later one
	unheard map[string]bool      // SotW: the same, for the response that it has accepted since need not be listed any more
	stray   map[string]fact      // what the client states to have, and has not asked for; absent: it need not have that
	missed  map[string]bool      // resource_errors have said that it does not exist
	follows map[string]following // what has to go in this drain, for an alias of it does

	opened   time.Time            // its first request
	drained  time.Time            // when the session was first asked what to say of it
	quiet    time.Time            // unanswered since
	repeated time.Time            // the client last said what it had said: it need not count as silent then
	calm     time.Time            // the last response or answer was dealt with
	stirred  bool                 // there was one since
	fed      map[string]time.Time // its TTL began anew

	version string // last told, or stated and up to date
	stated  string // SotW: by its first request
	resumed bool   // SotW, not full state: its first request was for "*", and stated a version
	opaque  bool   // SotW: its first request did not say what the client has
	vague   bool   // SotW: the client holds a world that a session need not know

	answer bool // an answer is owed even if it says nothing
	lax    bool // an answer may say nothing
	asked  bool // something was asked for since the last response

	flights  []*flight // unanswered, oldest first
	newest   *flight   // the last one, answered or not
	answered int       // seq of the newest that was answered
	accepted int       // or acknowledged
	passed   int       // or acknowledged with all its parts, while it was listed
	groups   []*group
	nacked   bool // the client refused a response (NACK) and has accepted none since

	leaving map[string]leaver // the view had it and may still be shown it
	world   bool              // SotW, full state: each response is everything

	ever        []string // room for everTold
	holds, open []fact   // and for mayHold

	// as told by the session
	interest     map[string]bool
	interestStar bool
}

// A following names the alias behind which a resource has to go.
type following struct {
	alias    string
	precedes bool // but the alias may go before
}

// A fact is what the client was told of a name: a resource, its absence, or
// (resuming) a version it claims to have.
type fact struct {
	res     *xds.Resource
	version string
	seq     int
	dropped bool // the client gave the name up before it answered
	merged  bool // it was accepted when it need not be remembered any more
	late    bool // or when its response had become one with a later one
	loose   bool // a session need not know that the client has it
	found   bool // it does not exist, and finds others
	own     bool // the client has it by its own name alone, and not by a route of the wildcard
	unsaid  bool // it was taken for accepted, for a later response was refused; if not, the client has nothing
	left    bool // the view has lost it, and nothing kept it with the client, though nothing could tell so
}

// is reports whether the fact says what r is; nil: that it does not exist.
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
	drain   int
	seq     int
	carried map[string]fact
	beats   map[string]fact // told again without a body
	news    map[string]bool // of which the client was told something new
	fresh   map[string]bool // or what it had asked for
	stuck   bool            // one of its clusters had no assignment
	lacks   []string        // assignments that did not exist, of clusters that are news

	found map[string]bool // removed, and finds others

	dropped map[string]fact // the client did not want it any more

	// What may be in force instead, though a later one was answered: what was so before
	// responses that need not be listed any more, but be one with this; or, if the later
	// one was refused, before this.
	joined map[string][]fact

	// What was so when a later one was accepted, which stands for this, should it be refused
	// all the same: what was in force, what was refused before, and of what the client may
	// have had something from an earlier stream.
	was     map[string][]fact
	refused map[string][]fact
	undone  []string

	forward    bool // it tells something new, or what was asked for
	done       bool // answered
	superseded bool // SotW: a later one was
	mixed      bool // another part of it was refused
	excused    bool // nothing was subscribed any more
	moved      bool // some of it was not
}

// A group is what one refused response carried and is not told again while
// none of it moves.
type group struct {
	was   map[string]*xds.Resource // nil: a removal
	found map[string]bool          // of these, the names that found others all the same
	rest  map[string]bool          // not told since
	moved bool                     // may be told again

	warmed int // the drain in which some of it was sent again with its cluster
}

type leaver struct {
	res  *xds.Resource   // nil: the client brought it along, and nobody knows it
	at   time.Time       // when it was lost; from asked on, when the session was asked first what it has to say
	last []*xds.Resource // other contents it may be shown with

	asked   bool // the session was asked since
	free    bool // nothing has referred to it at a time, so it was let go
	bound   bool // something may have referred to it when this drain began
	waits   bool // or when one before did
	resumed bool // the client brought it along
	loose   bool // and a session need not know that
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
	a := &account{trial: l.trial, typ: t, table: l.view.Table(t), opened: l.now, born: l.changes, stirred: true, finds: l.variant == xds.Delta, implicit: true, names: map[string]bool{}, reach: map[string]bool{}, turned: map[string]bool{}, told: map[string]fact{}, acked: map[string]fact{}, refused: map[string][]fact{}, doubted: map[string][]fact{},
		owe: map[string]bool{}, may: map[string]bool{}, since: map[string]time.Time{}, lately: map[string]time.Time{}, tied: map[string]time.Time{}, heard: map[string]bool{}, before: map[string]bool{}, unsure: map[string]bool{}, unheard: map[string]bool{},
		stray: map[string]fact{}, missed: map[string]bool{}, follows: map[string]following{}, fed: map[string]time.Time{}, leaving: map[string]leaver{}, interest: map[string]bool{}, world: l.variant == xds.SotW && t.FullState}
	l.accounts = append(l.accounts, a)
	slices.SortStableFunc(l.accounts, func(a, b *account) int { return cmp.Compare(a.typ.Rank(), b.typ.Rank()) })
	return a
}

// lingers reports whether resources of the type may outstay the view.
func (l *ledger) lingers(a *account) bool {
	if len(a.typ.ReferredBy()) == 0 {
		return false
	}
	return l.only == nil || l.opts.Grace > 0 && (l.variant == xds.Delta || a.world)
}

// advance notes the time.
func (l *ledger) advance(now time.Time) {
	l.now = now
	for _, a := range l.accounts {
		l.tardy = l.tardy || l.silent(a) // or of the parts of a response one is not answered
		for _, f := range a.flights {
			l.tardy = l.tardy || !f.done && f.seq >= a.answered && now.Sub(f.at) >= silence
		}
	}
	l.tardy = l.tardy || l.opensLate()
}

// opensLate reports whether a client that resumes has not opened its types in time: those
// that are not open within the grace of a reconnect are not there.
func (l *ledger) opensLate() bool {
	after := l.now.Sub(l.began)
	return l.resumes && (after >= l.opts.Grace && (l.account(xds.Listener) == nil || l.account(xds.Route) == nil) || after >= silence && l.account(xds.Cluster) == nil)
}

// change notes the session's next view.
func (l *ledger) change(view xds.View) {
	lost, kept := map[*account]map[string]*xds.Resource{}, map[*account]bool{}
	for _, a := range l.accounts {
		lost[a] = map[string]*xds.Resource{}
		if kept[a] = view.Table(a.typ) == a.table; kept[a] {
			continue // it has lost nothing
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
		l.find(a)
		for n := range a.missed {
			a.turned[n] = a.turned[n] || l.shown(a, n) != nil
		}
		for n, r := range lost[a] {
			if r != nil && l.shown(a, n) == nil && l.lingers(a) {
				// What is not shown any more, and is there, may linger, too.
				a.leaving[n] = leaver{res: r, at: l.now, loose: a.told[n].loose}
			}
		}
		for n, v := range a.leaving {
			if l.shown(a, n) == nil {
				continue
			}
			if k, told := a.told[n]; told && v.free && l.variant == xds.SotW && !a.world {
				k.left = true
				a.told[n] = k
			}
			delete(a.leaving, n)
		}
		for n, f := range a.told {
			// A state that came and went between two views may be the one shown.
			if r := is.Departed(n); r != nil && l.lingers(a) && is.Lookup(n) == nil && !f.absent() && !a.outside(n) {
				v, ok := a.leaving[n]
				if !ok {
					v = leaver{res: r, at: l.now}
				}
				v.last = append(v.last, r)
				a.leaving[n] = v
			}
		}
		if l.variant == xds.SotW && !a.world {
			for n := range a.told {
				if lost[a][n] == nil && !kept[a] || l.shown(a, n) == nil {
					// It cannot be told that it is lost; should it return, it is told anew.
					a.may[n] = true
				}
			}
		}
		l.move(a)
	}
}

func same(a, b *xds.Resource) bool { return a == b || a != nil && b != nil && a.Sum == b.Sum }
