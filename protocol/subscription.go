package protocol

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A subscription is the state of one resource type on one stream.
type subscription struct {
	typ *xds.Type
	held
	finding

	wildcard bool            // subscribed to "*"
	scopes   map[string]bool // a wildcard of these collections; nil: of all
	implicit bool            // no name was ever subscribed, so that "*" may be implied
	count    int             // of entries that are named

	dirty []string // names of entries that may differ from the view
	all   bool     // any entry may
	anew  bool     // all that the wildcard covers is to be told again
	due   bool     // answer even if nothing differs
	asked bool     // names were subscribed since the last response

	flights []flight  // unanswered responses, oldest first
	open    bool      // the newest response is unanswered: nothing is sent behind it
	nonce   uint64    // of the newest message; zero: none was sent
	silent  time.Time // since when the client has answered nothing; meaningful while open
	refused []group   // what the client refused and has not been told anew
	spurned []group   // SotW, full state: the worlds it refused since it took one

	acked   uint64            // the client is known to be up to this change
	leaving map[string]leaver // gone from the view, still shown; each has an entry

	stalled   bool                 // something is to be said, but the newest response is unanswered
	waiting   map[string]time.Time // since when a name waits for another type
	muted     bool                 // an absence is kept back until muteUntil
	muteUntil time.Time

	beats  map[time.Duration]time.Time // when resources with a TTL are told next, by TTL
	beatAt time.Time                   // the first of these; zero: never

	moved          bool // the subscription changed since Interests was called
	added, removed []string
}

func (u *subscription) covers(name string) bool {
	if u.wildcard {
		return true
	}
	e := u.entry(name)
	return e != nil && u.wants(e)
}

// mark notes that an entry may differ from the view.
func (u *subscription) mark(e *entry) {
	if !e.dirty {
		e.dirty = true
		u.dirty = append(u.dirty, e.name)
	}
}

// touch notes that the client may have anything of the names: they are told
// again if they are still wanted.
func (u *subscription) touch(names iter.Seq2[string, *xds.Stamp]) {
	var extra []entry
	for name := range names {
		if e := u.entry(name); e != nil {
			e.told = unsure
			u.mark(e)
		} else if u.wildcard {
			extra = append(extra, entry{name: name, told: unsure, sent: true, dirty: true})
			u.dirty = append(u.dirty, name)
		}
	}
	u.insert(extra)
}

// repeat makes the server tell a name again, though the client has it.
func (u *subscription) repeat(name string) {
	if !u.covers(name) || u.unknown(name) {
		return
	}
	if found := u.via[name]; found != nil {
		for r := range found.All() {
			u.repeat(r.Name)
		}
		return
	}
	if u.entry(name) == nil {
		u.insert([]entry{{name: name, told: u.told(name), sent: true}})
	}
	e := u.entry(name)
	e.again = true
	u.mark(e)
}

// replace makes names the complete subscription (SotW).
func (u *subscription) replace(names []string, t *xds.Table) {
	if len(names) == 0 && u.implicit {
		return // still the legacy spelling of "*", or nothing at all
	}
	u.implicit = false
	star := false
	keep := make([]bool, len(u.entries))
	var fresh []string
	for _, n := range names {
		if n == xds.Wildcard {
			star = true
		} else if i, ok := u.find(n); ok && u.entries[i].named {
			keep[i] = true
		} else {
			fresh = append(fresh, n)
		}
	}
	// What is dropped goes first, for the indices in keep hold only until then.
	u.drop(func(i int, e *entry) bool { return e.named && !keep[i] }, xds.SotW)
	if u.wildcard && !star {
		u.unsubscribeAll()
	}
	if star && !u.wildcard {
		u.subscribeAll()
	}
	// "When the client sends a new request that changes the set of resources
	// being requested, the server must resend any newly requested resources,
	// even if it previously sent those resources without having been asked".
	u.subscribe(fresh, t)
}

