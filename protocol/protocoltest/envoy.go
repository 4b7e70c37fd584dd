package protocoltest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// fetchTimeout is Envoy's initial_fetch_timeout: how long a cluster warms, and
// how long listeners wait for the first clusters.
const fetchTimeout = 15 * time.Second

// envoy behaves as Envoy 1.40 was seen to over ADS, in both variants:
//
//   - clusters and listeners by the legacy wildcard, assignments and routes by
//     the names that those refer to; listeners are asked for once the first
//     clusters are warm;
//   - a new or changed cluster warms until a response with its assignment
//     arrives, and the answer to CDS waits until no cluster warms. In SotW it
//     repeats its EDS request before, even if nothing in it is new; in delta it
//     asks nothing;
//   - drops responses of types it did not ask for without an answer;
//   - SotW: applies what it can of a response that it refuses, and says that
//     its version has not moved. Delta: applies nothing of it;
//   - after a reconnect opens each type it knows at once, if need be with an
//     empty list; but clusters, while some of before are still warming, only when
//     they are warm, or after 15 s.
type envoy struct {
	*world
	taste
	node  *xds.Node
	types map[string]*envoyType
	out   []xds.Request
	now   time.Time
	begun time.Time // this stream

	warming map[string]time.Time // clusters, since when
	fresh   map[string]bool      // of these, the ones this stream brought
	active  map[string]bool      // clusters that were warm once
	got     bool                 // an answer to CDS came
}

type envoyType struct {
	typ     *xds.Type
	known   bool // was ever opened
	opened  bool // on this stream
	names   map[string]bool
	nonce   string // SotW
	version string // SotW
	cache   map[string]*xds.Resource
	answers []xds.Request // kept back while clusters warm
}

func newEnvoy(w *world) *envoy {
	e := &envoy{world: w, taste: newTaste(w), node: &xds.Node{ID: "e", UserAgentName: "envoy"}, now: w.now,
		types: map[string]*envoyType{}, warming: map[string]time.Time{}, fresh: map[string]bool{}, active: map[string]bool{}}
	for _, t := range []*xds.Type{xds.Cluster, xds.Endpoint, xds.Listener, xds.Route} {
		e.types[t.URL] = &envoyType{typ: t, names: map[string]bool{}, cache: map[string]*xds.Resource{}}
	}
	return e
}

func (e *envoy) of(t *xds.Type) *envoyType { return e.types[t.URL] }

func (e *envoy) connected() {
	e.out, e.begun = nil, e.now
	clear(e.fresh)
	for _, s := range e.types {
		s.opened, s.nonce, s.answers = false, "", nil
	}
	e.of(xds.Cluster).known = true
	for _, t := range []*xds.Type{xds.Cluster, xds.Endpoint, xds.Listener, xds.Route} {
		// It opens clusters late if it still has some to warm from before.
		if s := e.of(t); s.known && (t != xds.Cluster || len(e.warming) == 0) {
			e.open(s)
		}
	}
}

// open sends the first request of a type on the stream.
func (e *envoy) open(s *envoyType) {
	s.known, s.opened = true, true
	r := xds.Request{Type: s.typ, Node: e.node}
	if e.cfg.Variant == xds.SotW {
		r.Version, r.Names = s.version, e.list(s.names)
	} else {
		r.Subscribe = e.list(s.names)
		for _, n := range slices.Sorted(maps.Keys(s.cache)) {
			r.Initial = append(r.Initial, xds.Version{Name: n, Version: s.cache[n].Version})
		}
	}
	e.out = append(e.out, r)
}

// list puts names in the order of an unordered set.
func (e *envoy) list(names map[string]bool) []string {
	return shuffle(e.chance, slices.Sorted(maps.Keys(names)))
}

