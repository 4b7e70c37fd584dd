// Package evidence records which versions of resources the clients of a group have accepted (HEAL-3). A
// client that refuses a version, and has accepted none, gets an earlier version that other clients
// accepted.
//
// A Book has a [Scope] for each set of clients that see the same resources. For each type a scope has the
// current table, the versions that this table replaced, and the versions that clients accepted. A wildcard
// ACK is one pointer, whatever the size of the table. The cost of a commit is its number of changed names,
// once for each scope and not for each client.
package evidence

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

const (
	// MaxAge is how long a replaced version stays a candidate.
	MaxAge = 24 * time.Hour

	// MaxBack is the maximum number of candidates for a refused version.
	MaxBack = 3

	maxScopes   = 1000     // scopes of a book; the scope that was used least recently is dropped
	maxVersions = 6        // replaced versions of a name
	maxReplaced = 20_000   // replaced versions of a type in a scope
	maxNames    = 2 << 20  // names in the current tables of a book
	maxBytes    = 64 << 20 // bytes of the replaced versions of a book
	maxNamed    = 100_000  // names of a type in a scope that clients accepted by name
	maxAgents   = 16       // kinds of clients of a type in a scope; further kinds share the last
	maxWorlds   = 4        // accepted tables of a kind of client
	maxMessages = 256      // messages with names that are known
	maxAgent    = 256      // bytes of a kind of client
	maxChain    = 8        // earlier tables that a new scope looks at
)

// A Book is the evidence of a server. Its methods, and those of its scopes, are safe for concurrent use.
// The zero value is empty.
type Book struct {
	mu      sync.Mutex // held for memory access only
	scopes  map[scopeKey]*Scope
	foreign map[string][]*Scope // of other servers, by group
	changes []chan struct{}     // see Changed
	bytes   atomic.Int64        // of all replaced versions
	names   atomic.Int64        // in all current tables
	used    uint64              // counts calls of Scope
}

type scopeKey struct{ group, identity string }

// A Scope is the evidence of clients that see the same resources.
type Scope struct {
	book *Book
	key  scopeKey
	used uint64 // guarded by Book.mu

	mu      sync.Mutex // held for memory access only
	evicted bool       // only the streams that use the scope know it
	types   sync.Map   // from type URL to *evidence; values are added with mu held
}

// evidence is the evidence of a type in a scope. Scope.mu guards it, except for current.
type evidence struct {
	typ      *xds.Type
	current  atomic.Pointer[xds.Table]
	replaced map[string][]version // by name, newest first
	count    int                  // versions in replaced

	agents   []string
	worlds   [maxAgents][]*xds.Versions // tables that clients of a kind accepted as a whole, the newest last
	named    map[string]acceptance      // accepted by name: current versions only
	messages map[message]bool
	restored savedType // of an earlier run, until the first table

	elsewhere []savedType // what clients of other servers accepted
}

// A version is a replaced version of a resource.
type version struct {
	*xds.Resource
	until   time.Time // when it was replaced
	by      agentSet  // kinds of clients that accepted it
	removed bool      // the name was removed
}

// An acceptance is the version of a name that clients accepted.
type acceptance struct {
	sum xds.Sum
	by  agentSet
}

// An agentSet has bit i for evidence.agents[i].
type agentSet uint16

// A message identifies the ACK of a message with names. Equal messages are counted once. Different messages
// may have equal keys: then some evidence is missing.
type message struct {
	agent       int
	version     string
	n           int
	first, last *xds.Stamp
}

// AgentOf returns the kind of a client: its user agent.
func AgentOf(n *xds.Node) string {
	agent := n.UserAgentName + " " + n.UserAgentVersion
	return strings.Clone(agent[:min(len(agent), maxAgent)])
}

// Scope returns the scope of the clients of a group with an identity. Both may be empty.
func (b *Book) Scope(group, identity string) *Scope {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used++
	k := scopeKey{group, identity}
	s := b.scopes[k]
	if s == nil {
		if b.scopes == nil {
			b.scopes = map[scopeKey]*Scope{}
		}
		for len(b.scopes) >= maxScopes || len(b.scopes) > 0 && b.names.Load() > maxNames {
			b.evict()
		}
		s = &Scope{book: b, key: k}
		b.scopes[k] = s
	}
	s.used = b.used
	return s
}

// evict drops the scope that was used least recently. The book is locked.
func (b *Book) evict() {
	var oldest *Scope
	for _, s := range b.scopes {
		if oldest == nil || s.used < oldest.used {
			oldest = s
		}
	}
	delete(b.scopes, oldest.key)
	oldest.mu.Lock()
	defer oldest.mu.Unlock()
	oldest.evicted = true
	for e := range oldest.all {
		b.names.Add(-int64(e.size()))
		for _, vs := range e.replaced {
			for _, v := range vs {
				b.bytes.Add(-int64(len(v.Body)))
			}
		}
		e.replaced, e.count = map[string][]version{}, 0
	}
}

