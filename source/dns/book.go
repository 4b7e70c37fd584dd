package dns

import (
	"cmp"
	"container/heap"
	"maps"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// A book has what is known of names, and says what to ask next. It has no I/O, no clock and no goroutine: the time
// is told, and so are answers.
type book struct {
	opts    *Options
	random  func() float64 // of [0,1)
	names   map[Name]*followed
	lookups map[question]*lookup
	due     soonest
}

// A followed is a name.
type followed struct {
	name  Name
	asks  map[question]bool
	found []Address // as told last
}

// A lookup is a question that is asked again and again.
type lookup struct {
	question
	users map[*followed]bool
	at    int // in the heap; -1: it is being asked
	when  time.Time

	has      []record // of the last good answer
	settled  bool     // there was one, or it is confirmed that there is nothing
	failures int      // since the last answer
	none     int      // answers without a record since the last with one
	since    time.Time
}

// An answer is what a server says. One without records says that there are none.
type answer struct {
	records []record
	ttl     time.Duration
}

func newBook(opts *Options, random func() float64) *book {
	return &book{opts: opts, random: random, names: map[Name]*followed{}, lookups: map[question]*lookup{}}
}

// follow adds a name.
func (b *book) follow(now time.Time, n Name) {
	if b.names[n] != nil {
		return
	}
	f := &followed{name: n, asks: map[question]bool{}}
	b.names[n] = f
	if n.Port == 0 {
		b.ask(now, f, question{n.Host, dnsmessage.TypeSRV})
		return
	}
	for _, q := range questions(n.Host) {
		b.ask(now, f, q)
	}
}

// known adds what was known of a name, which counts until an answer says otherwise.
func (b *book) known(now time.Time, f *followed, all []Address) {
	if f.name.Port == 0 {
		l := b.lookups[question{f.name.Host, dnsmessage.TypeSRV}]
		for _, a := range all {
			if valid(a.Host) == nil {
				l.has = append(l.has, record{target: a.Host, port: int(a.Port()), priority: a.Priority, weight: a.Weight})
			}
		}
		l.has = sorted(l.has)
		b.targets(now, f)
	}
	for _, a := range all {
		host := a.Host
		if f.name.Port != 0 {
			host = f.name.Host
		}
		q := question{host, dnsmessage.TypeA}
		if a.Addr().Is6() {
			q.typ = dnsmessage.TypeAAAA
		}
		if l := b.lookups[q]; l != nil {
			l.has = sorted(append(l.has, record{addr: a.Addr()}))
		}
	}
	f.found, _ = b.find(f)
}

// ask adds a question of a name.
func (b *book) ask(now time.Time, f *followed, q question) *lookup {
	l := b.lookups[q]
	if l == nil {
		l = &lookup{question: q, users: map[*followed]bool{}, when: now}
		b.lookups[q] = l
		heap.Push(&b.due, l)
	}
	l.users[f], f.asks[q] = true, true
	return l
}

// targets has a name of SRV ask for the targets of its records, and for no others.
func (b *book) targets(now time.Time, f *followed) {
	srv := question{f.name.Host, dnsmessage.TypeSRV}
	stays := map[question]bool{srv: true}
	for _, r := range b.lookups[srv].has {
		for _, q := range questions(r.target) {
			stays[q] = true
			b.ask(now, f, q)
		}
	}
	for q := range f.asks {
		if stays[q] {
			continue
		}
		l := b.lookups[q]
		delete(f.asks, q)
		if delete(l.users, f); len(l.users) == 0 {
			delete(b.lookups, q)
			if l.at >= 0 {
				heap.Remove(&b.due, l.at)
			}
		}
	}
}

// next returns a question that is due, which is being asked from now on.
func (b *book) next(now time.Time) (question, bool) {
	if len(b.due) == 0 || b.due[0].when.After(now) {
		return question{}, false
	}
	return heap.Pop(&b.due).(*lookup).question, true //nolint:forcetypeassert // there is nothing else in it
}

// deadline returns when the next question is due; false: all are being asked.
func (b *book) deadline() (time.Time, bool) {
	if len(b.due) == 0 {
		return time.Time{}, false
	}
	return b.due[0].when, true
}

// A became is what an answer makes of a question.
type became struct {
	changed   []*followed // whose addresses are others now
	failing   bool        // this is the first that failed
	recovered bool        // the first that did not, since
	emptied   bool        // there was something, and it is confirmed that there is nothing
}

// answered takes what became of a question: an answer, or an error.
func (b *book) answered(now time.Time, q question, a answer, err error) (is became) {
	l := b.lookups[q]
	if l == nil || l.at >= 0 {
		return is // nobody asks that any more
	}
	switch was := l.has; {
	case err != nil:
		is.failing = l.failures == 0
		l.failures++
		b.again(now, l, min(time.Second<<min(l.failures-1, 5), 30*time.Second, b.opts.MaxTTL))
		return is
	case len(a.records) > 0:
		l.has, l.settled, l.none = sorted(a.records), true, 0
		b.again(now, l, b.bounded(a.ttl))
	default:
		if l.none == 0 {
			l.since = now
		}
		l.none++
		if confirmed := b.opts.EmptyAfter >= 0 && l.none >= confirmations && now.Sub(l.since) >= b.opts.EmptyAfter; confirmed {
			is.emptied = len(was) > 0
			l.has, l.settled = nil, true
		}
		// A resolver answers from its cache, so what confirms is asked when that is over.
		b.again(now, l, max(b.bounded(a.ttl), b.opts.EmptyAfter/(confirmations-1)))
	}
	is.recovered = l.failures > 0
	l.failures = 0
	for f := range l.users {
		if q.typ == dnsmessage.TypeSRV {
			b.targets(now, f)
		}
		if found, whole := b.find(f); b.tells(f, found, whole) {
			is.changed = append(is.changed, f)
		}
	}
	slices.SortFunc(is.changed, func(a, b *followed) int {
		return cmp.Or(cmp.Compare(a.name.Host, b.name.Host), cmp.Compare(a.name.Port, b.name.Port))
	})
	return is
}

// confirmations are how many answers without a record it takes until there is none.
const confirmations = 3

// bounded is the time until a question is asked again.
func (b *book) bounded(ttl time.Duration) time.Duration {
	return min(max(ttl, b.opts.MinTTL), b.opts.MaxTTL)
}

// again has a question asked after a time, and up to a tenth of it later, so that those that were asked together are not for ever.
func (b *book) again(now time.Time, l *lookup, after time.Duration) {
	l.when = now.Add(after + time.Duration(float64(after)/10*b.random()))
	heap.Push(&b.due, l)
}

// tells reports whether a name has other addresses than were told, and notes those. While a target of which nothing is
// known is asked for, nothing goes: its predecessor may be what it replaces.
func (b *book) tells(f *followed, found []Address, whole bool) bool {
	if !whole {
		has := map[netip.AddrPort]bool{}
		for _, a := range found {
			has[a.AddrPort] = true
		}
		for _, a := range f.found {
			if !has[a.AddrPort] {
				found = append(found, a)
			}
		}
		slices.SortFunc(found, compareAddress)
	}
	if slices.Equal(found, f.found) {
		return false
	}
	f.found = found
	return true
}

func compareAddress(a, b Address) int { return a.AddrPort.Compare(b.AddrPort) }

// find returns the addresses that a name has, in order; whole: something is known of each host.
func (b *book) find(f *followed) (all []Address, whole bool) {
	records := []record{{target: f.name.Host, port: f.name.Port}}
	if f.name.Port == 0 {
		records = b.lookups[question{f.name.Host, dnsmessage.TypeSRV}].has
	}
	var ranks []int
	for _, r := range records {
		ranks = append(ranks, r.priority)
	}
	slices.Sort(ranks)
	ranks = slices.Compact(ranks)
	whole = true
	at := map[netip.AddrPort]Address{}
	for _, r := range records {
		settled, any := true, false
		for _, q := range questions(r.target) {
			l := b.lookups[q]
			settled = settled && l.settled
			for _, one := range l.has {
				any = true
				a := Address{netip.AddrPortFrom(one.addr, uint16(r.port)), r.target, 0, 0}
				if f.name.Port == 0 {
					a.Priority, _ = slices.BinarySearch(ranks, r.priority)
					a.Weight = max(r.weight, 1) // RFC 2782: one of weight 0 has "a very small chance"
				}
				if old, twice := at[a.AddrPort]; !twice || cmp.Or(cmp.Compare(a.Priority, old.Priority), cmp.Compare(old.Weight, a.Weight), cmp.Compare(a.Host, old.Host)) < 0 {
					at[a.AddrPort] = a
				}
			}
		}
		whole = whole && (any || settled)
	}
	return slices.SortedFunc(maps.Values(at), compareAddress), whole
}

// soonest is a heap of questions: the first is due first.
type soonest []*lookup

func (s soonest) Len() int           { return len(s) }
func (s soonest) Less(i, j int) bool { return s[i].when.Before(s[j].when) }
func (s soonest) Swap(i, j int)      { s[i], s[j] = s[j], s[i]; s[i].at, s[j].at = i, j }

// Push implements [heap.Interface].
func (s *soonest) Push(x any) {
	l := x.(*lookup) //nolint:forcetypeassert // there is nothing else in it
	l.at = len(*s)
	*s = append(*s, l)
}

// Pop implements [heap.Interface].
func (s *soonest) Pop() any {
	last := len(*s) - 1
	l := (*s)[last]
	(*s)[last], *s, l.at = nil, (*s)[:last], -1
	return l
}
