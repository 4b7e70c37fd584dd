package protocoltest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// fetchTimeout is Envoy's initial_fetch_timeout: the time for which a cluster warms, and for which listeners
// wait for the first clusters.
const fetchTimeout = 15 * time.Second

// envoy behaves like Envoy 1.40 over ADS, as observed, in both variants:
//
//   - It subscribes to clusters and listeners by the legacy wildcard, and to assignments and routes by the
//     names that those refer to. It opens listeners when the first clusters are warm.
//   - A new or changed cluster warms until a response with its assignment arrives. The answer to CDS waits
//     until no cluster warms. In SotW Envoy repeats its EDS request before, even without a new name; in delta
//     it sends no request.
//   - It ignores responses of types that it did not open.
//   - SotW: it applies the good part of a response that it refuses, and keeps its version. Delta: it applies
//     nothing of it.
//   - After a reconnect it opens each known type at once, with an empty list if it has no names. It opens
//     clusters when those of the earlier stream are warm, or after 15 s.
//
// It opens the other types when a resource refers to them: secrets, extension configs and, in delta, endpoints
// by name; scopes and, in delta, virtual hosts by an empty list. It opens runtime first, by name. A cluster
// then also warms until its secrets have come, and the endpoints that its assignment refers to. A removed
// extension config is dropped at once.
type envoy struct {
	*world
	taste
	node  *xds.Node
	types map[string]*envoyType
	order []*envoyType // in the order in which it opens them
	out   []xds.Request
	now   time.Time
	begun time.Time // when this stream began

	warming map[string]time.Time // clusters, since when
	fresh   map[string]bool      // the warming clusters that this stream sent
	needs   map[string][]need    // what each warming cluster waits for
	active  map[string]bool      // clusters that were warm once
	got     bool                 // a CDS response came

	refusing *envoyType // the type whose NACK is due and will carry the names, so that no request is sent before it
}

type envoyType struct {
	typ     *xds.Type
	known   bool // it was opened on any stream
	opened  bool // it is open on this stream
	names   map[string]bool
	all     bool   // subscribed by an empty list
	finds   bool   // names also match by alias and collection: delta only
	nonce   string // SotW
	version string // SotW
	cache   map[string]*xds.Resource
	answers []xds.Request   // held back while clusters warm
	lost    map[string]bool // removed by a response
}

// A need is what a warming cluster waits for: an assignment, a secret, or a collection of endpoints.
type need struct {
	typ  *xds.Type
	name string
}

// met reports whether a name that came or was removed is the needed one.
func (n need) met(t *xds.Type, name string) bool {
	return t.Is(n.typ) && (name == n.name || t.Is(xds.LbEndpoint) && t.Collection(name) == n.name)
}

// envoys returns the types that Envoy subscribes to, in the order in which it opens them.
func envoys(cfg Config) []*xds.Type {
	all := []*xds.Type{xds.Runtime, xds.Cluster, xds.Endpoint, xds.LbEndpoint, xds.Secret, xds.Listener, xds.ExtensionConfig, xds.ScopedRoute, xds.Route, xds.VirtualHost}
	return slices.DeleteFunc(all, func(t *xds.Type) bool { return cfg.Variant == xds.SotW && deltaOnly(t) })
}