// others returns the other scopes of the same group.
func (b *Book) others(s *Scope) (all []*Scope) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all = slices.Clone(b.foreign[s.key.group])
	for k, o := range b.scopes {
		if k.group == s.key.group && o != s {
			all = append(all, o)
		}
	}
	return all
}

// size returns the number of names in the current table.
func (e *evidence) size() int {
	if t := e.current.Load(); t != nil {
		return t.Len()
	}
	return 0
}

func (s *Scope) all(yield func(*evidence) bool) {
	s.types.Range(func(_, e any) bool { return yield(e.(*evidence)) })
}

func (s *Scope) find(t *xds.Type) *evidence {
	if e, ok := s.types.Load(t.URL); ok {
		return e.(*evidence)
	}
	return nil
}

// Show records that the clients of the scope now see a table. For the first table of a type, recent returns
// the earlier ones, newest first. The usual case, a table that is not new, needs no lock.
func (s *Scope) Show(now time.Time, t *xds.Type, table *xds.Table, recent func(*xds.Type) []*xds.Table) {
	e := s.find(t)
	if e != nil && e.current.Load() == table {
		return
	}
	var before []*xds.Table
	if e == nil || e.current.Load() == nil {
		before = recent(t)
		before = before[:min(len(before), maxChain)]
	}
	others := s.book.elsewhere(s.key.group, t.URL)
	defer s.book.change()
	s.mu.Lock()
	defer s.mu.Unlock()
	e = s.of(t)
	e.elsewhere = others
	first := e.current.Load() == nil
	if first {
		for _, old := range slices.Backward(before) {
			s.replace(e, now, old)
			e.resume()
		}
	}
	s.replace(e, now, table)
	if first {
		e.resume()
		e.restored = savedType{}
		for name := range e.replaced { // a return to an earlier version while the server was down
			if r := table.Lookup(name); r != nil {
				s.returned(e, r.Stamp)
			}
		}
	}
}

// of returns the evidence of a type, and creates it. The scope is locked.
func (s *Scope) of(t *xds.Type) *evidence {
	e := s.find(t)
	if e == nil {
		e = &evidence{typ: t, replaced: map[string][]version{}, named: map[string]acceptance{}, messages: map[message]bool{}}
		s.types.Store(t.URL, e)
	}
	return e
}

// replace makes a table the current one. An evicted scope forgets the replaced versions. The scope is locked.
func (s *Scope) replace(e *evidence, now time.Time, table *xds.Table) {
	size := e.size()
	was := e.current.Swap(table)
	if s.evicted {
		return
	}
	s.book.names.Add(int64(table.Len() - size))
	if was == nil || was == table {
		return
	}
	others := e.acceptedElsewhere(was)
	for old, is := range table.Versions().Since(was.Versions()) {
		back := is != nil && s.returned(e, is)
		if old == nil {
			continue
		}
		by := e.acceptedBy(old.Name, old.Sum) | others(old)
		delete(e.named, old.Name)
		if r := was.Lookup(old.Name); r != nil && !back {
			s.push(e, version{Resource: r, until: now, by: by, removed: is == nil})
		}
	}
	if e.count > maxReplaced || s.book.bytes.Load() > maxBytes {
		s.trim(e, now)
	}
}

// acceptedElsewhere returns a function that returns the kinds of clients that accepted a version in a table
// on other servers.
func (e *evidence) acceptedElsewhere(was *xds.Table) func(*xds.Stamp) agentSet {
	type world struct {
		by     agentSet
		except []string // sorted
	}
	var worlds []world
	sum := was.Versions().Sum().String()
	for _, t := range e.elsewhere {
		for _, w := range t.Worlds {
			if w.Sum == sum && w.Agent >= 0 && w.Agent < len(t.Agents) {
				worlds = append(worlds, world{1 << e.agent(t.Agents[w.Agent]), w.Except})
			}
		}
	}
	return func(st *xds.Stamp) (by agentSet) {
		for _, w := range worlds {
			if _, lacks := slices.BinarySearch(w.except, st.Name); !lacks {
				by |= w.by
			}
		}
		for _, t := range e.elsewhere {
			at, ok := slices.BinarySearchFunc(t.Named, st.Name, func(n savedName, name string) int { return strings.Compare(n.Name, name) })
			if !ok || t.Named[at].Sum != st.Sum.String() {
				continue
			}
			for i, agent := range t.Agents[:min(len(t.Agents), maxAgents)] {
				if t.Named[at].By&(1<<i) != 0 {
					by |= 1 << e.agent(agent)
				}
			}
		}
		return by
	}
}