// subscribe adds names; each is told again, whatever the client holds: "the
// client may have 'forgotten' those resources despite apparently remaining
// subscribed".
func (u *subscription) subscribe(names []string, t *xds.Table) {
	var extra []entry
	for _, n := range names {
		u.implicit = false
		u.asked = true
		if n == xds.Wildcard {
			u.subscribeAll()
			continue
		}
		if e := u.entry(n); e != nil {
			if !e.named {
				e.named = true
				u.count++
				u.notice(e.name, true)
			}
			e.again = true
			u.mark(e)
			continue
		}
		told := absent
		if u.wildcard {
			told = u.told(n)
		}
		if r := t.Lookup(n); r != nil {
			n = r.Name // the table's string is shared by all streams
		} else {
			n = strings.Clone(n)
		}
		extra = append(extra, entry{name: n, told: told, named: true, sent: told != absent, again: true})
	}
	slices.SortFunc(extra, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	extra = slices.CompactFunc(extra, func(a, b entry) bool { return a.name == b.name })
	for i := range extra {
		u.notice(extra[i].name, true)
		u.mark(&extra[i])
	}
	u.count += len(extra)
	u.insert(extra)
}

func (u *subscription) subscribeAll() {
	u.wildcard, u.anew, u.all, u.due, u.moved = true, true, true, true, true
	for i := range u.entries {
		e := &u.entries[i]
		e.again = e.again || e.told != absent && !u.unknown(e.name)
	}
}

func (u *subscription) unsubscribeAll() {
	u.wildcard, u.implicit, u.anew, u.due, u.moved = false, false, false, false, true
	if !u.open {
		u.base = nil // else the client may come to hold what is on its way
	}
	u.entries = slices.DeleteFunc(u.entries, func(e entry) bool { return !u.wants(&e) })
	u.forgetLeaving()
	u.abandon()
}

// unsubscribe drops names (delta).
func (u *subscription) unsubscribe(names []string, t *xds.Table) {
	if len(names) == 0 {
		return
	}
	if slices.Contains(names, xds.Wildcard) {
		u.implicit = false
		if u.wildcard {
			u.unsubscribeAll()
		}
		names = slices.AppendSeq(slices.Clone(names), maps.Keys(u.scopes))
		u.scopes = nil
	}
	gone := map[int]bool{}
	var found []string
	for _, n := range names {
		// "It can simply ignore these phantom unsubscriptions."
		for _, n := range u.meant(t, n) {
			if i, ok := u.find(n); ok {
				gone[i] = true
			}
			if u.via[n] != nil {
				found = append(found, n)
			}
		}
	}
	u.drop(func(i int, _ *entry) bool { return gone[i] }, xds.Delta)
	for _, n := range found {
		u.lose(n)
	}
	if len(found) > 0 {
		u.forgetLeaving()
		u.abandon()
	}
}

// drop ends the subscription to the named entries that which selects.
func (u *subscription) drop(which func(int, *entry) bool, v xds.Variant) {
	var removed []bool
	for i := range u.entries {
		e := &u.entries[i]
		if !which(i, e) {
			continue
		}
		e.named = false
		u.count--
		if u.refs[e.name] == 0 {
			u.notice(e.name, false)
		}
		switch {
		case !u.wildcard && u.refs[e.name] == 0 && (u.scopes == nil || u.scopes[e.name]):
			if removed == nil {
				removed = make([]bool, len(u.entries))
			}
			removed[i] = true
		case v == xds.Delta && (u.wildcard || u.scopes != nil) && u.via[e.name] == nil:
			// "The server must send a response that includes the specific
			// resource in either the removed_resources field (if it is not
			// included in the wildcard) or in the resources field".
			e.again = true
			u.mark(e)
		}
	}
	if removed == nil {
		return
	}
	i := -1
	u.entries = slices.DeleteFunc(u.entries, func(entry) bool { i++; return removed[i] })
	u.forgetLeaving()
	u.abandon()
}

func (u *subscription) notice(name string, added bool) {
	u.moved = true
	if added {
		u.added = append(u.added, name)
	} else {
		u.removed = append(u.removed, name)
	}
}
