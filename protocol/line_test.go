package protocol

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/testkit/tabletest"
	"github.com/chancery-xds/chancery/protocol/internal/delay"
	"github.com/chancery-xds/chancery/xds"
)

// Time limits of the table of reasons.
var (
	patience = delay.Behind.Limit(0)
	silence  = delay.Unanswered.Limit(0)
)

// Tables and resources of tests.
var with, of = tabletest.With, tabletest.Of

// A line is a session with its view and time, for tests of single files of the core. A test that is
// only a conversation is a transcript instead.
type line struct {
	*Session
	t    testing.TB
	view xds.Tables
	now  time.Time
	last map[string]string // the newest nonce, by type URL
}

func newLine(t testing.TB, v xds.Variant, only *xds.Type, opts Options, view xds.Tables) *line {
	t.Helper()
	l := &line{Session: NewSession(v, only, view, opts), t: t, view: view, now: time.Unix(1_700_000_000, 0), last: map[string]string{}}
	l.Advance(l.now)
	return l
}

// tableOf returns a table of resources of version 1.
func tableOf(typ *xds.Type, names ...string) *xds.Table {
	return with(xds.NewTable(typ), resources(1, names...))
}

// resources returns resources of a version that refer to nothing.
func resources(version int, names ...string) (rs []*xds.Resource) {
	for _, n := range names {
		rs = append(rs, resource(n, version))
	}
	return rs
}

func resource(name string, version int, refs ...xds.Ref) *xds.Resource {
	r := xds.NewResource(nil, name, fmt.Append(nil, version))
	r.Refs = append([]xds.Ref{}, refs...)
	r.Seal(fmt.Sprint(version))
	return r
}

// numbered returns n names.
func numbered(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("name-%05d", i))
	}
	return names
}

// commit changes the view, and passes it to the session with a hint.
func (l *line) commit(typ *xds.Type, set []*xds.Resource, remove ...string) {
	next := xds.Tables{}
	maps.Insert(next, l.view.All())
	next[typ.URL] = with(l.view.Table(typ), of(typ, set...), remove...)
	// As in a store, the hint has the names that changed, and the names that match them now or did
	// before.
	touched := slices.Clone(remove)
	for _, r := range set {
		touched = append(touched, r.Name)
	}
	for _, n := range slices.Clone(touched) {
		for _, t := range []xds.View{l.view, next} {
			if r := t.Table(typ).Lookup(n); r != nil {
				touched = append(touched, r.Aliases...)
			}
		}
		if c := typ.Collection(n); c != "" {
			touched = append(touched, c)
		}
	}
	l.view = next
	l.Change(next, []xds.Names{{typ.URL: touched}})
	l.check()
}

func (l *line) wait(d time.Duration) {
	l.now = l.now.Add(d)
	l.Advance(l.now)
}

func (l *line) ask(req xds.Request) {
	l.t.Helper()
	if err := l.Receive(req); err != nil {
		l.t.Fatal(err)
	}
	l.check()
}

// ack acknowledges the newest response of a type; nack refuses it.
func (l *line) ack(typ *xds.Type) {
	l.t.Helper()
	l.ask(xds.Request{Type: typ, Nonce: l.last[typ.URL]})
}

func (l *line) nack(typ *xds.Type) {
	l.t.Helper()
	l.ask(xds.Request{Type: typ, Nonce: l.last[typ.URL], Error: &xds.Status{Message: "no"}})
}

// talk handles a request like a server, and returns the newest nonce. It does not read the session,
// so that its cost can be measured.
func (l *line) talk(req xds.Request) (nonce string) {
	l.t.Helper()
	if err := l.Receive(req); err != nil {
		l.t.Fatal(err)
	}
	for r := range l.Responses() {
		nonce = r.Nonce
	}
	for range l.Events() {
	}
	for range l.Interests() {
	}
	return nonce
}

// drain returns the responses that are due.
func (l *line) drain() (all []*xds.Response) {
	l.t.Helper()
	for r := range l.Responses() {
		all = append(all, r)
		l.last[r.Type.URL] = r.Nonce
	}
	for range l.Events() {
	}
	for range l.Interests() {
	}
	l.check()
	return all
}

// next sleeps from deadline to deadline, like a server, until a response is due. It returns the
// time slept and the responses.
func (l *line) next() (time.Duration, string) {
	l.t.Helper()
	start := l.now
	for range 100 {
		if said := l.said(); said != "" {
			return l.now.Sub(start), said
		}
		at := l.Deadline()
		if at.IsZero() {
			break
		}
		l.wait(max(at.Sub(l.now), 0))
	}
	return l.now.Sub(start), "nothing"
}

// said returns responses as text: "CDS a@1 -b ~c !d, EDS e@1".
func (l *line) said() string {
	l.t.Helper()
	var out []string
	for _, r := range l.drain() {
		words := []string{r.Type.Short}
		for _, u := range r.Upserts {
			words = append(words, u.Name+"@"+u.Version)
		}
		for _, list := range []struct {
			mark  string
			names []string
		}{{"-", r.Removed}, {"?", r.Absent}, {"!", r.Missing}} {
			for _, n := range list.names {
				words = append(words, list.mark+n)
			}
		}
		for _, b := range r.Beats {
			words = append(words, "~"+b.Name)
		}
		out = append(out, strings.Join(words, " "))
	}
	return strings.Join(out, ", ")
}

func (l *line) want(said string) {
	l.t.Helper()
	if got := l.said(); got != said {
		l.t.Fatalf("sent %q, want %q", got, said)
	}
}

// settle acknowledges everything until nothing more is due, and returns the number of responses.
func (l *line) settle() (n int) {
	l.t.Helper()
	for {
		all := l.drain()
		if len(all) == 0 {
			return n
		}
		n += len(all)
		for _, r := range all {
			l.ask(xds.Request{Type: r.Type, Nonce: r.Nonce, Version: r.Version, Names: l.names(r.Type)})
		}
	}
}

// names returns the names that a SotW ACK repeats.
func (l *line) names(typ *xds.Type) (names []string) {
	if l.variant == xds.Delta {
		return nil
	}
	u := l.sub(typ)
	if u.wildcard && !u.implicit {
		names = append(names, xds.Wildcard)
	}
	for e := range u.Entries() {
		if e.Named {
			names = append(names, e.Name)
		}
	}
	return names
}

// check fails the test if an invariant does not hold. It looks at everything, so large sessions are
// not checked.
func (l *line) check() {
	l.t.Helper()
	for _, u := range l.subs {
		if u.Set.Len() > 1000 {
			return
		}
	}
	if err := l.Check(); err != nil {
		l.t.Fatal(err)
	}
}

// countAllocs returns the number of allocations of f.
func countAllocs(f func()) float64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs - before.Mallocs)
}

// countBytes returns the memory that f allocates, kept or not.
func countBytes(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// liveBytes returns the memory in use.
func liveBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// timer returns the shortest time of a request, over the number of its calls.
func (l *line) timer(req xds.Request) func() time.Duration {
	best := time.Hour
	return func() time.Duration {
		best = min(best, computing(func() {
			if err := l.Receive(req); err != nil {
				l.t.Fatal(err)
			}
		}))
		return best
	}
}