// elsewhere returns what clients of a group accepted of a type on other servers.
func (b *Book) elsewhere(group, url string) (all []savedType) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.foreign[group] {
		if e, ok := s.types.Load(url); ok {
			all = append(all, e.(*evidence).restored) // foreign evidence does not change
		}
	}
	return all
}

// returned forgets the versions that must not be served before a new version of a name: if the new version
// was served before, the versions after it were rolled back. If the name was removed, its versions were
// removed, too. It reports whether the new version was served before.
func (s *Scope) returned(e *evidence, is *xds.Stamp) (back bool) {
	vs := e.replaced[is.Name]
	if len(vs) == 0 {
		return false
	}
	drop := slices.IndexFunc(vs, func(v version) bool { return v.Sum == is.Sum }) + 1
	back = drop > 0
	if vs[0].removed {
		drop = len(vs)
	}
	for _, v := range vs[:drop] {
		s.forget(e, v)
	}
	e.keep(is.Name, slices.Clone(vs[drop:]))
	return back
}

func (e *evidence) keep(name string, vs []version) {
	if len(vs) == 0 {
		delete(e.replaced, name)
	} else {
		e.replaced[name] = vs
	}
}

// push adds the newest replaced version of a name.
func (s *Scope) push(e *evidence, v version) {
	vs := slices.Insert(e.replaced[v.Name], 0, v)
	e.count++
	s.book.bytes.Add(int64(len(v.Body)))
	if len(vs) > maxVersions {
		at := len(vs) - 1 // the oldest version without an ACK, else the oldest
		for i := at; i > 0; i-- {
			if vs[i].by == 0 {
				at = i
				break
			}
		}
		s.forget(e, vs[at])
		vs = slices.Delete(vs, at, at+1)
	}
	e.replaced[v.Name] = vs
}

func (s *Scope) forget(e *evidence, v version) {
	e.count--
	s.book.bytes.Add(-int64(len(v.Body)))
}

