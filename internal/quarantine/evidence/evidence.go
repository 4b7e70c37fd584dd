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
	"cmp"
	"hash/fnv"
	"math/bits"
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
	maxAgents   = 16       // kinds of clients of a type in a scope, with the kind others
	maxWorlds   = 4        // accepted tables of a kind of client
	maxMessages = 1024     // messages with names that are known
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

	agents   []string              // see others
	owners   [maxAgents]ownerSet   // owners of the clients of a kind
	worlds   [maxAgents][]world    // tables that clients of a kind accepted as a whole, the newest last
	named    map[string]acceptance // accepted by name: current versions only
	messages map[message]bool
	restored savedType // of an earlier run, until the first table

	elsewhere []savedType // what clients of other servers accepted
}

// A version is a replaced version of a resource.
type version struct {
	*xds.Resource
	support
	until   time.Time // when it was replaced
	removed bool      // the name was removed
}

// An acceptance is the version of a name that clients accepted.
type acceptance struct {
	sum xds.Sum
	support
}

// A world is a table that clients of a kind accepted as a whole.
type world struct {
	*xds.Versions
	owners ownerSet
}

// A support is the kinds and the owners of the clients that accepted a version.
type support struct {
	by     agentSet
	owners ownerSet
}

func (s *support) add(o support) { s.by, s.owners = s.by|o.by, s.owners|o.owners }

// others is the kind of all clients whose kind has no index of its own. No client has the same kind.
const others = ""

// An agentSet has bit i for evidence.agents[i].
type agentSet uint16

// An ownerSet has one bit for each owner of clients. The bit is a hash: two owners may have the same bit.
// The hash is equal on all servers.
type ownerSet uint64

func ownersOf(owner string) ownerSet {
	h := fnv.New64a()
	h.Write([]byte(owner))
	sum := h.Sum64()
	return 1 << ((sum ^ sum>>32) % 64)
}

func (o ownerSet) count() int { return bits.OnesCount64(uint64(o)) }

// A message identifies the ACK of a message with names. Equal messages are counted once. Different messages
// may have equal keys: then some evidence is missing.
type message struct {
	agent       int
	owner       ownerSet
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
	elsewhere := s.book.elsewhere(s.key.group, t.URL)
	defer s.book.change()
	s.mu.Lock()
	defer s.mu.Unlock()
	e = s.of(t)
	e.elsewhere = elsewhere
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
	elsewhere := e.acceptedElsewhere(was)
	for old, is := range table.Versions().Since(was.Versions()) {
		back := is != nil && s.returned(e, is)
		if old == nil {
			continue
		}
		by := e.acceptedBy(old.Name, old.Sum)
		by.add(elsewhere(old))
		delete(e.named, old.Name)
		if r := was.Lookup(old.Name); r != nil && !back {
			s.push(e, version{Resource: r, until: now, support: by, removed: is == nil})
		}
	}
	if e.count > maxReplaced || s.book.bytes.Load() > maxBytes {
		s.trim(e, now)
	}
}