// want makes names the subscription of a type, and says so if it changes.
func (e *envoy) want(s *envoyType, names map[string]bool, repeat bool) {
	old := s.names
	same := maps.Equal(old, names)
	s.names = names
	maps.DeleteFunc(s.cache, func(n string, _ *xds.Resource) bool { return !names[n] })
	switch {
	case !s.opened:
		if len(names) > 0 {
			e.open(s)
		}
	case e.cfg.Variant == xds.SotW:
		if !same || repeat {
			e.out = append(e.out, xds.Request{Type: s.typ, Node: e.node, Nonce: s.nonce, Version: s.version, Names: e.list(names)})
		}
	case !same:
		r := xds.Request{Type: s.typ, Node: e.node}
		for _, n := range e.list(names) {
			if !old[n] {
				r.Subscribe = append(r.Subscribe, n)
			}
		}
		for _, n := range e.list(old) {
			if !names[n] {
				r.Unsubscribe = append(r.Unsubscribe, n)
			}
		}
		e.out = append(e.out, r)
	}
}

func (e *envoy) receive(r *xds.Response) {
	s := e.types[r.Type.URL]
	if s == nil || !s.opened {
		return // nobody asked
	}
	changed := map[string]bool{}
	gone := slices.Clone(r.Removed)
	refused := map[string]bool{}
	seen := map[string]bool{}
	for _, x := range r.Upserts {
		seen[x.Name] = true
		if e.refuse(x) != nil {
			refused[x.Name] = true
		}
	}
	delta := e.cfg.Variant == xds.Delta
	if !delta && s.typ.FullState {
		for _, n := range slices.Sorted(maps.Keys(s.cache)) {
			if !seen[n] {
				gone = append(gone, n)
			}
		}
	}
	if !delta || len(refused) == 0 {
		for _, x := range r.Upserts {
			if refused[x.Name] || !s.typ.FullState && !s.names[x.Name] {
				continue
			}
			if old := s.cache[x.Name]; old == nil || old.Sum != x.Sum {
				changed[x.Name] = true
			}
			s.cache[x.Name] = x
		}
		for _, n := range gone {
			delete(s.cache, n)
		}
	}
	s.nonce = r.Nonce
	if len(refused) == 0 {
		s.version = r.Version
	}
	switch s.typ {
	case xds.Cluster:
		e.got = true
		e.clusters(s, changed, gone)
	case xds.Endpoint:
		for c := range e.warming {
			for _, n := range assignments(e.of(xds.Cluster).cache[c]) {
				if seen[n] && !refused[n] && (!delta || len(refused) == 0) || delta && len(refused) == 0 && slices.Contains(r.Removed, n) {
					e.warm(c)
				}
			}
		}
	case xds.Listener:
		names := map[string]bool{}
		for _, l := range s.cache {
			for _, ref := range l.Refs {
				if ref.Type.Is(xds.Route) {
					names[ref.Name] = true
				}
			}
		}
		e.want(e.of(xds.Route), names, false)
	}
	a := xds.Request{Type: s.typ, Node: e.node, Nonce: r.Nonce}
	if !delta {
		a.Version = s.version
	}
	if len(refused) > 0 {
		a.Error = &xds.Status{Code: 13, Message: "goo.gle/debugproto refused"}
	}
	s.answers = append(s.answers, a)
	e.flush()
}

// assignments are those that a cluster refers to.
func assignments(c *xds.Resource) (out []string) {
	if c == nil {
		return nil
	}
	for _, ref := range c.Refs {
		if ref.Type.Is(xds.Endpoint) {
			out = append(out, ref.Name)
		}
	}
	return out
}

// clusters starts to warm what has changed.
func (e *envoy) clusters(s *envoyType, changed map[string]bool, gone []string) {
	for _, c := range gone {
		if s.cache[c] == nil {
			delete(e.warming, c)
			delete(e.active, c)
		}
	}
	wait := false
	for c := range changed {
		if len(assignments(s.cache[c])) > 0 {
			e.warming[c], e.fresh[c] = e.now, true
			wait = true
		} else {
			e.warm(c)
		}
	}
	names := map[string]bool{}
	for _, c := range s.cache {
		for _, n := range assignments(c) {
			names[n] = true
		}
	}
	e.want(e.of(xds.Endpoint), names, wait)
}

func (e *envoy) warm(c string) {
	delete(e.warming, c)
	e.active[c] = true
}