// trim drops about the older half of the replaced versions, and those that are too old.
func (s *Scope) trim(e *evidence, now time.Time) {
	times := make([]time.Time, 0, e.count)
	for _, vs := range e.replaced {
		for _, v := range vs {
			times = append(times, v.until)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	from := now.Add(-MaxAge)
	if len(times) > 0 && times[len(times)/2].After(from) {
		from = times[len(times)/2]
	}
	for name, vs := range e.replaced {
		var left []version
		for _, v := range vs {
			if v.until.Before(from) {
				s.forget(e, v)
			} else {
				left = append(left, v)
			}
		}
		e.keep(name, left)
	}
	for name, vs := range e.replaced { // one commit replaced too many
		if e.count <= maxReplaced && s.book.bytes.Load() <= maxBytes {
			return
		}
		for _, v := range vs {
			s.forget(e, v)
		}
		delete(e.replaced, name)
	}
}

// acceptedBy returns the kinds of clients that accepted a current version.
func (e *evidence) acceptedBy(name string, sum xds.Sum) (by agentSet) {
	if a, ok := e.named[name]; ok && a.sum == sum {
		by = a.by
	}
	for i := range e.agents {
		for _, w := range e.worlds[i] {
			if is := w.Get(name); is != nil && is.Sum == sum {
				by |= 1 << i
			}
		}
	}
	return by
}

// agent returns the index of a kind of client.
func (e *evidence) agent(name string) int {
	i := slices.Index(e.agents, name)
	switch {
	case i >= 0:
		return i
	case len(e.agents) == maxAgents:
		return maxAgents - 1
	}
	e.agents = append(e.agents, name)
	return len(e.agents) - 1
}

// Accept records an ACK of a client.
func (s *Scope) Accept(t *xds.Type, agent string, answered string, a protocol.Acceptance) {
	if a.All == nil && a.Len() == 0 {
		return
	}
	if s.accept(t, agent, answered, a) {
		s.book.change()
	}
}

// accept reports whether the ACK is new evidence.
func (s *Scope) accept(t *xds.Type, agent string, answered string, a protocol.Acceptance) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.of(t)
	i := e.agent(agent)
	news = a.All != nil && e.acceptAll(i, a.All)
	return a.Len() > 0 && e.acceptNamed(i, answered, a) || news
}

// acceptAll records that a client has accepted all resources of a table.
func (e *evidence) acceptAll(agent int, world *xds.Versions) (news bool) {
	worlds := e.worlds[agent]
	if slices.ContainsFunc(worlds, func(w *xds.Versions) bool { return w == world || w.Sum() == world.Sum() }) {
		return false
	}
	current := e.current.Load()
	if len(worlds) == maxWorlds {
		oldest := 0
		if current != nil && worlds[0].Sum() == current.Versions().Sum() {
			oldest = 1
		}
		worlds = slices.Delete(worlds, oldest, oldest+1)
	}
	e.worlds[agent] = append(worlds, world)
	if current == nil || current.Versions() == world || e.count == 0 {
		return true
	}
	for _, is := range world.Since(current.Versions()) { // a late ACK
		if is != nil {
			e.late(agent, is)
		}
	}
	return true
}

// late records the ACK of a replaced version.
func (e *evidence) late(agent int, st *xds.Stamp) {
	vs := e.replaced[st.Name]
	for i := range vs {
		if vs[i].Sum == st.Sum {
			vs[i].by |= 1 << agent
			return
		}
	}
}

// acceptNamed records the ACK of a message with names.
func (e *evidence) acceptNamed(agent int, answered string, a protocol.Acceptance) (news bool) {
	k := message{agent: agent, version: answered, n: a.Len()}
	k.first, k.last = a.Ends()
	if e.messages[k] {
		return false
	}
	if len(e.messages) >= maxMessages {
		clear(e.messages)
	}
	e.messages[k] = true
	current := e.current.Load()
	if current == nil {
		return false
	}
	for st := range a.Each {
		r := current.Lookup(st.Name)
		if r == nil || r.Sum != st.Sum {
			e.late(agent, st)
			continue
		}
		was, ok := e.named[st.Name]
		switch {
		case ok && was.sum == st.Sum:
			was.by |= 1 << agent
		case !ok && len(e.named) >= maxNamed:
			continue
		default:
			was = acceptance{st.Sum, 1 << agent}
		}
		e.named[r.Name] = was
	}
	return true
}

// Accepted reports whether a client has accepted the version, and whether a client of the given kind has.
func (s *Scope) Accepted(t *xds.Type, name string, sum xds.Sum, agent string) (any, same bool) {
	for _, o := range append([]*Scope{s}, s.book.others(s)...) {
		is, alike := o.accepted(t, name, sum, agent)
		any, same = any || is, same || alike
	}
	return any, same
}

func (s *Scope) accepted(t *xds.Type, name string, sum xds.Sum, agent string) (any, same bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(t)
	if e == nil {
		return false, false
	}
	by := e.acceptedBy(name, sum)
	return by != 0, by.has(e, agent)
}

func (b agentSet) has(e *evidence, agent string) bool {
	i := slices.Index(e.agents, agent)
	return i >= 0 && b&(1<<i) != 0
}

// Before returns versions of a name that were served before the current one and that clients accepted: the
// versions that clients of the same kind accepted come first, then the newest. Of a secret it returns only
// the direct predecessor. The name is one that the client sees.
func (s *Scope) Before(now time.Time, t *xds.Type, name, agent string) (all []*xds.Resource) {
	same, other := s.before(now, t, name, agent)
	if len(same)+len(other) == 0 { // a client with another identity sees the same versions of the name
		for _, o := range s.book.others(s) {
			same, other = o.before(now, t, name, agent)
			if len(same)+len(other) > 0 {
				break
			}
		}
	}
	all = append(same, other...)
	return all[:min(len(all), MaxBack)]
}

func (s *Scope) before(now time.Time, t *xds.Type, name, agent string) (same, other []*xds.Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(t)
	if e == nil {
		return nil, nil
	}
	vs := e.replaced[name]
	if secret(t) {
		vs = vs[:min(len(vs), 1)]
	}
	for _, v := range vs {
		switch {
		case v.removed || v.by == 0 || now.Sub(v.until) > MaxAge:
		case v.by.has(e, agent):
			same = append(same, v.Resource)
		default:
			other = append(other, v.Resource)
		}
	}
	return same, other
}

// Removed returns the last version of a removed resource, to which an earlier version of another resource
// may refer; nil: unknown. Removed secrets may be revoked, and the addresses of removed endpoints may now
// belong to others: it returns neither.
func (s *Scope) Removed(now time.Time, t *xds.Type, name string) *xds.Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(t)
	if e == nil || secret(t) || t.Is(xds.Endpoint) || t.Is(xds.Endpoint.Legacy()) {
		return nil
	}
	vs := e.replaced[name]
	if len(vs) == 0 || !vs[0].removed || now.Sub(vs[0].until) > MaxAge {
		return nil
	}
	return vs[0].Resource
}

func secret(t *xds.Type) bool { return t.Is(xds.Secret) || t.Is(xds.Secret.Legacy()) }