// acceptedElsewhere returns a function that returns the clients that accepted a version in a table on other
// servers.
func (e *evidence) acceptedElsewhere(was *xds.Table) func(*xds.Stamp) support {
	type world struct {
		support
		except []string // sorted
	}
	var worlds []world
	sum := was.Versions().Sum().String()
	for _, t := range e.elsewhere {
		for _, w := range t.Worlds {
			if w.Sum == sum && w.Agent >= 0 && w.Agent < len(t.Agents) {
				worlds = append(worlds, world{support{1 << e.agent(t.Agents[w.Agent], t.ownersOf(w.Agent)), w.Owners}, w.Except})
			}
		}
	}
	return func(st *xds.Stamp) (by support) {
		for _, w := range worlds {
			if _, lacks := slices.BinarySearch(w.except, st.Name); !lacks {
				by.add(w.support)
			}
		}
		for _, t := range e.elsewhere {
			at, ok := slices.BinarySearchFunc(t.Named, st.Name, func(n savedName, name string) int { return strings.Compare(n.Name, name) })
			if !ok || t.Named[at].Sum != st.Sum.String() {
				continue
			}
			for i, agent := range t.Agents[:min(len(t.Agents), maxAgents)] {
				if t.Named[at].By&(1<<i) != 0 {
					by.add(support{1 << e.agent(agent, t.ownersOf(i)), t.Named[at].Owners})
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
		turn := inTurn(slices.Clone(vs)) // the oldest version without an ACK, else the last in turn
		at := slices.IndexFunc(vs, func(v version) bool { return v.Sum == turn[maxVersions].Sum })
		for i := maxVersions; i > 0; i-- {
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

// acceptedBy returns the clients that accepted a current version.
func (e *evidence) acceptedBy(name string, sum xds.Sum) (by support) {
	if a, ok := e.named[name]; ok && a.sum == sum {
		by = a.support
	}
	for i := range e.agents {
		for _, w := range e.worlds[i] {
			if is := w.Get(name); is != nil && is.Sum == sum {
				by.add(support{1 << i, w.owners})
			}
		}
	}
	return by
}

// agent returns the index of a kind of client, and adds the owners of the client to the kind. If all indexes
// are in use, a new kind takes the index of an owner that alone has several more kinds than the new owner.
// Otherwise it shares the index of others. So the kinds that one owner makes up displace each other only.
func (e *evidence) agent(name string, owners ownerSet) int {
	i := slices.Index(e.agents, name)
	switch {
	case name == others:
		return e.shared()
	case i >= 0:
	case len(e.agents) < maxAgents-1, len(e.agents) < maxAgents && slices.Contains(e.agents, others):
		e.agents = append(e.agents, name)
		i = len(e.agents) - 1
	default:
		shared := e.shared()
		i = e.crowd()
		if e.kinds(e.owners[i]) < e.kinds(owners)+2 {
			return shared
		}
		e.move(i, shared)
		e.agents[i] = name
	}
	e.owners[i] |= owners
	return i
}

// shared returns the index of others.
func (e *evidence) shared() int {
	i := slices.Index(e.agents, others)
	if i >= 0 {
		return i
	}
	if len(e.agents) == maxAgents { // in the bytes of an earlier release several kinds share the last index
		e.agents[maxAgents-1], e.owners[maxAgents-1] = others, 0
		return maxAgents - 1
	}
	e.agents = append(e.agents, others)
	return len(e.agents) - 1
}

// crowd returns a kind of the owner that alone has the most kinds.
func (e *evidence) crowd() (most int) {
	for i := range e.agents {
		if e.kinds(e.owners[i]) > e.kinds(e.owners[most]) {
			most = i
		}
	}
	return most
}

// kinds returns the number of kinds that only one owner has. For several owners it is 0.
func (e *evidence) kinds(owners ownerSet) (n int) {
	for i, agent := range e.agents {
		if agent != others && owners.count() == 1 && e.owners[i] == owners {
			n++
		}
	}
	return n
}

// move turns the ACKs of a kind into ACKs of another one.
func (e *evidence) move(from, to int) {
	turn := func(by *agentSet) {
		if *by&(1<<from) != 0 {
			*by = *by&^(1<<from) | 1<<to
		}
	}
	for _, vs := range e.replaced {
		for i := range vs {
			turn(&vs[i].by)
		}
	}
	for name, a := range e.named {
		turn(&a.by)
		e.named[name] = a
	}
	for i := range e.restored.Named {
		turn(&e.restored.Named[i].By)
	}
	for i := range e.restored.Worlds {
		if e.restored.Worlds[i].Agent == from {
			e.restored.Worlds[i].Agent = to
		}
	}
	for _, w := range e.worlds[from] {
		e.keepWorld(to, w)
	}
	e.worlds[from], e.owners[from] = nil, 0
	clear(e.messages)
}

// Accept records an ACK of a client. The owner of the client is its identity, else its address.
func (s *Scope) Accept(t *xds.Type, agent, owner string, answered string, a protocol.Acceptance) {
	if a.All == nil && a.Len() == 0 {
		return
	}
	if s.accept(t, agent, ownersOf(owner), answered, a) {
		s.book.change()
	}
}

// accept reports whether the ACK is new evidence.
func (s *Scope) accept(t *xds.Type, agent string, owner ownerSet, answered string, a protocol.Acceptance) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.of(t)
	i := e.agent(agent, owner)
	news = a.All != nil && e.acceptAll(i, world{a.All, owner})
	return a.Len() > 0 && e.acceptNamed(i, owner, answered, a) || news
}

// acceptAll records that a client has accepted all resources of a table.
func (e *evidence) acceptAll(agent int, w world) (news bool) {
	if !e.keepWorld(agent, w) {
		return false
	}
	current := e.current.Load()
	if current == nil || current.Versions() == w.Versions || e.count == 0 {
		return true
	}
	for _, is := range w.Since(current.Versions()) { // a late ACK
		if is != nil {
			e.late(is, support{1 << agent, w.owners})
		}
	}
	return true
}

// keepWorld adds a table that clients of a kind accepted. It reports whether the table or an owner is new.
func (e *evidence) keepWorld(agent int, w world) (news bool) {
	worlds := e.worlds[agent]
	for i, is := range worlds {
		if is.Versions == w.Versions || is.Sum() == w.Sum() {
			worlds[i].owners |= w.owners
			return worlds[i].owners != is.owners
		}
	}
	if len(worlds) == maxWorlds {
		at := e.leastWorld(worlds)
		worlds = slices.Delete(worlds, at, at+1)
	}
	e.worlds[agent] = append(worlds, w)
	return true
}

// leastWorld returns the oldest table that is not the current one and whose owners accepted other tables,
// too. If there is none, it returns the oldest that is not the current one.
func (e *evidence) leastWorld(worlds []world) int {
	current, oldest := e.current.Load(), -1
	for i, w := range worlds {
		if current != nil && w.Sum() == current.Versions().Sum() {
			continue
		}
		if oldest < 0 {
			oldest = i
		}
		var heard ownerSet
		for k, o := range worlds {
			if k != i {
				heard |= o.owners
			}
		}
		if w.owners&^heard == 0 {
			return i
		}
	}
	return oldest
}

// late records the ACK of a replaced version.
func (e *evidence) late(st *xds.Stamp, by support) {
	vs := e.replaced[st.Name]
	for i := range vs {
		if vs[i].Sum == st.Sum {
			vs[i].add(by)
			return
		}
	}
}

// acceptNamed records the ACK of a message with names.
func (e *evidence) acceptNamed(agent int, owner ownerSet, answered string, a protocol.Acceptance) (news bool) {
	k := message{agent: agent, owner: owner, version: answered, n: a.Len()}
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
	by := support{1 << agent, owner}
	for st := range a.Each {
		r := current.Lookup(st.Name)
		if r == nil || r.Sum != st.Sum {
			e.late(st, by)
			continue
		}
		was, ok := e.named[st.Name]
		switch {
		case ok && was.sum == st.Sum:
			was.add(by)
		case !ok && len(e.named) >= maxNamed:
			continue
		default:
			was = acceptance{st.Sum, by}
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
	by := e.acceptedBy(name, sum).by
	return by != 0, by.has(e, agent)
}

func (b agentSet) has(e *evidence, agent string) bool {
	i := slices.Index(e.agents, agent)
	return i >= 0 && b&(1<<i) != 0
}

// Before returns versions of a name that were served before the current one and that clients accepted: the
// versions that clients of the same kind accepted come first, then the others, each as in [inTurn]. Of a
// secret it returns only the direct predecessor. The name is one that the client sees.
func (s *Scope) Before(now time.Time, t *xds.Type, name, agent string) (all []*xds.Resource) {
	same, other := s.before(now, t, name, agent)
	if len(same)+len(other) == 0 { // a client with another identity sees the same versions of the name
		for _, o := range s.book.others(s) {
			is, not := o.before(now, t, name, agent)
			same, other = append(same, is...), append(other, not...)
		}
		same, other = join(same), join(other)
	}
	for _, v := range append(inTurn(same), inTurn(other)...) {
		if !slices.ContainsFunc(all, func(r *xds.Resource) bool { return r.Sum == v.Sum }) {
			all = append(all, v.Resource)
		}
	}
	most := MaxBack
	if secret(t) {
		most = 1
	}
	return all[:min(len(all), most)]
}

// join sorts versions of several scopes, the newest first. Equal versions become one.
func join(vs []version) (all []version) {
	slices.SortStableFunc(vs, func(a, b version) int {
		return cmp.Or(b.until.Compare(a.until), strings.Compare(a.Version, b.Version))
	})
	for _, v := range vs {
		at := slices.IndexFunc(all, func(o version) bool { return o.Sum == v.Sum })
		if at < 0 {
			all = append(all, v)
		} else {
			all[at].add(v.support)
		}
	}
	return all
}

// inTurn sorts versions, newest first. After the newest comes the version that the most owners accepted who
// accepted none of the versions before it. So an owner that accepts each version costs one try.
func inTurn(vs []version) (all []version) {
	var heard ownerSet
	for next := 0; len(vs) > 0; {
		v := vs[next]
		all, vs, heard = append(all, v), slices.Delete(vs, next, next+1), heard|v.owners
		next = 0
		for i, v := range vs {
			if (v.owners &^ heard).count() > (vs[next].owners &^ heard).count() {
				next = i
			}
		}
	}
	return all
}

func (s *Scope) before(now time.Time, t *xds.Type, name, agent string) (same, other []version) {
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
			same = append(same, v)
		default:
			other = append(other, v)
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