// flush sends the answers that need not wait. While clusters warm, the answers
// to CDS do; in SotW the last one then stands for all.
func (e *envoy) flush() {
	for _, t := range []*xds.Type{xds.Endpoint, xds.Cluster, xds.Listener, xds.Route} {
		s := e.of(t)
		if t == xds.Cluster && len(e.warming) > 0 {
			continue
		}
		if len(s.answers) == 0 {
			continue
		}
		if e.cfg.Variant == xds.SotW {
			last := s.answers[len(s.answers)-1]
			last.Names = e.list(s.names)
			s.answers = []xds.Request{last}
		}
		e.out = append(e.out, s.answers...)
		s.answers = nil
	}
	if c := e.of(xds.Cluster); c.known && !c.opened && len(e.warming) == 0 {
		e.open(c)
	}
	if l := e.of(xds.Listener); e.got && !l.known && len(e.warming) == 0 {
		e.open(l)
	}
}

func (e *envoy) requests() []xds.Request {
	out := e.out
	e.out = nil
	return out
}

func (e *envoy) act() string { return "" }

func (e *envoy) advance(now time.Time) {
	e.now = now
	for c, since := range e.warming {
		if now.Sub(since) >= fetchTimeout {
			e.warm(c) // with the assignment it had, or none
		}
	}
	if l := e.of(xds.Listener); !l.known && now.Sub(e.begun) >= fetchTimeout {
		e.open(l)
	}
	e.flush()
}

func (e *envoy) deadline() (next time.Time) {
	for _, since := range e.warming {
		if d := since.Add(fetchTimeout); next.IsZero() || d.Before(next) {
			next = d
		}
	}
	return next
}

func (e *envoy) calm() { e.off = true }

func (e *envoy) held(t *xds.Type) map[string]*xds.Resource {
	if s := e.types[t.URL]; s != nil {
		return maps.Clone(s.cache)
	}
	return nil
}

func (e *envoy) expire(t *xds.Type, name string) {
	delete(e.of(t).cache, name)
	for i := range e.out { // it has not said yet that it has it
		if r := &e.out[i]; r.Type.Is(t) {
			r.Initial = slices.DeleteFunc(r.Initial, func(v xds.Version) bool { return v.Name == name })
		}
	}
	if t.Is(xds.Cluster) {
		delete(e.warming, name)
		delete(e.active, name)
	}
}

func (e *envoy) broken() string {
	for _, t := range []*xds.Type{xds.Listener, xds.Route} {
		cache := e.of(t).cache
		for _, name := range slices.Sorted(maps.Keys(cache)) {
			r := cache[name]
			for _, ref := range r.Refs {
				if ref.Type.Is(xds.Cluster) && !e.active[ref.Name] {
					return fmt.Sprintf("%s is held, and %s is not there or was never warm", show(r), ref.Name)
				}
			}
		}
	}
	return ""
}

// idle checks that the server gave what warming waits for.
func (e *envoy) idle(l *ledger) error {
	for _, s := range e.types {
		a := l.account(s.typ)
		if a == nil && !s.opened {
			continue
		}
		if a == nil || !maps.Equal(a.names, s.names) {
			return fmt.Errorf("%s: the client wants %v, the server was told another", s.typ, s.names)
		}
	}
	if s := e.of(xds.Listener); !s.opened {
		return fmt.Errorf("LDS was never asked for: no first answer to CDS")
	}
	return nil
}

// cold names a cluster that warms although its assignment could be had.
func (e *envoy) cold(l *ledger) string {
	a := l.account(xds.Endpoint)
	if a != nil && slices.ContainsFunc(a.flights, func(f *flight) bool { return !f.done && l.now.Sub(f.at) < patience }) {
		return "" // one in flight: the answer to a part may be lost
	}
	for _, c := range slices.Sorted(maps.Keys(e.warming)) {
		if !e.fresh[c] {
			continue // since a former stream
		}
		for _, n := range assignments(e.of(xds.Cluster).cache[c]) {
			if l.view.Table(xds.Endpoint).Lookup(n) != nil && a != nil && !l.standing(a, n) {
				return fmt.Sprintf("WARM-2: %s warms, and nobody sends %s", c, n)
			}
		}
	}
	return ""
}