func newEnvoy(w *world) *envoy {
	e := &envoy{world: w, taste: newTaste(w), node: &xds.Node{ID: "e", UserAgentName: "envoy"}, now: w.now,
		types: map[string]*envoyType{}, warming: map[string]time.Time{}, fresh: map[string]bool{}, needs: map[string][]need{}, active: map[string]bool{}}
	for _, t := range envoys(w.cfg) {
		s := &envoyType{typ: t, finds: w.cfg.Variant == xds.Delta, names: map[string]bool{}, cache: map[string]*xds.Resource{}, lost: map[string]bool{}}
		s.all = t.Is(xds.Cluster) || t.Is(xds.Listener) || t.Is(xds.ScopedRoute) || t.Is(xds.VirtualHost)
		e.types[t.URL], e.order = s, append(e.order, s)
	}
	// An Envoy that refuses a cluster does not subscribe to its assignment, so the server can notice the
	// refusal.
	e.picky = false
	e.of(xds.Cluster).known = true
	if slices.ContainsFunc(w.content.flips, xds.Cluster.Is) { // by name, as for the on-demand filter
		e.of(xds.Cluster).names[xds.Wildcard] = true
		for _, n := range kinds[atClusters].names {
			e.of(xds.Cluster).names[n] = true
		}
	}
	if s := e.of(xds.Runtime); s != nil && w.plan.IntN(2) == 0 {
		s.known, s.names = true, map[string]bool{kinds[atLayers].names[0]: true}
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
	for _, s := range e.order {
		// It opens clusters late if clusters of the earlier stream still warm.
		if s.known && (s.typ != xds.Cluster || len(e.warming) == 0) {
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

// list returns the names of a set in random order.
func (e *envoy) list(names map[string]bool) []string {
	return shuffle(e.chance, slices.Sorted(maps.Keys(names)))
}

// want sets the subscription of a type, and sends a request if it changes.
func (e *envoy) want(s *envoyType, names map[string]bool, repeat bool) {
	old := s.names
	same := maps.Equal(old, names)
	s.names = names
	maps.DeleteFunc(s.cache, func(_ string, r *xds.Resource) bool { return !s.wants(r) })
	maps.DeleteFunc(s.lost, func(n string, _ bool) bool { return !names[n] })
	switch {
	case !s.opened:
		if len(names) > 0 {
			e.open(s)
		}
	case e.cfg.Variant == xds.SotW:
		if (!same || repeat) && s != e.refusing {
			e.out = append(e.out, xds.Request{Type: s.typ, Node: e.node, Nonce: s.nonce, Version: s.version, Names: e.list(names)})
		}
	case !same:
		without := func(list []string, names map[string]bool) []string {
			return slices.DeleteFunc(list, func(n string) bool { return names[n] })
		}
		e.out = append(e.out, xds.Request{Type: s.typ, Node: e.node, Subscribe: without(e.list(names), old), Unsubscribe: without(e.list(old), names)})
	}
}

// wants reports whether a resource is subscribed, by its name or by another name that matches it.
func (s *envoyType) wants(r *xds.Resource) bool {
	for n := range s.names {
		if n == r.Name || s.finds && matches(s.typ, r, n) {
			return true
		}
	}
	return s.all
}

// lose drops the resource of a name, or, if there is none, the resources that only this name matches.
func (s *envoyType) lose(name string) {
	if s.cache[name] != nil || !s.names[name] {
		s.lost[name] = s.cache[name] != nil
		delete(s.cache, name)
		return
	}
	delete(s.names, name)
	maps.DeleteFunc(s.cache, func(_ string, r *xds.Resource) bool { return !s.wants(r) })
	s.names[name] = true
}

// refers returns the names of a type that held resources refer to.
func (e *envoy) refers(to *xds.Type, from ...*xds.Type) map[string]bool {
	names := map[string]bool{}
	for _, t := range from {
		if e.of(t) == nil {
			continue
		}
		for _, r := range e.of(t).cache {
			for _, n := range refs(r, to) {
				names[n] = true
			}
		}
	}
	return names
}

// follow subscribes to the names that held resources refer to.
func (e *envoy) follow() {
	for _, by := range []struct {
		to   *xds.Type
		from []*xds.Type
	}{
		{xds.LbEndpoint, []*xds.Type{xds.Endpoint}},
		{xds.Secret, []*xds.Type{xds.Cluster, xds.Listener, xds.ExtensionConfig}},
		{xds.ExtensionConfig, []*xds.Type{xds.Listener}},
		{xds.ScopedRoute, []*xds.Type{xds.Listener}},
		{xds.Route, []*xds.Type{xds.Listener, xds.ScopedRoute}},
		{xds.VirtualHost, []*xds.Type{xds.Route}},
	} {
		s := e.of(by.to)
		if s == nil {
			continue // delta only
		}
		switch names := e.refers(by.to, by.from...); {
		case !s.all:
			e.want(s, names, false)
		case !s.opened && len(names) > 0:
			e.open(s)
		}
	}
	if hosts := e.of(xds.VirtualHost); hosts != nil { // the hosts of a route go with it
		routes := e.of(xds.Route).names
		maps.DeleteFunc(hosts.cache, func(n string, _ *xds.Resource) bool {
			route, _, _ := strings.Cut(n, "/")
			return !routes[route]
		})
	}
}

func (e *envoy) receive(r *xds.Response) {
	s := e.types[r.Type.URL]
	if s == nil || !s.opened {
		return // not subscribed
	}
	refused, seen := map[string]bool{}, map[string]bool{}
	for _, x := range r.Upserts {
		seen[x.Name] = true
		if e.refuse(x) != nil {
			refused[x.Name] = true
		}
	}
	delta := e.cfg.Variant == xds.Delta
	gone := slices.Clone(r.Removed)
	if !delta && s.typ.FullState {
		gone = slices.DeleteFunc(slices.Sorted(maps.Keys(s.cache)), func(n string) bool { return seen[n] })
	}
	s.nonce = r.Nonce
	if len(refused) == 0 {
		s.version = r.Version
	} else {
		e.refusing = s
	}
	changed := map[string]bool{}
	if !delta || len(refused) == 0 {
		e.apply(s, r, refused, changed, gone)
	}
	if s.typ == xds.Cluster {
		e.got = true
		e.clusters(s, changed, gone)
	}
	e.follow()
	e.refusing = nil
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

// apply applies what a response has beside refused resources, and notes which resources changed.
func (e *envoy) apply(s *envoyType, r *xds.Response, refused, changed map[string]bool, gone []string) {
	var came []string
	for _, x := range r.Upserts {
		if refused[x.Name] {
			continue
		}
		came = append(append(came, x.Name), x.Aliases...)
		if !s.wants(x) {
			continue
		}
		delete(s.lost, x.Name)
		if !same(s.cache[x.Name], x) {
			changed[x.Name] = true
		}
		s.cache[x.Name] = x
	}
	for _, n := range gone {
		s.lose(n)
	}
	for _, n := range append(came, r.Removed...) {
		e.meet(s.typ, n)
	}
}

// clusters starts to warm the changed clusters.
func (e *envoy) clusters(s *envoyType, changed map[string]bool, gone []string) {
	for _, c := range gone {
		if s.cache[c] == nil {
			delete(e.warming, c)
			delete(e.needs, c)
			delete(e.active, c)
		}
	}
	wait := false
	for c := range changed {
		names := refs(s.cache[c], xds.Endpoint)
		wait = wait || len(names) > 0
		var needs []need
		for _, n := range names {
			needs = append(needs, need{xds.Endpoint, n})
		}
		for _, n := range refs(s.cache[c], xds.Secret) {
			if !e.has(xds.Secret, n) {
				needs = append(needs, need{xds.Secret, n})
			}
		}
		if len(needs) > 0 {
			e.warming[c], e.fresh[c], e.needs[c] = e.now, true, needs
		} else {
			e.warm(c)
		}
	}
	e.want(e.of(xds.Endpoint), e.refers(xds.Endpoint, xds.Cluster), wait)
}

// has reports whether a resource of that name or alias is held.
func (e *envoy) has(t *xds.Type, name string) bool {
	for n, r := range e.of(t).cache {
		if n == name || slices.Contains(r.Aliases, name) {
			return true
		}
	}
	return false
}

// meet records that a name came or was removed. A cluster is warm when its assignment has come, with
// everything that the assignment needs.
func (e *envoy) meet(t *xds.Type, name string) {
	for c, needs := range e.needs {
		left := slices.DeleteFunc(slices.Clone(needs), func(n need) bool { return n.met(t, name) || t.Is(xds.Endpoint) && e.moved(c, n) })
		if len(left) == len(needs) {
			continue
		}
		if t.Is(xds.Endpoint) && e.of(xds.LbEndpoint) != nil {
			for _, n := range refs(e.of(t).cache[name], xds.LbEndpoint) {
				left = append(left, need{xds.LbEndpoint, n})
			}
		}
		e.needs[c] = left
		if len(left) == 0 {
			e.warm(c)
		}
	}
}

// moved reports whether the assignments of a cluster no longer refer to a collection that it warms for.
func (e *envoy) moved(cluster string, n need) bool {
	return n.typ.Is(xds.LbEndpoint) && !slices.ContainsFunc(refs(e.of(xds.Cluster).cache[cluster], xds.Endpoint), func(name string) bool {
		return refersTo(e.of(xds.Endpoint).cache[name], n.typ, n.name)
	})
}

func (e *envoy) warm(c string) {
	delete(e.needs, c)
	delete(e.warming, c)
	e.active[c] = true
}

// flush sends the answers that need not wait. While clusters warm, the answers to CDS wait; in SotW the last
// one covers all.
func (e *envoy) flush() {
	for _, t := range []*xds.Type{xds.Endpoint, xds.LbEndpoint, xds.Secret, xds.Cluster, xds.Listener, xds.ExtensionConfig, xds.ScopedRoute, xds.Route, xds.VirtualHost, xds.Runtime} {
		s := e.of(t)
		if s == nil || len(s.answers) == 0 || t == xds.Cluster && len(e.warming) > 0 {
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
			e.warm(c) // with the assignment that it had, or none
		}
	}
	if l := e.of(xds.Listener); !l.known && now.Sub(e.begun) >= fetchTimeout {
		e.open(l)
	}
	e.flush()
}

func (e *envoy) deadline() (next time.Time) {
	if !e.of(xds.Listener).known { // as in advance
		next = e.begun.Add(fetchTimeout)
	}
	for _, since := range e.warming {
		next = earlier(next, since.Add(fetchTimeout))
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

func (e *envoy) expire(t *xds.Type, r *xds.Resource) bool {
	name, cache := r.Name, e.of(t).cache
	if !same(cache[name], r) {
		return false
	}
	delete(cache, name)
	for i := range e.out { // the request that states it was not sent yet
		if r := &e.out[i]; r.Type.Is(t) {
			r.Initial = slices.DeleteFunc(r.Initial, func(v xds.Version) bool { return v.Name == name })
		}
	}
	if t.Is(xds.Cluster) {
		delete(e.needs, name)
		delete(e.warming, name)
		delete(e.active, name)
	}
	return true
}

func (e *envoy) broken(spurns func(cluster string) bool, unknown func(*xds.Type, *xds.Resource) bool) string {
	for _, s := range e.order {
		if s.typ.After == nil {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(s.cache)) {
			r := s.cache[name]
			if unknown(s.typ, r) {
				continue
			}
			for _, c := range refs(r, xds.Cluster) {
				if !e.active[c] && !spurns(c) {
					return fmt.Sprintf("%s is held, but %s is missing or was never warm", show(r), c)
				}
			}
			// Envoy ignores removals of assignments and secrets, and drops an extension config at once.
			filters := refs(r, xds.ExtensionConfig)
			if i := slices.IndexFunc(filters, func(f string) bool { return e.of(xds.ExtensionConfig).lost[f] }); i >= 0 {
				return fmt.Sprintf("%s is held, but %s was removed", show(r), filters[i])
			}
		}
	}
	return ""
}

func (e *envoy) wants(t *xds.Type) (names []string, all bool) {
	s := e.types[t.URL]
	if s == nil || !s.opened {
		return nil, true
	}
	return slices.Sorted(maps.Keys(with(s.names, xds.Wildcard, s.all))), true
}

// coldCluster returns a complaint if a cluster warms although the view has what it needs, or "".
func (e *envoy) coldCluster(l *ledger) string {
	for _, c := range slices.Sorted(maps.Keys(e.warming)) {
		if !e.fresh[c] {
			continue // it warms since an earlier stream
		}
		for _, n := range e.needs[c] {
			a, there := l.account(n.typ), false
			for r := range l.view.Table(n.typ).All() { // refused resources may be held back
				there = there || a != nil && n.met(n.typ, r.Name) && a.refused[r.Name].seq == 0
			}
			switch {
			case !there:
			case slices.ContainsFunc(a.flights, func(f *flight) bool { return l.now.Sub(f.at) < answerTimeout }):
				// One in flight: the answer to a part may be lost.
			default:
				return fmt.Sprintf("WARM-2: %s warms, but %s is not sent", c, n.name)
			}
		}
	}
	return ""
}
