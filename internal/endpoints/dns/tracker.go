package dns

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// A tracker keeps the known addresses of names, and decides what to ask next. It has no I/O, clock or
// goroutine: the caller passes the time and the answers.
type tracker struct {
	opts    *Options
	random  func() float64 // of [0,1)
	names   map[Name]*trackedName
	lookups map[question]*lookup
	due     soonest
}

// A trackedName is a name that is resolved.
type trackedName struct {
	name    Name
	asks    map[question]bool
	found   []Address           // as reported last
	gone    map[string][]string // removed SRV targets whose addresses are still in use: the targets that replace each
	tooMany bool                // it has more addresses than are reported
}

// A lookup is a question that is asked repeatedly.
type lookup struct {
	question
	users map[*trackedName]bool
	at    int // index in the heap; -1: the question is being asked
	when  time.Time

	has      []record  // of the last good answer
	settled  bool      // there was a good answer, or the absence of records is confirmed
	failures int       // since the last answer
	none     int       // consecutive answers without records, and without a failure between them
	since    time.Time // time of the first of these
}

// An answer is the answer of a server. Without records, it means that there are none.
type answer struct {
	records []record
	ttl     time.Duration
	unknown bool   // NXDOMAIN: the name does not exist
	bad     error  // about a record that cannot be read, if others can; nil: all can
	alias   string // not "": the records of this alias are unknown; the server left it unresolved
}

func newTracker(opts *Options, random func() float64) *tracker {
	return &tracker{opts: opts, random: random, names: map[Name]*trackedName{}, lookups: map[question]*lookup{}}
}

// follow adds a name.
func (b *tracker) follow(now time.Time, n Name) {
	if b.names[n] != nil {
		return
	}
	f := &trackedName{name: n, asks: map[question]bool{}, gone: map[string][]string{}}
	b.names[n] = f
	if n.Port == 0 {
		b.ask(now, f, question{n.Host, dnsmessage.TypeSRV})
		return
	}
	for _, q := range questions(n.Host) {
		b.ask(now, f, q)
	}
}

// addKnown adds the known addresses of a name, which count until an answer changes them.
func (b *tracker) addKnown(now time.Time, f *trackedName, all []Address) {
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
func (b *tracker) ask(now time.Time, f *trackedName, q question) *lookup {
	l := b.lookups[q]
	if l == nil {
		l = &lookup{question: q, users: map[*trackedName]bool{}, when: now}
		b.lookups[q] = l
		heap.Push(&b.due, l)
	}
	l.users[f], f.asks[q] = true, true
	return l
}

// targets makes an SRV name ask for the targets of its records, and for no others.
func (b *tracker) targets(now time.Time, f *trackedName) {
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
		delete(l.users, f)
		if len(l.users) == 0 {
			delete(b.lookups, q)
			if l.at >= 0 {
				heap.Remove(&b.due, l.at)
			}
		}
	}
}

// next returns a question that is due, and marks it as being asked.
func (b *tracker) next(now time.Time) (question, bool) {
	if len(b.due) == 0 || b.due[0].when.After(now) {
		return question{}, false
	}
	return heap.Pop(&b.due).(*lookup).question, true //nolint:forcetypeassert // the only type in it
}

// deadline returns when the next question is due; false: all are being asked.
func (b *tracker) deadline() (time.Time, bool) {
	if len(b.due) == 0 {
		return time.Time{}, false
	}
	return b.due[0].when, true
}

// An outcome is the effect of an answer.
type outcome struct {
	changed   []*trackedName // names whose addresses changed
	failing   bool           // the first failure
	err       error          // its error
	recovered bool           // the first success after failures, or records again after an empty answer
	missing   bool           // the first answer without records for a name with addresses, which stay until it is confirmed
	tooMany   []*trackedName // names that now have too many addresses: their earlier ones stay
	emptied   bool           // the removal of all records is confirmed
	absent    bool           // the first answer after which no question of the name has records, and none had any before
}

// answered applies the answer to a question, or its error.
func (b *tracker) answered(now time.Time, q question, a answer, err error) (is outcome) {
	l := b.lookups[q]
	if l == nil || l.at >= 0 {
		return is // no name needs it any more
	}
	if err == nil && a.bad != nil { // the unread record may be any of the last ones, so all of them stay
		a.records = sorted(slices.Concat(a.records, l.has))
	}
	if err == nil {
		err = b.room(l, a.records)
	}
	was, knew := l.has, b.knows(q.host)
	failed := cmp.Or(err, a.bad)
	if failed != nil {
		is.failing, is.err = l.failures == 0, failed
		l.failures++
		l.none = 0 // a server that fails in turns may be wrong about the absence, too (SAFE-17)
		b.again(now, l, min(time.Second<<min(l.failures-1, 5), 30*time.Second, b.opts.MaxTTL))
	}
	switch {
	case err != nil:
		return is
	case a.bad != nil:
		l.has, l.settled = a.records, true
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
		// A resolver may answer from its cache, so ask again after the cached answer has expired.
		b.again(now, l, max(b.bounded(a.ttl), b.opts.EmptyAfter/(confirmations-1)))
	}
	if failed == nil {
		is.recovered = is.recovered || l.failures > 0
		l.failures = 0
	}
	if slices.Equal(l.has, was) && b.knows(q.host) == knew {
		return is
	}
	for f := range l.users {
		if q.typ == dnsmessage.TypeSRV {
			b.targets(now, f)
		}
		tooMany := f.tooMany
		if b.update(f) {
			is.changed = append(is.changed, f)
		}
		if f.tooMany && !tooMany {
			is.tooMany = append(is.tooMany, f)
		}
	}
	for _, all := range [][]*trackedName{is.changed, is.tooMany} {
		slices.SortFunc(all, func(a, b *trackedName) int {
			return cmp.Or(cmp.Compare(a.name.Host, b.name.Host), cmp.Compare(a.name.Port, b.name.Port))
		})
	}
	return is
}

// absent reports whether all questions of a name were answered, all without records.
func (b *tracker) absent(q question) bool {
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

// confirmations is the number of consecutive answers without records that confirm the absence. A failure starts the
// count again: addresses that stay too long cost less than the removal of healthy ones.
const confirmations = 3

// bounded is the time until a question is asked again.
func (b *tracker) bounded(ttl time.Duration) time.Duration {
	return min(max(ttl, b.opts.MinTTL), b.opts.MaxTTL)
}

// again schedules a question after a time, plus up to a tenth of it, so that questions spread out.
func (b *tracker) again(now time.Time, l *lookup, after time.Duration) {
	l.when = now.Add(after + time.Duration(float64(after)/10*b.random()))
	heap.Push(&b.due, l)
}

// soonest is a heap of questions: the one due first is on top.
type soonest []*lookup

func (s soonest) Len() int           { return len(s) }
func (s soonest) Less(i, j int) bool { return s[i].when.Before(s[j].when) }
func (s soonest) Swap(i, j int)      { s[i], s[j] = s[j], s[i]; s[i].at, s[j].at = i, j }

// Push implements [heap.Interface].
func (s *soonest) Push(x any) {
	l := x.(*lookup) //nolint:forcetypeassert // the only type in it
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
