package dns

import (
	"cmp"
	"container/heap"
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
	found []Address           // as told last
	gone  map[string][]string // hosts that are no target any more: the targets that came when they went
	wide  bool                // it has more addresses than are told
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
	unknown bool // NXDOMAIN: the name does not exist
}

func newBook(opts *Options, random func() float64) *book {
	return &book{opts: opts, random: random, names: map[Name]*followed{}, lookups: map[question]*lookup{}}
}

// follow adds a name.
func (b *book) follow(now time.Time, n Name) {
	if b.names[n] != nil {
		return
	}
	f := &followed{name: n, asks: map[question]bool{}, gone: map[string][]string{}}
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
	f.found = b.find(f)
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
	b.replace(f, b.lookups[srv].has)
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
	err       error       // why
	recovered bool        // the first that did not, since; or that has records again
	missing   bool        // this is the first that says that there is nothing where there is something, which stays until that is confirmed
	wide      []*followed // that have too many addresses now: what they had stays
	emptied   bool        // there was something, and it is confirmed that there is nothing
	absent    bool        // this is the first that says, with those of the other types, that there is nothing, and nothing was there before
}

// answered takes what became of a question: an answer, or an error.
func (b *book) answered(now time.Time, q question, a answer, err error) (is became) {
	l := b.lookups[q]
	if l == nil || l.at >= 0 {
		return is // nobody asks that any more
	}
	if err == nil {
		err = b.room(l, a.records)
	}
	was, knew := l.has, b.knows(q.host)
	switch {
	case err != nil:
		is.failing, is.err = l.failures == 0, err
		l.failures++
		b.again(now, l, min(time.Second<<min(l.failures-1, 5), 30*time.Second, b.opts.MaxTTL))
		return is
	case len(a.records) > 0:
		is.recovered = l.none > 0 && len(was) > 0
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
		is.missing = len(l.has) > 0 && (l.none == 1 || l.failures > 0)
		is.absent = l.none == 1 && b.absent(q)
		// A resolver answers from its cache, so what confirms is asked when that is over.
		b.again(now, l, max(b.bounded(a.ttl), b.opts.EmptyAfter/(confirmations-1)))
	}
	is.recovered = is.recovered || l.failures > 0
	l.failures = 0
	if slices.Equal(l.has, was) && b.knows(q.host) == knew {
		return is
	}
	for f := range l.users {
		if q.typ == dnsmessage.TypeSRV {
			b.targets(now, f)
		}
		wide := f.wide
		if b.tells(f) {
			is.changed = append(is.changed, f)
		}
		if f.wide && !wide {
			is.wide = append(is.wide, f)
		}
	}
	for _, all := range [][]*followed{is.changed, is.wide} {
		slices.SortFunc(all, func(a, b *followed) int {
			return cmp.Or(cmp.Compare(a.name.Host, b.name.Host), cmp.Compare(a.name.Port, b.name.Port))
		})
	}
	return is
}

// absent reports whether all that is asked of a name was answered, and none of it has anything.
func (b *book) absent(q question) bool {
	all := []question{q}
	if q.typ != dnsmessage.TypeSRV {
		types := questions(q.host)
		all = types[:]
	}
	return !slices.ContainsFunc(all, func(q question) bool {
		l := b.lookups[q]
		return l == nil || len(l.has) > 0 || l.none == 0
	})
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
